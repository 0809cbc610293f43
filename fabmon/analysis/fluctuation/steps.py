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

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

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
class Change:
    """From value `index` on the level is another."""

    index: int
    before: float
    after: float


def changes(values: Values) -> list[Change]:
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


def _told(values: Values, found: list[int], sigma: float) -> list[Change]:
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
            return [Change(edge, before, after) for edge, before, after in pairs]
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
