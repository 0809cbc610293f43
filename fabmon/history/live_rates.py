"""Rates of a live session: the raw counters of the whole fabric in flat arrays, tick by tick."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.snapshot import Floats
from fabmon.fabric.tick import LastReads
from fabmon.fabric.wire.messages import WORD, BlockInfo, Frame, Hello, Values
from fabmon.history.rates import (
    CLOCK,
    GAUGE,
    Bools,
    CounterKinds,
    Float64s,
    Indices,
    UInt64s,
    counter_rates,
    elapsed_between,
    is_stale,
)

_PART = 1 << 15
"""Series whose rates are computed at a time: arrays of half a million do not fit the caches."""

_ARRAYS = {array}


@dataclass(frozen=True, slots=True)
class FrameSlots:
    """The slots of a node's values in LiveRates: the first of each block, the blocks' widths, and
    the end of the last.

    The first slot of a block is its clock. The blocks are one after the other.
    """

    starts: tuple[int, ...]
    widths: tuple[int, ...]
    stop: int

    def fits(self, frame: Frame) -> bool:
        """Whether a frame fills these blocks exactly."""
        if len(frame.blocks) != len(self.widths):
            return False
        try:
            return tuple(map(len, frame.blocks)) == self.widths  # type: ignore[arg-type]
        except TypeError:
            pairs = zip(frame.blocks, self.widths, strict=True)
            return all(block is None or len(block) == width for block, width in pairs)

    @property
    def start(self) -> int:
        """The first slot."""
        return self.starts[0] if self.starts else self.stop

    @property
    def width(self) -> int:
        """Values in a frame, the blocks' clocks included."""
        return self.stop - self.start


@dataclass(slots=True)
class _Arrays:
    """One element a series. `clock` is the slot of the clock of the series' block."""

    now: UInt64s
    before: UInt64s
    known: Bools
    known_before: Bools
    fresh: Bools
    rate: NDArray[np.float32]
    saturated: Bools
    code: NDArray[np.uint8]
    maximum: UInt64s
    clock: Indices
    arrived_s: Float64s
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
            code=np.full(size, GAUGE, np.uint8),
            maximum=np.zeros(size, np.uint64),
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
    """Rates of every series of every node, tick by tick.

    A series is one position of one node's frame. Every block's clock is a series too, so that a
    frame is copied in as it arrived and every rate has the time of its own read.
    """

    def __init__(self) -> None:
        self.size = 0
        self._all = _Arrays.of(0)
        # By its first slot, the size of a range that is larger than the node's layout.
        self._room: dict[int, int] = {}

    @property
    def rate(self) -> NDArray[np.float32]:
        """[size or more]: per second for counters, the level for gauges.

        NaN where unknown: first sample, reset, saturated, absent, stale.
        """
        return self._all.rate

    @property
    def arrived_s(self) -> Float64s:
        """[size or more]: for a block's clock, when the block arrived; minus infinity before."""
        return self._all.arrived_s

    @property
    def period_s(self) -> NDArray[np.float32]:
        """[size or more]: the usual time from one read to the next."""
        return self._all.period_s

    @property
    def saturated(self) -> Bools:
        """[size or more]: whether the counter is stuck at its maximum."""
        return self._all.saturated

    def restart(self) -> None:
        """Forget all values; every series keeps its slot."""
        s = self._all
        s.known[:] = s.known_before[:] = s.fresh[:] = s.saturated[:] = False
        s.rate[:] = np.nan
        s.arrived_s[:] = -np.inf

    def add(self, hello: Hello, old: FrameSlots | None = None) -> FrameSlots:
        """Allocate slots for a node's frames; their values are unknown.

        `old` are the slots of the node's previous layout, reused where the new one fits. If not,
        the node gets twice as many: one that changes its layout for ever ends within four times the
        room of its largest.
        """
        width = hello.width()
        if old is None:
            start = self._allocate(width)
        else:
            self._all.put(old.start, _Arrays.of(old.width))
            start = self._again(width, old)
        starts = []
        for block in hello.blocks:
            starts.append(start)
            start = self._describe(start, block, hello)
        return FrameSlots(tuple(starts), tuple(hello.widths()), start)

    def accept(self, frames: Iterable[tuple[FrameSlots, Frame]], now_s: float) -> None:
        """Take the values of frames, one a node at most.

        A frame that does not fit its slots is ignored: it would overwrite other nodes' values.
        """
        s = self._all
        starts: list[int] = []
        blocks: list[array[int]] = []
        # In the order of the slots, so that most ticks are one range.
        for slots, frame in sorted(frames, key=_first_slot):
            if not slots.fits(frame):
                continue
            if set(map(type, frame.blocks)) == _ARRAYS:
                starts += slots.starts
                blocks += frame.blocks  # type: ignore[arg-type]
                continue
            for start, block in zip(slots.starts, frame.blocks, strict=True):
                if type(block) is array:
                    starts.append(start)
                    blocks.append(block)
                elif block is not None:
                    stop = start + len(block)
                    s.now[start:stop], s.known[start:stop] = _words(block)
                    s.fresh[start:stop] = True
                    s.arrived_s[start] = now_s
        if not blocks:
            return
        at = np.array(starts, np.intp)
        filled = _slots_of(at, np.array(list(map(len, blocks)), np.intp))
        s.now[filled] = np.frombuffer(b"".join(blocks), np.uint64)
        s.known[filled] = True
        s.fresh[filled] = True
        s.arrived_s[at] = now_s

    def resume(self, slots: FrameSlots, reads: LastReads) -> None:
        """Take a node's last two reads, as if they had been accepted when they arrived.

        Reads that do not fit the slots are ignored.
        """
        if len(reads.now) != slots.width or len(reads.arrived_ns) != len(slots.starts):
            return
        s, span = self._all, slice(slots.stop - slots.width, slots.stop)
        s.now[span], s.before[span] = reads.now, reads.before
        s.known[span], s.known_before[span] = reads.known, reads.known_before
        s.fresh[span] = True
        for start, arrived_ns in zip(slots.starts, reads.arrived_ns.tolist(), strict=True):
            s.arrived_s[start] = arrived_ns / 1e9 if arrived_ns else -np.inf

    def advance(self) -> None:
        """Compute the rates of everything that arrived since the last call."""
        s = self._all
        if not self.size:
            return
        clocks = np.flatnonzero(s.code == CLOCK)
        of_clock = np.zeros(len(s.now), np.uint64)
        of_clock[clocks] = self._elapsed_ns(clocks)
        for start in range(0, self.size, _PART):
            part = slice(start, min(start + _PART, self.size))
            fresh = s.fresh[part]
            if not fresh.any():
                continue
            rate, saturated = self._rates(part, of_clock[s.clock[part]])
            np.copyto(s.rate[part], rate, casting="same_kind", where=fresh)
            np.copyto(s.saturated[part], saturated, where=fresh)
        np.copyto(s.before, s.now, where=s.fresh)
        np.copyto(s.known_before, s.known, where=s.fresh)
        s.fresh[:] = False

    def reads_s(self, clocks: Indices) -> tuple[Float64s, Float64s]:
        """Of some slots of blocks' clocks (-1: of no block) those of the reads before and of the
        reads that arrived since `advance`, in seconds; NaN where there are none."""
        s = self._all
        if not self.size:
            return np.full(len(clocks), np.nan), np.full(len(clocks), np.nan)
        is_new = (clocks >= 0) & s.fresh[clocks] & s.known[clocks]
        had = is_new & s.known_before[clocks] & (s.now[clocks] > s.before[clocks])
        now_s = np.where(is_new, s.now[clocks] / 1e9, np.nan)
        return np.where(had, s.before[clocks] / 1e9, np.nan), now_s

    def preview(self, series: Indices) -> tuple[Bools, Floats]:
        """Whether something arrived of some series [n], and what `advance` would compute as the
        rates of those, without taking it."""
        s = self._all
        fresh = s.fresh[series]
        at = series[fresh]
        rate, _ = self._rates(at, self._elapsed_ns(s.clock[at]))
        return fresh, rate.astype(np.float32)

    def _elapsed_ns(self, clocks: Indices) -> UInt64s:
        """The time between the last two reads of some blocks; 0 where it is not known."""
        s = self._all
        return elapsed_between(s.now[clocks], s.before[clocks]) * s.known[clocks]

    def _rates(self, at: slice | Indices, elapsed_ns: UInt64s) -> tuple[Float64s, Bools]:
        """The rates of some series between their last two reads, and which are saturated."""
        s = self._all
        kinds = CounterKinds(s.code[at], s.maximum[at])
        return counter_rates(
            s.now[at], s.before[at], s.known[at], s.known_before[at], elapsed_ns, kinds
        )

    def shift(self, by_s: float) -> None:
        """Move the times of arrival: the clock of the ticks was set back."""
        self._all.arrived_s += by_s

    def stale(self, now_s: float) -> Bools:
        """[size or more]: whether the last read is too old for its rate to be the current one."""
        s = self._all
        clocks = np.flatnonzero(s.code == CLOCK)
        is_old = np.zeros(len(s.clock), np.bool_)
        is_old[clocks] = is_stale(now_s - s.arrived_s[clocks], s.period_s[clocks])
        # Usually no block is old, and a look at half a million series takes 5 ms.
        return is_old[s.clock] if is_old.any() else is_old

    def discard(self, stale: Bools) -> None:
        """Make the rates of some series unknown."""
        self._all.rate[stale] = np.nan

    def _again(self, width: int, old: FrameSlots) -> int:
        """The start of a range for another layout of a node."""
        start = old.start
        room = max(self._room.pop(start, 0), old.width)
        if width > room:
            room = max(width, 2 * room)
            start = self._allocate(room)
        if room > width:
            self._room[start] = room
        return start

    def _allocate(self, width: int) -> int:
        """The start of a new range; capacity grows by a quarter, so that a thousand hellos copy
        little."""
        start = self.size
        # A range without values has a start of its own too.
        self.size += max(width, 1)
        if self.size > len(self._all.now):
            larger = _Arrays.of(max(self.size, len(self._all.now) * 5 // 4))
            larger.put(0, self._all)
            self._all = larger
        return start

    def _describe(self, start: int, block: BlockInfo, hello: Hello) -> int:
        """Set kinds, clock and period of one block's series. Returns the slot after the last."""
        kinds = CounterKinds.of(hello, [name for item in block.objects for name in item.metrics])
        stop = start + 1 + len(kinds.code)
        s = self._all
        s.code[start] = CLOCK
        s.code[start + 1 : stop] = kinds.code
        s.maximum[start + 1 : stop] = kinds.maximum
        s.clock[start:stop] = start
        s.period_s[start:stop] = block.every * hello.interval_s
        return stop


def _first_slot(item: tuple[FrameSlots, Frame]) -> int:
    return item[0].start


def _slots_of(starts: Indices, widths: Indices) -> slice | Indices:
    """All slots of blocks in ascending order: a range where they are adjacent."""
    if (starts[1:] == starts[:-1] + widths[:-1]).all():
        return slice(int(starts[0]), int(starts[-1] + widths[-1]))
    before = np.cumsum(widths) - widths
    slots: Indices = np.arange(int(widths.sum())) + np.repeat(starts - before, widths)
    return slots


def _words(block: Values) -> tuple[UInt64s | list[int], bool | list[bool]]:
    """A block's values, 0 where absent or out of range, and which of them are known."""
    try:
        return np.frombuffer(array(WORD, block), np.uint64), True  # type: ignore[type-var]
    except (TypeError, OverflowError):
        pass
    top = (1 << 64) - 1
    known = [value is not None and 0 <= value <= top for value in block]
    pairs = zip(block, known, strict=True)
    return [value if ok and value is not None else 0 for value, ok in pairs], known
