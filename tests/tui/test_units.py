from __future__ import annotations

from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabmon.fabric import wording
from fabmon.fabric.wording import Unit, compact, percent


@pytest.mark.parametrize(
    ("bps", "said"),
    [
        (0.0, "0 b/s"),
        (188e9, "188 Gb/s"),
        (47.25e6, "47.2 Mb/s"),
        (999.6e6, "1.00 Gb/s"),
        (9.994e9, "9.99 Gb/s"),
        (9.996e9, "10.0 Gb/s"),
        (12.8e12, "12.8 Tb/s"),
        (nan, "·"),
    ],
)
def test_rates_have_three_significant_digits_and_a_decimal_prefix(bps: float, said: str) -> None:
    assert wording.bit_rate(bps) == said


def test_units_cycle_and_come_back() -> None:
    assert [Unit.GBIT.next(), Unit.GBIT.next().next()] == [Unit.GBYTE, Unit.PERCENT]
    assert Unit.PERCENT.next() is Unit.GBIT


def test_a_rate_in_every_unit() -> None:
    said = [wording.rate(188e9, 400e9, unit) for unit in Unit]
    assert said == ["188 Gb/s", "23.5 GB/s", "47.0 %"]


def test_a_share_of_an_unknown_line_rate_is_absent_and_not_zero() -> None:
    assert wording.rate(1e9, nan, Unit.PERCENT) == "·"


@given(st.floats(min_value=0, max_value=9e14))
def test_no_rate_is_wider_than_its_column(bps: float) -> None:
    assert len(wording.bit_rate(bps)) <= wording.RATE
    assert len(wording.byte_rate(bps)) <= wording.RATE


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (41.3e9, "bytes", "41.3 GB/s"),
        (12_300.0, "packets", "12.3 k packets/s"),
        (0.0, "packets", "0 packets/s"),
        (81_000.0, "us", "8.10 % of time"),
        (nan, "bytes", "·"),
    ],
)
def test_counters_in_their_own_units(value: float, unit: str, said: str) -> None:
    assert wording.counter_rate(value, unit) == said


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (1.0, "state", "1"),
        (400e9, "bps", "400 Gb/s"),
        (9000.0, "bytes", "9.00 kB"),
        (7, "us", "7 us"),
    ],
)
def test_gauges(value: float, unit: str, said: str) -> None:
    assert wording.gauge(value, unit) == said


def test_evidence_says_its_unit() -> None:
    assert wording.evidence_value(98.2, "%") == "98.2 %"
    assert wording.evidence_value(8, "links") == "8 links"
    assert wording.evidence_value("connection", "") == "connection"


def test_a_small_number_is_not_called_zero() -> None:
    assert wording.number(0.001) == "<0.01"
    assert wording.whole_number(0.5) == "0.50"


def test_next_to_nothing_fits_where_room_is_tight() -> None:
    assert compact(percent(0.00001)) == "<.01 %"
    assert compact(percent(0.473)) == "47.3 %"
