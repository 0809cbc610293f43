"""Nodes that answer questions instead of streaming: what they say becomes lines of the wire.

Exporters, switches' APIs and fabric managers are asked once an interval. Their answers are put into
the wire's words here, so that they are supervised, recorded and judged exactly as probes are.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from collectors import wire
from fabmon.feeds.errors import NodeError

_FAILURES = 3
"""Answers missed in a row before the session is given up; until then the node is merely stale."""

_SPREAD = 0.5
"""Share of the interval over which the nodes' questions are spread, so as not to come at once."""


class SourceBlock(NamedTuple):
    """What one source said, as a block of the wire has it.

    `values` are in the order of the objects' metrics, None as a whole when nothing was read this
    time. `mono_ns` is the clock that the rates are computed with: the far end's where it gives one,
    else this console's monotonic clock at the answer. `objects` that are the same object as last
    time cost nothing; others that differ make a new hello.
    """

    source: str
    objects: tuple[wire.Object, ...]
    values: Sequence[int | None] | None
    mono_ns: int
    every: int = 1


class SourceFailure(NamedTuple):
    """Why a source has nothing to say: a reason of the wire, and a text for a person."""

    reason: str
    text: str


class NodeReading(NamedTuple):
    """All that a node said at once. `about` may hold `hostname`, `boot_id`, `kernel`.

    `kinds` are those of metrics that the node counts in another width than the catalog says.
    """

    parts: Sequence[SourceBlock]
    about: Mapping[str, str]
    troubles: Mapping[str, SourceFailure]
    kinds: Mapping[str, str] = {}


def poll_duration(took_ns: int) -> SourceBlock:
    """A part that says how long the answer took.

    It is there in every answer, so that a node whose counters move more slowly than it is asked is
    not taken for a silent one.
    """
    objects = (wire.Object("node", "node", None, {}, ("probe_late_us",)),)
    return SourceBlock("probe", objects, [took_ns // 1000], time.monotonic_ns())


class Poller(Protocol):
    """Asks one node."""

    async def poll(self) -> NodeReading:
        """Ask once, within a deadline of its own. Raises NodeError when nothing could be had."""

    async def close(self) -> None:
        """Give back what it holds."""


class PolledSession:
    """A session over a poller: asked at once, then every `interval_s`."""

    def __init__(self, poller: Poller, node: str, interval_s: float) -> None:
        self._poller = poller
        self._node = node
        self._interval_s = interval_s
        self._offset_s = zlib.crc32(node.encode()) / 2**32 * interval_s * _SPREAD
        self._lines: deque[bytes] = deque()
        self._hello = b""
        self._boot_id = ""
        self._objects: list[tuple[wire.Object, ...]] = []
        self._troubles: Mapping[str, SourceFailure] = {}
        self._seq = 0
        self._failures = 0
        self._asked = False

    async def readline(self) -> bytes:
        """The next line. Raises NodeError when it fails at first, or three times in a row."""
        while not self._lines:
            if self._asked:
                await asyncio.sleep(self._until_next_s())
            self._asked = True
            try:
                answer = await self._poller.poll()
            except NodeError:
                self._failures += 1
                if not self._hello or self._failures >= _FAILURES:
                    raise
                continue
            self._failures = 0
            self._take(answer)
        return self._lines.popleft()

    def send(self, data: bytes) -> None:
        """Signs of life mean nothing to it."""

    async def close(self) -> None:
        """Let go of the node."""
        await self._poller.close()

    def _take(self, answer: NodeReading) -> None:
        objects = [part.objects for part in answer.parts]
        boot_id = answer.about.get("boot_id", "")
        if not self._hello or boot_id != self._boot_id or not _same(objects, self._objects):
            self._objects = objects
            self._boot_id = boot_id
            self._say_hello(answer)
        for source, trouble in answer.troubles.items():
            if self._troubles.get(source) != trouble:
                self._lines.append(
                    wire.notice("lost", source, trouble.text, "", "", trouble.reason)
                )
        for source in self._troubles:
            if source not in answer.troubles:
                self._lines.append(wire.notice("recovered", source, ""))
        self._troubles = dict(answer.troubles)
        blocks: list[wire.Block] = [
            None if part.values is None else [part.mono_ns, *part.values] for part in answer.parts
        ]
        self._lines.append(wire.frame(self._seq, time.time_ns(), time.monotonic_ns(), blocks))
        self._seq += 1

    def _say_hello(self, answer: NodeReading) -> None:
        layouts = [wire.BlockLayout(part.source, part.every, part.objects) for part in answer.parts]
        about = {"hostname": self._node, **answer.about, "interval_s": self._interval_s}
        hello = wire.hello(layouts, about, dict(answer.kinds))
        if hello != self._hello:
            self._hello = hello
            self._lines.append(hello)
            # A hello begins anew for whoever listens: what is wrong is told again after it.
            self._troubles = {}

    def _until_next_s(self) -> float:
        return self._interval_s - (time.time() - self._offset_s) % self._interval_s


def _same(one: list[tuple[wire.Object, ...]], other: list[tuple[wire.Object, ...]]) -> bool:
    return len(one) == len(other) and all(
        mine is yours or mine == yours for mine, yours in zip(one, other, strict=True)
    )


# The clock of a far end's samples, kept from jumping.


class SampleClock:
    """Turns the times that a node gives its samples into a clock that rates can be made with.

    A switch's wall clock may be set, and an uptime of 32 bits of hundredths of a second starts anew
    after 497 days. When the node's time moved by `tolerance_s` more or less than the console's
    since the last sample, the console's step is taken instead.
    """

    def __init__(self, tolerance_s: float) -> None:
        self._tolerance_ns = int(tolerance_s * 1e9)
        self._far_ns: int | None = None
        self._near_ns = 0
        self._now_ns = 0

    def at(self, far_ns: int, near_ns: int) -> int | None:
        """The clock for a sample that the node dates `far_ns` and that came at `near_ns`.

        `near_ns` is the console's monotonic clock. None when the node says that it is the sample of
        last time.
        """
        if self._far_ns is None:
            self._far_ns, self._near_ns, self._now_ns = far_ns, near_ns, near_ns
            return near_ns
        far_step, near_step = far_ns - self._far_ns, near_ns - self._near_ns
        if far_step == 0:
            return None
        trusted = far_step > 0 and abs(far_step - near_step) <= self._tolerance_ns
        self._now_ns += far_step if trusted else near_step
        self._far_ns, self._near_ns = far_ns, near_ns
        return self._now_ns
