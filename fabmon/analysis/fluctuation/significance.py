"""Whether two series of measurements differ by more than they vary, though neighbours are alike.

What is compared is what is shown: the medians of both series. How sure a median is comes from a
bootstrap of batches (Efron, Annals of Statistics 7, 1979; of blocks of a series: Carlstein, Annals
of Statistics 14, 1986), which holds for values that are tied, too, where formulas for the error of
a median do not (Wilcox, Introduction to Robust Estimation and Hypothesis Testing). Neighbouring
values of one run are no independent measurements: batches are long enough for their neighbours not
to be alike (batch means: Law and Kelton, Simulation Modeling and Analysis; the autocorrelation of
ranks is below its standard error); what is left of it, or may be, widens the variance by (1 + r) /
(1 - r). The difference of the logarithms over its error is held against Student's t with Welch's
degrees of freedom, a batch being one measurement. Many links at once: Benjamini and Hochberg, JRSS
B 57, 1995. No shape of the noise is assumed, but that it is steady within a run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

LEAST_BATCHES = 8
"""Of each run: fewer cannot tell anything."""

_FEW, _MANY = 16, 36
"""Batches of the shorter run: with fewer, what is alike is not told; more would have no shape."""
_MOST_ALIKE = 0.9
_RESAMPLES = 400
_SEED = 7


@dataclass(frozen=True, slots=True)
class MedianShift:
    """By how much the second median is more than the first, as a share; 95 % confidence from `low`
    to `high`. `before` and `after` are the medians, `batches` how many there are of each run,
    `values` how many values are one.
    """

    before: float
    after: float

    share: float
    low: float
    high: float
    p: float
    batches: tuple[int, int]
    values: int


def median_shift(a: Values, b: Values) -> MedianShift | None:
    """Of two series of positive values in their order; None where one is too short."""
    size = max(1, min(len(a), len(b)) // _MANY)
    while True:
        one, other = _batches(a, size), _batches(b, size)
        fewer = min(len(one), len(other))
        if fewer < LEAST_BATCHES:
            return None
        r = max(_alike(_batches(_ranks(each), size)) for each in (a, b))
        if r <= 1 / math.sqrt(fewer) or fewer < 2 * _FEW:
            break
        size *= 2
    r = min(max(r, 0.0), _MOST_ALIKE)
    growth = (1 + r) / (1 - r)
    before, after = (float(np.median(each)) for each in (a, b))
    errors = [growth * _variance(each, size) for each in (a, b)]
    counts = [len(each) / growth for each in (one, other)]
    share, low, high, p = _t_test(math.log(after / before), errors, counts)
    return MedianShift(before, after, share, low, high, p, (len(one), len(other)), size)


def _variance(values: Values, size: int) -> float:
    """Of the logarithm of the median, by drawing batches of so many neighbours anew.

    The draws are the same for equal lengths: who asks twice is told the same.
    """
    count = len(values) // size
    own = values[: count * size]
    order = np.argsort(own, kind="stable")
    drawn = np.random.default_rng(_SEED).multinomial(count, np.full(count, 1 / count), _RESAMPLES)
    reached = np.cumsum(drawn[:, order // size], axis=1, dtype=np.int32)
    places = (2 * reached >= count * size).argmax(axis=1)
    medians = np.log(own[order][places])
    return float(medians.var()) * count / (count - 1)


def welch(a: Values, b: Values) -> tuple[float, float, float, float]:
    """Of runs' own numbers: share by which the mean of `b` is more, its 95 % bounds, and p.

    Welch's t on logarithms, three runs or more on either side: runs vary among each other more than
    within, and only runs tell by how much.
    """
    one, other = np.log(a), np.log(b)
    errors = [float(each.var(ddof=1)) / len(each) for each in (one, other)]
    return _t_test(float(other.mean() - one.mean()), errors, [len(one), len(other)])


def _t_test(
    difference: float, errors: Sequence[float], counts: Sequence[float]
) -> tuple[float, float, float, float]:
    """Of a difference of logarithms: as a share, its 95 % bounds, and p.

    `errors` are the variances of both sides, `counts` of how many measurements each.
    """
    share, error = math.expm1(difference), math.sqrt(sum(errors))
    if error <= 0:
        return share, share, share, 1.0 if difference == 0 else 0.0
    freedom = sum(errors) ** 2 / sum(
        each**2 / max(count - 1, 1) for each, count in zip(errors, counts, strict=True)
    )
    reach = _t_quantile(freedom) * error
    p = min(1.0, 2 * _t_above(abs(difference) / error, freedom))
    return share, math.expm1(difference - reach), math.expm1(difference + reach), p


def holm(ps: Values, level: float) -> NDArray[np.bool_]:
    """[tests]: which are told where the chance of any false one among them is to be `level`.

    Holm, Scandinavian Journal of Statistics 6, 1979.
    """
    order = np.argsort(ps)
    passed = ps[order] <= level / np.arange(len(ps), 0, -1)
    told = np.zeros(len(ps), np.bool_)
    told[order] = np.logical_and.accumulate(passed)
    return told


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
    ranks = _ranks(values)
    power = float((ranks * ranks).sum())
    return float((ranks[1:] * ranks[:-1]).sum()) / power + 1 / len(values) if power else 0.0


def _ranks(values: Values) -> Values:
    """Their ranks, equal ones alike, from their middle."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Values = (np.cumsum(counts) - counts / 2)[which]
    ranks -= ranks.mean()
    return ranks


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
