"""Collects ticks as rows of numbers until a block of them is full."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import WORD, Frame, Hello
from fabmon.recording.format.block import (
    HEAD_COLUMNS,
    RowLayout,
    RowTicks,
    encode_block,
    pack_absent,
    pack_layouts,
    pack_one_tick,
)
from fabmon.recording.format.columns import UInt64Array
from fabmon.recording.format.frames import Buffer
from fabmon.recording.format.predictions import IndexArray, PredictionChoice
from fabmon.recording.format.sections import section_table, uncompressed_section
from fabmon.recording.writing.similar_columns import prediction_choice

_PART_VALUES = 1 << 20
"""The approximate size of a block frame: a tenth of a second of work at most, and the loss that one
flipped byte causes."""

_BLOCK_TICKS = 256
_BLOCK_VALUES = 2 << 20
"""A block ends at either limit. More values take longer to seek, fewer ticks take more room."""

_TICK_VALUES = 8 << 20
"""Rows of one tick end here, 64 MB: what nodes sent at once after a pause of 18 s, at 1,024 nodes.
A node that floods would else make a row of all nodes of each of its frames. Readers refuse blocks
of twice as many values."""

_MASK = (1 << 64) - 1


class _NodeColumns:
    """Writes the frames of a node into rows, from column `column` and part `part` on."""

    def __init__(self, hello: Hello, layout: RowLayout, column: int, part: int) -> None:
        self.hello = hello
        self.layout = layout
        self.column = column
        self.part = part
        self._stop = column + layout.columns
        self._all_present = b"\1" * layout.blocks

    def fill(self, row: memoryview, present: bytearray, frame: Frame, absent: list[int]) -> None:
        """Write the values of a frame that fits the layout over those in `row`, 64-bit words.

        `present` marks the parts that the frame has. `absent` gets the column of every value that
        is null or does not fit 64 bits (readers treat both as absent); the row keeps its earlier
        value there, which compresses best.
        """
        blocks = frame.blocks
        try:
            if tuple(map(len, blocks)) != self.layout.widths:  # type: ignore[arg-type]
                return
            # Arrays are copied; for lists this is the fastest conversion.
            words = array(WORD, (frame.seq, frame.mono_ns, frame.wall_ns))
            for block in blocks:
                if type(block) is list:
                    words.fromlist(block)
                else:
                    words.extend(block)  # type: ignore[arg-type]
        except (TypeError, OverflowError):
            self._fill_parts(row, present, frame, absent)
            return
        row[self.column : self._stop] = words
        present[self.part : self.part + len(self._all_present)] = self._all_present

    def forget(self, absent: list[int]) -> None:
        """Remove what `fill` added of an earlier frame in the same row."""
        absent[:] = [each for each in absent if not self.column <= each < self._stop]

    def _fill_parts(
        self, row: memoryview, present: bytearray, frame: Frame, absent: list[int]
    ) -> None:
        """The same for a frame in which blocks or values are missing."""
        widths = self.layout.widths
        if len(frame.blocks) != len(widths) or any(
            block is not None and len(block) != width
            for block, width in zip(frame.blocks, widths, strict=True)
        ):
            return
        head = (frame.seq & _MASK, frame.mono_ns & _MASK, frame.wall_ns & _MASK)
        start = self.column + HEAD_COLUMNS
        row[self.column : start] = array(WORD, head)
        present[self.part] = 1
        for part, (block, width) in enumerate(
            zip(frame.blocks, widths, strict=True), self.part + 1
        ):
            if block is not None:
                present[part] = 1
                for column, value in enumerate(block, start):
                    if value is not None and 0 <= value <= _MASK:
                        row[column] = value
                    else:
                        absent.append(column)
            start += width


class _Row:
    __slots__ = ("absent", "peak_utilisation", "present", "seq", "time_ns")

    def __init__(self, tick: Tick, peak_utilisation: float, parts: int) -> None:
        self.seq = tick.seq
        self.time_ns = tick.time_ns
        self.peak_utilisation = peak_utilisation
        self.present = bytearray(parts)
        self.absent: list[int] = []


class BlockBuilder:
    """The ticks since the last block.

    `_table` [1 + rows or more, columns] holds their values below the values of the tick before. It
    is reused for the next block: requesting and returning its memory would cost more than all the
    work that is done in it.
    """

    def __init__(self) -> None:
        self._by_node: dict[str, _NodeColumns] = {}
        self._all: list[_NodeColumns] = []
        self._columns = 0
        self._parts = 0
        self._rows: list[_Row] = []
        self._table: UInt64Array = np.zeros((1, 0), np.uint64)
        self._packed_layouts = b""
        self._choices: dict[tuple[int, int], PredictionChoice] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def is_full(self, times: int = 1) -> bool:
        """Whether the rows fill a block, or `times` blocks after blocks could not be written."""
        values = len(self._rows) * self._columns
        return len(self._rows) >= times * _BLOCK_TICKS or values >= times * _BLOCK_VALUES

    @property
    def span_ns(self) -> tuple[int, int]:
        """Times of the first and the last tick."""
        return self._rows[0].time_ns, self._rows[-1].time_ns

    def add_nodes(self, hellos: Mapping[str, Hello]) -> None:
        """Reserve columns for nodes, by the layouts of their hellos."""
        for node, hello in hellos.items():
            widths = tuple(info.width() for info in hello.blocks)
            known = self._by_node.get(node)
            if (
                known is None
                or known.layout.widths != widths
                or not known.hello.has_same_layout(hello)
            ):
                self._by_node[node] = self._reserve(node, hello)

    def add(self, tick: Tick, peak_utilisation: float) -> int:
        """Add a tick; returns how many rows it took: one, or more where a node sent more frames.

        Of more frames than rows the last one is kept, in the last row.
        """
        self.add_nodes(dict(tick.hellos))
        first = len(self._rows)
        self._add_row(tick, peak_utilisation)
        words = self._words(first)
        counts: dict[str, int] = {}
        most = max(2, _TICK_VALUES // max(self._columns, 1))
        for node, frame in tick.frames:
            columns = self._by_node.get(node)
            if columns is None:
                continue
            count = 0
            if self._rows[first].present[columns.part]:
                # The node's second frame at this tick, or a later one.
                count = counts[node] = min(counts.get(node, 0) + 1, most)
                if count == most:
                    count = most - 1
                    columns.forget(self._rows[first + count].absent)
                elif count == len(words):
                    self._add_row(tick, peak_utilisation)
                    words = self._words(first)
            row = self._rows[first + count]
            columns.fill(words[count], row.present, frame, row.absent)
        return len(self._rows) - first

    def last(self, rows: int) -> list[Buffer]:
        """The payload of a block frame of the last rows, for all nodes, in pieces.

        A single row is not compressed: its frame will soon be replaced.
        """
        if not self._packed_layouts:
            self._packed_layouts = pack_layouts([each.layout for each in self._all])
        if rows > 1 or not self._all:
            return [self._frame(self._all, self._rows[-rows:])]
        row = self._rows[-1]
        values = uncompressed_section(self._table[len(self._rows)].data.cast("B"))
        small = (
            pack_one_tick(row.seq, row.time_ns, row.peak_utilisation),
            np.packbits(np.frombuffer(row.present, np.bool_)).tobytes(),
            pack_absent(_absent([row], 0, self._columns), 1),
        )
        sections = [self._packed_layouts, *(b"".join(uncompressed_section(each)) for each in small)]
        lengths = [*map(len, sections), sum(map(len, values))]
        return [section_table(lengths), *sections, *values]

    def block_frames(self) -> Iterator[bytes]:
        """The payloads of block frames of all rows, each with some of the nodes."""
        some: list[_NodeColumns] = []
        values = 0
        for columns in self._all:
            some.append(columns)
            values += columns.layout.columns * len(self._rows)
            if values >= _PART_VALUES:
                yield self._frame(some, self._rows)
                some, values = [], 0
        if some or not self._all:
            yield self._frame(some, self._rows)

    def clear(self) -> None:
        """Remove the ticks. Nodes keep their columns, except those of earlier layouts."""
        self._table[0] = self._table[len(self._rows)]
        self._rows = []
        if len(self._all) != len(self._by_node):
            last, old = self._table[0], list(self._by_node.items())
            self._all, self._columns, self._parts = [], 0, 0
            for node, before in old:
                self._by_node[node] = self._reserve(node, before.hello)
            self._table = np.zeros((1, self._columns), np.uint64)
            for node, before in old:
                width, start = before.layout.columns, self._by_node[node].column
                self._table[0, start : start + width] = last[before.column : before.column + width]

    def _reserve(self, node: str, hello: Hello) -> _NodeColumns:
        layout = RowLayout(node, tuple(info.width() for info in hello.blocks))
        columns = _NodeColumns(hello, layout, self._columns, self._parts)
        self._all.append(columns)
        self._columns += layout.columns
        self._parts += layout.blocks
        self._packed_layouts = b""
        self._choices = {}
        return columns

    def _add_row(self, tick: Tick, peak_utilisation: float) -> None:
        self._rows.append(_Row(tick, peak_utilisation, self._parts))
        number = len(self._rows)
        if number == len(self._table) or self._columns > self._table.shape[1]:
            # The size of a full block: only the part that is written to takes memory.
            full = 2 + min(_BLOCK_TICKS, _BLOCK_VALUES // max(self._columns, 1))
            rows = full if number < full else 2 * number
            old, self._table = self._table, np.zeros((rows, self._columns), np.uint64)
            self._table[:number, : old.shape[1]] = old[:number]
        self._table[number] = self._table[number - 1]

    def _words(self, first: int) -> list[memoryview]:
        """The values of the rows from `first` on, to be written to."""
        return [self._table[1 + n].data for n in range(first, len(self._rows))]

    def _frame(self, some: list[_NodeColumns], rows: list[_Row]) -> bytes:
        """The payload of a block of some nodes, whose columns are adjacent, over some rows."""
        layouts = [columns.layout for columns in some]
        first_column, first_part = (some[0].column, some[0].part) if some else (0, 0)
        stop_column = first_column + sum(layout.columns for layout in layouts)
        stop_part = first_part + sum(layout.blocks for layout in layouts)
        stop_row = 1 + len(self._rows)
        values = self._table[stop_row - len(rows) : stop_row, first_column:stop_column]
        present = np.zeros((len(rows), stop_part - first_part), np.bool_)
        for number, row in enumerate(rows):
            # A row from before a node was added has fewer parts than one from after.
            parts = np.frombuffer(row.present, np.bool_)[first_part:stop_part]
            present[number, : len(parts)] = parts
        if not present[0].all():
            _fill_backwards(values, present, layouts)
        ticks = RowTicks(
            np.array([row.seq for row in rows], np.int64),
            np.array([row.time_ns for row in rows], np.int64),
            np.array([row.peak_utilisation for row in rows], np.float32),
        )
        absent = _absent(rows, first_column, stop_column)
        key = (first_column, stop_column)
        if key not in self._choices:
            self._choices[key] = prediction_choice([columns.hello for columns in some])
        return encode_block(layouts, ticks, present, absent, values, self._choices[key])


def _absent(rows: Sequence[_Row], first_column: int, stop_column: int) -> IndexArray:
    """Pairs [n, 2] of row and column, the columns counted from `first_column`."""
    pairs = [
        (number, column - first_column)
        for number, row in enumerate(rows)
        for column in row.absent
        if first_column <= column < stop_column
    ]
    return np.array(pairs, np.intp).reshape(-1, 2)


def _fill_backwards(
    values: UInt64Array, present: NDArray[np.bool_], layouts: Sequence[RowLayout]
) -> None:
    """Give rows from before a part was present its first value, in place: no jump to encode."""
    first_rows = present.argmax(axis=0)
    part = column = 0
    for layout in layouts:
        for width in (HEAD_COLUMNS, *layout.widths):
            first = int(first_rows[part])
            if first and not values[:first, column : column + width].any():
                values[:first, column : column + width] = values[first, column : column + width]
            part += 1
            column += width
