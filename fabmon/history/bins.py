"""Mean and highest values of ports in bins of time."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.port_arrays import grown
from fabmon.fabric.snapshot import Floats


class PortBins:
    """Mean and highest value by port row and bin, [ports, bins]; NaN where none is known."""

    def __init__(self, bins: int = 1) -> None:
        self._sums: NDArray[np.float64] = np.zeros((bins, 0))
        self._counts: NDArray[np.int32] = np.zeros((bins, 0), np.int32)
        self._highest: Floats = np.zeros((bins, 0), np.float32)

    def add(self, values: Floats, places: Iterable[int] = (0,)) -> None:
        """Add values, [ports], to some bins."""
        self._sums = grown(self._sums, len(values))
        self._counts = grown(self._counts, len(values))
        self._highest = grown(self._highest, len(values), np.nan)
        rows = np.flatnonzero(np.isfinite(values))
        for at in places:
            self._sums[at, rows] += values[rows]
            self._counts[at, rows] += 1
            self._highest[at, rows] = np.fmax(self._highest[at, rows], values[rows])

    def move(self, by: int) -> None:
        """Leave out the first `by` bins, and begin as many at the end."""
        for values, empty in ((self._sums, 0), (self._counts, 0), (self._highest, np.nan)):
            kept = max(0, len(values) - by)
            values[:kept] = values[by:].copy()
            values[kept:] = empty

    def copy(self) -> PortBins:
        """The same values, which do not change."""
        return copy.deepcopy(self)

    @property
    def mean(self) -> Floats:
        """[ports, bins]: the mean values."""
        with np.errstate(invalid="ignore", divide="ignore"):
            mean: Floats = (self._sums / self._counts).astype(np.float32)
        return mean.T

    @property
    def highest(self) -> Floats:
        """[ports, bins]: the highest values."""
        return self._highest.T

    def of_row(self, row: int) -> tuple[float, float]:
        """The mean and the highest value of a port in the first bin; NaN where none is known."""
        count = int(self._counts[0, row]) if row < self._counts.shape[1] else 0
        return (self._sums[0, row] / count, self._highest[0, row]) if count else (np.nan, np.nan)
