"""The period, the share of communication and the bytes, out of samples that are means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fabmon.analysis.iteration.measurement import MeasuredIteration, measure_iteration
from fabmon.analysis.iteration.signal_analysis import fill_gaps, last_level_shift
from tests.unit.iteration.waves import Wave

SAMPLES = 240
LINE = 1.0


def beat_of(
    wave: Wave, seed: int = 0, samples: int = SAMPLES
) -> tuple[MeasuredIteration | None, float]:
    signal, period = wave.samples(samples, np.random.default_rng(seed))
    return measure_iteration(signal, LINE), period


@settings(max_examples=300, deadline=None)
@given(
    period=st.floats(3.3, 30),
    duty=st.floats(0.12, 0.85),
    jitter=st.sampled_from((0.0, 0.01, 0.02)),
    noise=st.sampled_from((0.0, 0.03, 0.05)),
    phase=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
@example(period=4.4, duty=0.61, jitter=0.02, noise=0.03, phase=0.3, seed=1)
def test_a_period_that_is_claimed_is_within_two_percent_or_what_it_says(
    period: float, duty: float, jitter: float, noise: float, phase: float, seed: int
) -> None:
    beat, true = beat_of(Wave(period, duty, jitter, noise, phase), seed)
    if beat is None:
        return
    assert abs(beat.period - true) <= max(0.02 * true, 3 * beat.error)
    assert beat.share.low - 0.08 <= duty <= beat.share.high + 0.08


def test_nearly_all_that_can_be_told_is_told_and_within_the_bounds_written_down() -> None:
    """The numbers of docs/iteration.md."""
    rng = np.random.default_rng(11)
    told, errors, within, shares, widths, resolved, changed = 0, [], 0, 0, [], 0, 0
    count = 600
    for seed in range(count):
        wave = Wave(
            period=rng.uniform(3.2, 30),
            duty=rng.uniform(0.1, 0.9),
            jitter=float(rng.choice([0, 0.02, 0.05])),
            noise=float(rng.choice([0, 0.03, 0.1])),
            phase=rng.uniform(),
        )
        beat, true = beat_of(wave, seed)
        if beat is None:
            continue
        told += 1
        errors.append(abs(beat.period - true) / true)
        within += abs(beat.period - true) <= beat.error
        shares += beat.share.low - 0.05 <= wave.duty <= beat.share.high + 0.05
        widths.append(beat.share.high - beat.share.low)
        resolved += beat.is_resolved
        changed += beat.steps is not None
    assert told >= 0.97 * count
    assert np.median(errors) < 0.002
    assert np.percentile(errors, 95) < 0.01
    assert within >= 0.93 * told
    assert shares >= 0.98 * told
    assert np.percentile(widths, 90) < 0.06
    assert resolved >= 0.97 * told
    assert changed <= 0.01 * told


@pytest.mark.parametrize(("shortest", "longest"), [(0.3, 1.0), (1.0, 2.0), (2.0, 3.0)])
def test_what_is_too_fast_to_tell_is_not_told_or_marked(shortest: float, longest: float) -> None:
    """Aliases: at most one in twenty fast jobs is taken for a slow one without a warning."""
    rng = np.random.default_rng(5)
    wrong = 0
    for seed in range(300):
        wave = Wave(
            period=rng.uniform(shortest, longest),
            duty=rng.uniform(0.1, 0.9),
            jitter=0.02,
            noise=0.03,
            phase=rng.uniform(),
            level=rng.uniform(0.3, 0.9),
        )
        beat, _ = beat_of(wave, seed)
        wrong += beat is not None and beat.is_resolved
    assert wrong <= 15


def test_noise_has_no_rhythm() -> None:
    rng = np.random.default_rng(2)
    for _ in range(100):
        white = np.clip(0.5 + 0.3 * rng.standard_normal(SAMPLES), 0, 1)
        slow = np.convolve(rng.standard_normal(SAMPLES + 7), np.ones(8) / 8, "valid")
        assert measure_iteration(white, LINE) is None
        assert measure_iteration(np.clip(0.5 + slow, 0, 1), LINE) is None
    assert measure_iteration(np.full(SAMPLES, 0.8), LINE) is None
    assert measure_iteration(np.zeros(SAMPLES), LINE) is None
    assert measure_iteration(np.full(SAMPLES, np.nan), LINE) is None


def test_a_step_that_grew_is_told_with_what_it_was_and_when() -> None:
    found = 0
    rng = np.random.default_rng(7)
    late = []
    for seed in range(100):
        before, factor = rng.uniform(3.5, 12), float(rng.choice([0.7, 1.3, 1.6, 2.0]))
        after = max(3.4, before * factor)
        if abs(after - before) < 0.15 * before:
            continue
        at = int(rng.uniform(70, SAMPLES - 7 * after))
        local = np.random.default_rng(seed)
        first, _ = Wave(before, 0.5, 0.02, 0.03).samples(at, local)
        second, _ = Wave(after, 0.5, 0.02, 0.03).samples(SAMPLES - at, local)
        beat = measure_iteration(np.concatenate([first, second]), LINE)
        if beat is None or beat.steps is None:
            continue
        found += 1
        assert beat.period == pytest.approx(after, rel=0.08)
        assert beat.steps.before == pytest.approx(before, rel=0.05)
        late.append(abs(beat.steps.at - at) / max(before, after))
    assert found >= 80
    assert np.percentile(late, 95) < 1.0


def test_a_link_at_half_its_speed_makes_the_step_longer_and_the_share_larger() -> None:
    """The same bytes at half the level: 2 s of computing, 2.4 s of communication, then 4.8 s."""
    rng = np.random.default_rng(3)
    first, _ = Wave(4.4, 2.4 / 4.4, 0.02, level=0.8).samples(120, rng)
    second, _ = Wave(6.8, 4.8 / 6.8, 0.02, level=0.4).samples(120, rng)
    beat = measure_iteration(np.concatenate([first, second]), LINE)
    assert beat is not None
    assert beat.steps is not None
    assert beat.shares is not None
    assert beat.period == pytest.approx(6.8, rel=0.03)
    assert beat.steps.before == pytest.approx(4.4, rel=0.03)
    assert beat.share.low == pytest.approx(4.8 / 6.8, abs=0.05)
    assert beat.share.level == pytest.approx(0.4, rel=0.05)
    assert beat.volume == pytest.approx(0.8 * 2.4, rel=0.05)
    assert beat.volumes is None


def test_two_bursts_an_iteration_are_one_iteration() -> None:
    time = np.arange(0, SAMPLES, 0.01)
    phase = (time / 17.3) % 1
    busy = (phase < 0.12) | ((phase > 0.3) & (phase < 0.42))
    beat = measure_iteration(busy.astype(float).reshape(SAMPLES, 100).mean(axis=1), LINE)
    assert beat is not None
    assert beat.period == pytest.approx(17.3, rel=0.02)


def test_nothing_is_claimed_after_three_missed_steps() -> None:
    signal, _ = Wave(4.0).samples(150, np.random.default_rng(0))
    assert measure_iteration(np.concatenate([signal, np.zeros(8)]), LINE) is not None
    assert measure_iteration(np.concatenate([signal, np.zeros(20)]), LINE) is None


def test_gaps_are_joined_over_but_not_many() -> None:
    signal, period = Wave(6.2, 0.6).samples(SAMPLES, np.random.default_rng(0))
    signal[40:44] = np.nan
    beat = measure_iteration(signal, LINE)
    assert beat is not None
    assert beat.period == pytest.approx(period, rel=0.02)
    signal[100:140] = np.nan
    assert fill_gaps(signal) is None
    assert measure_iteration(signal, LINE) is None


def test_without_samples_wholly_in_communication_the_share_is_a_range() -> None:
    """0.6 s of it: no sample shows the level, so the line rate is the only bound."""
    beat, _ = beat_of(Wave(5.3, 0.6 / 5.3, 0.01, level=0.9))
    assert beat is not None
    assert not beat.share.is_level_sure
    assert beat.share.low < 0.6 / 5.3 < beat.share.high
    unknown = measure_iteration(Wave(5.3, 0.6 / 5.3).samples(SAMPLES, np.random.default_rng(0))[0])
    assert unknown is not None
    assert unknown.share.low == 0


def test_one_long_iteration_is_not_a_new_level() -> None:
    assert last_level_shift(np.array([4.0, 4.1, 3.9, 4.0, 30.0, 4.0, 4.1, 3.9, 4.0, 4.0])) is None
    shift = last_level_shift(np.array([4.0, 4.1, 3.9, 4.0, 4.1, 6.0, 6.1, 6.0, 5.9, 6.0]))
    assert shift is not None
    assert (shift.index, shift.before, shift.after) == (5, 4.0, 6.0)
