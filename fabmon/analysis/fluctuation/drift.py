"""Slow drift: Theil and Sen's slope, the median of the slopes of all pairs, and its confidence.

The interval is Sen's (JASA 63, 1968): the slopes at the ranks that Kendall's variance leaves out;
the variance grows with autocorrelation (Hamed and Rao, J. Hydrology 204, 1998, first order). Pairs
on both sides of a step do not count: a step is not a drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_LEAST = 20
_Z95 = 1.96

Values = NDArray[np.float64]


def slope(at: Values, values: Values, edges: Sequence[int] = ()) -> tuple[float, float, float]:
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
    reach = _Z95 * (variance * _growth(np.concatenate(rest))) ** 0.5
    low = int(np.clip(np.floor((total - reach) / 2), 0, total - 1))
    high = int(np.clip(np.ceil((total + reach) / 2), 0, total - 1))
    return float(np.median(ordered)), float(ordered[low]), float(ordered[high])


def _growth(rest: Values) -> float:
    """(1 + r) / (1 - r) of the ranks' first autocorrelation."""
    ranks = np.argsort(np.argsort(rest)).astype(np.float64)
    ranks -= ranks.mean()
    r = float((ranks[1:] * ranks[:-1]).sum() / max(float((ranks * ranks).sum()), 1e-12))
    # A short series with its trend taken away has too little of it (Kendall, Biometrika 41, 1954).
    r = min(max(r + (2 + 4 * r) / len(rest), 0.0), 0.95)
    return (1 + r) / (1 - r)
