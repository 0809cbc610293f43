"""Numbers for people: three significant digits, decimal prefixes, a unit on every one.

A rate takes `RATE` cells whatever its size, so that a column of them never moves.
"""

from __future__ import annotations

from enum import StrEnum
from math import isnan

ABSENT = "·"
RATE = 9
"""Cells of a formatted rate: `47.3 Mb/s`."""


class Unit(StrEnum):
    """What `u` cycles through."""

    GBIT = "Gb/s"
    GBYTE = "GB/s"
    PERCENT = "%"

    def next(self) -> Unit:
        """The one after it."""
        members = list(Unit)
        return members[(members.index(self) + 1) % len(members)]


def number(value: float) -> str:
    """Three significant digits, without an exponent; below 0.01 as many as two decimals hold."""
    if isnan(value):
        return ABSENT
    size = abs(value)
    if size == 0:
        return "0"
    if size < 0.005:
        return "<0.01"
    if size < 9.995:
        return f"{value:.2f}"
    if size < 99.95:
        return f"{value:.1f}"
    return f"{value:.0f}"


def compact(said: str) -> str:
    """`<.01`: next to nothing, where there is no room for `<0.01`."""
    return said.replace("<0.", "<.")


def scaled_number(value: float) -> tuple[str, str]:
    """`value` as three significant digits and a decimal prefix (`k`, `M`, `G`, `T`, or none)."""
    size = abs(value)
    for prefix in ("", "k", "M", "G"):
        if isnan(value) or size < 999.5:
            return number(value), prefix
        value, size = value / 1000, size / 1000
    return number(value), "T"


def bit_rate(bps: float) -> str:
    """Bits a second: `188 Gb/s`."""
    if isnan(bps):
        return ABSENT
    number, prefix = scaled_number(bps)
    return f"{number} {prefix}b/s"


def byte_rate(bps: float) -> str:
    """Bits a second, shown as bytes a second: `23.5 GB/s`."""
    if isnan(bps):
        return ABSENT
    number, prefix = scaled_number(bps / 8)
    return f"{number} {prefix}B/s"


def percent(fraction: float) -> str:
    """A share of one: `47.3 %`."""
    return ABSENT if isnan(fraction) else f"{number(fraction * 100)} %"


def rate(bps: float, line_rate_bps: float, unit: Unit) -> str:
    """Traffic in the unit that the person chose; `·` when it cannot be said in it."""
    if unit is Unit.PERCENT:
        known = line_rate_bps > 0
        return percent(bps / line_rate_bps) if known else ABSENT
    return bit_rate(bps) if unit is Unit.GBIT else byte_rate(bps)


def per_second(value: float, unit: str = "") -> str:
    """A counter's rate: `12.3 k/s`, `4.00 Mpackets/s`."""
    if isnan(value):
        return ABSENT
    number, prefix = scaled_number(value)
    return f"{number} {prefix}{unit}/s"


def counter_rate(value: float, unit: str) -> str:
    """A counter's rate in its own unit: `41.3 GB/s`, `12.3 k packets/s`, `8.10 % of time`."""
    if isnan(value):
        return ABSENT
    if unit == "us":
        return f"{percent(value / 1e6)} of time"
    number, prefix = scaled_number(value)
    if unit == "bytes":
        return f"{number} {prefix}B/s"
    return f"{number} {prefix} {unit}/s" if prefix else f"{number} {unit}/s"


def gauge(value: float, unit: str) -> str:
    """A gauge in its unit: `1`, `400 Gb/s`, `9.00 kB`."""
    if isnan(value):
        return ABSENT
    if unit == "bps":
        return bit_rate(value)
    if unit == "state":
        return whole_number(value)
    number, prefix = scaled_number(value)
    short = {"bytes": "B", "us": "us"}.get(unit)
    if short is not None:
        return f"{number if prefix else whole_number(value)} {prefix}{short}"
    return f"{number if prefix else whole_number(value)} {prefix}{unit}".rstrip()


def whole_number(value: float) -> str:
    """A number that counts things: without decimals when it has none."""
    return str(int(value)) if value == int(value) and abs(value) < 1e6 else number(value)


def evidence_value(value: float | str, unit: str) -> str:
    """A number behind a finding, in its own unit."""
    if isinstance(value, str):
        return value
    if unit == "bps":
        return bit_rate(value)
    if unit == "/s":
        return per_second(value)
    return f"{number(value) if unit == '%' else whole_number(value)} {unit}".rstrip()
