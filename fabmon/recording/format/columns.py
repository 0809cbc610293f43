"""Compression of counter columns: each column is coded as its deviation from a prediction.

A matrix of u64 has rows (ticks) and columns (series). The first row is stored as it is. Of the
other rows only columns that change are stored, as differences from row to row minus a prediction:
a constant, or another column's difference times a ratio plus a constant (packets follow bytes, the
ports of a job follow each other, a block's clock follows its node's). Residuals that are not zero
are stored without their common trailing zero bits, zigzag-coded, as byte planes, the columns with
the most bits first.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from fabmon.recording.format.errors import Damaged
from fabmon.recording.format.predictions import PREDICTION, IndexArray, Int64Array, PredictionChoice
from fabmon.recording.format.sections import (
    ZstdError,
    byte_planes,
    from_byte_planes,
    pack_section,
    unpack_section,
)
from fabmon.recording.format.short_rows import reduced

UInt64Array = NDArray[np.uint64]

_BATCH_VALUES = 1 << 16
"""Values worked on at a time, in whole columns: their memory is reused, where memory for all
columns would be requested from the system and returned at every step."""
_MAX_DEPTH = 1 << 12
"""The longest chain of predictions that is read. A writer's chain stays within one object."""


def encode_columns(values: UInt64Array, choice: PredictionChoice) -> list[bytes]:
    """The sections for a matrix [rows, columns] of at least one row."""
    rows, columns = values.shape
    if rows == 1 or columns == 0:
        return [pack_section(values[0])]
    first = pack_section(byte_planes(values[0]))
    changing, steps = _changing(values.view(np.int64))
    table = np.zeros(len(changing), PREDICTION)
    table["column"] = changing
    choice.fill_in(steps, changing, table)
    # Backwards: a column is predicted by an earlier one, whose differences must still be intact.
    batch = max(1, _BATCH_VALUES // rows)
    for start in reversed(range(0, len(changing), batch)):
        _code_residuals(steps, table, start, start + batch)
    bits, order = table["bits"].astype(np.intp), _longest_first(table)
    coded = steps.view(np.uint64)[order]
    is_set = coded != 0
    residuals = byte_planes(coded[is_set])
    is_set_by_column = np.empty((rows - 1, len(changing)), np.bool_)
    is_set_by_column[:, order] = is_set.T
    sections = [first, pack_section(byte_planes(table))]
    sections.append(pack_section(np.packbits(is_set_by_column, axis=1)))
    ends = np.cumsum(is_set.sum(axis=1))
    for plane in range(8):
        count = int(np.searchsorted(-bits[order], -8 * plane))
        if count:
            sections.append(pack_section(residuals[plane, : ends[count - 1]]))
    return sections


def _changing(values: Int64Array) -> tuple[IndexArray, Int64Array]:
    """The numbers of the columns that change, and their differences [changing, rows - 1]."""
    rows, columns = values.shape
    changing = np.empty(columns, np.intp)
    steps = np.empty((columns, rows - 1), np.int64)
    count = 0
    width = max(1, _BATCH_VALUES // rows)
    for start in range(0, columns, width):
        batch = values[:, start : start + width]
        which = np.flatnonzero((batch[1:] != batch[:-1]).any(axis=0))
        series = np.ascontiguousarray(batch[:, which].T)
        end = count + len(which)
        changing[count:end] = start + which
        np.subtract(series[:, 1:], series[:, :-1], out=steps[count:end])
        count = end
    return changing[:count], steps[:count]


def _code_residuals(steps: Int64Array, table: NDArray[np.void], start: int, stop: int) -> None:
    """Subtract the predictions of some columns in place; shift and zigzag-code the residuals."""
    _subtract_predictions(steps, table, start, stop)
    residuals = steps[start:stop]
    used_bits = reduced(np.bitwise_or, residuals)
    shift = np.frexp((used_bits & -used_bits).view(np.uint64).astype(np.float64))[1] - 1
    shift[used_bits == 0] = 0
    residuals >>= shift[:, None]
    sign = residuals >> 63
    residuals <<= 1
    residuals ^= sign
    largest = reduced(np.maximum, residuals.view(np.uint64))
    table["shift"][start:stop] = shift
    table["bits"][start:stop] = np.frexp(largest.astype(np.float64))[1]


class ColumnTable:
    """A decoded matrix [rows, columns]; rows are computed on request.

    It holds the first row [columns], and for each column that changes its difference from the first
    row [changing, rows - 1]. `depth` is the length of the longest chain of predictions.
    """

    def __init__(
        self, first: UInt64Array, changing: IndexArray, offsets: Int64Array, depth: int = 0
    ) -> None:
        self._first = first
        self._changing = changing
        self._offsets = offsets
        self.depth = depth

    @property
    def size(self) -> int:
        """The count of numbers in memory."""
        return self._first.size + self._offsets.size

    @property
    def width(self) -> int:
        """The count of columns."""
        return self._first.size

    def row(self, number: int) -> UInt64Array:
        """One row, [columns]."""
        values = self._first.copy()
        if number:
            values[self._changing] += self._offsets[:, number - 1].view(np.uint64)
        return values

    def picked(self, rows: IndexArray) -> UInt64Array:
        """[columns]: the value of each column in its row of `rows`; any value where that is -1."""
        values = self._first.copy()
        row = rows[self._changing]
        at = np.flatnonzero(row > 0)
        values[self._changing[at]] += self._offsets[at, row[at] - 1].view(np.uint64)
        return values

    def columns(self, numbers: IndexArray) -> UInt64Array:
        """[rows, numbers]: some columns."""
        values = np.repeat(self._first[None, numbers], self._offsets.shape[1] + 1, axis=0)
        at = np.searchsorted(self._changing, numbers)
        changes = at < len(self._changing)
        changes[changes] = self._changing[at[changes]] == numbers[changes]
        values[1:, changes] += self._offsets[at[changes]].view(np.uint64).T
        return values


def decode_columns(sections: list[bytes], rows: int, columns: int) -> ColumnTable:
    """The reverse of `encode_columns`: the matrix [rows, columns]. Raises Damaged."""
    try:
        return _decode(sections, rows, columns)
    except (ZstdError, ValueError, IndexError, OverflowError) as error:
        raise Damaged(f"columns do not decode: {error}") from None


def _decode(sections: list[bytes], rows: int, columns: int) -> ColumnTable:
    first = unpack_section(sections[0], 8 * columns)
    if len(sections) == 1:
        no_offsets = np.empty((0, rows - 1), np.int64)
        return ColumnTable(np.frombuffer(first, np.uint64), np.empty(0, np.intp), no_offsets)
    table_bytes = unpack_section(sections[1], max_bytes=PREDICTION.itemsize * columns)
    table = from_byte_planes(table_bytes, PREDICTION)
    changing = table["column"].astype(np.intp)
    if changing.max(initial=-1) >= columns:
        raise Damaged("a number of a column is too large")
    packed = np.frombuffer(
        unpack_section(sections[2], (rows - 1) * -(-len(table) // 8)), np.uint8
    ).reshape(rows - 1, -1)
    is_set_by_column = np.unpackbits(packed, axis=1, count=len(table)).view(np.bool_)
    order = _longest_first(table)
    is_set = np.ascontiguousarray(is_set_by_column.T[order])
    residuals = np.zeros((np.count_nonzero(is_set), 8), np.uint8)
    for plane, section in enumerate(sections[3:]):
        column = np.frombuffer(unpack_section(section, max_bytes=len(residuals)), np.uint8)
        residuals[: len(column), plane] = column
    coded = residuals.view(np.uint64).ravel()
    for start in range(0, len(coded), _BATCH_VALUES):
        batch = coded[start : start + _BATCH_VALUES]
        sign = -(batch & np.uint64(1)).view(np.int64)
        batch >>= np.uint64(1)
        batch ^= sign.view(np.uint64)
    in_order = np.zeros((len(table), rows - 1), np.int64)
    in_order[is_set] = coded.view(np.int64)
    del coded, residuals, is_set
    steps = np.empty_like(in_order)
    steps[order] = in_order
    del in_order
    steps <<= table["shift"].astype(np.int64)[:, None]
    depth = _add_predictions(steps, table)
    np.cumsum(steps, axis=1, out=steps)
    return ColumnTable(from_byte_planes(first, np.dtype(np.uint64)), changing, steps, depth)


def _longest_first(table: NDArray[np.void]) -> IndexArray:
    """The order of the changing columns: those with the longest residuals first.

    Sorts the bytes of `bits`, which numpy does fastest.
    """
    return np.argsort(~table["bits"], kind="stable")


def _predicted(steps: Int64Array, table: NDArray[np.void], at: IndexArray) -> Int64Array:
    """The predicted differences of some columns, from the columns that predict them."""
    known = steps.take(at - table["back"][at], axis=0)
    line = known * table["ratio"][at].astype(np.float64)[:, None]
    line += table["add"][at][:, None]
    predicted: Int64Array = np.rint(line, out=line).astype(np.int64)
    predicted *= known != 0
    return predicted


def _subtract_predictions(
    steps: Int64Array, table: NDArray[np.void], start: int, stop: int
) -> None:
    """Subtract the predictions of some columns, in place."""
    back = table["back"][start:stop]
    at = start + np.flatnonzero(back)
    predicted = _predicted(steps, table, at)
    alone = start + np.flatnonzero((back == 0) & (table["add"][start:stop] != 0))
    steps[alone] -= table["add"][alone][:, None]
    steps[at] -= predicted


def _add_predictions(steps: Int64Array, table: NDArray[np.void]) -> int:
    """Add the predictions, in place: columns that predict others come first.

    Returns the length of the longest chain. Raises Damaged.
    """
    depth = _depths(table["back"].astype(np.intp))
    steps += np.where(depth == 0, table["add"], 0)[:, None]
    order = np.argsort(depth, kind="stable")
    ends = np.cumsum(np.bincount(depth)).tolist()
    batch = max(1, _BATCH_VALUES // max(1, steps.shape[1]))
    for first, end in itertools.pairwise(ends):
        for start in range(first, end, batch):
            at = order[start : min(start + batch, end)]
            steps[at] += _predicted(steps, table, at)
    return max(0, len(ends) - 1)


def _depths(back: IndexArray) -> IndexArray:
    """[columns]: how many predictions lead to each column, 0 for none. Raises Damaged.

    Each round doubles the way that is followed, so that a long chain costs few rounds.
    """
    predictor = np.arange(len(back)) - back
    if predictor.min(initial=0) < 0:
        raise Damaged("a column is predicted by a column that does not exist")
    depth: IndexArray = (back > 0).astype(np.intp)
    while depth[predictor].any():
        depth += depth[predictor]
        predictor = predictor[predictor]
    if depth.max(initial=0) > _MAX_DEPTH:
        raise Damaged(f"a column needs more than {_MAX_DEPTH} other columns")
    return depth
