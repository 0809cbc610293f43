"""Sources of which nothing is known: those that repeat their values have right rates, those that
read when they are polled have them at once, and what has no traffic is shown idle."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.wire import Object
from fabmon.feeds.learned_refresh import LearnedRefresh
from tests.unit.feeds.test_refresh_clock import RATE, S, every_s, snapshots, when_polled

PORT = (Object("eth0", "ethernet", "eth0", {}, ("netdev_tx_bytes",)),)
LEVEL = (Object("gpu0", "gpu", "gpu0", {}, ("pcie_tx_bps",)),)
Shown = list[tuple[float, float]]


def shown(
    source: Callable[[float], int],
    polls: Iterable[float],
    number: int,
    *,
    is_trusted: bool = False,
) -> Shown:
    """The rates between the samples of so many polls, each with the time of its poll."""
    refresh = LearnedRefresh(is_trusted=is_trusted)
    samples: list[tuple[int, int | None, float]] = []
    for _, now_s in zip(range(number), polls, strict=False):
        sample = refresh.sample(PORT, [source(now_s)], round(now_s * S))
        if sample is not None:
            samples.append((sample[0], sample[1][0], now_s))
    return [
        (b[2], (b[1] - a[1]) / (b[0] - a[0]) * S)
        for a, b in pairwise(samples)
        if a[1] is not None and b[1] is not None
    ]


def rates(found: Shown) -> list[float]:
    return [rate for _, rate in found]


@given(
    period_s=st.sampled_from([2, 3, 5, 10, 15, 30]),
    phase_s=st.floats(0.05, 0.95),
    seed=st.integers(0, 1000),
)
def test_a_cache(period_s: int, phase_s: float, seed: int) -> None:
    """Not 0, 0, 0, 0, 388 %: rates are over the refresh, from the first one on."""
    found = rates(shown(snapshots(period_s, phase_s), every_s(1.0, 0.2, seed), 14 * period_s))
    assert len(found) >= 4
    assert found == pytest.approx([RATE] * len(found), rel=0.05)


@given(limit_s=st.sampled_from([2.5, 3, 5, 15]), seed=st.integers(0, 1000))
def test_a_cache_that_is_refreshed_when_it_is_asked(limit_s: float, seed: int) -> None:
    found = rates(shown(when_polled(limit_s), every_s(1.0, 0.05, seed), round(30 * limit_s)))
    assert found
    assert found == pytest.approx([RATE] * len(found), rel=0.05)


def test_a_source_that_reads_when_it_is_polled_has_every_rate_after_three() -> None:
    found = rates(shown(lambda now_s: round(now_s * RATE), every_s(1.0, 0.5), 40))
    assert found == pytest.approx([RATE] * 36, rel=1e-3)


@pytest.mark.parametrize("period_s", [5, 15])
def test_a_cached_page_that_says_when_it_was_made_is_not_read_now(period_s: int) -> None:
    """node_exporter's page behind a cache: its own durations change with its counters."""
    refresh, source, made = LearnedRefresh(), snapshots(period_s, 0.3), 0
    samples: list[tuple[int, int]] = []
    for now_s in range(1000, 1000 + 12 * period_s):
        is_read_now, made = source(now_s) != made, source(now_s)
        sample = refresh.sample(PORT, [made], now_s * S, is_read_now=is_read_now)
        if sample is not None and sample[1][0] is not None:
            samples.append((sample[0], sample[1][0]))
    found = [(b[1] - a[1]) / (b[0] - a[0]) * S for a, b in pairwise(samples)]
    assert len(found) >= 3
    assert found == pytest.approx([RATE] * len(found), rel=0.1)


def busy(*spans: tuple[float, float]) -> Callable[[float], int]:
    """The bytes of a port that has traffic in some spans of time."""
    return lambda now_s: round(RATE * sum(min(max(now_s, a), b) - a for a, b in spans))


def test_a_source_that_was_seen_to_read_when_it_is_polled_is_idle_at_once() -> None:
    found = shown(busy((0, 1010), (1080, 2000)), every_s(1.0), 100)
    assert [rate for at, rate in found if 1011 < at <= 1080] == [0] * 69
    after = [rate for at, rate in found if at > 1080]
    assert after == pytest.approx([RATE] * len(after))
    assert len(after) == 19, "none is missing"


def test_a_source_that_is_idle_from_the_start_is_shown_idle_after_a_while() -> None:
    found = shown(busy((1060, 2000)), every_s(1.0), 80)
    assert [at for at, rate in found if rate == 0] == [1031 + n for n in range(30)]
    after = [(at, rate) for at, rate in found if at > 1060]
    assert after[0][0] <= 1064, "then it is learned anew how it reads"
    assert rates(after) == pytest.approx([RATE] * len(after))


@pytest.mark.parametrize("period_s", [3, 5, 10])
@pytest.mark.parametrize("idle_s", [4, 12, 25, 47, 300])
def test_a_cache_whose_traffic_pauses_has_no_rate_above_the_real_one(
    period_s: int, idle_s: int
) -> None:
    traffic = busy((0, 1100.3), (1100.3 + idle_s, 2000))
    held = snapshots(period_s, 0.4)
    found = rates(shown(lambda now_s: traffic(held(now_s) / RATE), every_s(1.0), 240 + idle_s))
    assert max(found) <= RATE * 1.05
    assert found[-5:] == pytest.approx([RATE] * 5, rel=0.05)


def test_a_source_that_begins_to_repeat_its_values() -> None:
    """As behind a proxy that was put before it: three rates are wrong, and then none."""
    held = snapshots(5, 0.4)
    found = shown(
        lambda now_s: round(now_s * RATE) if now_s < 1020 else held(now_s), every_s(1.0), 120
    )
    assert sum(rate > RATE * 1.05 for _, rate in found) <= 3
    late = [rate for at, rate in found if at > 1040]
    assert late == pytest.approx([RATE] * len(late), rel=0.05)


def test_polls_far_apart_have_their_first_rate_at_once() -> None:
    found = rates(shown(lambda now_s: round(now_s * RATE), every_s(15.0), 5, is_trusted=True))
    assert found == pytest.approx([RATE] * 4)


@pytest.mark.parametrize("period_s", [30, 60])
def test_what_polls_far_apart_find_repeated_is_not_taken_for_idle(period_s: int) -> None:
    found = rates(shown(snapshots(period_s, 7.0), every_s(15.0), 60, is_trusted=True))
    assert len(found) >= 4
    assert max(found) <= RATE * 1.05
    assert found[-4:] == pytest.approx([RATE] * 4, rel=0.05)


def test_the_period_that_was_learned() -> None:
    refresh, source = LearnedRefresh(), snapshots(5, 0.4)
    for now_s in range(1000, 1040):
        refresh.sample(PORT, [source(now_s)], now_s * S)
    assert refresh.period_s == pytest.approx(5, rel=0.05)
    for now_s in range(1040, 1050):
        refresh.sample(PORT, [now_s], now_s * S)
    assert refresh.period_s == 0, "it reads when it is polled now"


def test_a_level_that_stays_is_no_repetition() -> None:
    refresh = LearnedRefresh()
    for second in count(1):
        assert refresh.sample(LEVEL, [7], second * S) == (second * S, [7])
        if second > 5:
            break
