from __future__ import annotations

import pytest

from fabmon.tui.time import clock
from tests.tui.scenes import START_NS


def test_times_are_utc() -> None:
    assert clock.hms(START_NS) == "14:06:40Z"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (31.9, "31 s"), (131, "2 min 11 s"), (11_520, "3 h 12 min"), (187_200, "2 d 4 h")],
)
def test_spans(seconds: float, said: str) -> None:
    assert clock.span(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(4, "4s"), (99, "99s"), (100, "1m"), (7000, "1h"), (400_000, "4d")]
)
def test_ages_fit_four_cells(seconds: float, said: str) -> None:
    assert clock.age(seconds) == said


@pytest.mark.parametrize(("seconds", "said"), [(131, "02:11"), (3731, "1:02:11"), (0, "00:00")])
def test_lags(seconds: float, said: str) -> None:
    assert clock.lag(seconds) == f"{clock.MINUS}{said}"
