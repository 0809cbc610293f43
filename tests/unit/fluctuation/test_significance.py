"""The test has false alarms at its level, and finds real changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabmon.analysis.fluctuation import significance
from tests.unit.fluctuation.recorded_runs import noisy

TRIALS = 300


@pytest.mark.parametrize(
    ("count", "autocorrelation"),
    [(60, 0.0), (60, 0.9), (180, 0.0), (180, 0.5), (180, 0.8), (180, 0.9), (720, 0.9)],
)
def test_false_alarms_are_at_the_level(count: int, autocorrelation: float) -> None:
    """A chance of 5 % in 300 trials gives more than 27 of them once in 1,000 times."""
    rng = np.random.default_rng(11)
    alarms = outside = 0
    for _ in range(TRIALS):
        found = significance.median_shift(
            noisy(rng, count, autocorrelation), noisy(rng, count, autocorrelation)
        )
        assert found is not None
        alarms += found.p < 0.05
        outside += not found.low <= 0 <= found.high
    assert alarms <= 27
    assert outside <= 30


@pytest.mark.parametrize(("autocorrelation", "least"), [(0.0, 1.0), (0.5, 0.95), (0.8, 0.75)])
def test_a_change_of_eight_percent_is_found(autocorrelation: float, least: float) -> None:
    rng = np.random.default_rng(12)
    found = [
        significance.median_shift(
            noisy(rng, 180, autocorrelation), 0.92 * noisy(rng, 180, autocorrelation)
        )
        for _ in range(100)
    ]
    assert sum(each is not None and each.p < 0.05 for each in found) >= least * 100
    shares = [each.share for each in found if each is not None]
    assert abs(np.median(shares) + 0.08) < 0.01


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.integers(20, 100), st.integers(20, 100))
def test_what_is_tested_is_what_is_shown(seed: int, many: int, few: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = noisy(rng, many, 0.3), noisy(rng, few, 0.3)
    found = significance.median_shift(a, b)
    assert found is not None
    assert (found.before, found.after) == (np.median(a), np.median(b))
    assert found.share == pytest.approx(np.median(b) / np.median(a) - 1)
    assert found.low <= found.share <= found.high


@pytest.mark.parametrize("likely", [0.5, 0.3])
@pytest.mark.parametrize("count", [40, 180])
def test_values_that_are_one_of_two_raise_few_alarms(count: int, likely: float) -> None:
    """The worst case: the median jumps from one to the other. 9 % were measured."""
    rng = np.random.default_rng(14)
    alarms = 0
    for _ in range(TRIALS):
        a, b = (np.where(rng.random(count) < likely, 4.5, 4.0) for _ in range(2))
        found = significance.median_shift(a, b)
        assert found is not None
        alarms += found.p < 0.05
    assert alarms <= 0.13 * TRIALS


def test_a_run_that_is_too_short_is_not_tested() -> None:
    assert significance.median_shift(np.arange(1.0, 8.0), np.arange(1.0, 50.0)) is None


def test_equal_runs_are_equal() -> None:
    found = significance.median_shift(np.full(50, 3.0), np.full(50, 3.0))
    assert found is not None
    assert (found.share, found.p) == (0.0, 1.0)


@settings(deadline=None, max_examples=30)
@given(st.floats(1e-3, 1e12), st.integers(0, 1000))
def test_the_unit_makes_no_difference(factor: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = noisy(rng, 90, 0.3), 1.02 * noisy(rng, 90, 0.3)
    plain, scaled = (
        significance.median_shift(a, b),
        significance.median_shift(a * factor, b * factor),
    )
    assert plain is not None
    assert scaled is not None
    assert scaled.p == pytest.approx(plain.p, rel=1e-6)
    assert scaled.share == pytest.approx(plain.share, abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000))
def test_a_with_b_is_the_reverse_of_b_with_a(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = noisy(rng, 80, 0.2), 1.05 * noisy(rng, 80, 0.2)
    there, back = significance.median_shift(a, b), significance.median_shift(b, a)
    assert there is not None
    assert back is not None
    assert there.p == pytest.approx(back.p)
    assert (1 + there.share) * (1 + back.share) == pytest.approx(1)


def test_runs_by_students_t() -> None:
    """Three with three, equal variances: 4 degrees of freedom, whose 97.5 % quantile is 2.776."""
    a = np.exp(np.array([0.0, 1.0, 2.0]))
    shift = significance.shift_of_runs(a, a * np.e**3)
    reach = 2.776445 * (2 / 3) ** 0.5
    shares = [shift.share, shift.low, shift.high]
    assert np.log1p(shares) == pytest.approx([3.0, 3 - reach, 3 + reach], abs=1e-4)
    assert shift.p == pytest.approx(0.0213, abs=2e-4)


@pytest.mark.parametrize(("many", "few"), [(3, 3), (6, 3), (10, 10)])
def test_false_alarms_between_runs_are_at_the_level(many: int, few: int) -> None:
    rng = np.random.default_rng(13)
    ps = [
        significance.shift_of_runs(*(np.exp(0.1 * rng.standard_normal(n)) for n in (many, few))).p
        for _ in range(TRIALS)
    ]
    assert sum(p < 0.05 for p in ps) <= 27


def test_any_false_one_by_holm() -> None:
    """0.005 and 0.01 pass 0.05 / 4 and 0.05 / 3; 0.03 does not pass 0.05 / 2, and stops 0.04."""
    assert significance.holm(np.array([0.01, 0.04, 0.03, 0.005]), 0.05).tolist() == [
        True, False, False, True,
    ]  # fmt: skip
    assert significance.holm(np.empty(0), 0.05).sum() == 0


def test_false_discoveries_by_benjamini_and_hochberg() -> None:
    """The example of their paper, q = 0.05: four of fifteen."""
    ps = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459,
          0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0]  # fmt: skip
    assert significance.benjamini_hochberg(np.array(ps[::-1]), 0.05).sum() == 4
    assert significance.benjamini_hochberg(np.empty(0), 0.05).sum() == 0
