"""Times in lines of logs, and the clock that a recording gives them.

NCCL writes none, or from 2.26 on `[2026-05-04 19:55:27]` on warnings, in the node's local time;
PyTorch writes `E603 17:48:01.005271823`, month and day without a year, in local time; launchers and
container runtimes write ISO 8601, often with a zone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from fabmon.fabric.time_wording import SECOND_NS

_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?"
)
_GLOG = re.compile(r"\b[IWEF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?")
_LEAP_YEAR = 2000
_OFFSETS_H = (
    *(0, 1, 2, -4, -5, -7, -8, 8, 9, -6, 3, 5.5, 10, -3, 4, 5, 6, 7, 11, 12),
    *(-1, -2, -9, -10, 5.75, 9.5, 3.5, 13),
)
"""Hours from UTC that clocks of clusters have, the usual ones first."""


class LogTime(msgspec.Struct, frozen=True, order=True):
    """A time as it is written: `at` in UTC where the zone is written, else in the log's own zone.

    Without a year it is in 2000.
    """

    at: datetime
    has_zone: bool
    has_year: bool


def find_time(text: str) -> LogTime | None:
    """The first time in the beginning of a line; None without a valid one."""
    head = text[:200]
    found = _ISO.search(head)
    try:
        if found is not None:
            year, month, day, hour, minute, second, fraction, zone = found.groups()
            date = int(year), int(month), int(day)
            at = _utc(date, (int(hour), int(minute), int(second)), fraction)
            return LogTime(at - _offset(zone), zone is not None, True)
        found = _GLOG.search(head)
        if found is None:
            return None
        month, day, hour, minute, second, fraction = found.groups()
        date = _LEAP_YEAR, int(month), int(day)
        at = _utc(date, (int(hour), int(minute), int(second)), fraction)
    except (ValueError, OverflowError):
        return None
    return LogTime(at, False, False)


def _utc(date: tuple[int, int, int], time: tuple[int, int, int], fraction: str | None) -> datetime:
    microseconds = int((fraction or "0")[:6].ljust(6, "0"))
    return datetime(*date, *time, microseconds, tzinfo=UTC)


def _offset(zone: str | None) -> timedelta:
    if zone is None or zone == "Z":
        return timedelta()
    digits = zone[1:].replace(":", "")
    size = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -size if zone[0] == "-" else size


class Clock(msgspec.Struct, frozen=True):
    """How the times of a log become UTC: add `offset_s`, and take `year` where none is written.

    `sure` says how this is known. `is_guess`: other zones would do, too.
    """

    offset_s: float
    year: int | None
    sure: str
    is_guess: bool = False

    def time_ns(self, time: LogTime) -> int | None:
        """UTC in ns since 1970; None where the year is unknown."""
        at = time.at
        if not time.has_year:
            if self.year is None:
                return None
            try:
                at = at.replace(year=self.year)
            except ValueError:
                return None
        shift_s = 0.0 if time.has_zone else self.offset_s
        return int((at.timestamp() - shift_s) * SECOND_NS)


def clock_of(
    times: Sequence[LogTime], from_ns: int, until_ns: int, zone: tzinfo | None
) -> Clock | None:
    """The clock that puts some times of a log into a recording; None where none does.

    `zone` is what the user says of the log's clock. Without it, and without a zone in the log, UTC
    is preferred, then this machine's zone, then any other.
    """
    first = datetime.fromtimestamp(from_ns / SECOND_NS, UTC)
    last = datetime.fromtimestamp(until_ns / SECOND_NS, UTC)
    local = datetime.now().astimezone().utcoffset() or timedelta()
    given = zone.utcoffset(first.replace(tzinfo=None)) if zone is not None else None
    hours = [given] if given is not None else [timedelta(), local]
    if given is None:
        hours += [timedelta(hours=each) for each in _OFFSETS_H]
    fitting: list[Clock] = []
    for year in range(last.year, first.year - 1, -1):
        for offset in dict.fromkeys(hours):
            clock = Clock(offset.total_seconds(), year, "")
            placed = [clock.time_ns(time) for time in times]
            if any(at is not None and from_ns <= at <= until_ns for at in placed):
                fitting.append(clock)
    if not fitting:
        return None
    best = fitting[0]
    sure = _sureness(times, best, len(fitting), given)
    is_guess = given is None and len(fitting) > 1 and not all(time.has_zone for time in times)
    return msgspec.structs.replace(best, sure=sure, is_guess=is_guess)


def _sureness(times: Sequence[LogTime], best: Clock, fitting: int, given: timedelta | None) -> str:
    if all(time.has_zone for time in times):
        return "the log's times have a zone"
    hours = best.offset_s / 3600
    zone = "UTC" if not hours else f"UTC{hours:+g} h"
    if given is not None:
        return f"the log's times are {zone}, as given by --tz"
    if fitting == 1:
        return f"the log's times are {zone}: the only zone in which they are in the recording"
    return (
        f"the log's times are taken for {zone}, and would be in the recording in {fitting - 1}"
        " other zones too: --tz says which"
    )
