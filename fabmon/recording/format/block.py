"""Block frames: the counters of some nodes over a run of ticks."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.malformed_json import MALFORMED
from fabmon.recording.format.columns import ColumnTable, UInt64Array, decode_columns, encode_columns
from fabmon.recording.format.errors import Damaged
from fabmon.recording.format.predictions import IndexArray, Int64Array, PredictionChoice
from fabmon.recording.format.records import decode_sanitised
from fabmon.recording.format.sections import (
    byte_planes,
    from_byte_planes,
    join_sections,
    pack_section,
    split_sections,
    unpack_section,
)

Bools = NDArray[np.bool_]

HEAD_COLUMNS = 3
"""Columns before a node's blocks: its frame's sequence number, monotonic and wall clock."""

SEQ, MONO, WALL = range(HEAD_COLUMNS)

UTILISATION_UNIT = 1e6
"""Utilisation is stored as a whole number of millionths; -1 where it is not known."""

_MAX_ROWS = 1 << 16
_MAX_VALUES = 1 << 24
"""Limits of a block that is read. A writer makes blocks of 2 million values, twice as many after a
full disk; nodes that sent many frames at once, after a pause, need more rows. One tick of 25,000
nodes has as many values."""
_MAX_ABSENT = 1 << 23
_BYTES_PER_DEPTH = 1 << 16
_LARGE_VALUES = 1 << 22
_MAX_LAYOUTS_BYTES = 1 << 22

_LAYOUTS, _TICKS, _PRESENT, _ABSENT, _COLUMNS = range(5)
"""The sections of a block; those from _COLUMNS on are the values."""


class RowLayout(msgspec.Struct, frozen=True):
    """A node's part of a row: HEAD_COLUMNS, then its blocks, whose `widths` in columns are given.

    A node whose layout changes gets another RowLayout beside the first.
    """

    node: str
    widths: tuple[int, ...]

    @property
    def columns(self) -> int:
        """How many columns the node takes."""
        return HEAD_COLUMNS + sum(self.widths)

    @property
    def blocks(self) -> int:
        """How many parts can be present or not: the head and the blocks."""
        return 1 + len(self.widths)


@dataclass(frozen=True, slots=True)
class RowTicks:
    """The tick of each row of a block, [rows] each. A node that sent two frames needs two rows.

    `peak_utilisation` is that of the busiest link at the tick, 0 to 1; NaN where it is not known.
    """

    seq: Int64Array
    time_ns: Int64Array
    peak_utilisation: NDArray[np.float32]

    def planes(self) -> bytes:
        """The bytes of the section, before compression."""
        millionths = np.rint(self.peak_utilisation * UTILISATION_UNIT)
        known = np.where(np.isnan(self.peak_utilisation), -1, millionths)
        table = np.stack([self.seq, self.time_ns, known.astype(np.int64)])
        table[:, 1:] = np.diff(table, axis=1)
        return byte_planes(table.ravel()).tobytes()

    @classmethod
    def unpacked(cls, section: bytes) -> RowTicks:
        """The reverse, from the compressed section. Raises Damaged."""
        data = unpack_section(section, max_bytes=24 * _MAX_ROWS)
        if not data or len(data) % 24:
            raise Damaged("a block has no ticks")
        table = from_byte_planes(data, np.dtype(np.int64)).reshape(3, -1)
        seq, time_ns, millionths = np.cumsum(table, axis=1)
        peak = np.where(millionths < 0, np.nan, millionths / UTILISATION_UNIT)
        return cls(seq, time_ns, peak.astype(np.float32))


def pack_one_tick(seq: int, time_ns: int, peak_utilisation: float) -> bytes:
    """`RowTicks.planes` of a single row, faster than with arrays."""
    millionths = -1 if math.isnan(peak_utilisation) else round(peak_utilisation * UTILISATION_UNIT)
    row = struct.pack("<3q", seq, time_ns, millionths)
    return b"".join([row[byte::8] for byte in range(8)])


@dataclass(frozen=True, slots=True)
class Block:
    """A decoded block: the columns of some nodes side by side, over some rows.

    `present` [rows, parts of the layouts] is true where a part was read at a row. Elsewhere, and at
    the places of `absent` [n, 2] (row, column), by row, a value has no meaning.
    """

    layouts: tuple[RowLayout, ...]
    ticks: RowTicks
    present: Bools
    absent: IndexArray
    values: ColumnTable

    @property
    def expanded_bytes(self) -> int:
        """About the memory that all rows take, and the work of long chains of predictions."""
        rows = 8 * len(self.present) * self.values.width
        return rows + self.absent.nbytes + _BYTES_PER_DEPTH * self.values.depth

    def nodes(self) -> Iterator[tuple[RowLayout, int, int]]:
        """Each layout with the numbers of its first column and its first part."""
        column = part = 0
        for layout in self.layouts:
            yield layout, column, part
            column += layout.columns
            part += layout.blocks

    def since(self, time_ns: int) -> Block:
        """The same without what was read before a time; the rows stay."""
        return replace(self, present=self.present & (self.ticks.time_ns >= time_ns)[:, None])


def pack_layouts(layouts: Sequence[RowLayout]) -> bytes:
    """The section with the layouts."""
    return pack_section(msgspec.json.encode(tuple(layouts)))


def encode_block(
    layouts: Sequence[RowLayout],
    ticks: RowTicks,
    present: Bools,
    absent: IndexArray,
    values: UInt64Array,
    choice: PredictionChoice,
) -> bytes:
    """A block frame's payload, of `values` [rows, columns]; the others are as in Block."""
    sections = [
        pack_layouts(layouts),
        pack_section(ticks.planes()),
        pack_section(np.packbits(present, axis=1)),
        pack_section(pack_absent(absent, len(ticks.seq))),
    ]
    return join_sections(sections + encode_columns(values, choice))


def decode_block(payload: bytes, large: AbstractContextManager[object] | None = None) -> Block:
    """The reverse of `encode_block`. `large` is held while many values are decoded, which takes
    several times their memory. Raises Damaged.
    """
    sections = split_sections(payload)
    if len(sections) <= _COLUMNS:
        raise Damaged("a block has no columns")
    try:
        text = unpack_section(sections[_LAYOUTS], max_bytes=_MAX_LAYOUTS_BYTES)
        layouts = decode_sanitised(text, tuple[RowLayout, ...])
    except MALFORMED as error:
        raise Damaged(f"the layouts of a block do not decode: {error}") from None
    if any(width < 0 for layout in layouts for width in layout.widths):
        raise Damaged("a block has a layout of negative width")
    ticks = RowTicks.unpacked(sections[_TICKS])
    rows, width = len(ticks.seq), sum(layout.columns for layout in layouts)
    count = sum(layout.blocks for layout in layouts)
    if rows * max(width, count) > _MAX_VALUES:
        raise Damaged(f"a block claims {rows} x {width} values, more than any writer makes")
    packed = unpack_section(sections[_PRESENT], rows * (-(-count // 8)))
    present = np.unpackbits(np.frombuffer(packed, np.uint8).reshape(rows, -1), axis=1, count=count)
    with large if large and rows * width > _LARGE_VALUES else nullcontext():
        return Block(
            layouts,
            ticks,
            present.view(np.bool_),
            _unpacked_absent(sections[_ABSENT], rows, width),
            decode_columns(sections[_COLUMNS:], rows, width),
        )


def decode_ticks(payload: bytes) -> RowTicks:
    """Only the ticks of a block, from its payload or the beginning of it. Raises Damaged."""
    try:
        count = int.from_bytes(payload[:4], "little")
        lengths = np.frombuffer(payload, "<u4", 2, 4)
        start = 4 + 4 * count + int(lengths[_LAYOUTS])
        return RowTicks.unpacked(payload[start : start + int(lengths[_TICKS])])
    except ValueError as error:
        raise Damaged(f"the ticks of a block do not decode: {error}") from None


def pack_absent(absent: IndexArray, rows: int) -> bytes:
    """The section of absent values, before compression, from pairs [n, 2] of row and column.

    The columns that ever lack a value, u32, then a bit for each of them and each row.
    """
    if not len(absent):
        return b""
    which, place = np.unique(absent[:, 1], return_inverse=True)
    bits = np.zeros((rows, len(which)), np.bool_)
    bits[absent[:, 0], place] = True
    return which.astype("<u4").tobytes() + np.packbits(bits, axis=1).tobytes()


def _unpacked_absent(section: bytes, rows: int, width: int) -> IndexArray:
    data = unpack_section(section, max_bytes=4 * width + rows * -(-width // 8))
    if not data:
        return np.empty((0, 2), np.intp)
    # 4 bytes a column, then a bit for each column and row, each row padded to whole bytes: eight
    # columns take 32 + rows bytes, up to seven more 4 each and one byte a row.
    eights, rest = divmod(len(data), 32 + rows)
    count = 8 * eights + (rest - rows) // 4 if rest else 8 * eights
    if not count or 4 * count + rows * -(-count // 8) != len(data):
        raise Damaged("the list of a block's absent values has a wrong length")
    which = np.frombuffer(data, "<u4", count).astype(np.intp)
    if which.max() >= width:
        raise Damaged("a block lists absent values in columns that it does not have")
    bits = np.frombuffer(data, np.uint8, offset=4 * count).reshape(rows, -1)
    is_absent = np.unpackbits(bits, axis=1, count=count)
    if np.count_nonzero(is_absent) > _MAX_ABSENT:
        raise Damaged(f"a block has more than {_MAX_ABSENT} absent values")
    row, place = np.nonzero(is_absent)
    return np.stack([row, which[place]], axis=1)
