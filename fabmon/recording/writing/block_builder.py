"""Ticks as they come, as rows of numbers: what a writer holds until a block of them is full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Hello
from fabmon.recording.format import block as blocks
from fabmon.recording.format import columns
from fabmon.recording.format.block import (
    RowFiller,
    RowLayout,
    RowTicks,
    pack_layouts,
    prediction_hints,
)
from fabmon.recording.format.columns import IndexArray, UInt64Array

_PART_SAMPLES = 1 << 20
"""A block frame holds about so many samples: a tenth of a second of work at most, and what one
flipped byte costs."""

_BLOCK_TICKS = 256
_BLOCK_SAMPLES = 2 << 20
"""A block ends at either. More samples take longer to seek, fewer ticks more room."""


class _Row:
    __slots__ = ("absent", "peak_utilisation", "present", "seq", "time_ns")

    def __init__(self, tick: Tick, worst: float, blocks_: int) -> None:
        self.seq = tick.seq
        self.time_ns = tick.time_ns
        self.peak_utilisation = worst
        self.present = bytearray(blocks_)
        self.absent: list[int] = []


class BlockBuilder:
    """The ticks since the last block.

    `_table` [1 + rows and more, columns] holds their values, below those of the tick before them.
    It is used again for the next block: memory that the system gives and takes costs more than all
    that is done in it.
    """

    def __init__(self) -> None:
        self._fillers: dict[str, RowFiller] = {}
        self._all: list[RowFiller] = []
        self._columns = 0
        self._blocks = 0
        self._rows: list[_Row] = []
        self._table: UInt64Array = np.zeros((1, 0), np.uint64)
        self._packed_seats = b""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def are_full(self) -> bool:
        """Whether they are enough for a block."""
        return self._are(1)

    @property
    def are_too_many(self) -> bool:
        """Whether they are twice as many: no block could be written for long."""
        return self._are(2)

    def _are(self, times: int) -> bool:
        samples = len(self._rows) * self._columns
        return len(self._rows) >= times * _BLOCK_TICKS or samples >= times * _BLOCK_SAMPLES

    @property
    def span(self) -> tuple[int, int]:
        """Times of the first and the last tick."""
        return self._rows[0].time_ns, self._rows[-1].time_ns

    def seat(self, hellos: Mapping[str, Hello]) -> None:
        """Give nodes their seats."""
        for node, hello in hellos.items():
            self._seat(node, hello)

    def add(self, tick: Tick, worst: float) -> int:
        """Take a tick; how many rows it took."""
        self.seat(dict(tick.hellos))
        before = len(self._rows)
        self._add_row(tick, worst)
        words = self._words(before)
        counts: dict[str, int] = {}
        for node, frame in tick.frames:
            filler = self._fillers.get(node)
            if filler is None:
                continue
            count = 0
            if self._rows[before].present[filler.block]:
                # Its second frame at this tick, or a later one.
                count = counts[node] = counts.get(node, 0) + 1
                if count == len(words):
                    self._add_row(tick, worst)
                    words = self._words(before)
            row = self._rows[before + count]
            filler.fill(words[count], row.present, frame, row.absent)
        return len(self._rows) - before

    def last(self, rows: int) -> list[bytes | bytearray | memoryview]:
        """The payload of a block frame of the last rows, for all nodes at once, in pieces.

        Nothing is spent on compressing it: it will soon be replaced.
        """
        if not self._packed_seats:
            self._packed_seats = pack_layouts([each.seat for each in self._all])
        if rows > 1 or not self._all:
            return [self._part(self._all, self._rows[-rows:])]
        row = self._rows[-1]
        absent = _absent([row], 0, self._columns)
        pieces = columns.uncompressed_section(self._table[len(self._rows)].data.cast("B"))
        small = (
            blocks.pack_one_tick(row.seq, row.time_ns, row.peak_utilisation),
            np.packbits(np.frombuffer(row.present, np.bool_)).tobytes(),
            blocks.pack_absent(absent, 1),
        )
        sections = [
            self._packed_seats,
            *(b"".join(columns.uncompressed_section(each)) for each in small),
        ]
        lengths = [*map(len, sections), sum(map(len, pieces))]
        return [columns.section_table(lengths), *sections, *pieces]

    def parts(self) -> Iterator[bytes]:
        """The payloads of block frames of all rows, some nodes each."""
        some: list[RowFiller] = []
        samples = 0
        for filler in self._all:
            some.append(filler)
            samples += filler.seat.columns * len(self._rows)
            if samples >= _PART_SAMPLES:
                yield self._part(some, self._rows)
                some, samples = [], 0
        if some or not self._all:
            yield self._part(some, self._rows)

    def clear(self) -> None:
        """Forget the ticks; nodes keep their seats, and what they had before a new one is gone."""
        self._table[0] = self._table[len(self._rows)]
        self._rows = []
        if len(self._all) != len(self._fillers):
            last, old = self._table[0], list(self._fillers.items())
            self._all, self._columns, self._blocks = [], 0, 0
            for node, before in old:
                self._fillers[node] = self._place(node, before.hello)
            self._table = np.zeros((1, self._columns), np.uint64)
            for node, before in old:
                width, start = before.seat.columns, self._fillers[node].start
                self._table[0, start : start + width] = last[before.start : before.start + width]

    def _seat(self, node: str, hello: Hello) -> None:
        widths = tuple(info.width() for info in hello.blocks)
        known = self._fillers.get(node)
        if known is None or known.seat.widths != widths or not known.hello.counts_like(hello):
            self._fillers[node] = self._place(node, hello)

    def _place(self, node: str, hello: Hello) -> RowFiller:
        seat = RowLayout(node, tuple(info.width() for info in hello.blocks))
        filler = RowFiller(hello, seat, self._columns, self._blocks)
        self._all.append(filler)
        self._columns += seat.columns
        self._blocks += seat.blocks
        self._packed_seats = b""
        return filler

    def _add_row(self, tick: Tick, worst: float) -> None:
        self._rows.append(_Row(tick, worst, self._blocks))
        number = len(self._rows)
        if number == len(self._table) or self._columns > self._table.shape[1]:
            # Of a full block: only what is written to takes memory.
            full = 2 + min(_BLOCK_TICKS, _BLOCK_SAMPLES // max(self._columns, 1))
            rows = full if number < full else 2 * number
            old, self._table = self._table, np.zeros((rows, self._columns), np.uint64)
            self._table[:number, : old.shape[1]] = old[:number]
        self._table[number] = self._table[number - 1]

    def _words(self, first: int) -> list[memoryview]:
        """The values of the rows from one on, to be written."""
        return [self._table[1 + n].data for n in range(first, len(self._rows))]

    def _part(self, some: list[RowFiller], rows: list[_Row]) -> bytes:
        """The payload of a block of some seats, which lie side by side, over some rows."""
        seats = [filler.seat for filler in some]
        first = some[0].start if some else 0
        start = some[0].block if some else 0
        stop = first + sum(seat.columns for seat in seats)
        end = start + sum(seat.blocks for seat in seats)
        end_row = 1 + len(self._rows)
        values = self._table[end_row - len(rows) : end_row, first:stop]
        there = np.zeros((len(rows), end - start), np.bool_)
        for number, row in enumerate(rows):
            # A row from before a node came is shorter than one from after.
            blocks_ = np.frombuffer(row.present, np.bool_)[start:end]
            there[number, : len(blocks_)] = blocks_
        if not there[0].all():
            _carry_back(values, there, some)
        absent = _absent(rows, first, stop)
        return blocks.encode_block(
            seats, row_ticks(rows), there, absent, values, prediction_hints(some)
        )


def row_ticks(rows: Sequence[_Row]) -> RowTicks:
    """Which tick each row belongs to."""
    return RowTicks(
        np.array([row.seq for row in rows], np.int64),
        np.array([row.time_ns for row in rows], np.int64),
        np.array([row.peak_utilisation for row in rows], np.float32),
    )


def _absent(rows: Sequence[_Row], first: int, stop: int) -> IndexArray:
    """Pairs of row and column, counted from `first`."""
    if not any(row.absent for row in rows):
        return np.empty((0, 2), np.intp)
    pairs = [
        (number, column - first)
        for number, row in enumerate(rows)
        for column in row.absent
        if first <= column < stop
    ]
    return np.array(pairs, np.intp).reshape(-1, 2)


def _carry_back(
    values: NDArray[np.uint64], there: NDArray[np.bool_], some: list[RowFiller]
) -> None:
    """Give columns that were not there from the start their first value before it: no jump."""
    firsts = there.argmax(axis=0)
    block = column = 0
    for filler in some:
        for width in (0, *filler.seat.widths):
            count = width or filler.seat.columns - sum(filler.seat.widths)
            first = int(firsts[block])
            if first and not values[:first, column : column + count].any():
                values[:first, column : column + count] = values[first, column : column + count]
            block += 1
            column += count
