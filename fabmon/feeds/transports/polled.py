"""Nodes that are polled instead of streaming: their replies become lines of the wire.

Exporters, switch APIs and fabric managers are polled once an interval. Their replies are converted
into hellos, frames and notices here, so that these nodes are supervised, recorded and analysed in
the same way as nodes with a probe.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from collectors import wire
from collectors.coverage import Coverage
from fabmon.fabric.port_source import with_shared_ports
from fabmon.feeds.errors import Misbehaved, NodeError
from fabmon.feeds.http_client import HttpClient
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.token_bucket import CpuBudgets, TokenBucket
from fabmon.malformed_json import MALFORMED, values_in

_MAX_FAILURES = 3
"""Consecutive failed polls that end the session; after fewer the node is stale only."""

PAUSE_FACTOR = 3
"""A paced poller pauses this many times as long as its last poll took."""


class SourceBlock(NamedTuple):
    """The reading of one source, as a block of the wire.

    `values` are in the order of the objects' metrics; None as a whole when nothing was read this
    time. `mono_ns` is the clock of rates: the sample time of the node where it reports one, else
    the console's monotonic clock at the request or the reply. `every` is the number of intervals
    between two samples, `coverage` what of the node's counters is not read, `limits` sentences on
    what is not observable. Passing the same
    `objects` tuple as last time costs nothing; objects that differ produce a new hello.
    """

    source: str
    objects: tuple[wire.Object, ...]
    values: Sequence[int | None] | None
    mono_ns: int
    every: int = 1
    coverage: tuple[Coverage, ...] = ()
    limits: tuple[str, ...] = ()


class SourceFailure(NamedTuple):
    """Why a source has no reading: a reason of the wire, and a text for a person."""

    reason: str
    text: str


class NodeReading(NamedTuple):
    """The result of one poll. `about` may hold `hostname`, `boot_id` and `kernel`.

    `kinds` maps metrics to a kind other than the catalog's, for counters of another width.
    """

    blocks: Sequence[SourceBlock]
    about: Mapping[str, str]
    failures: Mapping[str, SourceFailure]
    kinds: Mapping[str, str] = {}


class Poller(Protocol):
    """Polls one node."""

    async def poll(self) -> NodeReading:
        """Poll once, within a deadline of its own. Raises NodeError when nothing was read."""

    async def close(self) -> None:
        """Stop the requests in progress."""


class PolledTransport:
    """Base of transports whose hosts are polled over HTTP."""

    def __init__(self, settings: ProbeSettings, client: HttpClient) -> None:
        self._interval_s = settings.interval_s
        self._client = client
        self._budgets = CpuBudgets()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


class PacedPoller:
    """Base of pollers that use a switch for a quarter of the time at most.

    Subclasses fill `blocks` and `about` in `read`. `pause_until_s` is by the monotonic clock.
    `cpu` is what the node may cost this console: while it is used up, nothing is read.
    """

    def __init__(self, cpu: TokenBucket) -> None:
        self.cpu = cpu
        self.blocks: dict[str, SourceBlock] = {}
        self.about: dict[str, str] = {}
        self.pause_until_s = 0.0
        self._took_ns = 0

    async def poll(self) -> NodeReading:
        """Read what is due; during a pause, the known layout without values. Raises NodeError."""
        start_ns = time.monotonic_ns()
        # A source that is not read now keeps its place in the layout.
        self.blocks = {name: block._replace(values=None) for name, block in self.blocks.items()}
        if start_ns / 1e9 >= self.pause_until_s and not self.cpu.wait_s(0.0, start_ns / 1e9):
            await self.read(start_ns / 1e9)
            self._took_ns = time.monotonic_ns() - start_ns
            self.pause_until_s = end_of_pause_s(start_ns / 1e9)
        blocks = [*self.blocks.values(), poll_duration(self._took_ns)]
        return NodeReading(blocks, dict(self.about), self.failures())

    async def close(self) -> None:
        """Do nothing: connections belong to the transport."""

    async def read(self, now_s: float) -> None:
        """Read what is due at `now_s`, by the monotonic clock. Raises NodeError."""
        raise NotImplementedError

    def failures(self) -> dict[str, SourceFailure]:
        """The sources without a reading."""
        raise NotImplementedError


def end_of_pause_s(start_s: float) -> float:
    """The end of the pause after a request from `start_s` to now, by the monotonic clock."""
    now_s = time.monotonic()
    return now_s + PAUSE_FACTOR * (now_s - start_s)


def poll_duration(took_ns: int) -> SourceBlock:
    """A block with the duration of the poll.

    It is in every frame, so that a node whose counters change less often than it is polled does not
    look silent.
    """
    objects = (wire.Object("node", "node", None, {}, ("probe_late_us",)),)
    return SourceBlock("probe", objects, [took_ns // 1000], time.monotonic_ns())


def port_layout(
    ports: Iterable[tuple[wire.Object, Mapping[str, int | None]]],
) -> tuple[tuple[wire.Object, ...], list[int | None]]:
    """Ports with the metrics that they have, and the values of all in that order.

    A metric whose value is None is left out, and so is a port without any metric.
    """
    objects: list[wire.Object] = []
    values: list[int | None] = []
    for port, readings in ports:
        present = {metric: value for metric, value in readings.items() if value is not None}
        if present:
            objects.append(port._replace(metrics=tuple(present)))
            values += present.values()
    return tuple(objects), values


def too_many_interfaces(most: int) -> str:
    """What is not observable where a switch reports more interfaces than are kept."""
    return f"more than {most:,} interfaces: the others are not read"


def sum_known(parts: Iterable[int | None]) -> int | None:
    """The sum of the values that are not None; None when there are none."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


class Counter32Extender:
    """Extends counters of 32 bits to 64 bits by following their wraps."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[int, int]] = {}

    def extend(self, counter: tuple[str, str], value: int | None) -> int | None:
        """The 64-bit value of a counter, (port, metric), that now reads `value`.

        A step of more than half the range is a reset: the counter continues from `value`.
        """
        if value is None:
            return None
        before, extended = self._seen.get(counter, (value, value))
        step = (value - before) % (1 << 32)
        extended = extended + step if step < 1 << 31 else value
        self._seen[counter] = (value, extended)
        return extended


class PolledSession:
    """A session over a poller: polled at once, then at every multiple of `interval_s`.

    All nodes are polled at the same instants, those at which probes read, so that the counters of
    all ports are of the same instants.
    """

    def __init__(self, poller: Poller, node: str, interval_s: float) -> None:
        self._poller = poller
        self._node = node
        self._interval_s = interval_s
        self._lines: deque[bytes] = deque()
        self._hello = b""
        self._boot_id = ""
        self._layout: list[tuple[object, ...]] = []
        self._reported: Mapping[str, SourceFailure] = {}
        self._seq = 0
        self._failed_polls = 0
        self._polled = False

    async def readline(self) -> bytes:
        """The next line. Raises the NodeError of the first poll, or of the third in a row."""
        while not self._lines:
            if self._polled:
                await asyncio.sleep(self._interval_s - time.time() % self._interval_s)
            self._polled = True
            try:
                reading = await self._poller.poll()
            except NodeError:
                self._failed_polls += 1
                if not self._hello or self._failed_polls >= _MAX_FAILURES:
                    raise
                continue
            self._failed_polls = 0
            self._queue(reading)
        return self._lines.popleft()

    def send(self, data: bytes) -> None:
        """Do nothing: a polled node takes no commands."""

    async def close(self) -> None:
        """Close the poller."""
        await self._poller.close()

    def _queue(self, reading: NodeReading) -> None:
        """Queue a hello if the layout changed, notices for failures that changed, and a frame."""
        layout: list[tuple[object, ...]] = [
            (block.objects, block.every, block.coverage, block.limits) for block in reading.blocks
        ]
        boot_id = reading.about.get("boot_id", "")
        if not self._hello or boot_id != self._boot_id or layout != self._layout:
            self._layout = layout
            self._boot_id = boot_id
            self._queue_hello(reading)
        for source, failure in reading.failures.items():
            if self._reported.get(source) != failure:
                self._lines.append(
                    wire.notice("lost", source, failure.text, "", "", failure.reason)
                )
        for source in self._reported:
            if source not in reading.failures:
                self._lines.append(wire.notice("recovered", source, ""))
        self._reported = dict(reading.failures)
        blocks: list[wire.Block] = [
            None if block.values is None else [block.mono_ns, *block.values]
            for block in reading.blocks
        ]
        self._lines.append(wire.frame(self._seq, time.time_ns(), time.monotonic_ns(), blocks))
        self._seq += 1

    def _queue_hello(self, reading: NodeReading) -> None:
        layouts = [
            wire.BlockLayout(block.source, block.every, block.objects) for block in reading.blocks
        ]
        about = {"hostname": self._node, **reading.about, "interval_s": self._interval_s}
        coverage = [
            each.describe(block.source) for block in reading.blocks for each in block.coverage
        ]
        if coverage:
            about["coverage"] = coverage
        limits = [
            {"source": block.source, "text": text}
            for block in reading.blocks
            for text in block.limits
        ]
        if limits:
            about["limits"] = limits
        hello = wire.hello(with_shared_ports(layouts), about, dict(reading.kinds))
        if hello != self._hello:
            self._hello = hello
            self._lines.append(hello)
            # After a hello a receiver knows of no failures: they are reported again.
            self._reported = {}


_SLOWEST = 20
"""A node's clock that moves by less than this share of the console's does not show the time."""


class SampleClock:
    """Converts the sample times that a node reports into a steady clock for rates.

    The wall clock of a switch may be set, and an uptime of 32 bits in hundredths of a second wraps
    after 497 days. When the node's time since the last sample differs by more than `tolerance_s`
    from the console's, or is less than a twentieth of it, the console's is used instead.
    A time between those of the last two samples is of a port that was late in the last one, as a
    switch counts while it answers: it is no sample of its own. `now_ns` is the clock of the last
    sample.
    """

    def __init__(self, tolerance_s: float) -> None:
        self._tolerance_ns = int(tolerance_s * 1e9)
        self._node_ns: int | None = None
        self._before_ns = 0
        self._console_ns = 0
        self.now_ns = 0

    def at(self, node_ns: int, console_ns: int) -> int | None:
        """The clock, in ns, of a sample that the node dates `node_ns`; None for one of a sample
        that was there already.

        `console_ns` is the console's monotonic clock when the sample arrived.
        """
        if self._node_ns is None:
            self._node_ns = self._before_ns = node_ns
            self._console_ns = self.now_ns = console_ns
            return console_ns
        if node_ns == self._node_ns or self._before_ns < node_ns < self._node_ns:
            return None
        node_step, console_step = node_ns - self._node_ns, console_ns - self._console_ns
        # A step of nothing would make a rate without end of what counted on.
        is_clock = node_step > 0 and node_step * _SLOWEST >= console_step
        trusted = is_clock and abs(node_step - console_step) <= self._tolerance_ns
        self.now_ns += node_step if trusted else console_step
        self._before_ns = self._node_ns if trusted else node_ns
        self._node_ns, self._console_ns = node_ns, console_ns
        return self.now_ns


def newest_change(before: Mapping[str, int], now: Mapping[str, int]) -> int | None:
    """The newest of the times that are not as before; None where all are.

    The time of one port that stays in the future does not hide the samples of the others.
    """
    return max((at for name, at in now.items() if before.get(name) != at), default=None)


_MOST_VALUES = 2_000_000
"""Values of a reply: 16,384 ports have less than a million. Each takes up to 100 bytes: 64 MiB of
them would take gigabytes."""

_Reply = TypeVar("_Reply")


def decode_reply(body: bytes, kind: type[_Reply], what: str) -> _Reply:
    """A reply in JSON. `what` is the name of the format in errors. Raises Misbehaved."""
    if values_in(body) > _MOST_VALUES:
        raise Misbehaved(f"{what}: more than {_MOST_VALUES:,} values")
    try:
        return msgspec.json.decode(body, type=kind)
    except MALFORMED as error:
        raise Misbehaved(f"{what}: {error}") from None
