"""Whether two series of measurements differ by more than they vary, though neighbours are alike.

Neighbouring values of one run are no independent measurements. So the means of batches are
compared: some 32 of them, fewer and longer until neighbours are not alike any more (batch means:
Law and Kelton, Simulation Modeling and Analysis; the autocorrelation of ranks is below its standard
error); what is left of it widens the variance, (1 + r) / (1 - r). Batches of two runs are compared
by ranks (Mann and Whitney, Annals of Mathematical Statistics 18, 1947, ties corrected); the size of
the difference is the median of all pairs' differences (Hodges and Lehmann, Annals of Mathematical
Statistics 34, 1963), its 95 % interval those that the same test would not reject. Many links at
once: Benjamini and Hochberg, JRSS B 57, 1995. No shape of the noise is assumed, but that it is
steady within a run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

LEAST_BATCHES = 8
"""Of each run: fewer cannot tell anything."""

_FEW, _MANY = 16, 36
"""Batches of the shorter run: with fewer, what is alike is not told; more would have no shape."""
_MOST_ALIKE = 0.9
_Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class Shift:
    """By how much the second is more than the first, as a share; 95 % confidence from `low` to
    `high`. `before` and `after` are the medians of the batches, `batches` how many there are of
    each run, `values` how many values are one.
    """

    before: float
    after: float

    share: float
    low: float
    high: float
    p: float
    batches: tuple[int, int]
    values: int


def shift(a: Values, b: Values) -> Shift | None:
    """Of two series of positive values in their order; None where one is too short."""
    size = max(1, min(len(a), len(b)) // _MANY)
    while True:
        one, other = _batches(a, size), _batches(b, size)
        fewer = min(len(one), len(other))
        if fewer < LEAST_BATCHES:
            return None
        r = max(_alike(one), _alike(other))
        is_clear = r > 1 / math.sqrt(fewer)
        if not is_clear or fewer < 2 * _FEW:
            break
        size *= 2
    r = min(r, _MOST_ALIKE) if is_clear else 0.0
    return _compared(np.log(one), np.log(other), (1 + r) / (1 - r), size)


def _compared(a: Values, b: Values, growth: float, size: int) -> Shift:
    n, m = len(a), len(b)
    pairs = np.sort((b[None, :] - a[:, None]).ravel())
    wins = float((pairs > 0).sum()) + 0.5 * float((pairs == 0).sum())
    total = n + m
    _, ties = np.unique(np.concatenate([a, b]), return_counts=True)
    tied = float((ties.astype(np.float64) ** 3 - ties).sum()) / (total * (total - 1))
    variance = n * m / 12 * (total + 1 - tied) * growth
    spare = abs(wins - n * m / 2) - 0.5
    p = math.erfc(max(spare, 0.0) / math.sqrt(2 * variance)) if variance > 0 else 1.0
    reach = _Z95 * math.sqrt(n * m * (total + 1) / 12 * growth)
    low = int(np.clip(math.floor(n * m / 2 - reach), 0, len(pairs) - 1))
    high = int(np.clip(math.ceil(n * m / 2 + reach), 0, len(pairs) - 1))
    middle, least, most = (
        math.expm1(float(each)) for each in (np.median(pairs), pairs[low], pairs[high])
    )
    before, after = (float(np.exp(np.median(each))) for each in (a, b))
    return Shift(before, after, middle, least, most, p, (n, m), size)


def welch(a: Values, b: Values) -> tuple[float, float, float, float]:
    """Of runs' own numbers: share by which the mean of `b` is more, its 95 % bounds, and p.

    Welch's t on logarithms, three runs or more on either side: runs vary among each other more than
    within, and only runs tell by how much.
    """
    one, other = np.log(a), np.log(b)
    errors = [float(each.var(ddof=1)) / len(each) for each in (one, other)]
    error = math.sqrt(sum(errors))
    difference = float(other.mean() - one.mean())
    if error <= 0:
        share = math.expm1(difference)
        return share, share, share, 1.0 if difference == 0 else 0.0
    freedom = sum(errors) ** 2 / sum(
        each**2 / (len(own) - 1) for each, own in zip(errors, (one, other), strict=True)
    )
    reach = _t_quantile(freedom) * error
    p = 2 * _t_above(abs(difference) / error, freedom)
    return math.expm1(difference), math.expm1(difference - reach), math.expm1(difference + reach), p


def benjamini_hochberg(ps: Values, q: float) -> NDArray[np.bool_]:
    """[tests]: which are told where a share `q` of those that are told may be wrong."""
    order = np.argsort(ps)
    passed = ps[order] <= q * np.arange(1, len(ps) + 1) / max(len(ps), 1)
    last = int(np.flatnonzero(passed).max(initial=-1))
    told = np.zeros(len(ps), np.bool_)
    told[order[: last + 1]] = True
    return told


def _batches(values: Values, size: int) -> Values:
    count = len(values) // size
    means: Values = values[: count * size].reshape(-1, size).mean(axis=1)
    return means


def _alike(values: Values) -> float:
    """Autocorrelation of ranks at lag one, without what a short series has too little of it."""
    ranks = np.argsort(np.argsort(values)).astype(np.float64)
    ranks -= ranks.mean()
    power = float((ranks * ranks).sum())
    return float((ranks[1:] * ranks[:-1]).sum()) / power + 1 / len(values) if power else 0.0


def _t_above(t: float, freedom: float) -> float:
    """Student's t: the chance of more than t, by Simpson's rule over the angle."""
    angles = np.linspace(math.atan(t / math.sqrt(freedom)), math.pi / 2, 2001)
    heights = np.cos(angles) ** (freedom - 1)
    step = float(angles[1] - angles[0])
    area = (
        step
        / 3
        * float(heights[0] + heights[-1] + 4 * heights[1:-1:2].sum() + 2 * heights[2:-1:2].sum())
    )
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    return area * math.exp(scale) / math.sqrt(math.pi)


def _t_quantile(freedom: float) -> float:
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_above(middle, freedom) > 0.025 else (low, middle)
    return high
