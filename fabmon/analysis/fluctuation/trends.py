"""When a level changed: PELT on robust values, with a penalty for noise that is no white noise.

PELT finds the split into levels that costs least, exactly, in about linear time (Killick, Fearnhead
and Eckley, "Optimal detection of changepoints with a linear computational cost", JASA 107, 2012).
The cost is the squared distance from each level's mean, of values that are cut at three deviations
from a running median, so that a single cell is no level (cf. Fearnhead and Rigaill, "Changepoint
detection in the presence of outliers", JASA 114, 2019). The variance comes from differences
(median absolute deviation), and grows with the noise's autocorrelation, which differences tell as
well, since hardly any of them has a step in it (Shi, Gallagher, Lund and Killick, "A comparison of
single and multiple changepoint techniques for time series data", CSDA 170, 2022): slow noise is
not a row of steps.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from fabmon.analysis.fluctuation.results import Drift, Slot, Step
from fabmon.fabric.snapshot import Floats

Values = NDArray[np.float64]

LEAST_CHANGE = 0.02
"""Of the level before: what is less is not told."""

_LEAST_SIDE = 5
_PENALTY = 4.0
"""Times log(n) variances: 2 is the information criterion for a mean and its place (BIC)."""
_SIGMA = 1.4826
_CUT = 3.0
_SIGMAS = 5.0
_MOST_ALIKE = 0.95


@dataclass(frozen=True, slots=True)
class LevelChange:
    """From value `index` on the level is another."""

    index: int
    before: float
    after: float


def level_changes(values: Values) -> list[LevelChange]:
    """The changes of level in a series without gaps, by time."""
    count = len(values)
    if count < 2 * _LEAST_SIDE:
        return []
    level = _running_median(values)
    sigma = _deviation(values)
    floor = 1e-4 * float(np.median(np.abs(values)))
    sigma = max(sigma, floor)
    if sigma <= 0:
        return []
    tame = np.clip(values, level - _CUT * sigma, level + _CUT * sigma)
    growth = _growth(tame)
    found = _pelt(tame, _PENALTY * np.log(count) * sigma**2 * growth)
    return _told(values, found, sigma * growth**0.5)


def _told(values: Values, found: list[int], sigma: float) -> list[LevelChange]:
    """What is large enough, judged from neighbouring level to level; others are joined."""
    edges = list(found)
    while edges:
        bounds = [0, *edges, len(values)]
        levels = [float(np.median(values[a:b])) for a, b in pairwise(bounds)]
        sizes = np.diff(bounds)
        weights = []
        for number in range(len(edges)):
            jump = abs(levels[number + 1] - levels[number])
            error = sigma * (1 / sizes[number] + 1 / sizes[number + 1]) ** 0.5
            enough = max(LEAST_CHANGE * abs(levels[number]), _SIGMAS * error)
            weights.append(jump / enough if enough > 0 else 0.0)
        weakest = int(np.argmin(weights))
        if weights[weakest] >= 1:
            pairs = zip(edges, levels[:-1], levels[1:], strict=True)
            return [LevelChange(edge, before, after) for edge, before, after in pairs]
        del edges[weakest]
    return []


def _pelt(values: Values, penalty: float) -> list[int]:
    """Where new levels begin."""
    count = len(values)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    squares = np.concatenate([[0.0], np.cumsum(values * values)])
    best = np.full(count + 1, np.inf)
    best[0] = -penalty
    before = np.zeros(count + 1, np.intp)
    starts = np.array([0], np.intp)
    for end in range(_LEAST_SIDE, count + 1):
        length = end - starts
        cost = squares[end] - squares[starts] - (sums[end] - sums[starts]) ** 2 / length
        total = best[starts] + cost
        place = int(np.argmin(total))
        best[end], before[end] = total[place] + penalty, starts[place]
        starts = starts[total <= best[end]]
        newest = end + 1 - _LEAST_SIDE
        if newest >= _LEAST_SIDE:
            starts = np.append(starts, newest)
    found = []
    end = count
    while before[end] > 0:
        end = int(before[end])
        found.append(end)
    return found[::-1]


def _running_median(values: Values) -> Values:
    half = _LEAST_SIDE
    padded = np.pad(values, half, mode="edge")
    middle: Values = np.median(sliding_window_view(padded, 2 * half + 1), axis=1)
    return middle


def _deviation(values: Values) -> float:
    """Of one value, from differences: levels and drifts hardly count."""
    steps = np.abs(np.diff(values))
    from_most = float(np.median(steps)) * _SIGMA / 2**0.5
    return max(from_most, float(np.quantile(steps, 0.9)) / (1.645 * 2**0.5))


def _growth(values: Values) -> float:
    """How much larger the variance of a long mean is than differences make it look.

    Where noise has autocorrelation r from value to value, differences have (r - 1) / 2, and hardly
    any of them has a step in it. Then the long-run variance is (1 + r) / (1 - r)^2 of half of
    theirs.
    """
    changes_ = np.diff(values)
    power = float((changes_ * changes_).mean())
    if power <= 0:
        return 1.0
    r = 1 + 2 * float((changes_[1:] * changes_[:-1]).mean()) / power
    r = min(max(r, 0.0), _MOST_ALIKE)
    return (1 + r) / (1 - r) ** 2


# Slow drift: Theil and Sen's slope, the median of the slopes of all pairs, and its confidence.
#
# The interval is Sen's (JASA 63, 1968): the slopes at the ranks that Kendall's variance leaves out;
# the variance grows with autocorrelation (Hamed and Rao, J. Hydrology 204, 1998, first order).
# Pairs on both sides of a step do not count: a step is not a drift.


_LEAST = 20
_Z95 = 1.96


def theil_sen_slope(
    at: Values, values: Values, edges: Sequence[int] = ()
) -> tuple[float, float, float]:
    """Slope, lower and upper bound at 95 %, per unit of `at`; NaN where there are too few values.

    `edges` are the places where a new level begins.
    """
    slopes, variance = [], 0.0
    rest = []
    bounds = [0, *edges, len(values)]
    for begin, end in pairwise(bounds):
        count = end - begin
        if count < _LEAST:
            continue
        one, other = np.triu_indices(count, 1)
        x, y = at[begin:end], values[begin:end]
        slopes.append((y[other] - y[one]) / (x[other] - x[one]))
        middle = float(np.median(slopes[-1]))
        left = y - middle * x
        rest.append(left - np.median(left))
        variance += count * (count - 1) * (2 * count + 5) / 18
    if not slopes:
        return float("nan"), float("nan"), float("nan")
    ordered = np.sort(np.concatenate(slopes))
    total = len(ordered)
    reach = _Z95 * (variance * _growth_drift(np.concatenate(rest))) ** 0.5
    low = int(np.clip(np.floor((total - reach) / 2), 0, total - 1))
    high = int(np.clip(np.ceil((total + reach) / 2), 0, total - 1))
    return float(np.median(ordered)), float(ordered[low]), float(ordered[high])


def _growth_drift(rest: Values) -> float:
    """(1 + r) / (1 - r) of the ranks' first autocorrelation."""
    ranks = np.argsort(np.argsort(rest)).astype(np.float64)
    ranks -= ranks.mean()
    r = float((ranks[1:] * ranks[:-1]).sum() / max(float((ranks * ranks).sum()), 1e-12))
    # A short series with its trend taken away has too little of it (Kendall, Biometrika 41, 1954).
    r = min(max(r + (2 + 4 * r) / len(rest), 0.0), 0.95)
    return (1 + r) / (1 - r)


# Hours of the day and days of the week as the clocks of a place show them.


_QUARTER_S = 900
"""Clocks of today's zones change at quarters of an hour of UTC, and differ from it by quarters."""

_HOUR_S, _DAY_S = 3600, 86_400


def hours(at_ns: NDArray[np.int64], zone: datetime.tzinfo) -> NDArray[np.int64]:
    """[n]: the hour of the day, 0 to 23, at each time (ns since 1970, UTC)."""
    return local_s(at_ns, zone) // _HOUR_S % 24


def weekdays(at_ns: NDArray[np.int64], zone: datetime.tzinfo) -> NDArray[np.int64]:
    """[n]: the day of the week, 0 (Monday) to 6, at each time (ns since 1970, UTC)."""
    # Day 0 of Unix time was a Thursday.
    return (local_s(at_ns, zone) // _DAY_S + 3) % 7


def local_s(at_ns: NDArray[np.int64], zone: datetime.tzinfo) -> NDArray[np.int64]:
    """[n]: what the clocks show, as seconds since they showed the beginning of 1970.

    Each time has the offset of its own: an hour that is set back comes twice.
    """
    seconds = at_ns // 1_000_000_000
    quarters, which = np.unique(seconds // _QUARTER_S, return_inverse=True)
    offsets = [_offset_s(quarter * _QUARTER_S, zone) for quarter in quarters.tolist()]
    shown: NDArray[np.int64] = seconds + np.array(offsets, np.int64)[which]
    return shown


def _offset_s(at_s: int, zone: datetime.tzinfo) -> int:
    shift = datetime.datetime.fromtimestamp(at_s, zone).utcoffset()
    return 0 if shift is None else round(shift.total_seconds())


# What ten seconds after ten seconds tell: steps, drift, hours of the day, days of the week.


MOST_POINTS = 360
"""Points of a series in which steps and slopes are looked for: longer ones are medians of several
cells each."""

_STRIP = 48
_SHORTEST_DRIFT_S = 600.0
_HOUR_S_overtime = 3600


@dataclass(frozen=True, slots=True)
class CellSeries:
    """Means of ten seconds in communication, bits/s, and when each begins (ns); no gaps."""

    at_ns: NDArray[np.int64]
    values: Values


def cell_series(at_ns: NDArray[np.int64], values: Floats) -> CellSeries:
    """What is known of [cells]."""
    known = np.isfinite(values)
    return CellSeries(at_ns[known], values[known].astype(np.float64))


def steps_and_drift(own: CellSeries, cell_s: float) -> tuple[tuple[Step, ...], Drift | None]:
    """Steps and drift of a series, of at most so many points: several cells each if need be."""
    per = max(1, -(-len(own.values) // MOST_POINTS))
    whole_parts = len(own.values) // per
    points = own.values[: whole_parts * per].reshape(-1, per)
    coarse = np.median(points, axis=1)
    found = level_changes(coarse)
    told = tuple(
        Step(int(own.at_ns[_finer(own.values, each, per)]), cell_s * 2, each.before, each.after)
        for each in found
    )
    if not whole_parts or (own.at_ns[-1] - own.at_ns[0]) / 1e9 < _SHORTEST_DRIFT_S:
        return told, None
    hours = (own.at_ns[: whole_parts * per : per] - own.at_ns[0]) / (_HOUR_S_overtime * 1e9)
    found_slopes = theil_sen_slope(hours, coarse, [each.index for each in found])
    middle = float(np.median(coarse))
    if np.isnan(found_slopes[0]) or middle <= 0:
        return told, None
    return told, Drift(*(each / middle for each in found_slopes))


def _finer(values: Values, change: LevelChange, per: int) -> int:
    """The cell at which the level changed, about the one that a coarse look gives."""
    begin = max(0, (change.index - 1) * per)
    end = min(len(values), (change.index + 1) * per)
    part = values[begin:end]
    left = np.concatenate([[0.0], np.cumsum(np.abs(part - change.before))])
    right = np.abs(part - change.after)
    cost = left + right.sum() - np.concatenate([[0.0], np.cumsum(right)])
    return min(begin + int(np.argmin(cost)), len(values) - 1)


def slot_statistics(which: NDArray[np.int64], values: Values) -> tuple[Slot, ...]:
    """By hour or day: [cells] which, and [cells] of values."""
    found = []
    for slot in np.unique(which).tolist():
        own = values[which == slot]
        low, middle, high = (float(np.quantile(own, q)) for q in (0.05, 0.5, 0.95))
        mean = float(own.mean())
        cov = float(own.std()) / mean if mean > 0 else 0.0
        found.append(Slot(slot, middle, low, high, cov, len(own)))
    return tuple(found)


def strip_medians(
    own: CellSeries, span: tuple[int, int], cell_s: float
) -> tuple[float | None, ...]:
    """Medians of equal parts of a span of time, ns: 48, or one a cell where there are fewer.

    None where there is nothing.
    """
    count = int(np.clip((span[1] - span[0]) / (cell_s * 1e9), 1, _STRIP))
    width = max(1, (span[1] - span[0]) // count + 1)
    part = np.clip((own.at_ns - span[0]) // width, 0, count - 1)
    return tuple(
        float(np.median(own.values[part == n])) if (part == n).any() else None for n in range(count)
    )
