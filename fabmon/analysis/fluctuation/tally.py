"""Samples summed up as they pass: histograms, moments, and means of ten seconds each.

Memory does not grow with the samples, but for the means: 8 bytes a link every 10 s.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.fluctuation.phases import Bools
from fabmon.fabric.moment import Floats

CELL_S = 10.0
"""Seconds of a cell, the finest part that is kept by time; an interval where that is longer."""

FINE = 0.005
"""Width of a histogram's bin, of its value: what a quantile may be wrong by is half of it."""

_LEAST_BPS = 1e6
_BINS = 3072


class Sums:
    """Of each of `count` things: how many samples, their histogram, sum and sum of squares."""

    def __init__(self, count: int = 0) -> None:
        self.hist = np.zeros((count, _BINS), np.uint32)
        self.total = np.zeros(count)
        self.squares = np.zeros(count)

    def add(self, which: NDArray[np.intp], values: Floats) -> None:
        """Take samples; `which` says what each is of."""
        if not len(which):
            return
        most = int(which.max()) + 1
        if most > len(self.hist):
            self.hist = np.pad(self.hist, ((0, most - len(self.hist)), (0, 0)))
            self.total = np.pad(self.total, (0, most - len(self.total)))
            self.squares = np.pad(self.squares, (0, most - len(self.squares)))
        bins = (np.log(np.maximum(values, _LEAST_BPS) / _LEAST_BPS) / FINE).astype(np.intp)
        np.add.at(self.hist, (which, np.minimum(bins, _BINS - 1)), 1)
        exact = values.astype(np.float64)
        self.total += np.bincount(which, exact, len(self.total))
        self.squares += np.bincount(which, exact * exact, len(self.total))

    def pooled(self, places: NDArray[np.intp] | slice) -> tuple[NDArray[np.uint64], float, float]:
        """Histogram, sum and sum of squares of several together."""
        hist = self.hist[places].sum(axis=0, dtype=np.uint64)
        return hist, float(self.total[places].sum()), float(self.squares[places].sum())


def quantile(hist: NDArray[np.uint64], share: float) -> float:
    """Bits/s below which a share of the samples of a histogram lie, to half of FINE."""
    total = np.cumsum(hist)
    bin_ = int(np.searchsorted(total, max(1.0, share * float(total[-1]))))
    return float(_LEAST_BPS * np.exp((bin_ + 0.5) * FINE))


def cell_ticks(interval_s: float) -> int:
    """Samples of a cell."""
    return max(1, round(CELL_S / interval_s))


def cells(values: Floats, counts: Bools, ticks: int) -> Floats:
    """[cells, n]: means of the samples that count, `ticks` of them a cell; NaN without any."""
    starts = np.arange(0, len(values), ticks)
    total = np.add.reduceat(np.where(counts, values, np.float32(0)), starts, dtype=np.float64)
    many = np.add.reduceat(counts, starts, dtype=np.intp)
    with np.errstate(invalid="ignore"):
        mean: Floats = (total / many).astype(np.float32)
    return mean


def nanmean(values: Floats) -> Floats:
    """[rows]: the mean of what is known in each row; NaN where nothing is."""
    known = np.isfinite(values)
    total = np.where(known, values, np.float32(0)).sum(axis=1, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        mean: Floats = (total / known.sum(axis=1)).astype(np.float32)
    return mean
