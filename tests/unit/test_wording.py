from __future__ import annotations

import re
from math import floor, inf, log10, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabmon.fabric import wording
from fabmon.fabric.wording import Unit, compact, number, percent, rounded_percent

_SIZES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
finite = st.floats(min_value=-1e20, max_value=1e20)
amounts = st.floats(min_value=0, max_value=9e14)


def _digits(text: str) -> int:
    """Significant digits of a formatted number."""
    return len(re.sub(r"[^0-9]", "", text).lstrip("0"))


@given(finite, st.sampled_from([2, 3]))
def test_a_number_has_no_exponent_and_at_most_three_significant_digits(
    value: float, digits: int
) -> None:
    text = number(value, digits)
    assert "e" not in text
    if "<" not in text and ">" not in text:
        significant = text.replace("-", "").replace(".", "").lstrip("0")
        assert len(significant.rstrip("0")) <= 3
        assert abs(value) >= 999.5 or _digits(text) <= 3


@given(finite)
def test_a_number_is_near_what_it_stands_for(value: float) -> None:
    text = number(value)
    if text.strip("<>-") == "0.01" and text[0] in "<>":
        assert abs(value) < 0.005
    else:
        place = floor(log10(abs(value))) if abs(value) >= 1 else 0
        assert float(text) == pytest.approx(value, abs=0.51 * 10.0 ** (place - 2))


@given(amounts, amounts)
def test_a_larger_rate_never_reads_as_a_smaller_one(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert _read(wording.bit_rate(low)) <= _read(wording.bit_rate(high))
    assert _read(percent(low / 1e12)) <= _read(percent(high / 1e12))


def _read(text: str) -> float:
    value, unit = text.split(" ")
    prefix = unit.removesuffix("b/s").removesuffix("%")
    return (0.0 if value == "<0.01" else float(value)) * _SIZES[prefix]


@given(st.floats(min_value=1e-6, max_value=10))
def test_a_share_in_a_sentence_agrees_with_the_one_in_a_table(share: float) -> None:
    short, full = rounded_percent(share), percent(share)
    if "<" not in full:
        exact, rounded = float(full.split()[0]), float(short.split()[0])
        assert rounded == pytest.approx(exact, abs=0.505 if exact >= 9.9 else 0.0551)


@pytest.mark.parametrize(
    ("share", "sentence", "table"),
    [
        (0.0, "0 %", "0 %"),
        (0.00001, "<0.01 %", "<0.01 %"),
        (0.0042, "0.42 %", "0.42 %"),
        (0.081, "8.1 %", "8.10 %"),
        (0.472, "47 %", "47.2 %"),
        (0.99999, "100 %", "100 %"),
        (1.473, "147 %", "147 %"),
        (nan, "·", "·"),
        (None, "·", "·"),
    ],
)
def test_shares(share: float | None, sentence: str, table: str) -> None:
    assert (rounded_percent(share), percent(share)) == (sentence, table)


def test_changes_and_ranges_of_shares() -> None:
    assert wording.percent_change(-0.123) == "-12.3 %"
    assert wording.percent_change(0.08) == "+8.00 %"
    assert wording.percent_range(0.581, 0.64) == "58 to 64 %"
    assert wording.percent_range(0.6104, 0.6149) == "61 %"


@pytest.mark.parametrize(
    ("bps", "text"),
    [
        (0.0, "0 b/s"),
        (999.0, "999 b/s"),
        (1e3, "1.00 kb/s"),
        (188e9, "188 Gb/s"),
        (47.25e6, "47.2 Mb/s"),
        (999.6e6, "1.00 Gb/s"),
        (9.994e9, "9.99 Gb/s"),
        (9.996e9, "10.0 Gb/s"),
        (98.76e9, "98.8 Gb/s"),
        (1.5e12, "1.50 Tb/s"),
        (12.8e12, "12.8 Tb/s"),
        (nan, "·"),
        (inf, "·"),
        (None, "·"),
    ],
)
def test_rates_have_three_significant_digits_and_a_decimal_prefix(
    bps: float | None, text: str
) -> None:
    assert wording.bit_rate(bps) == text


def test_units_cycle_and_return_to_the_first() -> None:
    assert [Unit.GBIT.next(), Unit.GBIT.next().next()] == [Unit.GBYTE, Unit.PERCENT]
    assert Unit.PERCENT.next() is Unit.GBIT


def test_a_rate_in_every_unit() -> None:
    assert [wording.rate(188e9, 400e9, unit) for unit in Unit] == [
        "188 Gb/s",
        "23.5 GB/s",
        "47.0 %",
    ]


def test_a_share_of_an_unknown_line_rate_is_absent_and_not_zero() -> None:
    assert wording.rate(1e9, nan, Unit.PERCENT) == "·"


@given(amounts)
def test_no_rate_is_wider_than_its_column(bps: float) -> None:
    assert len(wording.bit_rate(bps)) <= wording.RATE
    assert len(wording.byte_rate(bps)) <= wording.RATE


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (41.3e9, "bytes", "41.3 GB/s"),
        (12_300.0, "packets", "12.3 k packets/s"),
        (0.0, "packets", "0 packets/s"),
        (81_000.0, "us", "8.10 % of time"),
        (nan, "bytes", "·"),
    ],
)
def test_counters_in_their_own_units(value: float, unit: str, text: str) -> None:
    assert wording.counter_rate(value, unit) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.0, "state", "1"),
        (400e9, "bps", "400 Gb/s"),
        (9000.0, "bytes", "9.00 kB"),
        (7, "us", "7 us"),
        (3.5, "packets", "3.50 packets"),
    ],
)
def test_gauges(value: float, unit: str, text: str) -> None:
    assert wording.gauge(value, unit) == text


def test_evidence_has_its_unit() -> None:
    assert wording.evidence_value(98.2, "%") == "98.2 %"
    assert wording.evidence_value(8, "links") == "8 links"
    assert wording.evidence_value(1, "links") == "1 link"
    assert wording.evidence_value(1, "s") == "1 s"
    assert wording.evidence_value(1, "in 40 s") == "1 in 40 s"
    assert wording.evidence_value("connection", "") == "connection"


def test_a_small_number_is_not_called_zero() -> None:
    assert number(0.001) == "<0.01"
    assert wording.whole_number(0.5) == "0.50"
    assert compact(percent(0.00001)) == "<.01 %"
    assert compact(percent(0.473)) == "47.3 %"


def test_a_number_of_bytes_that_is_set_is_not_rounded() -> None:
    assert wording.gauge(4200, "bytes", is_setting=True) == "4200 B"
    assert wording.gauge(4200, "bytes") == "4.20 kB"
    assert wording.gauge(400e9, "bps", is_setting=True) == "400 Gb/s"


def test_bytes() -> None:
    said = [wording.byte_count(count) for count in (0, 512, 20_480, 1.5e9)]
    assert said == ["0 B", "512 B", "20.5 kB", "1.50 GB"]


def test_names_and_plurals() -> None:
    assert wording.plural(1, "port") == "1 port"
    assert wording.plural(2, "switch") == "2 switches"
    assert wording.name_list(["a", "b", "c"], 3) == "a, b, c"
    assert wording.name_list(["a", "b", "c"], 1) == "a and 2 more"
    labels = [("dn1", "downlink", 0), ("dn2", "downlink", 1), ("up2", "uplink", 2)]
    assert wording.label_runs(labels) == "dn1-dn2, up2"


@pytest.mark.parametrize(
    ("text", "attached"),
    [
        ("at 98 % of", "at 98_% of"),
        ("188 Gb/s each, 12.3 k packets/s", "188_Gb/s each, 12.3_k packets/s"),
        ("2 min 11 s ago", "2_min 11_s ago"),
        ("3 ports, 2 dn1", "3 ports, 2 dn1"),
        ("gpu3 sends", "gpu3 sends"),
        ("4 Mellanox", "4 Mellanox"),
    ],
)
def test_a_number_and_its_unit_stay_on_one_line(text: str, attached: str) -> None:
    assert wording.attach_units(text) == attached.replace("_", "\N{NO-BREAK SPACE}")
