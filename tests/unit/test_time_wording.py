from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabmon.fabric import time_wording
from fabmon.fabric.time_wording import (
    MINUS,
    SECOND_NS,
    age,
    axis_label,
    duration,
    interval,
    lag,
    lasted,
    measured,
)
from fabmon.recording.reading.time_parsing import parse_seconds as parsed

AT_NS = 1_763_647_600_000_000_000
"""2025-11-20 14:06:40 UTC."""


def test_times_are_utc_and_have_a_z() -> None:
    assert time_wording.time_of_day(AT_NS) == "14:06:40Z"
    assert time_wording.date_time(AT_NS) == "2025-11-20 14:06:40Z"
    assert time_wording.day_time(AT_NS) == "11-20 14:06Z"
    assert time_wording.event_time(AT_NS, True) == "11-20 14:06:40Z"


def test_an_axis_label_has_what_its_window_needs() -> None:
    labels = [axis_label(AT_NS, window_s) for window_s in (60, 3600, 200_000)]
    assert labels == ["14:06:40", "14:06", "11-20 14:06"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (31.9, "31 s"),
        (119, "1 min 59 s"),
        (600, "10 min"),
        (11_520, "3 h 12 min"),
        (187_200, "2 d 4 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_what_samples_showed_did_not_last_0_s() -> None:
    assert lasted(5 * SECOND_NS, 5 * SECOND_NS) == "one sample"
    assert lasted(5 * SECOND_NS, 5 * SECOND_NS + 100_000_000) == "under 1 s"
    assert lasted(5 * SECOND_NS, 36 * SECOND_NS) == "31 s"


@given(st.integers(min_value=0, max_value=10**8))
def test_a_duration_reads_back_as_what_it_was_but_for_its_smallest_unit(seconds: int) -> None:
    words = duration(seconds).split()
    read = sum(parsed("".join(pair)) or 0.0 for pair in zip(words[::2], words[1::2], strict=True))
    smaller = 1 if seconds < 3600 else 60 if seconds < 86_400 else 3600
    assert 0 <= seconds - read < smaller


@given(st.integers(min_value=0, max_value=10**7), st.integers(min_value=0, max_value=10**7))
def test_a_longer_time_is_never_said_in_a_smaller_unit(one: int, other: int) -> None:
    units = ["s", "min", "h", "d"]
    low, high = sorted((one, other))
    assert units.index(duration(low).split()[1]) <= units.index(duration(high).split()[1])
    assert units.index(interval(low).split()[1]) <= units.index(interval(high).split()[1])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.02, "20 ms"),
        (0.5, "0.5 s"),
        (2, "2 s"),
        (90, "1.5 min"),
        (600, "10 min"),
        (604_800, "7 d"),
    ],
)
def test_intervals(seconds: float, text: str) -> None:
    assert interval(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.0199, "19.9 ms"), (6.2, "6.20 s")])
def test_measured_times_have_three_digits(seconds: float, text: str) -> None:
    assert measured(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(4, "4s"), (99, "99s"), (100, "1m"), (7000, "1h"), (400_000, "4d")]
)
def test_ages_fit_four_cells(seconds: float, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(131, "02:11"), (3731, "1:02:11"), (0, "00:00")])
def test_lags(seconds: float, text: str) -> None:
    assert lag(seconds) == f"{MINUS}{text}"
