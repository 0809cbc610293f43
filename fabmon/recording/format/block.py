"""Where the values of a node's frames lie in a row of a recording."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.wire.messages import Frame, Hello
from fabmon.recording.format import columns, records
from fabmon.recording.format.columns import ColumnTable, Hints, IndexArray, Int64Array, UInt64Array
from fabmon.recording.format.errors import Damaged

HEAD_COLUMNS = 3
"""Columns before a node's blocks: its frame's sequence number, monotonic and wall clock."""

SEQ, MONO, WALL = range(HEAD_COLUMNS)


class RowLayout(msgspec.Struct, frozen=True):
    """A node's part of a row: HEAD, then its blocks. `widths` are those of the blocks.

    A node whose layout changes gets another seat.
    """

    node: str
    widths: tuple[int, ...]

    @property
    def columns(self) -> int:
        """How many it takes."""
        return HEAD_COLUMNS + sum(self.widths)

    @property
    def blocks(self) -> int:
        """How many can be there or not, the head included."""
        return 1 + len(self.widths)


class RowFiller:
    """Writes a node's frames into rows, from column `start` and block `block` on."""

    def __init__(self, hello: Hello, seat: RowLayout, start: int, block: int) -> None:
        self.hello = hello
        self.seat = seat
        self.start = start
        self.block = block
        self._stop = start + seat.columns
        self._all_there = b"\1" * seat.blocks

    def fill(self, row: memoryview, there: bytearray, frame: Frame, absent: list[int]) -> bool:
        """Write values over what the row held, and which blocks are there; whether the frame fits.

        `row` is of words of 64 bits. `absent` gets the column of every value that is null, or no
        number of 64 bits (downstream takes them alike); the row keeps what it held there, which
        costs the least.
        """
        blocks = frame.blocks
        try:
            if tuple(map(len, blocks)) != self.seat.widths:  # type: ignore[arg-type]
                return False
            # The fastest way from lists of int to words; still the most of what a tick costs.
            words = array(WORD, (frame.seq, frame.mono_ns, frame.wall_ns))
            for block in blocks:
                words.fromlist(block)  # type: ignore[arg-type]
        except (TypeError, OverflowError):
            return self._fill_parts(row, there, frame, absent)
        row[self.start : self._stop] = words
        there[self.block : self.block + len(self._all_there)] = self._all_there
        return True

    def _fill_parts(
        self, row: memoryview, there: bytearray, frame: Frame, absent: list[int]
    ) -> bool:
        """The same of a frame that lacks blocks or values."""
        if not self._fits(frame):
            return False
        head = (frame.seq & _MASK, frame.mono_ns & _MASK, frame.wall_ns & _MASK)
        start = self.start + HEAD_COLUMNS
        row[self.start : start] = array(WORD, head)
        there[self.block] = 1
        for number, block in enumerate(frame.blocks):
            stop = start + self.seat.widths[number]
            if block is not None:
                there[self.block + 1 + number] = 1
                for column, value in enumerate(block, start):
                    if value is not None and 0 <= value <= _MASK:
                        row[column] = value
                    else:
                        absent.append(column)
            start = stop
        return True

    def _fits(self, frame: Frame) -> bool:
        """Whether the frame is one of this layout."""
        widths = self.seat.widths
        return len(frame.blocks) == len(widths) and all(
            block is None or len(block) == width
            for block, width in zip(frame.blocks, widths, strict=True)
        )


def prediction_hints(fillers: Sequence[RowFiller]) -> Hints:
    """What may predict what, over the columns of several seats that lie side by side.

    An object's columns are like those of the first one that has the same metrics.
    """
    units: list[int] = []
    likes: list[int] = []
    firsts: dict[tuple[str, tuple[str, ...]], int] = {}
    unit = 0
    for filler in fillers:
        mono = len(units) + MONO
        unit += 1
        units += [unit] * HEAD_COLUMNS
        likes += [-1] * WALL + [mono]
        for block in filler.hello.blocks:
            unit += 1
            units.append(unit)
            likes.append(mono)
            for item in block.objects:
                unit += 1
                start, width = len(units), len(item.metrics)
                first = firsts.setdefault((block.source, item.metrics), start)
                units += [unit] * width
                likes += [-1] * width if first == start else range(first, first + width)
    return Hints(np.array(units, np.intp), np.array(likes, np.intp))


_MASK = (1 << 64) - 1
WORD = "L" if array("L").itemsize == 8 else "Q"
"""CPython turns an int into an unsigned long twice as fast as into an unsigned long long."""


# Block frames: the counters of some nodes over a run of ticks.


Bools = NDArray[np.bool_]

UTILISATION_UNIT = 1e6
"""Utilisation is kept as a whole number of millionths; -1 where it is not known."""

_MOST_ROWS = 1 << 20
_MOST_VALUES = 1 << 26
"""Of a block that is read. A writer makes blocks of 2 million, and of twice as many on a disk that
was full; a node that sent many frames at once needs more rows."""

_SEATS, _TICKS, _THERE, _ABSENT = range(4)
_COLUMNS = 4


@dataclass(frozen=True, slots=True)
class RowTicks:
    """A block's rows: the tick that each belongs to. A node that sent two frames needs two rows.

    `peak_utilisation` is the utilisation of the busiest link at the tick; NaN where it is not known.
    """

    seq: Int64Array
    time_ns: Int64Array
    peak_utilisation: NDArray[np.float32]

    def planes(self) -> bytes:
        """As what a section holds."""
        worst = np.where(np.isnan(self.peak_utilisation), -1, np.rint(self.peak_utilisation * UTILISATION_UNIT))
        table = np.stack([self.seq, self.time_ns, worst.astype(np.int64)])
        table[:, 1:] = np.diff(table, axis=1)
        return columns.byte_planes(table.view(np.uint64).ravel()).tobytes()

    @classmethod
    def unpacked(cls, section: bytes) -> RowTicks:
        """The reverse. Raises Damaged."""
        data = columns.unpack_section(section, most=24 * _MOST_ROWS)
        if not data or len(data) % 24:
            raise Damaged("a block without ticks")
        table = columns.from_byte_planes(data, len(data) // 8).view(np.int64).reshape(3, -1)
        table = np.cumsum(table, axis=1)
        worst = np.where(table[2] < 0, np.nan, table[2] / UTILISATION_UNIT).astype(np.float32)
        return cls(table[0], table[1], worst)


def pack_one_tick(seq: int, time_ns: int, worst: float) -> bytes:
    """What a section of Ticks holds for a single row: the same, where arrays do not pay."""
    millionths = -1 if math.isnan(worst) else round(worst * UTILISATION_UNIT)
    row = struct.pack("<3q", seq, time_ns, millionths)
    return b"".join([row[byte::8] for byte in range(8)])


@dataclass(frozen=True, slots=True)
class Block:
    """The columns of some seats, one beside the other, over some rows.

    `present` [rows, blocks] says which blocks of which node were read; elsewhere, and where `absent`
    (pairs of row and column) says so, a value stands for nothing.
    """

    layouts: tuple[RowLayout, ...]
    ticks: RowTicks
    present: Bools
    absent: IndexArray
    values: ColumnTable

    def since(self, time_ns: int) -> Block:
        """The same without what was read before a time; its rows stay."""
        return replace(self, present=self.present & (self.ticks.time_ns >= time_ns)[:, None])


def pack_layouts(seats: Sequence[RowLayout]) -> bytes:
    """The section that says whose the columns are."""
    return columns.pack_section(msgspec.json.encode(tuple(seats)))


def encode_block(
    seats: Sequence[RowLayout],
    ticks: RowTicks,
    there: Bools,
    absent: IndexArray,
    values: UInt64Array,
    hints: Hints,
) -> bytes:
    """A block frame's payload, of `values` [rows, columns]; for the others see Block."""
    sections = [
        pack_layouts(seats),
        columns.pack_section(ticks.planes()),
        columns.pack_section(np.packbits(there, axis=1)),
        columns.pack_section(pack_absent(absent, len(ticks.seq))),
    ]
    return columns.join_sections(sections + columns.encode_columns(values, hints))


def decode_block(payload: bytes) -> Block:
    """The reverse. Raises Damaged."""
    sections = columns.split_sections(payload)
    if len(sections) <= _COLUMNS:
        raise Damaged("a block without columns")
    try:
        seats = records.decode_sanitised(
            columns.unpack_section(sections[_SEATS]), tuple[RowLayout, ...]
        )
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damaged(f"a block of nobody: {error}") from None
    ticks = RowTicks.unpacked(sections[_TICKS])
    rows, width = len(ticks.seq), sum(seat.columns for seat in seats)
    count = sum(seat.blocks for seat in seats)
    if rows * max(width, count) > _MOST_VALUES:
        raise Damaged(f"a block of {rows} x {width} values: no writer makes such a one")
    packed = columns.unpack_section(sections[_THERE], rows * (-(-count // 8)))
    there = np.unpackbits(np.frombuffer(packed, np.uint8).reshape(rows, -1), axis=1, count=count)
    return Block(
        seats,
        ticks,
        there.view(np.bool_),
        _unpacked_absent(sections[_ABSENT], rows, width),
        columns.decode_columns(sections[_COLUMNS:], rows, width),
    )


def decode_ticks(payload: bytes) -> RowTicks:
    """Only the ticks of a payload, or of its beginning. Raises Damaged."""
    try:
        count = int.from_bytes(payload[:4], "little")
        lengths = np.frombuffer(payload, "<u4", 2, 4)
        at = 4 + 4 * count + int(lengths[0])
        return RowTicks.unpacked(payload[at : at + int(lengths[1])])
    except ValueError as error:
        raise Damaged(f"a block without ticks: {error}") from None


def pack_absent(absent: IndexArray, rows: int) -> bytes:
    """The columns that ever lack a value, and for each a bit a row; from pairs of row, column."""
    if not len(absent):
        return b""
    which, place = np.unique(absent[:, 1], return_inverse=True)
    bits = np.zeros((rows, len(which)), np.bool_)
    bits[absent[:, 0], place] = True
    return which.astype("<u4").tobytes() + np.packbits(bits, axis=1).tobytes()


def _unpacked_absent(section: bytes, rows: int, width: int) -> IndexArray:
    data = columns.unpack_section(section, most=4 * width + rows * -(-width // 8))
    if not data:
        return np.empty((0, 2), np.intp)
    # 4 bytes a column, then a bit a column and row, each row in whole bytes.
    count = next(
        (n for n in range(len(data) // 4 + 1) if 4 * n + rows * -(-n // 8) == len(data)), 0
    )
    if not count:
        raise Damaged("absent values of no column")
    which = np.frombuffer(data, "<u4", count).astype(np.intp)
    bits = np.frombuffer(data, np.uint8, offset=4 * count).reshape(rows, -1)
    row, place = np.nonzero(np.unpackbits(bits, axis=1, count=count))
    return np.stack([row, which[place]], axis=1)
