"""Series of counters, packed: what changes, by how much beyond what was to be expected.

A matrix of u64 is rows (in time) by columns (series). Its first row is kept as it is. Of the rest,
only columns that move are kept, as differences from row to row, less a prediction: a constant, or
another column's difference times a ratio plus a constant (packets follow bytes, the ports
of a job follow each other, a block's clock its node's). What is left over is kept where it is not
zero: its low trailing zeros shifted out, zigzag, byte by byte, the longest columns first.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabmon.recording.format.errors import Damaged
from fabmon.recording.format.sections import MAX_SECTION_BYTES, ZstdError, compress, decompress

UInt64Array = NDArray[np.uint64]
Int64Array = NDArray[np.int64]
IndexArray = NDArray[np.intp]
Float64Array = NDArray[np.float64]

_TABLE = np.dtype(
    [("column", "<u4"), ("back", "<u4"), ("ratio", "<f4"), ("add", "<i8"), ("shift", "u1"),
     ("bits", "u1")]
)  # fmt: skip
"""Of every column that moves: its number; how many moving columns back the one lies that it is
predicted by, 0 for none; ratio and constant of the prediction; shift and length of what is left."""

_LEVEL = 1
"""zstd's: the higher ones take twice the time for 2 %."""
_ZSTD_SINGLE_SEGMENT = b"\x28\xb5\x2f\xfd\xa0"
_ZSTD_BLOCK = 1 << 17
_SAMPLED_ROWS = 24
_AT_ONCE = 256
"""Columns that are worked on at a time: what they need of memory is used again and again, where
that of all would be got from the system, and given back, for every step."""
_EXACT = 2.0**52
"""Beyond this a double does not hold every integer: such a column predicts nothing."""
_BIAS = 1022
_REF_BITS = 10
"""What a prediction must save, in bits over the sampled rows, to be worth its entry."""
_WORTH_BITS = 2 * _REF_BITS
"""Columns that take less over the sampled rows are not worth a search."""


class Hints(NamedTuple):
    """Which columns may predict which: [columns] each.

    `unit` is equal for the columns of one object. `like` is a column before it that may behave
    alike: the same metric of another object, or the clock that a clock follows; -1 for none.
    """

    unit: IndexArray
    like: IndexArray


def encode_columns(values: UInt64Array, hints: Hints) -> list[bytes]:
    """Sections for a matrix [rows, columns] of at least one row."""
    rows, columns = values.shape
    if rows == 1 or columns == 0:
        return [pack_section(values[0])]
    first = pack_section(byte_planes(values[0]))
    moving, steps = _moving(values.view(np.int64))
    table = np.zeros(len(moving), _TABLE)
    table["column"] = moving
    _choose(steps, moving, hints, table)
    # From the last on: a column is predicted by one before it, which must still be as it was.
    for start in reversed(range(0, len(moving), _AT_ONCE)):
        _code(steps, table, start, start + _AT_ONCE)
    coded, bits = steps.view(np.uint64), table["bits"].astype(np.intp)
    order = _longest_first(table)
    coded = coded[order]
    there = coded != 0
    left = coded[there].view(np.uint8).reshape(-1, 8)
    seen = np.empty((rows - 1, len(moving)), np.bool_)
    seen[:, order] = there.T
    sections = [first, pack_section(table.view(np.uint8).reshape(-1, _TABLE.itemsize).T)]
    sections.append(pack_section(np.packbits(seen, axis=1)))
    ends = np.cumsum(there.sum(axis=1))
    for plane in range(8):
        count = int(np.searchsorted(-bits[order], -8 * plane))
        if count:
            sections.append(pack_section(left[: ends[count - 1], plane]))
    return sections


def _moving(values: Int64Array) -> tuple[IndexArray, Int64Array]:
    """The columns that move, and their differences [moving, rows - 1]."""
    rows, columns = values.shape
    moving = np.empty(columns, np.intp)
    steps = np.empty((columns, rows - 1), np.int64)
    count = 0
    for start in range(0, columns, _AT_ONCE):
        some = values[:, start : start + _AT_ONCE]
        which = np.flatnonzero((some[1:] != some[:-1]).any(axis=0))
        series = np.ascontiguousarray(some[:, which].T)
        end = count + len(which)
        moving[count:end] = start + which
        np.subtract(series[:, 1:], series[:, :-1], out=steps[count:end])
        count = end
    return moving[:count], steps[:count]


def _code(steps: Int64Array, table: NDArray[np.void], start: int, stop: int) -> None:
    """Take the predictions of some columns away, and put what is left into its final form."""
    _subtract(steps, table, start, stop)
    rest = steps[start:stop]
    low = np.bitwise_or.reduce(rest, axis=1)
    shift = np.frexp((low & -low).view(np.uint64).astype(np.float64))[1] - 1
    shift[low == 0] = 0
    rest >>= shift[:, None]
    sign = rest >> 63
    rest <<= 1
    rest ^= sign
    most = rest.view(np.uint64).max(axis=1, initial=0)
    table["shift"][start:stop] = shift
    table["bits"][start:stop] = np.frexp(most.astype(np.float64))[1]


class ColumnTable:
    """A matrix [rows, columns] as it was kept: its first row, and by how much each moving column
    is more than there, [moving, rows - 1]. Rows are made when they are asked for.
    """

    def __init__(self, first: UInt64Array, moving: IndexArray, more: Int64Array) -> None:
        self._first = first
        self._moving = moving
        self._more = more

    @property
    def size(self) -> int:
        """Numbers that are held."""
        return self._first.size + self._more.size

    def row(self, number: int) -> UInt64Array:
        """[columns]"""
        values = self._first.copy()
        if number:
            values[self._moving] += self._more[:, number - 1].view(np.uint64)
        return values

    def picked(self, rows: IndexArray) -> UInt64Array:
        """[columns]: of every column the value in a row of its own; of row -1 any."""
        values = self._first.copy()
        row = rows[self._moving]
        at = np.flatnonzero(row > 0)
        values[self._moving[at]] += self._more[at, row[at] - 1].view(np.uint64)
        return values

    def columns(self, places: IndexArray) -> UInt64Array:
        """[rows, places]: some columns only."""
        values = np.repeat(self._first[None, places], self._more.shape[1] + 1, axis=0)
        at = np.searchsorted(self._moving, places)
        moves = at < len(self._moving)
        moves[moves] = self._moving[at[moves]] == places[moves]
        values[1:, moves] += self._more[at[moves]].view(np.uint64).T
        return values

    def matrix(self) -> UInt64Array:
        """[rows, columns]"""
        return np.stack([self.row(number) for number in range(self._more.shape[1] + 1)])


def decode_columns(sections: list[bytes], rows: int, columns: int) -> ColumnTable:
    """The matrix [rows, columns] of some sections. Raises Damaged."""
    try:
        return _decode(sections, rows, columns)
    except (ZstdError, ValueError, IndexError, OverflowError) as error:
        raise Damaged(f"columns do not decode: {error}") from None


def _decode(sections: list[bytes], rows: int, columns: int) -> ColumnTable:
    data = unpack_section(sections[0], 8 * columns)
    if len(sections) == 1:
        nothing = np.empty((0, rows - 1), np.int64)
        return ColumnTable(np.frombuffer(data, np.uint64), np.empty(0, np.intp), nothing)
    table_bytes = np.frombuffer(
        unpack_section(sections[1], most=_TABLE.itemsize * columns), np.uint8
    ).reshape(_TABLE.itemsize, -1)
    table = np.ascontiguousarray(table_bytes.T).view(_TABLE).ravel()
    moving = table["column"].astype(np.intp)
    if moving.max(initial=-1) >= columns:
        raise Damaged("a column that is not there")
    packed = np.frombuffer(
        unpack_section(sections[2], (rows - 1) * -(-len(table) // 8)), np.uint8
    ).reshape(rows - 1, -1)
    seen = np.unpackbits(packed, axis=1, count=len(table)).view(np.bool_)
    order = _longest_first(table)
    there = np.ascontiguousarray(seen.T[order])
    left = np.zeros((np.count_nonzero(there), 8), np.uint8)
    for plane, section in enumerate(sections[3:]):
        column = np.frombuffer(unpack_section(section, most=len(left)), np.uint8)
        left[: len(column), plane] = column
    coded = left.view(np.uint64).ravel()
    sign = -(coded & np.uint64(1)).view(np.int64)
    coded >>= np.uint64(1)
    in_order = np.zeros((len(table), rows - 1), np.int64)
    in_order[there] = coded.view(np.int64) ^ sign
    steps = np.empty_like(in_order)
    steps[order] = in_order
    steps <<= table["shift"].astype(np.int64)[:, None]
    _add(steps, table)
    np.cumsum(steps, axis=1, out=steps)
    return ColumnTable(from_byte_planes(data, columns), moving, steps)


def _longest_first(table: NDArray[np.void]) -> IndexArray:
    """The columns that move, those with the most bits left over first; bytes are sorted fastest."""
    return np.argsort(~table["bits"], kind="stable")


def _choose(wide: Int64Array, moving: IndexArray, hints: Hints, table: NDArray[np.void]) -> None:
    """Fill in the prediction of every column that leaves the fewest bits over."""
    stride = max(1, wide.shape[1] // _SAMPLED_ROWS)
    sample = wide[:, ::stride].astype(np.float64)
    exact = (wide.max(axis=1) < _EXACT) & (wide.min(axis=1) > -_EXACT)
    best = _bits(sample)
    everywhere = np.flatnonzero((sample != 0).all(axis=1) & exact)
    mean = np.rint(sample[everywhere].mean(axis=1))
    cost = _bits(sample[everywhere] - mean[:, None]) + _REF_BITS
    better = cost < best[everywhere]
    best[everywhere[better]] = cost[better]
    table["add"][everywhere[better]] = mean[better].astype(np.int64)
    for back in _candidates(moving, hints):
        at = np.flatnonzero((back > 0) & exact & (best > _WORTH_BITS))
        at = at[exact[at - back[at]]]
        if not len(at):
            continue
        known, sought = sample[at - back[at]], sample[at]
        ratio, add = _line(known, sought)
        guess = np.rint(ratio[:, None] * known + add[:, None]) * (known != 0)
        cost = _bits(sought - guess) + _REF_BITS
        better = (cost < best[at]) & (np.abs(ratio) < 1024) & (np.abs(add) < _EXACT)
        won = at[better]
        best[won] = cost[better]
        table["back"][won] = back[won]
        table["ratio"][won] = ratio[better]
        table["add"][won] = add[better].astype(np.int64)


def _candidates(moving: IndexArray, hints: Hints) -> list[IndexArray]:
    """How far back, in moving columns, each may look: one and two of its object, and its like."""
    unit = hints.unit[moving]
    found = []
    for back in (1, 2):
        same = np.zeros(len(moving), np.intp)
        same[back:] = np.where(unit[back:] == unit[:-back], back, 0)
        found.append(same)
    # The last place is for those that have no like.
    place = np.full(len(hints.unit) + 1, -1, np.intp)
    place[moving] = np.arange(len(moving))
    like = place[hints.like[moving]]
    found.append(np.where(like >= 0, np.arange(len(moving)) - like, 0))
    return found


def _line(known: Float64Array, sought: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Least squares per row, over the places where `known` moved: a ratio, and a constant."""
    moved = known != 0
    count = np.maximum(moved.sum(axis=1), 1)
    x, y = known.sum(axis=1), (sought * moved).sum(axis=1)
    xx, xy = (known * known).sum(axis=1), (known * sought).sum(axis=1)
    spread = xx - x * x / count
    sloped = spread > 1e-9 * xx
    ratio = np.where(sloped, (xy - x * y / count) / np.where(sloped, spread, 1), 1.0)
    ratio = ratio.astype(np.float32).astype(np.float64)
    return ratio, np.rint((y - ratio * x) / count)


def _bits(rest: Float64Array) -> Float64Array:
    """How many bits the rows would take, each value at its own length: the doubles' exponents."""
    exponent = (np.abs(rest).view(np.int64) >> 52) - _BIAS
    bits: Float64Array = np.maximum(exponent, 0).sum(axis=1, dtype=np.float64)
    return bits


def _guess(steps: Int64Array, table: NDArray[np.void], at: IndexArray) -> Int64Array:
    """What some columns are expected to be, from those that they look back at."""
    known = steps.take(at - table["back"][at], axis=0)
    line = known * table["ratio"][at].astype(np.float64)[:, None]
    line += table["add"][at][:, None]
    guess: Int64Array = np.rint(line, out=line).astype(np.int64)
    guess *= known != 0
    return guess


def _subtract(steps: Int64Array, table: NDArray[np.void], start: int, stop: int) -> None:
    """Take the predictions of some columns away, in place."""
    back = table["back"][start:stop]
    at = start + np.flatnonzero(back)
    guess = _guess(steps, table, at)
    alone = start + np.flatnonzero((back == 0) & (table["add"][start:stop] != 0))
    steps[alone] -= table["add"][alone][:, None]
    steps[at] -= guess


def _add(steps: Int64Array, table: NDArray[np.void]) -> None:
    """Put the predictions back, in place: columns that others look back at come first."""
    back = table["back"].astype(np.intp)
    ready = back == 0
    steps += np.where(ready, table["add"], 0)[:, None]
    waiting = np.flatnonzero(~ready)
    while len(waiting):
        now = ready[waiting - back[waiting]]
        at = waiting[now]
        if not len(at) or (back[at] > at).any():
            raise Damaged("a column is predicted by one that is not there")
        steps[at] += _guess(steps, table, at)
        ready[at] = True
        waiting = waiting[~now]


def byte_planes(values: UInt64Array) -> NDArray[np.uint8]:
    """[8, n]: all lowest bytes first, all highest last."""
    return values.view(np.uint8).reshape(-1, 8).T


def from_byte_planes(planes: bytes, count: int) -> UInt64Array:
    """The reverse of `byte_planes`."""
    return np.ascontiguousarray(
        np.frombuffer(planes, np.uint8).reshape(8, count).T
    ).view(np.uint64).ravel()  # fmt: skip


def pack_section(values: NDArray[np.generic] | bytes) -> bytes:
    """A section: bytes, compressed."""
    data = values if isinstance(values, bytes) else values.tobytes()
    return compress(data, _LEVEL)


def uncompressed_section(data: bytes | bytearray) -> list[bytes | bytearray | memoryview]:
    """A section that nothing is spent on, in pieces: raw blocks in a zstd frame (RFC 8878)."""
    pieces: list[bytes | bytearray | memoryview] = [
        _ZSTD_SINGLE_SEGMENT,
        len(data).to_bytes(4, "little"),
    ]
    for at in range(0, max(len(data), 1), _ZSTD_BLOCK):
        piece = memoryview(data)[at : at + _ZSTD_BLOCK]
        last = at + _ZSTD_BLOCK >= len(data)
        pieces += [(len(piece) << 3 | last).to_bytes(3, "little"), piece]
    return pieces


def unpack_section(section: bytes, size: int | None = None, most: int = MAX_SECTION_BYTES) -> bytes:
    """A section's bytes, of a size that is known or no more than so many. Raises Damaged."""
    try:
        data = decompress(section, most if size is None else min(size, most))
    except ZstdError as error:
        raise Damaged(f"a section does not inflate: {error}") from None
    if size is not None and len(data) != size:
        raise Damaged(f"a section of {len(data)} bytes, {size} expected")
    return data


def join_sections(sections: list[bytes]) -> bytes:
    """Sections as one payload: their number, their lengths, and they."""
    return section_table([len(section) for section in sections]) + b"".join(sections)


def section_table(lengths: Sequence[int]) -> bytes:
    """What stands before sections: their number, and their lengths."""
    return struct.pack(f"<{1 + len(lengths)}I", len(lengths), *lengths)


def split_sections(payload: bytes) -> list[bytes]:
    """The reverse of `joined`. Raises Damaged."""
    try:
        (count,) = struct.unpack_from("<I", payload)
        lengths = struct.unpack_from(f"<{count}I", payload, 4)
    except struct.error:
        raise Damaged("a payload without its sections") from None
    at, sections = 4 + 4 * count, []
    for length in lengths:
        sections.append(payload[at : at + length])
        at += length
    if at != len(payload):
        raise Damaged("a payload whose sections do not fill it")
    return sections
