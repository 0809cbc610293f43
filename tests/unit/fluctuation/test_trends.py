"""Steps and drifts in synthetic series."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabmon.analysis.fluctuation.trends import level_changes, theil_sen_slope
from tests.unit.fluctuation.recorded_runs import noisy

TRIALS = 60


@pytest.mark.parametrize("autocorrelation", [0.0, 0.3, 0.6, 0.8])
def test_noise_is_no_step_however_slow_it_is(autocorrelation: float) -> None:
    rng = np.random.default_rng(1)
    found = [level_changes(noisy(rng, 180, autocorrelation)) for _ in range(TRIALS)]
    assert sum(map(bool, found)) <= 0.05 * TRIALS


@pytest.mark.parametrize("change", [-0.2, -0.08, 0.1])
def test_a_step_is_found_with_its_place_and_its_size(change: float) -> None:
    rng = np.random.default_rng(2)
    good = 0
    for _ in range(TRIALS):
        values = noisy(rng, 180, 0.3, 0.02)
        values[100:] *= 1 + change
        found = level_changes(values)
        good += (
            len(found) == 1
            and abs(found[0].index - 100) <= 2
            and abs(found[0].after / found[0].before - 1 - change) < 0.02
        )
    assert good >= 0.9 * TRIALS


def test_two_steps_are_two() -> None:
    values = noisy(np.random.default_rng(3), 300, 0.0, 0.02)
    values[100:180] *= 0.5
    assert [each.index for each in level_changes(values)] == [100, 180]


def test_a_cell_that_is_far_off_is_no_step() -> None:
    values = noisy(np.random.default_rng(4), 200, 0.0, 0.02)
    values[[50, 51, 120]] *= 0.1
    assert level_changes(values) == []


def test_a_series_that_never_moves_and_one_too_short_have_no_step() -> None:
    assert level_changes(np.full(100, 7.0)) == []
    assert level_changes(np.zeros(100)) == []
    assert level_changes(np.array([1.0, 5.0, 1.0])) == []


def test_a_change_below_two_percent_is_not_reported() -> None:
    values = np.full(200, 100.0)
    values[100:] = 101.5
    assert level_changes(values) == []


@settings(deadline=None, max_examples=25)
@given(st.floats(1e-6, 1e12), st.integers(0, 10_000))
def test_steps_do_not_depend_on_the_unit(factor: float, seed: int) -> None:
    values = noisy(np.random.default_rng(seed), 120, 0.3)
    values[60:] *= 0.7
    plain, scaled = level_changes(values), level_changes(values * factor)
    assert [each.index for each in plain] == [each.index for each in scaled]


def test_a_drift_is_within_its_interval() -> None:
    rng = np.random.default_rng(5)
    hours = np.arange(240) / 20
    hit = 0
    for _ in range(TRIALS):
        values = noisy(rng, 240, 0.5) - 2.0 * hours
        _, low, high = theil_sen_slope(hours, values)
        hit += low <= -2.0 <= high
    assert hit >= 0.85 * TRIALS


def test_a_step_is_no_drift() -> None:
    values = noisy(np.random.default_rng(6), 200, 0.0, 0.02)
    values[100:] *= 0.5
    at = np.arange(200.0)
    _, low, high = theil_sen_slope(at, values, [100])
    assert low <= 0 <= high
    assert theil_sen_slope(at, values)[0] < -0.1


def test_a_short_series_has_no_drift() -> None:
    assert np.isnan(theil_sen_slope(np.arange(9.0), np.arange(9.0))).all()
