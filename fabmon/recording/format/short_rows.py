"""Sums and extremes of rows, also where there are many rows of a few values."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Number = TypeVar("_Number", bound=np.generic)

_SHORT = 7
"""Up to so many values a row, one value of all rows at a time is faster: numpy takes 20 ns for
each row. Blocks of a thousand nodes have five ticks."""


def reduced(ufunc: np.ufunc, values: NDArray[_Number]) -> NDArray[_Number]:
    """[rows]: what `ufunc.reduce` makes of each row of `values` [rows, 1 or more]."""
    if values.shape[1] > _SHORT:
        of_long: NDArray[_Number] = ufunc.reduce(values, axis=1)
        return of_long
    total = values[:, 0].copy()
    for column in values.T[1:]:
        ufunc(total, column, out=total)
    return total
