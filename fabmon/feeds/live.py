"""The live feed: the data of all watched nodes, merged into one tick an interval."""

from __future__ import annotations

import asyncio
import contextlib
import math
import resource
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeStatus, Tick
from fabmon.fabric.wording import plural
from fabmon.feeds.node_watch import ConnectLimiter, NodeWatch
from fabmon.feeds.probe_input import BurstCommand, ProbeCommand, ProbeSettings, TraceCommand
from fabmon.feeds.ticks import Clock, Inbox, TickFeed, wait_for_any
from fabmon.feeds.transports.transport import Transport, Transports
from fabmon.key_priority import KeyPriority

if TYPE_CHECKING:
    from fabmon.feeds.sflow.receiver import SflowReceiver


_OFFSET_SHARE = 0.3
_MAX_OFFSET_S = 0.3
_GATHER_S = 0.05
"""Seconds from the first frame to the tick with it: the frames of other nodes arrive together."""

_FIRST_NODES = 32
_FIRST_DRAWN_S = 0.3
"""The other nodes are connected to so long after the first tick with frames was taken, when the
screen has drawn it: to connect to a thousand takes seconds of CPU time."""
_FIRST_MOST_S = 1.5
"""And so long after the start at the latest."""

_WARM_UP_S = 15.0
_CHECK_S = 0.5
_SUSPENDED_S = 2.0
"""A check that is later than this: the console was suspended, or too busy to read."""

_RETRY_S = 10.0
_CLOSE_S = 3.0
_MAX_FILES = 1 << 20


class TransportOf(Protocol):
    """Finds the transport of a host, and closes them all."""

    def of(self, host: Host) -> Transport:
        """The transport that reaches a host."""

    async def close(self) -> None:
        """Close all transports."""


class LiveFeed(TickFeed):
    """An async iterator of ticks, one every `interval_s`, until it is closed.

    The first tick comes at once with the state of every node, the second with the first frames. The
    others come 0.3 intervals (at most 0.3 s) after each multiple of the interval on the wall clock:
    nodes send at the multiples, so that a frame is in the tick of its own second. If the interval
    is longer than 1 s, ticks with states come every second for the first 15 s.

    `sources` limits what the probes read, `ssh_config` replaces the user's ssh_config. `sflow` is
    where to receive sFlow, `[HOST]:PORT`; nodes with via=sflow need it at :6343 without. `root`,
    `transports` and `clock` are for tests. Raises ValueError for an unknown
    `via` or address, and OSError where it cannot be listened on.
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
        sflow: str | None = None,
        transports: TransportOf | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(clock, interval_s, min(_OFFSET_SHARE * interval_s, _MAX_OFFSET_S))
        names = tuple(sources) if sources is not None else None
        settings = ProbeSettings(interval_s=interval_s, lease_s=lease_s, sources=names, root=root)
        self._hosts = tuple(hosts)
        self._lease_s = lease_s
        self._receiver: SflowReceiver | None = None
        if sflow is not None or any(host.via == "sflow" for host in hosts):
            from fabmon.feeds.sflow.receiver import DEFAULT_PORT, SflowReceiver

            self._receiver = SflowReceiver(sflow or f":{DEFAULT_PORT}", hosts, clock)
        try:
            self._transports = transports or Transports(hosts, settings, ssh_config, self._receiver)
        except Exception:
            if self._receiver is not None:
                self._receiver.close()
            raise
        self.key_priority = KeyPriority()
        self._inbox = Inbox(len(self._hosts), self.key_priority)
        self._watches: dict[str, NodeWatch] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._limiter = ConnectLimiter()
        self._last_command_id = 0
        self._retried_s = -math.inf
        self._seen_frames = False
        self._is_iterated = False
        self._usual_cost_s = 0.0
        self._warm_until_s = 0.0

    @property
    def statuses(self) -> tuple[NodeStatus, ...]:
        """The state of every node now, in the order of the hosts."""
        return tuple(watch.status for watch in self._watches.values())

    async def __anext__(self) -> Tick:
        if not self._closed.is_set():
            if self._is_iterated:
                await self._wait()
            else:
                self.start()
                self._is_iterated = True
        await self.key_priority.wait()
        if self._closed.is_set():
            raise StopAsyncIteration
        tick = self._inbox.take(self._seq, self._schedule.now_ns())
        # Whoever asked for the tick has processed it before the loop goes on.
        asyncio.get_running_loop().call_soon(self._charge, tick, self._clock.cpu_s())
        jumped_ns = self._schedule.take_jumped_ns()
        if jumped_ns:
            tick = msgspec.structs.replace(tick, clock_jumped_ns=jumped_ns)
        if self._receiver is not None:
            tick = msgspec.structs.replace(tick, sampled=self._receiver.take())
        self._seq += 1
        return tick

    def _charge(self, tick: Tick, began_s: float) -> None:
        """Charge what a tick cost, beyond one without hellos, to the nodes of its hellos."""
        cost_s = self._clock.cpu_s() - began_s
        if not tick.hellos:
            self._usual_cost_s = cost_s
            return
        watches = [self._watches[node] for node, _ in tick.hellos if node in self._watches]
        size = sum(watch.hello_bytes for watch in watches)
        for watch in watches if size else ():
            share = watch.hello_bytes / size
            watch.charge(max(0.0, cost_s - self._usual_cost_s) * share)

    def start(self, is_screen: bool = False) -> None:
        """Begin to connect, before the first tick is asked for.

        With `is_screen` the first 32 nodes are connected to and drawn before the others.
        """
        if not self._tasks and not self._closed.is_set():
            self._limiter = ConnectLimiter(held=_FIRST_NODES if is_screen else 0)
            asyncio.get_running_loop().call_later(_FIRST_MOST_S, self._limiter.release)
            self._start()

    def age_s(self, time_ns: int) -> float:
        """The age of the tick of a time."""
        return (self._schedule.now_ns() - time_ns) / 1e9

    async def aclose(self) -> None:
        """Close every session, all at once and within 3 s. The iterator ends."""
        if self._closed.is_set():
            return
        self._closed.set()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_S)
        await self._transports.close()
        if self._receiver is not None:
            self._receiver.close()
        self._log_digest.flush()

    def retry(self) -> str:
        """Connect now to all nodes that are lost or failed, instead of after their delays.

        Returns what is done. It is nothing within 10 s of the last time, because attempts in quick
        succession get an address banned.
        """
        now_s = self._clock.monotonic()
        wait_s = self._retried_s + _RETRY_S - now_s
        if wait_s > 0:
            return f"tried {_RETRY_S - wait_s:.0f} s ago: again in {math.ceil(wait_s)} s"
        count = sum([watch.retry() for watch in self._watches.values()])
        if not count:
            return "no node is lost or failed"
        self._retried_s = now_s
        return f"connecting to {plural(count, 'node')}"

    def burst(self, node: str, ports: Sequence[str], seconds: float, hz: float) -> str:
        """Let a node sample some of its ports `hz` times a second, for that many seconds.

        The samples come with the ticks. Returns why it is not possible, or an empty string.
        """
        command = BurstCommand(id=self._next_id(), ports=tuple(ports), seconds=seconds, hz=hz)
        return self._send(node, command)

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
        """Let a node trace paths to `dst`, see `TraceCommand`, for that many seconds at most.

        The paths come with the ticks. Returns why it is not possible, or an empty string.
        """
        command = TraceCommand(
            id=self._next_id(),
            src=src,
            dst=dst,
            sports=tuple(sports),
            dev=dev,
            tos=tos,
            max_hops=max_hops,
            probes=probes,
            seconds=seconds,
        )
        return self._send(node, command)

    def _next_id(self) -> int:
        self._last_command_id += 1
        return self._last_command_id

    def _send(self, node: str, command: ProbeCommand) -> str:
        watch = self._watches.get(node)
        if watch is None:
            return f"{node} is reported by another node, which {command.unsupported}"
        return watch.send(command)

    def _start(self) -> None:
        raise_file_limit()
        self._warm_until_s = self._clock.monotonic() + _WARM_UP_S
        for host in self._hosts:
            watch = NodeWatch(
                host,
                self._transports.of(host),
                self._inbox,
                self._limiter,
                self._log_digest,
                self._clock,
                self._schedule,
                interval_s=self.interval_s,
                lease_s=self._lease_s,
            )
            self._watches[host.name] = watch
            self._tasks.append(asyncio.create_task(watch.run(), name=f"watch {host.name}"))
        self._tasks.append(asyncio.create_task(self._check_nodes(), name="check nodes"))
        if self._receiver is not None:
            self._tasks.append(asyncio.create_task(self._receiver.run(), name="sFlow"))

    async def _check_nodes(self) -> None:
        """Renew leases and notice silent nodes, whether or not ticks are taken."""
        while True:
            pause_s = min(_CHECK_S, self.interval_s / 2)
            due_s = self._clock.monotonic() + pause_s
            await self._clock.sleep(pause_s)
            now_s = self._clock.monotonic()
            for watch in self._watches.values():
                if now_s - due_s > _SUSPENDED_S:
                    # What the nodes sent meanwhile still waits in the pipes.
                    watch.resume(now_s)
                watch.check(now_s)
            self._log_digest.flush(wait_for_more=True)

    async def _wait(self) -> None:
        """Return when the next tick is due, or the feed is closed."""
        due_s = self._schedule.until_next_s()
        if self._clock.monotonic() < self._warm_until_s:
            due_s = min(due_s, 1.0)
        if self._seen_frames:
            await wait_for_any(self._clock, due_s, self._closed)
            return
        await wait_for_any(self._clock, due_s, self._closed, self._inbox.arrived)
        if self._inbox.arrived.is_set() and not self._closed.is_set():
            self._seen_frames = True
            await self._clock.sleep(_GATHER_S)
            asyncio.get_running_loop().call_later(_FIRST_DRAWN_S, self._limiter.release)


def raise_file_limit() -> None:
    """Raise the soft `ulimit -n` to the hard one: each node takes one to three open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
