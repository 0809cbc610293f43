"""The live feed: what all watched nodes send, merged into one tick an interval."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeStatus, Tick
from fabmon.feeds.log_digest import LogDigest
from fabmon.feeds.node_watch import ConnectLimiter, NodeWatch
from fabmon.feeds.probe_input import BurstCommand, ProbeCommand, ProbeSettings, TraceCommand
from fabmon.feeds.ticks import Clock, Inbox, RealClock, TickSchedule
from fabmon.feeds.transports.transport import Transport, Transports

_OFFSET_SHARE = 0.3
_LONGEST_OFFSET_S = 0.3
_GATHER_S = 0.05
_WARM_UP_S = 15.0
_CHECK_S = 0.5
_CLOSE_S = 3.0
_MAX_FILES = 1 << 20


class TransportOf(Protocol):
    """Finds a host's transport; closes them all."""

    def of(self, host: Host) -> Transport:
        """The transport that reaches a host."""

    async def close(self) -> None:
        """Close them all."""


class LiveFeed:
    """An async iterator of ticks, one every `interval_s`, for as long as it is not closed.

    The first tick comes at once with every node's state, the second with the first frames, the
    others 0.3 intervals (at most 0.3 s) after each multiple of the interval on the wall clock:
    nodes send at the multiples, so a node's frame falls in the tick of its own second. For the
    first 15 s of a longer interval, states are told every second.

    `sources` limits what the probes read, `ssh_config` replaces the user's ssh_config. `root`,
    `transports` and `clock` are for tests. Raises ValueError for a host's unknown `via`.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        *,
        interval_s: float = 1.0,
        ssh_config: str | None = None,
        sources: Sequence[str] | None = None,
        root: str = "/",
        lease_s: float = 60.0,
        transports: TransportOf | None = None,
        clock: Clock | None = None,
    ) -> None:
        names = tuple(sources) if sources is not None else None
        settings = ProbeSettings(interval_s=interval_s, lease_s=lease_s, sources=names, root=root)
        self._hosts = tuple(hosts)
        self._interval_s = interval_s
        self._lease_s = lease_s
        self._transports = transports or Transports(hosts, settings, ssh_config)
        self._clock = clock or RealClock()
        offset_s = min(_OFFSET_SHARE * interval_s, _LONGEST_OFFSET_S)
        self._timeline = TickSchedule(self._clock, interval_s, offset_s)
        self._news = LogDigest()
        self._inbox = Inbox(len(self._hosts))
        self._watches: list[NodeWatch] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = asyncio.Event()
        self._seq = 0
        self._asks = 0
        self._seen_frames = False
        self._warm_until = 0.0

    @property
    def statuses(self) -> tuple[NodeStatus, ...]:
        """Every node's state now, in the order of the hosts."""
        return tuple(watch.status for watch in self._watches)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Tick:
        if not self._closed.is_set():
            if not self._tasks:
                self._start()
            else:
                await self._wait()
        if self._closed.is_set():
            raise StopAsyncIteration
        tick = self._inbox.take(self._seq, self._timeline.now_ns())
        self._seq += 1
        return tick

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every session, all at once and within 3 s. Ticks end."""
        if self._closed.is_set():
            return
        self._closed.set()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_S)
        await self._transports.close()
        self._news.flush()

    def burst(self, node: str, ports: Sequence[str], seconds: float, hz: float) -> str:
        """Have a node sample some of its ports `hz` times a second, for so long.

        The samples come with the ticks. Returns why that cannot be, for a person; else nothing.
        """
        return self._ask(node, BurstCommand(self._next_ask(), tuple(ports), seconds, hz))

    def trace(
        self,
        node: str,
        src: str,
        dst: str,
        sports: Sequence[int],
        *,
        seconds: float,
        dev: str | None = None,
        tos: int = 0,
        max_hops: int = 16,
        probes: int = 1,
    ) -> str:
        """Have a node follow flows to `dst`, as `TraceAsk` says, for so long at most.

        The paths come with the ticks. Returns why that cannot be, for a person; else nothing.
        """
        ask = TraceCommand(
            id=self._next_ask(),
            src=src,
            dst=dst,
            sports=tuple(sports),
            dev=dev,
            tos=tos,
            max_hops=max_hops,
            probes=probes,
            seconds=seconds,
        )
        return self._ask(node, ask)

    def _next_ask(self) -> int:
        self._asks += 1
        return self._asks

    def _ask(self, node: str, ask: ProbeCommand) -> str:
        watch = next((watch for watch in self._watches if watch.host.name == node), None)
        if watch is None:
            return f"{node} is told of by another node, which {ask.cannot}"
        return watch.ask(ask)

    def _start(self) -> None:
        raise_file_limit()
        gate = ConnectLimiter()
        self._warm_until = self._clock.monotonic() + _WARM_UP_S
        for host in self._hosts:
            watch = NodeWatch(
                host,
                self._transports.of(host),
                self._inbox,
                gate,
                self._news,
                self._clock,
                self._timeline,
                interval_s=self._interval_s,
                lease_s=self._lease_s,
            )
            self._watches.append(watch)
            self._tasks.append(asyncio.create_task(watch.run(), name=f"watch {host.name}"))
        self._tasks.append(asyncio.create_task(self._keep(), name="keep"))

    async def _keep(self) -> None:
        """Leases and silence, whether or not anybody takes ticks."""
        while True:
            await self._clock.sleep(min(_CHECK_S, self._interval_s / 2))
            now = self._clock.monotonic()
            for watch in self._watches:
                watch.check(now)
            self._news.flush()

    async def _wait(self) -> None:
        """Return when the next tick is due, or the feed is closed."""
        if not self._seen_frames:
            early = await self._first_of(self._due_s(), self._inbox.arrived)
            if early and not self._closed.is_set():
                self._seen_frames = True
                await self._clock.sleep(_GATHER_S)
            return
        await self._first_of(self._due_s())

    def _due_s(self) -> float:
        due_s = self._timeline.until_next_s()
        if self._clock.monotonic() < self._warm_until:
            return min(due_s, 1.0)
        return due_s

    async def _first_of(self, timeout_s: float, event: asyncio.Event | None = None) -> bool:
        """Wait for `event`, for the feed's end or for the time; whether the event came first."""
        events = [self._closed] if event is None else [self._closed, event]
        waits = [asyncio.ensure_future(item.wait()) for item in events]
        timer = asyncio.ensure_future(self._clock.sleep(timeout_s))
        try:
            await asyncio.wait([*waits, timer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*waits, timer):
                task.cancel()
            await asyncio.gather(*waits, timer, return_exceptions=True)
        return event is not None and event.is_set()


def raise_file_limit() -> None:
    """Raise the soft `ulimit -n` to the hard one: each node takes one to three files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
