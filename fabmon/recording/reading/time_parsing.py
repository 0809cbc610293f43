"""Parses times and durations: `14:03`, `2026-11-20 14:03:22`, `-10m`, `+1h`, `event 17`."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fabmon.fabric.time_wording import DAY_NS, SECOND_NS, date_time
from fabmon.fabric.wording import plural

UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
TIME_FORMATS = "14:03, 14:03:22, 2026-11-20 14:03, -10m, +1h or event 3"
_NUMBER = re.compile(r"\s*+(\d++(?:\.\d++)?)\s*+([a-zA-Z]*+)\s*+")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?Z?")
_FRACTION = re.compile(r":\d{2}[.,](\d++)")
_EVENT = re.compile(r"event\s*(\d{1,18})")
_LIMIT_NS = 1 << 63
"""Times are 64-bit: 292 years before and after 1970."""
_SLACK_NS = 60 * SECOND_NS
"""A time that is outside of what is known by less than this means its start or its end: `14:03`."""


def parse_amount(text: str, units: Mapping[str, int]) -> float | None:
    """A number with one of some units, such as `15m`; None for anything else."""
    match = _NUMBER.fullmatch(text)
    if match is None or match[2].lower() not in units:
        return None
    amount = float(match[1]) * units[match[2].lower()]
    return amount if math.isfinite(amount) else None


def parse_seconds(text: str) -> float | None:
    """A duration in seconds, from `90`, `90s`, `15m`, `1h` or `7d`; None for anything else."""
    return parse_amount(text, UNIT_SECONDS)


class Moment(NamedTuple):
    """The time that a text means, in ns since 1970: from `begin_ns` to `end_ns`, both included.

    `14:03:22`, like `14:03`, is a second, `14:03:22.528016` a microsecond: outputs print no more of
    a tick's time. The tick that is meant is the last that ends by `end_ns`.
    """

    begin_ns: int
    end_ns: int


def parse_time(
    text: str,
    start_ns: int,
    until_ns: int,
    events_ns: Sequence[int] = (),
    *,
    is_latest: bool = False,
) -> Moment | None:
    """A time in a recording that covers a range of time, UTC; None if invalid.

    `14:03` and `14:03:22` are UTC, the first such time in the recording, or the last with
    `is_latest`; of those outside of it the nearest, if none is in it. `-10m` is before its end,
    `+10m` after its start; `event 3` is its third event; a date such as `2026-11-19 14:03` is UTC
    unless it has another offset.
    """
    text = text.strip()
    since_midnight_ns = _time_of_day_ns(text)
    if since_midnight_ns is None:
        return _other(text, start_ns, until_ns, events_ns)
    earliest_ns, latest_ns = start_ns - _SLACK_NS, until_ns + _SLACK_NS
    begin_ns = earliest_ns + (since_midnight_ns - earliest_ns) % DAY_NS
    if begin_ns <= latest_ns:
        if is_latest:
            begin_ns = latest_ns - (latest_ns - since_midnight_ns) % DAY_NS
    elif start_ns - (begin_ns - DAY_NS) <= begin_ns - until_ns:
        begin_ns -= DAY_NS
    return _moment(begin_ns, text)


def parse_time_near(
    text: str, at_ns: int, start_ns: int, until_ns: int, events_ns: Sequence[int] = ()
) -> Moment | None:
    """The same relative to the time `at_ns` that is shown; None if invalid.

    `-10m` and `+1h` count from there, `14:03` is the nearest such time that was recorded.
    """
    text = text.strip()
    since_midnight_ns = _time_of_day_ns(text)
    if since_midnight_ns is not None:
        day_ns = at_ns // DAY_NS * DAY_NS
        days_ns = (day_ns - DAY_NS, day_ns, day_ns + DAY_NS)
        begin_ns = min(
            (each + since_midnight_ns for each in days_ns),
            key=lambda each: (not start_ns <= each <= until_ns, abs(each - at_ns)),
        )
        return _moment(begin_ns, text)
    return _other(text, at_ns, at_ns, events_ns)


class TimeError(Exception):
    """A time that is not valid or not in what is known; the message names it and the range."""


@dataclass(frozen=True, slots=True)
class KnownTimes:
    """The times from `start_ns` to `until_ns` of `what`, and those of its numbered events.

    With `is_latest`, a time of day is the latest such time, else the first.
    """

    start_ns: int
    until_ns: int
    events_ns: Sequence[int] = ()
    what: str = "the recording"
    is_latest: bool = False

    def at(self, name: str, text: str) -> int:
        """The time (ns) until which the tick ends that a text means. Raises TimeError, which calls
        it `name`."""
        at_ns = self._parsed(name, text).end_ns
        if not self.start_ns - _SLACK_NS <= at_ns <= self.until_ns + _SLACK_NS:
            raise TimeError(f"{name} {text[:40]} is not in {self._range()}")
        return min(max(at_ns, self.start_ns), self.until_ns)

    def part(
        self, begin: tuple[str, str | None], end: tuple[str, str | None]
    ) -> tuple[int | None, int | None, list[str]]:
        """The part from one time to another, each given as its name and its text, and what was
        asked for but is not known. A time without a text is None, and a later end stays as it is.

        Raises TimeError if nothing of the part is known, and for a time of the clock outside of
        what is known where the other end is not given: it would mean all. `-2h` is as much as there
        is.
        """
        notes = []
        first, last = (
            None if text is None else self._parsed(name, text) for name, text in (begin, end)
        )
        from_ns, to_ns = first and first.begin_ns, last and last.end_ns
        for (name, text), at_ns, is_begin in ((begin, from_ns, True), (end, to_ns, False)):
            # Nothing is known from a later begin on; `14:03` may mean the end, not the begin.
            latest_ns = self.until_ns + (0 if is_begin else _SLACK_NS)
            if at_ns is None or self.start_ns - _SLACK_NS <= at_ns <= latest_ns:
                continue
            is_early = at_ns < self.start_ns
            is_all = None in (begin[1], end[1]) and not (text or "").strip().startswith(("-", "+"))
            if is_early != is_begin or is_all:
                raise TimeError(f"{name} {(text or '')[:40]} is not in {self._range()}")
            side = "before" if is_early else "after"
            notes.append(f"{name} {(text or '')[:40]} is {side} {self._range()}")
        if from_ns is not None:
            from_ns = max(from_ns, self.start_ns)
        if to_ns is not None:
            to_ns = max(to_ns, self.start_ns)
            if from_ns is not None and to_ns < from_ns:
                is_relative = (end[1] or "").strip().startswith("+")
                counted = f": {end[1]} counts from the start of {self.what}" if is_relative else ""
                raise TimeError(
                    f"{end[0]} ({date_time(to_ns)}) is before {begin[0]}"
                    f" ({date_time(from_ns)}){counted}"
                )
        return from_ns, to_ns, notes

    def _range(self) -> str:
        return f"{self.what}: {date_time(self.start_ns)} to {date_time(self.until_ns)}"

    def _parsed(self, name: str, text: str) -> Moment:
        found = parse_time(
            text, self.start_ns, self.until_ns, self.events_ns, is_latest=self.is_latest
        )
        if found is None and _EVENT.fullmatch(text.strip()):
            raise TimeError(
                f"{name} {text[:40]}: {self.what} has {plural(len(self.events_ns), 'event')}"
            )
        if found is None:
            raise TimeError(f"{name} {text[:40]}: write a time such as {TIME_FORMATS}")
        return found


def _time_of_day_ns(text: str) -> int | None:
    """ns since midnight; None where the text is not a time of day."""
    clock = _CLOCK.fullmatch(text)
    if not clock or int(clock[1]) > 23 or int(clock[2]) > 59 or float(clock[3] or 0) >= 60:
        return None
    whole_s, _, fraction = (clock[3] or "0").partition(".")
    seconds = int(clock[1]) * 3600 + int(clock[2]) * 60 + int(whole_s)
    return seconds * SECOND_NS + int(f"{fraction:0<9.9}")


def _moment(begin_ns: int, text: str) -> Moment:
    """The second, or the part of a second, that begins then and that a text says."""
    fraction = _FRACTION.search(text)
    unit_ns = 10 ** max(9 - len(fraction[1]), 0) if fraction else SECOND_NS
    return Moment(begin_ns, begin_ns + unit_ns - 1)


def _other(text: str, plus_ns: int, minus_ns: int, events_ns: Sequence[int]) -> Moment | None:
    """An event, a duration after `plus_ns` or before `minus_ns`, or a date."""
    event = _EVENT.fullmatch(text)
    if event:
        number = int(event[1])
        if not 1 <= number <= len(events_ns):
            return None
        return Moment(events_ns[number - 1], events_ns[number - 1])
    if text[:1] in ("-", "+"):
        length_s = parse_seconds(text[1:])
        if length_s is None or not length_s * 1e9 < _LIMIT_NS:
            return None
        ns = int(length_s * 1e9)
        ns = minus_ns - ns if text[0] == "-" else plus_ns + ns
        found = Moment(ns, ns)
    else:
        try:
            date = datetime.datetime.fromisoformat(text)
        except ValueError:
            return None
        if date.tzinfo is None:
            date = date.replace(tzinfo=datetime.UTC)
        since = date - datetime.datetime.fromtimestamp(0, datetime.UTC)
        found = _moment(since // datetime.timedelta(microseconds=1) * 1000, text)
    return found if abs(found.end_ns) < _LIMIT_NS else None
