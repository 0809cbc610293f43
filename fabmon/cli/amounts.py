"""Amounts as people write them: `1h`, `64MB`, and moments of a recording: `14:03`, `-10m`."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence

import click

_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
          "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}  # fmt: skip
_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?Z?")


def seconds(text: str) -> float | None:
    """`90`, `90s`, `15m`, `1h`, `7d`; None for anything else."""
    return _amount(text, _SECONDS)


def size(text: str) -> int | None:
    """`64MB`, `1GB`, `512KiB` in bytes; None for anything else."""
    amount = _amount(text, _BYTES)
    return None if amount is None else int(amount)


def moment(text: str, start_ns: int, until_ns: int, events_ns: Sequence[int] = ()) -> int | None:
    """A time of a recording that goes from one to another, in ns; None when it is none.

    `14:03` and `14:03:22` are UTC, the first such time in the recording; `-10m` is before its end,
    `+10m` after its start; `event 3` its third event; else a date, `2026-11-19 14:03`, UTC unless
    it says another offset.
    """
    text = text.strip()
    event = re.fullmatch(r"event\s*(\d+)", text)
    if event:
        number = int(event[1])
        return events_ns[number - 1] if 1 <= number <= len(events_ns) else None
    if text[:1] in ("-", "+"):
        amount = seconds(text[1:])
        if amount is None:
            return None
        ns = int(amount * 1e9)
        return until_ns - ns if text[0] == "-" else start_ns + ns
    clock = _CLOCK.fullmatch(text)
    if clock:
        of_day = int(clock[1]) * 3600 + int(clock[2]) * 60 + float(clock[3] or 0)
        day_ns = 86_400 * 10**9
        found = start_ns // day_ns * day_ns + int(of_day * 1e9)
        return found if found >= start_ns - 60 * 10**9 else found + day_ns
    try:
        date = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=datetime.UTC)
    return int(date.timestamp() * 1e9)


class Seconds(click.ParamType[float]):
    """An option that is a time: `90s`, `1h`."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds, more than none."""
        found = float(value) if isinstance(value, (int, float)) else seconds(str(value))
        if not found:
            self.fail(f"{value!r}: a time such as 90s, 15m, 1h or 7d", param, ctx)
        return found


def _amount(text: str, units: dict[str, int]) -> float | None:
    match = _NUMBER.fullmatch(text)
    if match is None or match[2].lower() not in units:
        return None
    return float(match[1]) * units[match[2].lower()]
