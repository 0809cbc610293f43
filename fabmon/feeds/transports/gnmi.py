"""Switches that stream telemetry by gNMI: OpenConfig interfaces, queues and LLDP.

Counters are subscribed with `sample`, states and neighbours with `on_change`, or with `sample`
where a device refuses that. Each kind has a stream of its own, so that a path that a device lacks
loses its own source only. A stream that ends is subscribed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any, NamedTuple, TypeVar

from fabmon.fabric.model import Host
from fabmon.fabric.wording import needed_extra
from fabmon.feeds.access import read_secret
from fabmon.feeds.errors import BadSecret, LoginRefused, Misbehaved, NodeError, Unreachable
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.token_bucket import CpuBudgets, TokenBucket, over_budget
from fabmon.feeds.transports import openconfig
from fabmon.feeds.transports.gnmi_client import (
    GnmiClient,
    load_extra,
    open_channel,
    path_elements,
    peers_of,
    subscribe_response,
    typed_value,
    usual_encoding,
)
from fabmon.feeds.transports.openconfig import COUNTERS, NEIGHBOURS, QUEUES, STATE, GnmiValues
from fabmon.feeds.transports.polled import NodeReading, PolledSession, SourceFailure, poll_duration
from fabmon.feeds.transports.received_bytes import Connections, ReceivedBytes
from fabmon.feeds.transports.transport import ProbeSession

_T = TypeVar("_T")

_INSTALL = needed_extra("gnmi")
_FIRST_S = 20.0
_LASTED_S = 60.0
"""A subscription that ended after this long worked: it is repeated without a growing pause."""
_PAUSE_S = 5.0
_MOST_PAUSE_S = 300.0
_MOST_BYTES_A_SECOND = 8 << 20
_BURST_BYTES = 8 * _MOST_BYTES_A_SECOND
"""What it may send at once, packets of HTTP/2 and TLS included: the first samples of all ports."""
_LOOK_S = 0.5
_MOST_LEAVES_A_SECOND = 50_000
_UNKNOWN = 0.5
"""What a leaf that is not known counts: it takes 3 us, one that is known about twice that."""
_CPU_SHARE = 0.3
"""Seconds of CPU time a second, over all sessions: what the most values take, at 6 us each."""


class _Stream(NamedTuple):
    """One subscription: its source, the paths, and the sample interval (None: on change).

    `fallback_s` is the sample interval where the device refuses the first. Most read their
    hardware every 1 to 5 s.
    """

    source: str
    paths: tuple[str, ...]
    sample_s: float | None
    fallback_s: float


_STREAMS = (
    _Stream(
        COUNTERS,
        (
            "interfaces/interface/state/counters",
            "interfaces/interface/ethernet/state/counters",
        ),
        5.0,
        30.0,
    ),
    _Stream(
        STATE,
        (
            "interfaces/interface/state/oper-status",
            "interfaces/interface/state/ifindex",
            "interfaces/interface/state/type",
            "interfaces/interface/state/mtu",
            "interfaces/interface/ethernet/state/port-speed",
        ),
        None,
        10.0,
    ),
    _Stream(QUEUES, ("qos/interfaces/interface/output/queues/queue/state",), 10.0, 30.0),
    _Stream(NEIGHBOURS, ("lldp/interfaces/interface/neighbors/neighbor/state",), None, 30.0),
)


class GnmiTransport:
    """Streams from devices over gRPC, with the user and password in each one's secret file."""

    def __init__(self, settings: ProbeSettings) -> None:
        self._interval_s = settings.interval_s
        self._budgets = CpuBudgets(_CPU_SHARE)
        self._sent: dict[str, TokenBucket] = {}
        self._received: dict[str, ReceivedBytes] = {}
        self._connections = Connections()

    async def open(self, host: Host) -> ProbeSession:
        """A session with a device. Raises BadSecret, BadTrust, Unreachable without the extra, and
        Misbehaved where the last session used up the CPU time of the device."""
        cpu = self._budgets.of(host.name)
        try:
            await asyncio.to_thread(load_extra)
        except ImportError:
            raise Unreachable(f"via=gnmi needs grpcio and pygnmi: {_INSTALL}", "gnmi") from None
        metadata: list[tuple[str, str]] = []
        if host.secret is not None:
            hint = "secret= is a file with user:password"
            secret = await asyncio.to_thread(read_secret, host.secret, hint)
            user, colon, password = secret.partition(":")
            if not colon:
                raise BadSecret(f"{host.secret}: it must hold user:password, on one line")
            metadata = [("username", user), ("password", password)]
        if metadata and host.tls == "no":
            raise BadSecret("via=gnmi sends no password without TLS: leave secret= or tls=no out")
        sent = self._sent.setdefault(
            host.name, TokenBucket(_BURST_BYTES, _MOST_BYTES_A_SECOND, time.monotonic())
        )
        if sent.wait_s(0.0, time.monotonic()):
            raise _flood()
        received = self._received.setdefault(host.name, ReceivedBytes(self._connections))
        received.peers = await peers_of(host) or received.peers
        client = GnmiClient(await open_channel(host), metadata)
        poller = GnmiPoller(client, self._interval_s, cpu, (received, sent))
        return PolledSession(poller, host.name, self._interval_s)

    async def close(self) -> None:
        """Do nothing: each session closes its own connection."""


class GnmiPoller:
    """Keeps the streams of one device running; each poll passes on what has arrived since.

    `cpu` is what its replies may cost, `sent` what counts all that it sends, and how much that may
    be; None for no limit.
    """

    def __init__(
        self,
        client: GnmiClient,
        interval_s: float,
        cpu: TokenBucket,
        sent: tuple[ReceivedBytes, TokenBucket] | None = None,
    ) -> None:
        self._client = client
        self._cpu = cpu
        self._sent = sent
        self._interval_s = interval_s
        self._values = GnmiValues(interval_s)
        self._failures: dict[str, SourceFailure] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._arrived = asyncio.Event()
        self._has_waited = False
        self._second_s = 0.0
        self._leaves, self._bytes = 0.0, 0

    async def poll(self) -> NodeReading:
        """What has arrived. Raises NodeError where the counters' stream ended or never began, and
        for a flood."""
        if self._tasks:
            self._check_flood()
        else:
            capabilities = await self._watched(self._client.capabilities())
            encoding = self._metered(usual_encoding, capabilities)
            for stream in _STREAMS:
                self._tasks[stream.source] = asyncio.create_task(
                    self._keep(stream, encoding), name=f"gNMI {stream.source}"
                )
        if not self._has_waited and not self._values.has_counters:
            # Once: a device without counters answers each poll, else it would look silent.
            self._has_waited = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_S):
                    await self._watched(self._first())
        task = self._tasks[COUNTERS]
        if task.done():
            task.result()
        blocks = self._values.blocks()
        failures = dict(self._failures)
        if COUNTERS not in failures and not any(block.source == COUNTERS for block in blocks):
            text = "no counters of interfaces yet: /interfaces/interface/state/counters"
            failures[COUNTERS] = SourceFailure("absent", text)
        return NodeReading([*blocks, poll_duration(0)], {}, failures)

    async def close(self) -> None:
        """End the streams and the connection."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._client.close()
        if self._sent is not None:
            # gRPC reads on until its calls are garbage and collected: a flood would go on.
            self._sent[0].shut_down()

    async def _watched(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of what waits for the device. Raises Misbehaved for a flood."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=_LOOK_S))[0]:
                self._check_flood()
            return task.result()
        finally:
            task.cancel()

    def _check_flood(self) -> None:
        """Raise Misbehaved where the device sends too much, frames without content included."""
        if self._sent is not None:
            received, limit = self._sent
            if not limit.take(received.more(), time.monotonic()):
                raise _flood()

    async def _first(self) -> None:
        """Wait until the first counters have come, or their stream has ended."""
        arrived = asyncio.ensure_future(self._arrived.wait())
        try:
            done = [arrived, self._tasks[COUNTERS]]
            await asyncio.wait(done, return_when=asyncio.FIRST_COMPLETED)
        finally:
            arrived.cancel()

    async def _keep(self, stream: _Stream, encoding: str) -> None:
        """Subscribe again whenever the subscription ends.

        Raises NodeError where that of the counters ends soon: then the session begins anew.
        """
        pause_s = _PAUSE_S
        while True:
            began_s = time.monotonic()
            failure = await self._run(stream, stream.sample_s, encoding)
            if failure.cause in _REFUSALS and time.monotonic() - began_s < _FIRST_S:
                began_s = time.monotonic()
                failure = await self._run(stream, stream.fallback_s, encoding)
            has_lasted = time.monotonic() - began_s >= _LASTED_S
            if stream.source == COUNTERS and not has_lasted:
                raise failure
            self._failures[stream.source] = SourceFailure(_reason(failure), str(failure))
            self._values.forget(stream.source)
            pause_s = _PAUSE_S if has_lasted else pause_s
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)

    async def _run(self, stream: _Stream, sample_s: float | None, encoding: str) -> NodeError:
        """Read a subscription until it ends; why it did."""
        if sample_s is not None:
            sample_s = max(sample_s, self._interval_s)
        self._values.sample_s[stream.source] = sample_s
        try:
            async with aclosing(
                self._client.subscribe(stream.paths, sample_s, encoding)
            ) as replies:
                async for reply in replies:
                    if self._metered(self._take, reply):
                        self._failures.pop(stream.source, None)
        except NodeError as error:
            return error
        return Unreachable("the device ended the subscription", "gnmi")

    def _metered(self, function: Callable[[bytes], _T], reply: bytes) -> _T:
        """Decode a reply, at the device's cost. Raises Misbehaved where it costs too much."""
        began_s = time.thread_time()
        try:
            result = function(reply)
        finally:
            is_within = self._cpu.take(time.thread_time() - began_s, time.monotonic())
        if not is_within:
            raise over_budget(self._cpu)
        return result

    def _take(self, reply: bytes) -> bool:
        """Take a SubscribeResponse; whether it had values. Raises Misbehaved for a flood."""
        self._count(0, len(reply))
        notification = subscribe_response(reply).update
        self._count(_UNKNOWN * (len(notification.update) + len(notification.delete)))
        # Some devices leave the time out.
        stamp_ns = notification.timestamp if notification.timestamp > 0 else time.time_ns()
        prefix = path_elements(notification.prefix)
        for update in notification.update:
            path = (*prefix, *path_elements(update.path))
            for leaf in openconfig.leaves(path, typed_value(update.val)):
                self._count(_UNKNOWN if leaf is None else 1)
                if leaf is not None:
                    self._values.add(leaf, stamp_ns)
        for deleted in notification.delete:
            self._values.delete((*prefix, *path_elements(deleted)))
        if self._values.has_counters:
            self._arrived.set()
        return bool(notification.update)

    def _count(self, leaves: float, size: int = 0) -> None:
        now_s = time.monotonic()
        if now_s - self._second_s >= 1:
            self._second_s, self._leaves, self._bytes = now_s, 0, 0
        self._leaves += leaves
        self._bytes += size
        if self._bytes > _MOST_BYTES_A_SECOND:
            raise _flood()
        if self._leaves > _MOST_LEAVES_A_SECOND:
            raise Misbehaved(f"sends more than {_MOST_LEAVES_A_SECOND:,} values a second", "flood")


def _flood() -> Misbehaved:
    return Misbehaved(f"sends more than {_MOST_BYTES_A_SECOND >> 20} MiB a second", "flood")


_REFUSALS = ("UNIMPLEMENTED", "INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE")
"""Statuses for a path, a mode or an interval that a device does not have."""


def _reason(failure: NodeError) -> str:
    """The reason on the wire for a source whose subscription failed."""
    if isinstance(failure, LoginRefused):
        return "denied"
    return "unsupported" if failure.cause in _REFUSALS else "failed"
