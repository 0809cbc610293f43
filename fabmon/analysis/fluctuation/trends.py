"""Bandwidth over time: steps of the level, slow drift, hours of the day and days of the week.

**Steps** are found by PELT, which finds the split into levels of the least cost, exactly, in about
linear time (Killick, Fearnhead and Eckley, "Optimal detection of changepoints with a linear
computational cost", JASA 107, 2012). The cost is the squared distance from each level's mean, of
values that are clipped at three deviations from a running median, so that a single outlier is not a
level (cf. Fearnhead and Rigaill, "Changepoint detection in the presence of outliers", JASA 114,
2019). The variance is estimated from differences of neighbours (median absolute deviation), and
scaled by the noise's autocorrelation, also estimated from differences, since hardly any of them
contains a step (Shi, Gallagher, Lund and Killick, "A comparison of single and multiple changepoint
techniques for time series data", CSDA 170, 2022): slow noise is not a sequence of steps.

**Drift** is Theil and Sen's slope, the median of the slopes of all pairs of values, with Sen's
confidence interval (JASA 63, 1968): the slopes at the ranks given by Kendall's variance, scaled for
autocorrelation (Hamed and Rao, J. Hydrology 204, 1998, first order). Pairs on both sides of a step
do not count: a step is not a drift.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from fabmon.analysis.fluctuation.results import Drift, Part, Slot, Step
from fabmon.analysis.iteration.signal_analysis import SIGMA_PER_MAD, LevelChange
from fabmon.fabric.snapshot import Floats

MIN_CHANGE = 0.02
"""Share of the level before: a smaller change is not reported as a step."""

MAX_POINTS = 360
"""Points of a series in which steps and slopes are searched; longer series are reduced to medians
of several cells each."""

_MIN_VALUES_PER_LEVEL = 5
_PENALTY = 4.0
"""Cost of a step, times log(n) variances; 2 is the Bayesian information criterion of a mean and its
position."""

_SIGMAS_AT_90TH_PERCENTILE = 1.645
"""The 90th percentile of absolute values of normal noise, in standard deviations."""

_CLIP_SIGMAS = 3.0
_STEP_SIGMAS = 5.0
"""Standard errors of its size by which a step must exceed zero."""

_MAX_AUTOCORRELATION = 0.95
_MIN_DRIFT_VALUES = 20
_SHORTEST_DRIFT_S = 600.0
_Z95 = 1.96
_STRIP_PARTS = 48

_QUARTER_S = 900
"""Offsets of today's time zones are multiples of a quarter of an hour, and change at such times."""

_HOUR_S, _DAY_S = 3600, 86_400

Values = NDArray[np.float64]
Times = NDArray[np.int64]


def level_changes(values: Values) -> list[LevelChange]:
    """The changes of level in a series without gaps, in order of time."""
    count = len(values)
    if count < 2 * _MIN_VALUES_PER_LEVEL:
        return []
    sigma = max(_noise_sigma(values), 1e-4 * float(np.median(np.abs(values))))
    if sigma <= 0:
        return []
    level, room = _running_median(values), _CLIP_SIGMAS * sigma
    clipped = np.clip(values, level - room, level + room)
    growth = _variance_growth(clipped)
    starts = _pelt(clipped, _PENALTY * np.log(count) * sigma**2 * growth)
    return _large_enough(values, starts, sigma * growth**0.5)


def _large_enough(values: Values, starts: list[int], sigma: float) -> list[LevelChange]:
    """The changes that are large enough between neighbouring levels; other levels are joined."""
    edges = list(starts)
    while edges:
        bounds = [0, *edges, len(values)]
        levels = [float(np.median(values[a:b])) for a, b in pairwise(bounds)]
        sizes = np.diff(bounds)
        weights = []
        for number in range(len(edges)):
            change = abs(levels[number + 1] - levels[number])
            error = sigma * (1 / sizes[number] + 1 / sizes[number + 1]) ** 0.5
            enough = max(MIN_CHANGE * abs(levels[number]), _STEP_SIGMAS * error)
            weights.append(change / enough if enough > 0 else 0.0)
        weakest = int(np.argmin(weights))
        if weights[weakest] >= 1:
            pairs = zip(edges, levels[:-1], levels[1:], strict=True)
            return [LevelChange(edge, before, after) for edge, before, after in pairs]
        del edges[weakest]
    return []


def _pelt(values: Values, penalty: float) -> list[int]:
    """Indices at which new levels begin."""
    count = len(values)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    squares = np.concatenate([[0.0], np.cumsum(values * values)])
    best = np.full(count + 1, np.inf)
    best[0] = -penalty
    before = np.zeros(count + 1, np.intp)
    starts = np.array([0], np.intp)
    for end in range(_MIN_VALUES_PER_LEVEL, count + 1):
        length = end - starts
        cost = squares[end] - squares[starts] - (sums[end] - sums[starts]) ** 2 / length
        total = best[starts] + cost
        place = int(np.argmin(total))
        best[end], before[end] = total[place] + penalty, starts[place]
        starts = starts[total <= best[end]]
        newest = end + 1 - _MIN_VALUES_PER_LEVEL
        if newest >= _MIN_VALUES_PER_LEVEL:
            starts = np.append(starts, newest)
    found = []
    end = count
    while before[end] > 0:
        end = int(before[end])
        found.append(end)
    return found[::-1]


def _running_median(values: Values) -> Values:
    half = _MIN_VALUES_PER_LEVEL
    padded = np.pad(values, half, mode="edge")
    medians: Values = np.median(sliding_window_view(padded, 2 * half + 1), axis=1)
    return medians


def _noise_sigma(values: Values) -> float:
    """Standard deviation of one value, from differences: levels and drifts hardly contribute."""
    differences = np.abs(np.diff(values))
    sigma_of_most = float(np.median(differences)) * SIGMA_PER_MAD / 2**0.5
    sigma_of_tail = float(np.quantile(differences, 0.9)) / (_SIGMAS_AT_90TH_PERCENTILE * 2**0.5)
    return max(sigma_of_most, sigma_of_tail)


def _variance_growth(values: Values) -> float:
    """The factor by which the variance of a long mean exceeds the estimate from differences.

    With an autocorrelation r of neighbouring values, that of differences is (r - 1) / 2, and hardly
    any difference contains a step. The long-run variance is (1 + r) / (1 - r)**2 times half of
    theirs.
    """
    differences = np.diff(values)
    power = float((differences * differences).mean())
    if power <= 0:
        return 1.0
    r = 1 + 2 * float((differences[1:] * differences[:-1]).mean()) / power
    r = min(max(r, 0.0), _MAX_AUTOCORRELATION)
    return (1 + r) / (1 - r) ** 2


def theil_sen_slope(
    at: Values, values: Values, edges: Sequence[int] = ()
) -> tuple[float, float, float]:
    """Slope per unit of `at`, and its 95 % confidence bounds; NaN where there are too few values.

    `edges` are the indices at which a new level begins.
    """
    slopes, residuals, variance = [], [], 0.0
    for begin, end in pairwise([0, *edges, len(values)]):
        count = end - begin
        if count < _MIN_DRIFT_VALUES:
            continue
        one, other = np.triu_indices(count, 1)
        x, y = at[begin:end], values[begin:end]
        slopes.append((y[other] - y[one]) / (x[other] - x[one]))
        residual = y - float(np.median(slopes[-1])) * x
        residuals.append(residual - np.median(residual))
        variance += count * (count - 1) * (2 * count + 5) / 18
    if not slopes:
        return float("nan"), float("nan"), float("nan")
    ordered = np.sort(np.concatenate(slopes))
    total = len(ordered)
    reach = _Z95 * (variance * _rank_variance_growth(np.concatenate(residuals))) ** 0.5
    low = int(np.clip(np.floor((total - reach) / 2), 0, total - 1))
    high = int(np.clip(np.ceil((total + reach) / 2), 0, total - 1))
    return float(np.median(ordered)), float(ordered[low]), float(ordered[high])


def _rank_variance_growth(residuals: Values) -> float:
    """(1 + r) / (1 - r), r being the first autocorrelation of the ranks."""
    ranks = np.argsort(np.argsort(residuals)).astype(np.float64)
    ranks -= ranks.mean()
    r = float((ranks[1:] * ranks[:-1]).sum() / max(float((ranks * ranks).sum()), 1e-12))
    # The estimate is too low in a short series without its trend (Kendall, Biometrika 41, 1954).
    r = min(max(r + (2 + 4 * r) / len(residuals), 0.0), _MAX_AUTOCORRELATION)
    return (1 + r) / (1 - r)


@dataclass(frozen=True, slots=True)
class CellSeries:
    """Means of 10 s of communication (bits/s) and when each begins (ns); without NaN."""

    at_ns: Times
    values: Values


def cell_series(at_ns: Times, values: Floats) -> CellSeries:
    """The cells of [cells] that are known."""
    known = np.isfinite(values)
    return CellSeries(at_ns[known], values[known].astype(np.float64))


def steps_and_drift(series: CellSeries, cell_s: float) -> tuple[tuple[Step, ...], Drift | None]:
    """Steps and drift of a series, searched in at most MAX_POINTS points.

    The drift is None where the series is shorter than ten minutes or has too few values.
    """
    per_point = max(1, -(-len(series.values) // MAX_POINTS))
    count = len(series.values) // per_point * per_point
    points = np.median(series.values[:count].reshape(-1, per_point), axis=1)
    changes = level_changes(points)
    steps = tuple(
        Step(
            int(series.at_ns[_cell_of(series.values, each, per_point)]),
            cell_s * 2,
            each.before,
            each.after,
        )
        for each in changes
    )
    if not count or (series.at_ns[-1] - series.at_ns[0]) / 1e9 < _SHORTEST_DRIFT_S:
        return steps, None
    hours_ = (series.at_ns[:count:per_point] - series.at_ns[0]) / (_HOUR_S * 1e9)
    slopes = theil_sen_slope(hours_, points, [each.index for each in changes])
    median = float(np.median(points))
    if np.isnan(slopes[0]) or median <= 0:
        return steps, None
    return steps, Drift(*(each / median for each in slopes))


def _cell_of(values: Values, change: LevelChange, per_point: int) -> int:
    """The index of the cell at which the level changed, near a change found in coarser points."""
    begin = max(0, (change.index - 1) * per_point)
    end = min(len(values), (change.index + 1) * per_point)
    part = values[begin:end]
    left = np.concatenate([[0.0], np.cumsum(np.abs(part - change.before))])
    right = np.abs(part - change.after)
    cost = left + right.sum() - np.concatenate([[0.0], np.cumsum(right)])
    return min(begin + int(np.argmin(cost)), len(values) - 1)


def slot_statistics(slot_of: NDArray[np.int64], values: Values) -> tuple[Slot, ...]:
    """Statistics of the cells of each hour or day; `slot_of` [cells] is that of each cell."""
    slots = []
    for slot in np.unique(slot_of).tolist():
        own = values[slot_of == slot]
        low, median, high = (float(np.quantile(own, q)) for q in (0.05, 0.5, 0.95))
        mean = float(own.mean())
        spread = float(own.std()) / mean if mean > 0 else 0.0
        cov = spread if len(own) > 1 else None
        slots.append(Slot(slot, median, low, high, cov, len(own)))
    return tuple(slots)


def strip_parts(
    series: CellSeries, span: tuple[int, int], cell_s: float
) -> tuple[Part | None, ...]:
    """48 equal parts of a span of time (ns), fewer where it has fewer cells; None for a part
    without values."""
    count = int(np.clip((span[1] - span[0]) / (cell_s * 1e9), 1, _STRIP_PARTS))
    width_ns = max(1, (span[1] - span[0]) // count + 1)
    part = np.clip((series.at_ns - span[0]) // width_ns, 0, count - 1)
    found: list[Part | None] = []
    for number in range(count):
        own = series.values[part == number]
        values = (float(of(own)) for of in (np.min, np.median, np.max)) if len(own) else None
        found.append(None if values is None else Part(*values))
    return tuple(found)


def hours(at_ns: Times, zone: datetime.tzinfo) -> NDArray[np.int64]:
    """[n]: the hour of the day, 0 to 23, in a time zone, of times in ns since 1970 (UTC)."""
    return _local_s(at_ns, zone) // _HOUR_S % 24


def weekdays(at_ns: Times, zone: datetime.tzinfo) -> NDArray[np.int64]:
    """[n]: the day of the week, 0 (Monday) to 6, in a time zone, of times in ns (UTC)."""
    # Day 0 of Unix time was a Thursday.
    return (_local_s(at_ns, zone) // _DAY_S + 3) % 7


def _local_s(at_ns: Times, zone: datetime.tzinfo) -> NDArray[np.int64]:
    """[n]: local time, as seconds since the local beginning of 1970.

    Each time has its own offset: where clocks are set back, an hour occurs twice.
    """
    seconds = at_ns // 1_000_000_000
    quarters, which = np.unique(seconds // _QUARTER_S, return_inverse=True)
    offsets = [_offset_s(quarter * _QUARTER_S, zone) for quarter in quarters.tolist()]
    local: NDArray[np.int64] = seconds + np.array(offsets, np.int64)[which]
    return local


def _offset_s(at_s: int, zone: datetime.tzinfo) -> int:
    offset = datetime.datetime.fromtimestamp(at_s, zone).utcoffset()
    return 0 if offset is None else round(offset.total_seconds())
