"""Values of ports by time, in few enough bins for a page."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.moment import Floats

MOST = 240
_DAY_NS = 86_400 * 10**9


class Bins:
    """Equal parts of the time between two ends, at most 240, each at least a tick long."""

    def __init__(self, from_ns: int, until_ns: int, interval_s: float) -> None:
        """`until_ns` is in the last of them; `is_dated` where a time of day alone may mean two."""
        self.from_ns = from_ns
        self.until_ns = until_ns
        ticks = (until_ns - from_ns) / (interval_s * 1e9) + 1
        self.count = max(1, min(MOST, round(ticks)))
        self.is_dated = until_ns - from_ns > _DAY_NS
        self.width_ns = max(1, -(-(until_ns - from_ns + int(interval_s * 1e9)) // self.count))

    def of(self, time_ns: int) -> int:
        """The bin of a time."""
        return min(self.count - 1, max(0, (time_ns - self.from_ns) // self.width_ns))

    def start_ns(self, place: int) -> int:
        """Where a bin begins."""
        return self.from_ns + place * self.width_ns


class Grid:
    """Mean and highest of a value by port row and bin; NaN where none is known."""

    def __init__(self, bins: Bins) -> None:
        self._bins = bins
        self._sums: NDArray[np.float64] = np.zeros((0, bins.count))
        self._counts: NDArray[np.int64] = np.zeros((0, bins.count), np.int64)
        self._highest: Floats = np.full((0, bins.count), np.nan, np.float32)

    def add(self, values: Floats, time_ns: int) -> None:
        """[ports] at a time."""
        new = len(values) - len(self._sums)
        if new > 0:
            room = ((0, new), (0, 0))
            self._sums = np.pad(self._sums, room)
            self._counts = np.pad(self._counts, room)
            self._highest = np.pad(self._highest, room, constant_values=np.nan)
        at, rows = self._bins.of(time_ns), np.flatnonzero(np.isfinite(values))
        self._sums[rows, at] += values[rows]
        self._counts[rows, at] += 1
        self._highest[rows, at] = np.fmax(self._highest[rows, at], values[rows])

    @property
    def mean(self) -> Floats:
        """[ports, bins]"""
        with np.errstate(invalid="ignore", divide="ignore"):
            mean: Floats = (self._sums / self._counts).astype(np.float32)
        return mean

    @property
    def highest(self) -> Floats:
        """[ports, bins]"""
        return self._highest
