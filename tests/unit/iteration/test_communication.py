"""The share of communication: slowed exchanges count in full, other traffic does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fabmon.analysis.iteration.measurement import MeasuredIteration, measure_iteration
from tests.unit.iteration.waves import Exchanges

SAMPLES = 240
LINE = 1.0
Parts = list[tuple[float, float]]


def compute_then(duration: float, *exchange: tuple[float, float]) -> Parts:
    return [(duration, 0.0), *exchange]


def always(parts: Parts) -> Callable[[float], Parts]:
    return lambda _: parts


def share_of(parts: Parts) -> float:
    total = sum(duration for duration, _ in parts)
    return sum(duration for duration, level in parts if level > 0) / total


def error(measured: MeasuredIteration, true: float) -> float:
    """How far the true share is outside the bounds."""
    return max(measured.share.low - true, true - measured.share.high, 0.0)


def within(
    exchanges: Exchanges, draw: Callable[[np.random.Generator], Parts], count: int = 80
) -> tuple[float, float]:
    """The share of measured signals whose share is within 5 points, and the greatest error."""
    rng = np.random.default_rng(4)
    errors = []
    for _ in range(count):
        parts = draw(rng)
        signal = exchanges.samples(always(parts), SAMPLES, rng)
        measured = measure_iteration(signal, LINE)
        if measured is not None:
            errors.append(error(measured, share_of(parts)))
    assert len(errors) >= 0.9 * count
    return float(np.mean(np.array(errors) <= 0.05)), max(errors)


def test_an_exchange_lasts_until_its_slowed_flows_are_done() -> None:
    """3 s of exchange in 6 s; from second 60 on 7 s in 10: 1.5 s at 0.9, then 5.5 s at 0.3."""
    fast, slowed = compute_then(3, (3, 0.9)), compute_then(3, (1.5, 0.9), (5.5, 0.3))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        signal = Exchanges().samples(lambda at: fast if at < 60 else slowed, SAMPLES, rng)
        before, after = measure_iteration(signal[:60], LINE), measure_iteration(signal, LINE)
        assert before is not None
        assert after is not None
        assert error(before, 0.5) <= 0.05
        assert error(after, 0.7) <= 0.05
        assert after.share.high - after.share.low < 0.05
        assert after.shares is not None
        assert after.shares.before == pytest.approx(0.5, abs=0.05)
        assert after.shares.after == pytest.approx(0.7, abs=0.05)


@pytest.mark.parametrize("exchanges", [Exchanges(), Exchanges(noise=0.1), Exchanges(skew=0.5)])
def test_slowed_ends_of_two_samples_and_more_count_in_full(exchanges: Exchanges) -> None:
    def draw(rng: np.random.Generator) -> Parts:
        end = rng.uniform(2.2, 8), rng.uniform(0.2, 0.5)
        return compute_then(rng.uniform(2, 6), (rng.uniform(0.5, 4), 0.9), end)

    share, worst = within(exchanges, draw)
    assert share >= 0.95
    assert worst <= 0.12


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("background", [0.0, 0.02])
def test_a_healthy_exchange_is_no_longer_than_it_is(skew: float, background: float) -> None:
    def draw(rng: np.random.Generator) -> Parts:
        return compute_then(rng.uniform(1, 8), (rng.uniform(1, 8), rng.uniform(0.3, 0.95)))

    share, worst = within(Exchanges(skew=skew, background=background), draw)
    assert share >= 0.99
    assert worst <= 0.06


@pytest.mark.parametrize("skew", [0.0, 0.5])
def test_a_pause_shorter_than_two_samples_is_not_part_of_the_exchange(skew: float) -> None:
    def draw(rng: np.random.Generator) -> Parts:
        return compute_then(rng.uniform(0.5, 2), (rng.uniform(3, 8), 0.9))

    assert within(Exchanges(skew=skew), draw)[0] >= 0.99


def test_noise_of_two_percent_is_no_exchange_even_of_a_job_that_sends_little() -> None:
    def draw(rng: np.random.Generator) -> Parts:
        return compute_then(rng.uniform(2, 8), (rng.uniform(2, 8), rng.uniform(0.05, 0.1)))

    assert within(Exchanges(background=0.02), draw)[0] >= 0.98


@pytest.mark.parametrize("level", [0.1, 0.3])
def test_a_checkpoint_is_no_exchange(level: float) -> None:
    """4 s every 70 s, while a job computes."""
    rng = np.random.default_rng(5)
    errors = []
    for _ in range(60):
        compute_s, exchange = rng.uniform(3, 6), (rng.uniform(2, 6), 0.8)
        plain = compute_then(compute_s, exchange)
        other = compute_then(compute_s / 2, (4, level), (compute_s / 2, 0), exchange)
        written = -1.0

        def parts_at(at: float, plain: Parts = plain, other: Parts = other) -> Parts:
            nonlocal written
            if at // 70 <= written:
                return plain
            written = at // 70
            return other

        measured = measure_iteration(Exchanges().samples(parts_at, SAMPLES, rng), LINE)
        if measured is not None:
            errors.append(error(measured, share_of(plain)))
    assert len(errors) >= 50
    assert np.mean(np.array(errors) <= 0.05) >= 0.95


def test_bounds_hold_where_no_sample_shows_the_level() -> None:
    """A burst shorter than a sample, with and without a slowed end."""

    def draw(rng: np.random.Generator) -> Parts:
        return compute_then(rng.uniform(3, 6), (rng.uniform(0.3, 0.9), 0.9))

    def slowed(rng: np.random.Generator) -> Parts:
        return [*draw(rng), (rng.uniform(2.5, 6), rng.uniform(0.25, 0.5))]

    assert within(Exchanges(), draw)[0] >= 0.99
    assert within(Exchanges(), slowed)[0] >= 0.95
