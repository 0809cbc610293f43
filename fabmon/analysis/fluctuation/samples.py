"""Samples of bandwidth: which count as communication, and their sums, histograms and means of 10 s.

A sample counts as communication when the traffic is more than 30 % of its usual maximum, the 95th
percentile, as for detectors (`evidence/detector_input.py`); here of five minutes. A sample is a
mean over its interval: only one between two others of the same phase contains no part of a pause.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.port_arrays import grown
from fabmon.fabric.snapshot import Floats

COMMUNICATES = 0.3
"""Share of the usual maximum above which traffic is communication."""

_IDLE = 0.01
"""Share of line rate that a link always carries (acknowledgements, monitoring)."""

CELL_S = 10.0
"""Seconds of a cell, the finest part of time that is kept; one interval where that is longer."""

HISTOGRAM_STEP = 0.005
"""Relative width of a histogram's bin: a quantile is exact to half of it."""

_LOWEST_BPS = 1e6
"""Bits/s at which the second bin begins; samples below are in the first."""

_BINS = 3072

Bools = NDArray[np.bool_]


def communication_mask(signal: Floats, line_rate_bps: Floats) -> Bools:
    """[ticks, n]: communication, by traffic [ticks, n] and line rates [n] (NaN where unknown)."""
    if not signal.size:
        return np.zeros(signal.shape, np.bool_)
    maximum = percentile(signal, 0.95)
    idle = np.where(np.isnan(line_rate_bps), 0.0, _IDLE * line_rate_bps)
    with np.errstate(invalid="ignore"):
        mask: Bools = (signal > COMMUNICATES * maximum) & (signal > idle)
    return mask


def inside_phases(phases: Bools) -> Bools:
    """[ticks, n]: the samples of phases without their first and last; never the first or last."""
    inner = phases.copy()
    inner[1:] &= phases[:-1]
    inner[:-1] &= phases[1:]
    inner[:1] = inner[-1:] = False
    return inner


def percentile(values: Floats, share: float) -> Floats:
    """Nearest-rank percentile of the known values of each column; NaN where none is known.

    Ten times as fast as numpy's nanpercentile.
    """
    ordered = np.sort(values, axis=0)
    known = np.isfinite(ordered).sum(axis=0, keepdims=True)
    rank = np.ceil(share * known).astype(np.intp) - 1
    picked: Floats = np.take_along_axis(ordered, np.maximum(rank, 0), axis=0)
    return picked.squeeze(0)


class PooledSamples(NamedTuple):
    """Histogram, sum and sum of squares of samples, and the sum of those below 1 Mb/s."""

    hist: NDArray[np.uint64]
    total: float
    squares: float
    lowest: float

    def quantile(self, share: float) -> float:
        """Bits/s below which a share of the samples are, to half of HISTOGRAM_STEP; below 1 Mb/s
        the mean of the samples there."""
        total = np.cumsum(self.hist)
        number = int(np.searchsorted(total, max(1.0, share * float(total[-1]))))
        if not number:
            return self.lowest / float(self.hist[0])
        return float(_LOWEST_BPS * np.exp((number - 0.5) * HISTOGRAM_STEP))


class SampleSums:
    """Of each of a number of subjects: histogram, sum and sum of squares of its samples.

    Memory does not grow with the samples. The arrays have room for more subjects than are known:
    with as much as it needs, every new subject would copy those before it.
    """

    def __init__(self) -> None:
        self.hist = np.zeros((0, _BINS), np.uint32)
        self._number: NDArray[np.int64] = np.zeros(0, np.int64)
        self.total, self.squares, self.lowest = np.zeros(0), np.zeros(0), np.zeros(0)

    def add(self, subject: NDArray[np.intp], values: Floats) -> None:
        """Take samples (bits/s); `subject` is the index of each one's subject."""
        if not len(subject):
            return
        last = int(subject.max())
        if last >= len(self.hist):
            room = max(last + 1, 2 * len(self.hist))
            self.hist = grown(self.hist.T, room).T
            self._number = grown(self._number, room)
            self.total, self.squares, self.lowest = (
                grown(each, room) for each in (self.total, self.squares, self.lowest)
            )
        is_low = values < _LOWEST_BPS
        steps = np.log(np.maximum(values, _LOWEST_BPS) / _LOWEST_BPS) / HISTOGRAM_STEP
        bins = np.where(is_low, 0, np.minimum(steps.astype(np.intp) + 1, _BINS - 1))
        np.add.at(self.hist, (subject, bins), 1)
        exact = values.astype(np.float64)
        np.add.at(self._number, subject, 1)
        np.add.at(self.total, subject, exact)
        np.add.at(self.squares, subject, exact * exact)
        np.add.at(self.lowest, subject, np.where(is_low, exact, 0.0))

    def pooled(self, subjects: NDArray[np.intp]) -> PooledSamples:
        """Several subjects together."""
        known = subjects[subjects < len(self.hist)]
        hist = self.hist[known].sum(axis=0, dtype=np.uint64)
        sums = (float(each[known].sum()) for each in (self.total, self.squares, self.lowest))
        return PooledSamples(hist, *sums)

    def counts(self, subjects: int) -> NDArray[np.float64]:
        """[subjects] number of samples."""
        counts = self._number[:subjects].astype(np.float64)
        return grown(counts, subjects)

    def count(self, subject: int) -> int:
        """The number of samples of one subject."""
        return int(self._number[subject]) if subject < len(self._number) else 0


def cell_ticks(interval_s: float) -> int:
    """Samples of a cell."""
    return max(1, round(CELL_S / interval_s))


def cell_means(values: Floats, counts: Bools, ticks: int) -> Floats:
    """[cells, n]: means of the samples that count, `ticks` samples a cell; NaN where none does."""
    starts = np.arange(0, len(values), ticks)
    total = np.add.reduceat(np.where(counts, values, np.float32(0)), starts, dtype=np.float64)
    number = np.add.reduceat(counts, starts, dtype=np.intp)
    with np.errstate(invalid="ignore"):
        mean: Floats = (total / number).astype(np.float32)
    return mean
