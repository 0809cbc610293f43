"""Sources that repeat their counters, at a constant rate of traffic: every rate is right."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabmon.feeds.refresh_clock import RefreshClock

S = 1_000_000_000
RATE = 125_000


def every_s(interval_s: float, jitter_s: float = 0.0, seed: int = 1) -> Iterator[float]:
    """The times of polls."""
    late = random.Random(seed)
    return (1000 + n * interval_s + late.uniform(0, jitter_s) for n in count())


def snapshots(period_s: float, phase_s: float) -> Callable[[float], int]:
    """The bytes that a source shows at a time, which it reads every `period_s`."""
    return lambda now_s: round(((now_s - phase_s) // period_s * period_s + phase_s) * RATE)


def when_polled(limit_s: float) -> Callable[[float], int]:
    """The bytes that a source shows which reads when it is polled, after `limit_s` at least."""
    read_s = -math.inf

    def read(now_s: float) -> int:
        nonlocal read_s
        if now_s - read_s >= limit_s:
            read_s = now_s
        return round(read_s * RATE)

    return read


def rates(source: Callable[[float], int], polls: Iterator[float], number: int) -> list[float]:
    """The rates between the samples of so many polls; as in the history, none across a sample
    whose values are unknown."""
    clock = RefreshClock(60.0)
    samples: list[tuple[int, int | None]] = []
    for _, now_s in zip(range(number), polls, strict=False):
        value = source(now_s)
        clock_ns = clock.date([value], round(now_s * S))
        if clock_ns is not None:
            samples.append((clock_ns, value if clock.is_known else None))
    return [
        (b[1] - a[1]) / (b[0] - a[0]) * S
        for a, b in pairwise(samples)
        if a[1] is not None and b[1] is not None
    ]


@given(
    period_s=st.sampled_from([3, 5, 10, 15, 30]),
    phase_s=st.floats(0.05, 0.95),
    seed=st.integers(0, 1000),
)
def test_a_source_that_is_polled_more_often_than_it_reads(
    period_s: int, phase_s: float, seed: int
) -> None:
    found = rates(snapshots(period_s, phase_s), every_s(1.0, 0.2, seed), 14 * period_s)
    assert len(found) >= 4
    assert found == pytest.approx([RATE] * len(found), rel=0.05)


@given(
    limit_s=st.sampled_from([2.5, 3, 3.001, 5, 15]),
    jitter_s=st.sampled_from([0, 0.05, 0.2, 0.5]),
    seed=st.integers(0, 1000),
)
def test_a_source_that_reads_when_it_is_polled_if_its_values_are_old(
    limit_s: float, jitter_s: float, seed: int
) -> None:
    """Then the third or the fourth poll has new values: no period fits."""
    found = rates(when_polled(limit_s), every_s(1.0, jitter_s, seed), round(30 * limit_s))
    assert found
    assert found == pytest.approx([RATE] * len(found), rel=0.05)


@given(period_s=st.sampled_from([3, 5, 10]), phase=st.floats(0, 1), seed=st.integers(0, 1000))
def test_late_polls_at_the_start(period_s: int, phase: float, seed: int) -> None:
    """As while the console starts: where the first polls are late, no rate is wrong for long."""
    dice = random.Random(seed)
    polls = (1000 + n + dice.uniform(0, 0.9 if n < 8 else 0.05) for n in count())
    found = rates(snapshots(period_s, phase * period_s), polls, 14 * period_s)
    assert found
    assert found == pytest.approx([RATE] * len(found), rel=0.05)


@settings(deadline=None)
@given(period_s=st.sampled_from([2.997, 3.003, 10.02]), phase_s=st.floats(0.05, 0.95))
def test_a_source_that_drifts(period_s: float, phase_s: float) -> None:
    found = rates(snapshots(period_s, phase_s), every_s(1.0, 0.05), 700)
    assert found == pytest.approx([RATE] * len(found), rel=0.05)


@given(jitter_s=st.floats(0, 0.9), seed=st.integers(0, 1000))
def test_a_source_that_reads_when_it_is_polled(jitter_s: float, seed: int) -> None:
    found = rates(lambda now_s: round(now_s * RATE), every_s(1.0, jitter_s, seed), 40)
    assert len(found) == 38
    assert found == pytest.approx([RATE] * len(found), rel=0.001)


@given(
    period_s=st.sampled_from([1, 3, 5, 10, 15, 30]),
    phase_s=st.floats(0.2, 0.8),
    seed=st.integers(0, 1000),
)
def test_a_source_that_is_scraped_every_15_s(period_s: int, phase_s: float, seed: int) -> None:
    """As by Prometheus: often each scrape has new values, of any age below the period."""
    found = rates(snapshots(period_s, phase_s), every_s(15.0, 0.1, seed), 20)
    assert len(found) >= 4, "the first after three minutes"
    assert found == pytest.approx([RATE] * len(found), rel=0.05)


def test_the_age_of_the_first_values_is_unknown() -> None:
    clock = RefreshClock(30.0)
    assert clock.date([5], 10 * S) == 10 * S
    assert not clock.is_known
    assert [clock.date([5], second * S) for second in (11, 12, 13)] == [None] * 3
    assert clock.date([9], 14 * S) == 14 * S
    assert not clock.is_known
    assert [clock.date([9], second * S) for second in (15, 16)] == [None, None]
    assert clock.date([13], 17 * S) == 16.5 * S, "between the two polls"
    assert clock.is_known


def test_values_that_stay_are_a_sample_after_the_longest_period() -> None:
    """There is no traffic: its rate is zero, and is shown."""
    clock = RefreshClock(5.0)
    dated = [clock.date([7], (100 + n) * S) for n in range(12)]
    assert [n for n, each in enumerate(dated) if each is not None] == [0, 5, 10]


def test_traffic_that_begins_again_has_no_false_rate() -> None:
    source = snapshots(3, 0.5)
    found = rates(
        lambda now_s: source(min(now_s, 1030) if now_s < 1100 else now_s - 70), every_s(1.0), 160
    )
    assert max(found) <= RATE * 1.5
    assert found[-10:] == pytest.approx([RATE] * 10, rel=0.05)


def test_another_period_is_learnt() -> None:
    slow, fast = snapshots(10, 0.5), snapshots(3, 0.5)
    found = rates(lambda now_s: (slow if now_s < 1100 else fast)(now_s), every_s(1.0), 200)
    assert found[-20:] == pytest.approx([RATE] * 20, rel=0.05)
    assert sum(abs(each - RATE) > 0.05 * RATE for each in found) <= 3


@pytest.mark.parametrize(("period_s", "phase_s"), [(3, 0.5), (10, 0.2), (15, 2.0)])
@pytest.mark.parametrize("pause_s", [20, 30, 61, 100])
def test_a_pause_of_the_polls_makes_no_false_rate(
    period_s: int, phase_s: float, pause_s: int
) -> None:
    """As while a switch does not answer: of the time after it a rate is right or is not known."""
    polls = (now_s + pause_s * (now_s > 1100) for now_s in every_s(1.0, 0.05))
    found = rates(snapshots(period_s, phase_s), polls, 300)
    assert max(found) <= RATE * 1.5
    assert found[-5:] == pytest.approx([RATE] * 5, rel=0.05)


@pytest.mark.parametrize(("period_s", "poll_s"), [(5, 6), (6, 15), (10, 15), (4, 6), (12, 15)])
def test_what_polls_far_apart_can_know_of_a_period(period_s: int, poll_s: float) -> None:
    """Each poll finds new values, and none shows the period: a rate is exact where 30 s are a
    multiple of it, else wrong by a period in 30 s at most, and right in the mean."""
    error = 0.0 if 30 % period_s == 0 else period_s / 30
    for eighth in range(8):
        found = rates(snapshots(period_s, eighth / 8 * period_s), every_s(poll_s), 200)
        assert found == pytest.approx([RATE] * len(found), rel=max(error, 1e-6))
        assert sum(found) / len(found) == pytest.approx(RATE, rel=0.01)


def test_a_poll_that_is_passed_on_twice_is_one() -> None:
    """As where the last round of the past is the first of now."""
    clock = RefreshClock(30.0)
    for n in range(4):
        assert clock.date([n], (100 + 30 * n) * S) == (100 + 30 * n) * S
        assert clock.date([n], (100 + 30 * n) * S) is None
    assert clock.is_known
