"""Block frames: the counters of some nodes over a run of ticks."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.recording import columns, texts
from fabmon.recording.columns import Hints, Ints, Places, Table, Words
from fabmon.recording.errors import Damaged
from fabmon.recording.seats import Seat

Bools = NDArray[np.bool_]

WORST_UNIT = 1e6
"""Utilisation is kept as a whole number of millionths; -1 where it is not known."""

_MOST_ROWS = 1 << 20
_MOST_VALUES = 1 << 26
"""Of a block that is read. A writer makes blocks of 2 million, and of twice as many on a disk that
was full; a node that sent many frames at once needs more rows."""

_SEATS, _TICKS, _THERE, _ABSENT = range(4)
_COLUMNS = 4


@dataclass(frozen=True, slots=True)
class Ticks:
    """A block's rows: the tick that each belongs to. A node that sent two frames needs two rows.

    `worst` is the utilisation of the busiest link at the tick; NaN where it is not known.
    """

    seq: Ints
    time_ns: Ints
    worst: NDArray[np.float32]

    def planes(self) -> bytes:
        """As what a section holds."""
        worst = np.where(np.isnan(self.worst), -1, np.rint(self.worst * WORST_UNIT))
        table = np.stack([self.seq, self.time_ns, worst.astype(np.int64)])
        table[:, 1:] = np.diff(table, axis=1)
        return columns.byte_planes(table.view(np.uint64).ravel()).tobytes()

    @classmethod
    def unpacked(cls, section: bytes) -> Ticks:
        """The reverse. Raises Damaged."""
        data = columns.unpack(section, most=24 * _MOST_ROWS)
        if not data or len(data) % 24:
            raise Damaged("a block without ticks")
        table = columns.words(data, len(data) // 8).view(np.int64).reshape(3, -1)
        table = np.cumsum(table, axis=1)
        worst = np.where(table[2] < 0, np.nan, table[2] / WORST_UNIT).astype(np.float32)
        return cls(table[0], table[1], worst)


def planes_of_one(seq: int, time_ns: int, worst: float) -> bytes:
    """What a section of Ticks holds for a single row: the same, where arrays do not pay."""
    millionths = -1 if math.isnan(worst) else round(worst * WORST_UNIT)
    row = struct.pack("<3q", seq, time_ns, millionths)
    return b"".join([row[byte::8] for byte in range(8)])


@dataclass(frozen=True, slots=True)
class Block:
    """The columns of some seats, one beside the other, over some rows.

    `there` [rows, blocks] says which blocks of which node were read; elsewhere, and where `absent`
    (pairs of row and column) says so, a value stands for nothing.
    """

    seats: tuple[Seat, ...]
    ticks: Ticks
    there: Bools
    absent: Places
    values: Table

    def since(self, time_ns: int) -> Block:
        """The same without what was read before a time; its rows stay."""
        return replace(self, there=self.there & (self.ticks.time_ns >= time_ns)[:, None])


def packed_seats(seats: Sequence[Seat]) -> bytes:
    """The section that says whose the columns are."""
    return columns.pack(msgspec.json.encode(tuple(seats)))


def encode(
    seats: Sequence[Seat],
    ticks: Ticks,
    there: Bools,
    absent: Places,
    values: Words,
    hints: Hints,
) -> bytes:
    """A block frame's payload, of `values` [rows, columns]; for the others see Block."""
    sections = [
        packed_seats(seats),
        columns.pack(ticks.planes()),
        columns.pack(np.packbits(there, axis=1)),
        columns.pack(absent_bytes(absent, len(ticks.seq))),
    ]
    return columns.joined(sections + columns.encode(values, hints))


def decode(payload: bytes) -> Block:
    """The reverse. Raises Damaged."""
    sections = columns.split(payload)
    if len(sections) <= _COLUMNS:
        raise Damaged("a block without columns")
    try:
        seats = texts.decode(columns.unpack(sections[_SEATS]), tuple[Seat, ...])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damaged(f"a block of nobody: {error}") from None
    ticks = Ticks.unpacked(sections[_TICKS])
    rows, width = len(ticks.seq), sum(seat.columns for seat in seats)
    count = sum(seat.blocks for seat in seats)
    if rows * max(width, count) > _MOST_VALUES:
        raise Damaged(f"a block of {rows} x {width} values: no writer makes such a one")
    packed = columns.unpack(sections[_THERE], rows * (-(-count // 8)))
    there = np.unpackbits(np.frombuffer(packed, np.uint8).reshape(rows, -1), axis=1, count=count)
    return Block(
        seats,
        ticks,
        there.view(np.bool_),
        _unpacked_absent(sections[_ABSENT], rows, width),
        columns.decode(sections[_COLUMNS:], rows, width),
    )


def ticks_of(payload: bytes) -> Ticks:
    """Only the ticks of a payload, or of its beginning. Raises Damaged."""
    try:
        count = int.from_bytes(payload[:4], "little")
        lengths = np.frombuffer(payload, "<u4", 2, 4)
        at = 4 + 4 * count + int(lengths[0])
        return Ticks.unpacked(payload[at : at + int(lengths[1])])
    except ValueError as error:
        raise Damaged(f"a block without ticks: {error}") from None


def absent_bytes(absent: Places, rows: int) -> bytes:
    """The columns that ever lack a value, and for each a bit a row; from pairs of row, column."""
    if not len(absent):
        return b""
    which, place = np.unique(absent[:, 1], return_inverse=True)
    bits = np.zeros((rows, len(which)), np.bool_)
    bits[absent[:, 0], place] = True
    return which.astype("<u4").tobytes() + np.packbits(bits, axis=1).tobytes()


def _unpacked_absent(section: bytes, rows: int, width: int) -> Places:
    data = columns.unpack(section, most=4 * width + rows * -(-width // 8))
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
