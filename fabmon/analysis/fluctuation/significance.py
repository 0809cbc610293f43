"""Tests of whether two series of measurements differ by more than noise with autocorrelation.

The medians of both series are compared, the numbers that are shown. The error of a median comes
from a bootstrap of batches (Efron, Annals of Statistics 7, 1979; of blocks of a series: Carlstein,
Annals of Statistics 14, 1986), which holds for tied values, too, where formulas for the error of a
median do not (Wilcox, Introduction to Robust Estimation and Hypothesis Testing). Neighbouring
values of one run are not independent measurements: batches are so long that neighbouring batches
are not correlated (batch means: Law and Kelton, Simulation Modeling and Analysis; the
autocorrelation of ranks is below its standard error). A remaining autocorrelation r widens the
variance by (1 + r) / (1 - r). The difference of the logarithms over its error is compared with
Student's t with Welch's degrees of freedom, a batch being one measurement. Many links at once:
Benjamini and Hochberg, JRSS B 57, 1995. The noise may have any distribution, but is assumed to be
stationary within a run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Passes = NDArray[np.bool_]

MIN_BATCHES = 8
"""Batches of each run: with fewer there is no test."""

_FEW_BATCHES, _MANY_BATCHES = 16, 36
"""Batches of the shorter run. With fewer than _FEW, autocorrelation is not reliable, and batches
are not made longer; with more than _MANY, a batch would contain too few values."""

_MAX_AUTOCORRELATION = 0.9
_RESAMPLES = 400
_SEED = 7


@dataclass(frozen=True, slots=True)
class MedianShift:
    """The difference of two medians, `share` = (after - before) / before, from `low` to `high` with
    95 % confidence; `p` is the chance of such a difference where there is none.

    `batches` is the number of batches of each run, `values` the number of values in a batch.
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
    """Compare two series of positive values in their order; None where one is too short."""
    size = max(1, min(len(a), len(b)) // _MANY_BATCHES)
    while True:
        one, other = _batches(a, size), _batches(b, size)
        fewer = min(len(one), len(other))
        if fewer < MIN_BATCHES:
            return None
        r = max(_rank_autocorrelation(_batches(_ranks(each), size)) for each in (a, b))
        if r <= 1 / math.sqrt(fewer) or fewer < 2 * _FEW_BATCHES:
            break
        size *= 2
    r = min(max(r, 0.0), _MAX_AUTOCORRELATION)
    growth = (1 + r) / (1 - r)
    before, after = (float(np.median(each)) for each in (a, b))
    variances = [growth * _median_variance(each, size) for each in (a, b)]
    counts = [len(each) / growth for each in (one, other)]
    test = _t_test(math.log(after / before), variances, counts)
    return MedianShift(before, after, *test, (len(one), len(other)), size)


def _median_variance(values: Values, size: int) -> float:
    """Variance of the logarithm of the median, by resampling batches of `size` neighbours.

    The draws are the same for equal lengths: equal input gives equal output.
    """
    count = len(values) // size
    own = values[: count * size]
    order = np.argsort(own, kind="stable")
    drawn = np.random.default_rng(_SEED).multinomial(count, np.full(count, 1 / count), _RESAMPLES)
    reached = np.cumsum(drawn[:, order // size], axis=1, dtype=np.int32)
    places = (2 * reached >= count * size).argmax(axis=1)
    medians = np.log(own[order][places])
    return float(medians.var()) * count / (count - 1)


def shift_of_runs(a: Values, b: Values) -> MedianShift:
    """Compare the medians of runs, at least three on each side, by their geometric means.

    Welch's t on logarithms. Runs differ by more than the noise within a run shows, and only several
    runs show by how much.
    """
    one, other = np.log(a), np.log(b)
    variances = [float(each.var(ddof=1)) / len(each) for each in (one, other)]
    test = _t_test(float(other.mean() - one.mean()), variances, [len(one), len(other)])
    before, after = (float(np.exp(each.mean())) for each in (one, other))
    return MedianShift(before, after, *test, (len(a), len(b)), 1)


def _t_test(
    difference: float, variances: Sequence[float], counts: Sequence[float]
) -> tuple[float, float, float, float]:
    """Share, 95 % bounds and p of a difference of logarithms.

    `variances` are those of both sides' logarithms, `counts` their numbers of measurements.
    """
    share, error = math.expm1(difference), math.sqrt(sum(variances))
    if error <= 0:
        return share, share, share, 1.0 if difference == 0 else 0.0
    freedom = sum(variances) ** 2 / sum(
        each**2 / max(count - 1, 1) for each, count in zip(variances, counts, strict=True)
    )
    reach = _t_quantile(freedom) * error
    p = min(1.0, 2 * _t_above(abs(difference) / error, freedom))
    return share, math.expm1(difference - reach), math.expm1(difference + reach), p


def holm(ps: Values, level: float) -> Passes:
    """[tests]: which pass, where the chance of any false one among them is to be `level`.

    Holm, Scandinavian Journal of Statistics 6, 1979.
    """
    order = np.argsort(ps)
    passed = ps[order] <= level / np.arange(len(ps), 0, -1)
    passes = np.zeros(len(ps), np.bool_)
    passes[order] = np.logical_and.accumulate(passed)
    return passes


def benjamini_hochberg(ps: Values, q: float) -> Passes:
    """[tests]: which pass, where a share `q` of those that pass may be false."""
    order = np.argsort(ps)
    passed = ps[order] <= q * np.arange(1, len(ps) + 1) / max(len(ps), 1)
    last = int(np.flatnonzero(passed).max(initial=-1))
    passes = np.zeros(len(ps), np.bool_)
    passes[order[: last + 1]] = True
    return passes


def _batches(values: Values, size: int) -> Values:
    """Means of batches of `size` neighbours."""
    count = len(values) // size
    means: Values = values[: count * size].reshape(-1, size).mean(axis=1)
    return means


def _rank_autocorrelation(values: Values) -> float:
    """Autocorrelation of ranks at lag one, corrected for the bias in a short series."""
    ranks = _ranks(values)
    power = float((ranks * ranks).sum())
    return float((ranks[1:] * ranks[:-1]).sum()) / power + 1 / len(values) if power else 0.0


def _ranks(values: Values) -> Values:
    """Ranks minus their mean; equal values have equal ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Values = (np.cumsum(counts) - counts / 2)[which]
    ranks -= ranks.mean()
    return ranks


def _t_above(t: float, freedom: float) -> float:
    """Student's t distribution: the chance of more than t, by Simpson's rule over the angle."""
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
    """The t that is exceeded with a chance of 2.5 %."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_above(middle, freedom) > 0.025 else (low, middle)
    return high
