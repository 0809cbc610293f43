"""Raw counters of the whole fabric in flat arrays, and their rates, all at once.

A series is one position of one node's frame. Every block's clock is a series too, so that a frame
is copied in as it came and every rate has the time of its own read.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import WRAP32, WRAP64
from fabmon.fabric.tick import LastReads
from fabmon.fabric.wire.messages import BlockInfo, Frame, Hello

_CLOCK, _WRAP64, _WRAP32, _SATURATING, GAUGE = range(5)
_WRAP32_MASK = np.uint64(0xFFFFFFFF)
_HALF_WRAP32 = np.uint64(1 << 31)
"""A 32-bit counter that seems to move by more between two reads was reset, not wrapped."""

_FASTEST_WRAP32 = 500e6
"""And so was one that seems to wrap faster: no port sends 500 million packets a second."""

_WIDTHS = {str(bits): bits for bits in range(1, 65)}

_WORD = "L" if array("L").itemsize == 8 else "Q"
"""CPython turns an int into an unsigned long twice as fast as into an unsigned long long."""

STALE_READS = 2.5
"""A rate is held for this many periods of its source, then it is absent."""


@dataclass(frozen=True, slots=True)
class FrameSlots:
    """Where a node's values lie: the start of each block's range, and the end of the last."""

    starts: tuple[int, ...]
    stop: int

    def fits(self, frame: Frame) -> bool:
        """Whether a frame fills these blocks and nothing beside them."""
        blocks, ends = frame.blocks, (*self.starts, self.stop)
        if len(blocks) != len(self.starts):
            return False
        for number, block in enumerate(blocks):
            if block is not None and len(block) != ends[number + 1] - ends[number]:
                return False
        return True

    @property
    def width(self) -> int:
        """Values in a frame, the blocks' clocks included."""
        return self.stop - self.starts[0] if self.starts else 0


@dataclass(slots=True)
class _Arrays:
    """One element a series. `clock` is where the series' block has its clock."""

    now: NDArray[np.uint64]
    before: NDArray[np.uint64]
    known: NDArray[np.bool_]
    known_before: NDArray[np.bool_]
    fresh: NDArray[np.bool_]
    rate: NDArray[np.float32]
    saturated: NDArray[np.bool_]
    kind: NDArray[np.uint8]
    top: NDArray[np.uint64]
    clock: NDArray[np.intp]
    arrived_s: NDArray[np.float64]
    period_s: NDArray[np.float32]

    @classmethod
    def of(cls, size: int) -> _Arrays:
        return cls(
            now=np.zeros(size, np.uint64),
            before=np.zeros(size, np.uint64),
            known=np.zeros(size, np.bool_),
            known_before=np.zeros(size, np.bool_),
            fresh=np.zeros(size, np.bool_),
            rate=np.full(size, np.nan, np.float32),
            saturated=np.zeros(size, np.bool_),
            kind=np.full(size, GAUGE, np.uint8),
            top=np.zeros(size, np.uint64),
            clock=np.arange(size, dtype=np.intp),
            arrived_s=np.full(size, -np.inf),
            period_s=np.ones(size, np.float32),
        )

    def put(self, start: int, other: _Arrays) -> None:
        """Copy all of `other` to the range that begins at `start`."""
        for field in fields(self):
            source = getattr(other, field.name)
            getattr(self, field.name)[start : start + len(source)] = source


class LiveRates:
    """Counters in, rates out, for every series of every node."""

    def __init__(self) -> None:
        self.size = 0
        self._all = _Arrays.of(0)

    @property
    def rate(self) -> NDArray[np.float32]:
        """[size or more]: per second for counters, the level for gauges.

        NaN where it is not known: first sample, reset, saturated, absent, stale.
        """
        return self._all.rate

    @property
    def arrived_s(self) -> NDArray[np.float64]:
        """[size or more]: of a block's clock, when the block arrived; minus infinity before."""
        return self._all.arrived_s

    @property
    def saturated(self) -> NDArray[np.bool_]:
        """[size or more]: whether the counter sticks at its maximum."""
        return self._all.saturated

    def restart(self) -> None:
        """Forget all values; every series keeps its place."""
        s = self._all
        s.known[:] = s.known_before[:] = s.fresh[:] = s.saturated[:] = False
        s.rate[:] = np.nan
        s.arrived_s[:] = -np.inf

    def add(self, hello: Hello, old: FrameSlots | None = None) -> FrameSlots:
        """Make room for a node's frames; nothing is known of them yet.

        `old` is the place of the node's layout before; it is used again when the width is the same.
        """
        width = hello.width()
        if old is not None:
            self._all.put(old.starts[0] if old.starts else 0, _Arrays.of(old.width))
        if old is not None and old.width == width and old.starts:
            start = old.starts[0]
        else:
            start = self._room(width)
        starts = []
        for block in hello.blocks:
            starts.append(start)
            start = self._lay_out(start, block, hello)
        return FrameSlots(tuple(starts), start)

    def accept(self, place: FrameSlots, frame: Frame, now_s: float) -> None:
        """Take a frame's values.

        One that does not fit the place is left out: its values would be other nodes'.
        """
        if not place.fits(frame):
            return
        s = self._all
        for start, block in zip(place.starts, frame.blocks, strict=True):
            if block is None:
                continue
            stop = start + len(block)
            try:
                words = array(_WORD, block)  # type: ignore[type-var]
                s.now[start:stop] = np.frombuffer(words, np.uint64)
                s.known[start:stop] = True
            except (TypeError, OverflowError):
                s.now[start:stop], s.known[start:stop] = _with_gaps(block)
            s.fresh[start:stop] = True
            s.arrived_s[start] = now_s

    def resume(self, place: FrameSlots, reads: LastReads) -> None:
        """Take a node's last two reads, as if they had been accepted when they came.

        What does not fit the place is left out.
        """
        if len(reads.now) != place.width or len(reads.arrived_ns) != len(place.starts):
            return
        s, span = self._all, slice(place.stop - place.width, place.stop)
        s.now[span], s.before[span] = reads.now, reads.before
        s.known[span], s.known_before[span] = reads.known, reads.known_before
        s.fresh[span] = True
        for start, arrived_ns in zip(place.starts, reads.arrived_ns.tolist(), strict=True):
            s.arrived_s[start] = arrived_ns / 1e9 if arrived_ns else -np.inf

    def advance(self) -> None:
        """Turn what has arrived since the last call into rates."""
        s = self._all
        if not self.size:
            return
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            fell = (s.now < s.before)[s.clock]
            dt_ns = (s.now - s.before)[s.clock]
            clock_ok = (dt_ns > 0) & ~fell & s.known[s.clock]
            full = s.known & is_saturated(s.now, s.kind, s.top)
            sure = s.known & s.known_before & clock_ok & ~full
            rate = np.where(sure, rate_per_s(s.now, s.before, dt_ns, s.kind), np.nan)
        np.copyto(rate, np.where(s.known, s.now, np.nan), where=s.kind == GAUGE)
        np.copyto(s.rate, rate, casting="same_kind", where=s.fresh)
        np.copyto(s.saturated, full, where=s.fresh)
        np.copyto(s.before, s.now, where=s.fresh)
        np.copyto(s.known_before, s.known, where=s.fresh)
        s.fresh[:] = False

    def stale(self, now_s: float) -> NDArray[np.bool_]:
        """[size or more]: whether the last read is too old for its rate to be that of now."""
        s = self._all
        stale: NDArray[np.bool_] = (now_s - s.arrived_s)[s.clock] > s.period_s * STALE_READS
        return stale

    def let_go(self, stale: NDArray[np.bool_]) -> None:
        """Forget the rates of some series."""
        self._all.rate[stale] = np.nan

    def _room(self, width: int) -> int:
        """The start of a new range; doubling, so that a thousand hellos copy little."""
        start = self.size
        self.size += width
        if self.size > len(self._all.now):
            larger = _Arrays.of(max(self.size, 2 * len(self._all.now)))
            larger.put(0, self._all)
            self._all = larger
        return start

    def _lay_out(self, start: int, block: BlockInfo, hello: Hello) -> int:
        """Describe one block's series; where the next one starts."""
        names = [name for item in block.objects for name in item.metrics]
        kinds = [
            counter_kind(hello.metrics[name].kind if name in hello.metrics else "")
            for name in names
        ]
        stop = start + 1 + len(names)
        s = self._all
        s.kind[start] = _CLOCK
        s.kind[start + 1 : stop] = [kind for kind, _ in kinds]
        s.top[start + 1 : stop] = [top for _, top in kinds]
        s.clock[start:stop] = start
        s.period_s[start:stop] = block.every * hello.interval_s
        return stop


def rate_per_s(
    now: NDArray[np.uint64],
    before: NDArray[np.uint64],
    dt_ns: NDArray[np.uint64],
    kind: NDArray[np.uint8],
) -> NDArray[np.float64]:
    """Per second between two reads of counters; NaN where the counter was reset."""
    delta, fell = now - before, now < before
    wrap32 = kind == _WRAP32
    if wrap32.any():
        delta[np.broadcast_to(wrap32, delta.shape)] &= _WRAP32_MASK
    rate: NDArray[np.float64] = delta / dt_ns * 1e9
    if fell.any():
        rate[fell & (~wrap32 | (delta >= _HALF_WRAP32) | (rate > _FASTEST_WRAP32))] = np.nan
    return rate


def is_saturated(
    now: NDArray[np.uint64], kind: NDArray[np.uint8], top: NDArray[np.uint64]
) -> NDArray[np.bool_]:
    """Whether a counter sticks at its maximum."""
    full: NDArray[np.bool_] = (kind == _SATURATING) & (now >= top)
    return full


def _with_gaps(block: list[int | None]) -> tuple[list[int], list[bool]]:
    """A block's values, 0 where absent or out of range, and which of them are known."""
    top = (1 << 64) - 1
    known = [value is not None and 0 <= value <= top for value in block]
    pairs = zip(block, known, strict=True)
    return [value if ok and value is not None else 0 for value, ok in pairs], known


def counter_kind(name: str) -> tuple[int, int]:
    """A catalog kind as a code, and the value at which a saturating counter sticks."""
    if name == WRAP64:
        return _WRAP64, 0
    if name == WRAP32:
        return _WRAP32, 0
    bits = _WIDTHS.get(name.removeprefix("sat")) if name.startswith("sat") else None
    if bits is not None:
        return _SATURATING, (1 << bits) - 1
    return GAUGE, 0
