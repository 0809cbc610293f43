"""Chooses for every counter column the prediction that leaves the shortest residuals.

A prediction is a constant, or another column's difference times a ratio plus a constant. To search
for the column that predicts takes two thirds of the work on a block, and what follows what seldom
changes: it is searched for in one block of several, and ratio and constant are fitted in each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabmon.recording.format.short_rows import reduced

Int64Array = NDArray[np.int64]
IndexArray = NDArray[np.intp]
Float64Array = NDArray[np.float64]

PREDICTION = np.dtype(
    [("column", "<u4"), ("back", "<u4"), ("ratio", "<f4"), ("add", "<i8"), ("shift", "u1"),
     ("bits", "u1")]
)  # fmt: skip
"""One record for each column that changes: its number; the distance to the column that predicts
it, counted in changing columns, 0 for none; ratio and constant of the prediction; shift and bit
length of the residuals."""

_SAMPLED_ROWS = 24
"""Rows by which a prediction is chosen."""
_EXACT = 2.0**52
"""From here on a double cannot represent every integer; such a column predicts nothing."""
_MOST_RATIO = 1024
_EXPONENT_BIAS = 1022
_PREDICTION_BITS = 10
"""Bits over the sampled rows that a prediction must save to be worth its record."""
_MIN_SEARCH_BITS = 2 * _PREDICTION_BITS
"""Columns that take fewer bits over the sampled rows are not searched for a prediction."""
_SEARCHED_EVERY = 8
"""Blocks from one search to the next."""
_MORE = 1.1
"""A block in which so many times the columns of any search change is searched as well."""

_NONE, _CONSTANT = 0, 1
"""Codes of what predicts a column; from 2 on, candidates in their order."""


class PredictionChoice:
    """What predicts the columns of blocks that follow each other.

    Both arrays are [columns]. `unit` is equal for the columns of one object. `like` is the number
    of an earlier column that may behave similarly: the same metric of another object, or the clock
    that a clock follows; -1 for none.
    """

    def __init__(self, unit: IndexArray, like: IndexArray) -> None:
        # Half of the memory; a frame has fewer columns than 2**31.
        self._unit = unit.astype(np.int32)
        self._like = like.astype(np.int32)
        self._chosen: NDArray[np.uint8] = np.zeros(len(unit), np.uint8)
        self._searched_columns = 0
        self._until_search = 0

    def fill_in(self, steps: Int64Array, changing: IndexArray, table: NDArray[np.void]) -> None:
        """Fill in back, ratio and add in `table`, a record of PREDICTION for every column.

        `steps` [changing, rows] are the differences of the columns that change, `changing` their
        numbers.
        """
        stride = max(1, steps.shape[1] // _SAMPLED_ROWS)
        sample = steps[:, ::stride].astype(np.float64)
        exact = (reduced(np.maximum, steps) < _EXACT) & (reduced(np.minimum, steps) > -_EXACT)
        candidates = self._candidates(changing)
        if not self._until_search or len(changing) > _MORE * self._searched_columns:
            self._chosen[changing] = _searched(sample, exact, candidates)
            self._until_search = _SEARCHED_EVERY
            self._searched_columns = max(self._searched_columns, len(changing))
        self._until_search -= 1
        chosen = self._chosen[changing]
        constant = np.flatnonzero((chosen == _CONSTANT) & exact)
        table["add"][constant] = np.rint(sample[constant].mean(axis=1)).astype(np.int64)
        for code, back in enumerate(candidates, _CONSTANT + 1):
            at = np.flatnonzero((chosen == code) & (back > 0) & exact)
            at = at[exact[at - back[at]]]
            ratio, add = _line(sample[at - back[at]], sample[at])
            fits = _is_usable(ratio, add)
            at = at[fits]
            table["back"][at] = back[at]
            table["ratio"][at] = ratio[fits]
            table["add"][at] = add[fits].astype(np.int64)

    def _candidates(self, changing: IndexArray) -> list[IndexArray]:
        """For three candidates, the distance [changing] to the column that may predict, 0 for none:
        the one and the two before of the same object, and the similar column."""
        unit = self._unit[changing]
        found = []
        for back in (1, 2):
            same = np.zeros(len(changing), np.intp)
            same[back:] = np.where(unit[back:] == unit[:-back], back, 0)
            found.append(same)
        # Index -1, the last place, serves the columns without a similar one.
        place = np.full(len(self._unit) + 1, -1, np.intp)
        place[changing] = np.arange(len(changing))
        like = place[self._like[changing]]
        found.append(np.where(like >= 0, np.arange(len(changing)) - like, 0))
        return found


def _searched(
    sample: Float64Array, exact: NDArray[np.bool_], candidates: list[IndexArray]
) -> NDArray[np.uint8]:
    """[changing]: the code of what predicts each column best."""
    chosen = np.full(len(sample), _NONE, np.uint8)
    best = _bits(sample)
    in_all_rows = np.flatnonzero((sample != 0).all(axis=1) & exact)
    mean = np.rint(sample[in_all_rows].mean(axis=1))
    cost = _bits(sample[in_all_rows] - mean[:, None]) + _PREDICTION_BITS
    better = cost < best[in_all_rows]
    best[in_all_rows[better]] = cost[better]
    chosen[in_all_rows[better]] = _CONSTANT
    for code, back in enumerate(candidates, _CONSTANT + 1):
        at = np.flatnonzero((back > 0) & exact & (best > _MIN_SEARCH_BITS))
        at = at[exact[at - back[at]]]
        if not len(at):
            continue
        known, sought = sample[at - back[at]], sample[at]
        ratio, add = _line(known, sought)
        predicted = np.rint(ratio[:, None] * known + add[:, None]) * (known != 0)
        cost = _bits(sought - predicted) + _PREDICTION_BITS
        better = (cost < best[at]) & _is_usable(ratio, add)
        best[at[better]] = cost[better]
        chosen[at[better]] = code
    return chosen


def _is_usable(ratio: Float64Array, add: Float64Array) -> NDArray[np.bool_]:
    usable: NDArray[np.bool_] = (np.abs(ratio) < _MOST_RATIO) & (np.abs(add) < _EXACT)
    return usable


def _line(known: Float64Array, sought: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Least squares per row over the places where `known` is not 0: ratio and constant, [rows]."""
    changed = known != 0
    count = np.maximum(reduced(np.add, changed.astype(np.intp)), 1)
    x, y = reduced(np.add, known), reduced(np.add, sought * changed)
    xx, xy = reduced(np.add, known * known), reduced(np.add, known * sought)
    spread = xx - x * x / count
    sloped = spread > 1e-9 * xx
    ratio = np.where(sloped, (xy - x * y / count) / np.where(sloped, spread, 1), 1.0)
    ratio = ratio.astype(np.float32).astype(np.float64)
    return ratio, np.rint((y - ratio * x) / count)


def _bits(residuals: Float64Array) -> Float64Array:
    """[rows] bits that each row would take: the sum of the values' lengths (their exponents)."""
    exponent = (np.abs(residuals).view(np.int64) >> 52) - _EXPONENT_BIAS
    bits: Float64Array = reduced(np.add, np.maximum(exponent, 0)).astype(np.float64)
    return bits
