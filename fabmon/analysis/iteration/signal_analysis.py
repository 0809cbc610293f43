"""Analysis of a traffic signal: its pulses, its period, and changes of level.

A pulse is what can be counted once in every iteration. Two levels are distinguished around each
sample, busy and quiet. Where a job is busy most of the time, its pauses are the pulses: the shorter
of the two stands out in samples that are means over a whole interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from fabmon.analysis.median import median, quantile

Floats = NDArray[np.float64]

SHORTEST_INTERVALS = 3.0
"""A period is reported only if it is longer than this many sampling intervals."""

MIN_VALUES_PER_SIDE = 4
"""Values on each side of a change of level: fewer may be a coincidence."""

_RISE, _FALL = 0.45, 0.30
"""Shares of the difference from quiet to busy at which a pulse begins and ends. Less than half: of
a pulse shorter than the interval, two samples may have half each."""

_MIN_DEPTH = 0.25
"""A signal whose levels differ by less, of the higher one, has no phases. Iterations shorter than
two intervals appear as slow and shallow waves (aliases); this excludes most of them."""

_LEVEL_ROUNDS = 2
"""Times that samples are divided into busy and quiet, each time at the middle of the last levels.
"""

_SHORTEST_WINDOW = 20
_WINDOW_PERIODS = 2.5
"""Samples, and periods, around a sample of which its levels are computed."""

_SILENT = 0.02
"""Share of the maximum below which a level counts as no traffic."""

_MAX_MISSING = 0.1
"""Share of the samples that may be unknown."""

_LAG_STEPS = 8
"""Values of the autocorrelation per interval."""

_MIN_CORRELATION = 0.45
"""Autocorrelation from which on a signal counts as periodic."""

_OF_BEST = 0.75
"""Share of the best correlation at which a shorter lag is the period."""

_MIN_PERIODS = 3
_MIN_LEVEL_CHANGE = 0.06
"""Share of the level before, below which a change is not reported."""

_STEP_SIGMAS = 5.0
_OUTLIER_SIGMAS = 8.0
SIGMA_PER_MAD = 1.4826
"""Standard deviation of normal noise, in median absolute deviations."""


@dataclass(frozen=True, slots=True)
class NormalisedSignal:
    """A signal from 0 (quiet) to 1 (busy), by the levels around each sample.

    `inverted`: 0 is busy, since the pauses are the pulses. `low` is the quiet level of the whole
    signal, in its own unit.
    """

    height: Floats
    inverted: bool
    low: float


@dataclass(frozen=True, slots=True)
class Pulses:
    """One element a pulse: the time of its centre, in intervals, and the samples that belong to it.

    `starts` are indices of the first sample of each; the last one ends with the signal. Pulses that
    touch either end of the signal are left out, since their length is unknown.
    """

    middles: Floats
    starts: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Repetition:
    """The lag, in `intervals`, at which a signal resembles itself, and the correlation there."""

    intervals: float
    strength: float


@dataclass(frozen=True, slots=True)
class LevelChange:
    """The level `before` and `after` value `index`, the first of the new level."""

    index: int
    before: float
    after: float


def fill_gaps(values: NDArray[np.floating]) -> Floats | None:
    """The signal with gaps interpolated; None where more than a tenth is unknown."""
    signal = np.asarray(values, np.float64)
    known = np.isfinite(signal)
    if not known.any() or (~known).mean() > _MAX_MISSING:
        return None
    if known.all():
        return signal
    places = np.arange(len(signal))
    return np.interp(places, places[known], signal[known])


def normalise(signal: Floats, period: float) -> NormalisedSignal | None:
    """The signal relative to the levels around each sample; None where it has not two levels.

    The levels are those of the two and a half periods around a sample, at least of twenty samples:
    when a link slows down, its job communicates at half the level from then on, and is busy all the
    same. `period` is an estimate.
    """
    maximum = float(signal.max())
    if maximum <= 0:
        return None
    half = int(min(max(_SHORTEST_WINDOW, _WINDOW_PERIODS * period), len(signal) / 2)) // 2
    # np.pad takes more than twice as long.
    padded = np.concatenate([np.full(half, signal[0]), signal, np.full(half, signal[-1])])
    low, high = _levels(sliding_window_view(padded, 2 * half + 1))
    depth = high - low
    has_levels = (depth >= _MIN_DEPTH * high) & (high > _SILENT * maximum)
    if has_levels.mean() < 0.5:
        return None
    share = np.clip((signal - low) / np.where(has_levels, depth, 1.0), 0.0, 1.0)
    inverted = bool(share[has_levels].mean() > 0.5)
    height = np.where(has_levels, 1.0 - share if inverted else share, 0.0)
    return NormalisedSignal(height, inverted, quantile(signal, _SILENT))


def _levels(windows: Floats) -> tuple[Floats, Floats]:
    """The means of the quiet and of the busy samples of each window, divided at their middle."""
    total, count = windows.sum(axis=1), windows.shape[1]
    middle = total / count
    low = high = middle
    for _ in range(_LEVEL_ROUNDS):
        busy = windows > middle[:, None]
        number = busy.sum(axis=1)
        sum_busy = (windows * busy).sum(axis=1)
        high = np.where(number > 0, sum_busy / np.maximum(number, 1), middle)
        low = np.where(number < count, (total - sum_busy) / np.maximum(count - number, 1), middle)
        middle = (low + high) / 2
    return low, high


def find_pulses(height: Floats) -> Pulses:
    """The pulses of a normalised signal, with hysteresis; none where there are fewer than two."""
    begins, ends = _runs(height)
    whole = (begins > 0) & (ends < len(height))
    begins, ends = begins[whole], ends[whole]
    if len(begins) < 2:
        return Pulses(np.empty(0), np.empty(0, np.intp))
    # The samples of a pulse extend to the middle of the quiet time before it and after it.
    borders = (ends[:-1] + begins[1:] + 1) // 2
    starts = np.concatenate([[max(0, 2 * begins[0] - borders[0])], borders]).astype(np.intp)
    stops = np.concatenate([borders, [len(height)]])
    # Only samples that touch the pulse have weight: noise far from it would shift its centre.
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


def find_repetition(signal: Floats) -> Repetition | None:
    """The shortest lag at which the signal correlates with itself about as well as at any lag.

    The signal must contain three periods. None where nothing repeats, or only at lags shorter than
    SHORTEST_INTERVALS.
    """
    longest = len(signal) // _MIN_PERIODS
    if longest <= SHORTEST_INTERVALS:
        return None
    curve = autocorrelation(signal, longest)
    if curve is None:
        return None
    inner = curve[1:-1]
    all_peaks = 1 + np.flatnonzero((inner >= curve[:-2]) & (inner > curve[2:]))
    is_slow = all_peaks > SHORTEST_INTERVALS * _LAG_STEPS
    peaks, fast = all_peaks[is_slow], all_peaks[~is_slow]
    best = float(curve[peaks].max(initial=-1.0))
    if best < _MIN_CORRELATION or (len(fast) and float(curve[fast].max()) >= _OF_BEST * best):
        return None
    first = int(peaks[curve[peaks] >= _OF_BEST * best][0])
    return Repetition(first / _LAG_STEPS, min(1.0, float(curve[first])))


def autocorrelation(signal: Floats, longest: int) -> Floats | None:
    """Autocorrelation at lags 0 to `longest`, eight values an interval; None for a flat signal.

    Each lag is averaged over as many products as it has. Between the lags it is that of the
    band-limited signal (zeros are appended to its spectrum).
    """
    centred = signal - signal.mean()
    power = float((centred * centred).mean())
    if power <= 0:
        return None
    size = 1 << (2 * len(signal) - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(centred, size)) ** 2
    products = np.fft.irfft(spectrum, size * _LAG_STEPS)[: longest * _LAG_STEPS + 1] * _LAG_STEPS
    lags = np.arange(len(products)) / _LAG_STEPS
    curve: Floats = products / (len(signal) - lags) / power
    return curve


def last_level_change(values: Floats) -> LevelChange | None:
    """The last change of level; None where none exceeds the noise.

    Two changes that compensate each other hide in the whole: then the later half is searched alone.
    """
    found: LevelChange | None = None
    start = 0
    if _largest_change(values) is None:
        start = len(values) // 2
    while change := _largest_change(values[start:]):
        start += change.index
        found = LevelChange(start, change.before, change.after)
    return found


def _largest_change(values: Floats) -> LevelChange | None:
    """The split into two levels that explains most of the variance, if it explains enough.

    The levels must differ by 6 %, and by five standard errors of the difference.
    """
    count = len(values)
    if count < 2 * MIN_VALUES_PER_SIDE:
        return None
    clipped = _without_outliers(values)
    sums = np.cumsum(clipped)
    squares = np.cumsum(clipped * clipped)
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
    if abs(after - before) <= max(_MIN_LEVEL_CHANGE * abs(before), _STEP_SIGMAS * error):
        return None
    before, after = median(values[:at]), median(values[at:])
    enough = abs(after - before) > _MIN_LEVEL_CHANGE * abs(before)
    return LevelChange(at, before, after) if enough else None


def _without_outliers(values: Floats) -> Floats:
    """Outliers clipped: one iteration with a checkpoint is not a new level."""
    middle = median(values)
    sigma = median(np.abs(values - middle)) * SIGMA_PER_MAD
    room = max(_OUTLIER_SIGMAS * sigma, 0.5 * abs(middle))
    return np.clip(values, middle - room, middle + room)
