"""The one formatter: numbers, units, amounts and lists of names, as every output shows them.

Screen, report, jsonl texts, findings and commands all use these functions, so that one value has
one spelling. A number has at most three significant digits and never an exponent; prefixes are
decimal. A value that is not known (NaN or None) is `·`, which is not zero. Times and durations are
in `time_wording`.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from math import floor, isfinite, log10
from typing import SupportsFloat

ABSENT = "·"
RATE = 9
"""Cells of a formatted rate: `47.3 Mb/s`."""

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_UNIT = r"[kMGTPE]?(?:[bB](?:/s)?|Hz)|GT/s|%|[num]?s|us|min|[hdkMGT]"
_ATTACHED = re.compile(rf"(?<=\d) (?=(?:{_UNIT})(?![\w/]))")
_BIT_RATE = re.compile(r"(?<![\d.])(\d{1,9}(?:\.\d{1,9})?)([ \N{NO-BREAK SPACE}])([kMGTPE]?)b/s")
NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"


class Unit(StrEnum):
    """The units of traffic that a person can choose among."""

    GBIT = "Gb/s"
    GBYTE = "GB/s"
    PERCENT = "%"

    def next(self) -> Unit:
        """The unit after this one; the first one after the last."""
        members = list(Unit)
        return members[(members.index(self) + 1) % len(members)]


def file_error(error: OSError) -> str:
    """Why a file cannot be used: `no such file`, else the text of the operating system."""
    return "no such file" if error.errno == errno.ENOENT else error.strerror or str(error)


def needed_extra(name: str) -> str:
    """How to install an optional part of fabmon."""
    return (
        f"the extra fabmon[{name}]: install it with what fabmon was installed from, as in"
        f' pip install "./CHECKOUT_OR_WHEEL[{name}]"'
    )


def number(value: SupportsFloat | None, digits: int = 3) -> str:
    """`value` with `digits` significant digits (3 or 2), without an exponent.

    Trailing zeros are kept (`2.10`), so that the digits of a column do not jump. Below 1 there are
    two decimals; a value that would become 0.00 is `<0.01`. With two digits no digit before the
    point is lost up to 999 (`147`).
    """
    known = float("nan") if value is None else float(value)
    if not isfinite(known):
        return ABSENT
    size = abs(known)
    if size == 0:
        return "0"
    if size < 0.005:
        return "<0.01" if known > 0 else ">-0.01"
    if size < 0.9995:
        return f"{known:.2f}"
    # Rounded first, since 9.996 has one digit more before its point than it seems to.
    kept = max(digits, min(3, floor(log10(size)) + 1))
    before_point = floor(log10(float(f"{size:.{kept - 1}e}"))) + 1
    if before_point > 3:
        return f"{round(known, 3 - before_point):.0f}"
    return f"{known:.{max(0, digits - before_point)}f}"


def trimmed(value: SupportsFloat) -> str:
    """`value` as `number`, without zeros at the end of its decimals: `0.5`, `2`, `14.3`."""
    text = number(value)
    return text.rstrip("0").rstrip(".") if "." in text and "<" not in text else text


def compact(text: str) -> str:
    """A formatted number shortened by its zero: `<.01` for `<0.01`."""
    return text.replace("<0.", "<.")


def scaled_number(value: float) -> tuple[str, str]:
    """`value` as a number below 1,000, and its decimal prefix (`k` to `E`, or none)."""
    if not isfinite(value):
        return ABSENT, ""
    for prefix in _PREFIXES[:-1]:
        if abs(value) < 999.5:
            return number(value), prefix
        value /= 1000
    return number(value), _PREFIXES[-1]


def with_unit(value: SupportsFloat | None, unit: str) -> str:
    """`188 Gb/s` for 188e9 and `b/s`: the number, its prefix and its unit."""
    if value is None or not isfinite(float(value)):
        return ABSENT
    text, prefix = scaled_number(float(value))
    return f"{text} {prefix}{unit}"


def bit_rate(bps: SupportsFloat | None) -> str:
    """Bits per second: `188 Gb/s`."""
    return with_unit(bps, "b/s")


def byte_rate(bps: SupportsFloat | None) -> str:
    """Bits per second, shown as bytes per second: `23.5 GB/s`."""
    return with_unit(None if bps is None else float(bps) / 8, "B/s")


def with_bytes(text: str) -> str:
    """A text with each of its rates in bits per second also in bytes: `188 Gb/s (23.5 GB/s)`."""

    def both(found: re.Match[str]) -> str:
        bps = float(found[1]) * 1000 ** _PREFIXES.index(found[3])
        return f"{found[0]} ({byte_rate(bps)})"

    return _BIT_RATE.sub(both, text)


def byte_count(count: float | None) -> str:
    """A number of bytes: `512 B`, `47.3 GB`."""
    if count is not None and abs(count) < 999.5:
        return f"{count:.0f} B"
    return with_unit(count, "B")


def percent(fraction: SupportsFloat | None, digits: int = 3) -> str:
    """A share of one: `47.3 %`."""
    if fraction is None or not isfinite(float(fraction)):
        return ABSENT
    return f"{number(float(fraction) * 100, digits)} %"


def rounded_percent(fraction: SupportsFloat | None) -> str:
    """A share of one in a sentence, which is read and not compared: `47 %`, `8.1 %`, `0.42 %`."""
    return percent(fraction, digits=2)


def percent_range(low: float, high: float) -> str:
    """`61 %` where both ends read the same, else `58 to 64 %`."""
    first, last = number(low * 100, 2), number(high * 100, 2)
    return f"{first} %" if first == last else f"{first} to {last} %"


def percent_change(fraction: float) -> str:
    """A relative change: `+8.00 %`, `-12.3 %`; without a sign where it is `<0.01 %`."""
    if not isfinite(fraction):
        return ABSENT
    text = number(abs(fraction) * 100)
    sign = "" if text.startswith("<") else "-" if fraction < 0 else "+"
    return f"{sign}{text} %"


def rate(bps: float, line_rate_bps: float, unit: Unit) -> str:
    """Traffic in the chosen unit; absent where a share of an unknown line rate is asked for."""
    if unit is Unit.PERCENT:
        return percent(bps / line_rate_bps) if line_rate_bps > 0 else ABSENT
    return bit_rate(bps) if unit is Unit.GBIT else byte_rate(bps)


def per_second(value: float) -> str:
    """Events per second: `12.3 k/s`, `4.00 M/s`."""
    return with_unit(value, "/s")


def counter_rate(value: float, unit: str) -> str:
    """A counter's rate in its own unit: `41.3 GB/s`, `12.3 k packets/s`, `8.10 % of time`."""
    if not isfinite(value):
        return ABSENT
    if unit == "us":
        return f"{percent(value / 1e6)} of time"
    if unit == "bytes":
        return with_unit(value, "B/s")
    text, prefix = scaled_number(value)
    return " ".join(part for part in (text, prefix, f"{unit}/s") if part)


def gauge(value: float, unit: str, *, is_setting: bool = False) -> str:
    """A gauge in its unit: `1`, `400 Gb/s`, `9.00 kB`; what is set, not measured, is not rounded:
    `4200 B`."""
    if not isfinite(value):
        return ABSENT
    if is_setting and unit == "bytes":
        return f"{value:.0f} B"
    if unit == "bps":
        return bit_rate(value)
    if unit == "state":
        return whole_number(value)
    text, prefix = scaled_number(value)
    short = {"bytes": "B", "us": "us"}.get(unit, unit)
    return f"{text if prefix else whole_number(value)} {prefix}{short}".rstrip()


def whole_number(value: float) -> str:
    """A number that counts things: in full where it has no decimals, else as `number`."""
    if isfinite(value) and value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return number(value)


def evidence_value(value: float | str, unit: str) -> str:
    """A value behind a finding, in its own unit (`%`, `bps`, `/s`, `links`, or none for a text).

    The singular is that of a unit of one word: `1 link`, but `1 in 40 s`.
    """
    if isinstance(value, str):
        return value
    if unit == "bps":
        return bit_rate(value)
    if unit == "/s":
        return per_second(value)
    if value == 1 and len(unit) > 3 and unit.endswith("s") and unit.isalpha():
        unit = unit[:-1]
    return f"{number(value) if unit == '%' else whole_number(value)} {unit}".rstrip()


def plural(count: int, noun: str, several: str = "") -> str:
    """`1 port`, `2 ports`, `2 switches`; `several` where the plural is not noun and `s`."""
    return f"{count} {noun}" if count == 1 else f"{count} {several or _plural_of(noun)}"


def _plural_of(noun: str) -> str:
    return f"{noun}es" if noun.endswith(("ch", "sh", "s", "x")) else f"{noun}s"


def name_list(names: Sequence[str], most: int = 4) -> str:
    """The first `most` names, and how many more there are: `a, b, c and 9 more`."""
    rest = len(names) - most
    shown = ", ".join(names[:most])
    return f"{shown} and {rest} more" if rest > 0 else shown


def label_runs(labels: Iterable[tuple[str, str, int]]) -> str:
    """`dn1-dn4, up2`: labels of (text, role, index), consecutive ones of a role as one run."""
    runs: list[list[tuple[str, str, int]]] = []
    for label in labels:
        last = runs[-1][-1] if runs else None
        if last is not None and label[1:] == (last[1], last[2] + 1):
            runs[-1].append(label)
        else:
            runs.append([label])
    return ", ".join(run[0][0] if len(run) == 1 else f"{run[0][0]}-{run[-1][0]}" for run in runs)


def attach_units(text: str) -> str:
    """`text` with a no-break space between each number and its unit, so that no line breaks there.

    Used where lines are broken: by the screen's wrapping and by the report page. Texts on stdout
    and in jsonl keep the plain space, by which they can be searched.
    """
    return _ATTACHED.sub(NO_BREAK_SPACE, text)
