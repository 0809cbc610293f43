"""From a signal to its pulses: the one pass through each iteration that can be counted.

Two levels are told apart, busy and quiet, around each sample. Where a job is busy most of the time,
its pauses are the pulses: whichever is shorter stands out from samples that are means over a whole
interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from fabmon.analysis.median import median, quantile

Floats = NDArray[np.float64]

_RISE, _FALL = 0.45, 0.30
"""Shares of the way from quiet to busy at which a pulse begins and ends. Lower than half: of a
pulse shorter than the interval, two samples may have half each."""

_SHALLOWEST = 0.25
"""A signal whose levels differ by less, of the higher one, has no phases. Iterations shorter than
two intervals look like slow and shallow waves (they alias); this is what keeps most of them out."""

_ROUNDS = 2
_SHORTEST_WINDOW = 20
_PERIODS = 2.5
_SILENT = 0.02
_MOST_MISSING = 0.1


@dataclass(frozen=True, slots=True)
class NormalisedSignal:
    """A signal between what is quiet (0) and what is busy (1) around each sample.

    `inverted`: 0 is busy, since the pauses are the pulses. `low` is the quiet level of it all.
    """

    height: Floats
    inverted: bool
    low: float


@dataclass(frozen=True, slots=True)
class Pulses:
    """One element a pulse: when its middle was, in intervals, and the samples that belong to it.

    `starts` are indices of the first sample of each; the last one ends with the signal. Pulses that
    touch either end of the signal are left out: nobody knows how long they are.
    """

    middles: Floats
    starts: NDArray[np.intp]


def fill_gaps(values: NDArray[np.floating]) -> Floats | None:
    """The signal without gaps, which are joined over; None when more than a tenth is missing."""
    signal = np.asarray(values, np.float64)
    known = np.isfinite(signal)
    if not known.any() or (~known).mean() > _MOST_MISSING:
        return None
    if known.all():
        return signal
    places = np.arange(len(signal))
    return np.interp(places, places[known], signal[known])


def normalise(signal: Floats, period: float) -> NormalisedSignal | None:
    """What stands out around each sample; None for a signal that has not two levels.

    The levels are those of the two periods and a half around, at least of twenty samples: when a
    link is slowed down, its job communicates at half the level from then on, and is busy all the
    same. `period` is a guess.
    """
    greatest = float(signal.max())
    if greatest <= 0:
        return None
    half = int(min(max(_SHORTEST_WINDOW, _PERIODS * period), len(signal) / 2)) // 2
    around = sliding_window_view(_with_ends(signal, half), 2 * half + 1)
    low, high = _levels(around)
    span = high - low
    tells = (span >= _SHALLOWEST * high) & (high > _SILENT * greatest)
    if tells.mean() < 0.5:
        return None
    height = np.where(tells, np.clip((signal - low) / np.where(tells, span, 1.0), 0.0, 1.0), 0.0)
    inverted = bool(height[tells].mean() > 0.5)
    if inverted:
        height = np.where(tells, 1.0 - height, 0.0)
    return NormalisedSignal(height, inverted, quantile(signal, _SILENT))


def _with_ends(signal: Floats, count: int) -> Floats:
    """The signal, and its ends so many times more on either side."""
    ends = np.full((2, count), signal[[0, -1]][:, None])
    return np.concatenate((ends[0], signal, ends[1]))


def _levels(around: Floats) -> tuple[Floats, Floats]:
    """The means of the quiet and of the busy samples of each row, told apart at their middle."""
    total, count = around.sum(axis=1), around.shape[1]
    middle = total / count
    low = high = middle
    for _ in range(_ROUNDS):
        busy = around > middle[:, None]
        many = busy.sum(axis=1)
        sum_busy = (around * busy).sum(axis=1)
        high = np.where(many > 0, sum_busy / np.maximum(many, 1), middle)
        low = np.where(many < count, (total - sum_busy) / np.maximum(count - many, 1), middle)
        middle = (low + high) / 2
    return low, high


def find_pulses(height: Floats) -> Pulses:
    """The pulses of a relief, with hysteresis; fewer than two say nothing."""
    begins, ends = _runs(height)
    whole = (begins > 0) & (ends < len(height))
    begins, ends = begins[whole], ends[whole]
    if len(begins) < 2:
        return Pulses(np.empty(0), np.empty(0, np.intp))
    # A pulse owns the samples up to the middle of the quiet before it and after it.
    borders = (ends[:-1] + begins[1:] + 1) // 2
    starts = np.concatenate([[max(0, 2 * begins[0] - borders[0])], borders]).astype(np.intp)
    stops = np.concatenate([borders, [len(height)]])
    # Only what touches the pulse: a sample of the noise far from it would pull at its middle.
    places = np.arange(len(height))
    weights = np.zeros(len(height))
    for begin, end in zip(np.maximum(begins - 1, starts), np.minimum(ends + 1, stops), strict=True):
        weights[begin:end] = height[begin:end]
    total = np.add.reduceat(weights, starts)
    middles = np.add.reduceat(weights * (places + 0.5), starts) / np.maximum(total, 1e-12)
    return Pulses(middles, starts)


def _runs(height: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where pulses begin and end (exclusive), with hysteresis between the two thresholds."""
    state = np.where(height >= _RISE, 1, np.where(height < _FALL, 0, -1))
    state[0] = max(state[0], 0)
    decided = np.maximum.accumulate(np.where(state >= 0, np.arange(len(state)), 0))
    inside = np.concatenate([[0], state[decided], [0]])
    edges = np.diff(inside)
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)


# Whether a signal repeats, and after how long: autocorrelation, between the samples too.


SHORTEST_INTERVALS = 3.0
"""A period must be longer than this many sampling intervals to be claimed."""

_FINER = 8
_LEAST_STRENGTH = 0.45
_OF_BEST = 0.75
_LEAST_PERIODS = 3


@dataclass(frozen=True, slots=True)
class Repetition:
    """After how many `intervals` a signal looks like itself, and how much (correlation, to 1)."""

    intervals: float
    strength: float


def find_repetition(signal: Floats) -> Repetition | None:
    """The shortest lag at which the signal repeats about as well as it ever does.

    Three periods must be in it. None where nothing repeats, or only what is shorter than
    SHORTEST_INTERVALS.
    """
    longest = len(signal) // _LEAST_PERIODS
    if longest <= SHORTEST_INTERVALS:
        return None
    curve = autocorrelation(signal, longest)
    if curve is None:
        return None
    inner = curve[1:-1]
    peaks_of_all = 1 + np.flatnonzero((inner >= curve[:-2]) & (inner > curve[2:]))
    peaks = peaks_of_all[peaks_of_all > SHORTEST_INTERVALS * _FINER]
    if not len(peaks):
        return None
    best = float(curve[peaks].max())
    if best < _LEAST_STRENGTH:
        return None
    fast = peaks_of_all[peaks_of_all <= SHORTEST_INTERVALS * _FINER]
    if len(fast) and float(curve[fast].max()) >= _OF_BEST * best:
        return None
    first = int(peaks[curve[peaks] >= _OF_BEST * best][0])
    return Repetition(first / _FINER, min(1.0, float(curve[first])))


def autocorrelation(signal: Floats, longest: int) -> Floats | None:
    """Autocorrelation at lags 0 to `longest`, eight values an interval; None for a flat signal.

    Each lag is averaged over as many products as it has. Between the lags it is what a signal
    without faster parts would have (zeros appended to its spectrum).
    """
    centred = signal - signal.mean()
    power = float((centred * centred).mean())
    if power <= 0:
        return None
    size = 1 << (2 * len(signal) - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(centred, size)) ** 2
    finer: Floats = np.fft.irfft(spectrum, size * _FINER)[: longest * _FINER + 1] * _FINER
    lags = np.arange(len(finer)) / _FINER
    return finer / (len(signal) - lags) / power


# Where a series of numbers changed its level: one change point after the other.


MIN_VALUES_PER_SIDE = 4
"""Values on each side of a change: fewer may be a coincidence."""

_LEAST_CHANGE = 0.06
_SIGMAS = 5.0
_OUTLIER_MADS = 8.0
_MAD_SIGMA = 1.4826


@dataclass(frozen=True, slots=True)
class LevelShift:
    """The level was `before` and is `after` from value `index` on."""

    index: int
    before: float
    after: float


def last_level_shift(values: Floats) -> LevelShift | None:
    """The last change of level; None where there is none that stands out of the noise."""
    found: LevelShift | None = None
    start = 0
    while True:
        shift = _shift(values[start:])
        if shift is None:
            return found
        found = LevelShift(start + shift.index, shift.before, shift.after)
        start = found.index


def _shift(values: Floats) -> LevelShift | None:
    """The split into two levels that explains most, if it explains enough.

    At least 6 % of the level, and five standard errors of the difference.
    """
    count = len(values)
    if count < 2 * MIN_VALUES_PER_SIDE:
        return None
    tame = _tamed(values)
    sums = np.cumsum(tame)
    squares = np.cumsum(tame * tame)
    left = np.arange(MIN_VALUES_PER_SIDE, count - MIN_VALUES_PER_SIDE + 1)
    right = count - left
    mean_left = sums[left - 1] / left
    mean_right = (sums[-1] - sums[left - 1]) / right
    rest = squares[-1] - left * mean_left**2 - right * mean_right**2
    best = int(np.argmin(rest))
    at = int(left[best])
    sigma = float(np.sqrt(max(rest[best], 0.0) / max(count - 2, 1)))
    before, after = float(mean_left[best]), float(mean_right[best])
    error = sigma * float(np.sqrt(1 / at + 1 / (count - at)))
    change = abs(after - before)
    if change <= max(_LEAST_CHANGE * abs(before), _SIGMAS * error):
        return None
    before, after = median(values[:at]), median(values[at:])
    enough = abs(after - before) > _LEAST_CHANGE * abs(before)
    return LevelShift(at, before, after) if enough else None


def _tamed(values: Floats) -> Floats:
    """Outliers cut: one iteration in which a checkpoint was written is not a new level."""
    middle = median(values)
    mad = median(np.abs(values - middle)) * _MAD_SIGMA
    room = max(_OUTLIER_MADS * mad, 0.5 * abs(middle))
    return np.clip(values, middle - room, middle + room)
