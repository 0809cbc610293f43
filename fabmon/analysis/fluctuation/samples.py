"""When something communicates, and which samples lie wholly in a phase of it.

As everywhere in fabmon (inputs.py), a sample is communication when the traffic is more than 30 % of
its usual top, the 95th percentile; here of five minutes. A sample is a mean over its interval: only
one between two others of the phase has not caught some of the pause.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.snapshot import Floats

COMMUNICATES = 0.3
_IDLE = 0.01
"""Of line rate: below it is what is always on a link."""

Bools = NDArray[np.bool_]


def communication_mask(signal: Floats, line_rate_bps: Floats) -> Bools:
    """[ticks, n]: communication, by traffic [ticks, n] and its line rates [n] (NaN: not known)."""
    if not signal.size:
        return np.zeros(signal.shape, np.bool_)
    top = percentile(signal, 0.95)
    floor = np.where(np.isnan(line_rate_bps), 0.0, _IDLE * line_rate_bps)
    with np.errstate(invalid="ignore"):
        found: Bools = (signal > COMMUNICATES * top) & (signal > floor)
    return found


def inside_phases(phases: Bools) -> Bools:
    """[ticks, n]: those of a phase that begin and end in it; not the first and the last of all."""
    inner = phases.copy()
    inner[1:] &= phases[:-1]
    inner[:-1] &= phases[1:]
    inner[:1] = inner[-1:] = False
    return inner


def percentile(values: Floats, share: float, axis: int = 0) -> Floats:
    """Of what is known along an axis, the nearest rank; NaN where nothing is.

    Ten times as fast as numpy's, which knows NaN as well.
    """
    ordered = np.sort(values, axis=axis)
    known = np.isfinite(ordered).sum(axis=axis, keepdims=True)
    place = np.ceil(share * known).astype(np.intp) - 1
    picked: Floats = np.take_along_axis(ordered, np.maximum(place, 0), axis=axis)
    return picked.squeeze(axis)


# Samples summed up as they pass: histograms, moments, and means of ten seconds each.
#
# Memory does not grow with the samples, but for the means: 8 bytes a link every 10 s.


CELL_S = 10.0
"""Seconds of a cell, the finest part that is kept by time; an interval where that is longer."""

FINE = 0.005
"""Width of a histogram's bin, of its value: what a quantile may be wrong by is half of it."""

_LEAST_BPS = 1e6
_BINS = 3072


class SampleSums:
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


def cell_means(values: Floats, counts: Bools, ticks: int) -> Floats:
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
