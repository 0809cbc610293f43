"""The one formatter for times and durations, as every output shows them.

Times are UTC and have a `Z`. Nothing here reads a clock.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec

from fabmon.fabric.wording import number, trimmed

TimeNs = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Nanoseconds since 1970, UTC. Decoding refuses what no clock shows, and no calendar has."""


SECOND_NS = 1_000_000_000
DAY_NS = 86_400 * SECOND_NS
LATEST_NS = (1 << 63) - 1
"""The latest time that 64 bits hold, of the year 2262; the default end of a range of time."""
ONE_SAMPLE = "one sample"
"""How long something lasted that one sample showed, not those before and after it."""
MINUS = "\N{MINUS SIGN}"

_LARGER = ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def time_of_day(time_ns: int) -> str:
    """`14:03:22Z`."""
    return _formatted(time_ns, "%H:%M:%SZ")


def date_time(time_ns: int) -> str:
    """`2026-11-20 14:03:22Z`."""
    return _formatted(time_ns, "%Y-%m-%d %H:%M:%SZ")


def day_time(time_ns: int) -> str:
    """`11-20 14:03Z`."""
    return _formatted(time_ns, "%m-%d %H:%MZ")


def event_time(time_ns: int, is_dated: bool) -> str:
    """`14:03:22Z`, or `11-20 14:03:22Z` where a time of day alone may mean two."""
    return _formatted(time_ns, "%m-%d %H:%M:%SZ" if is_dated else "%H:%M:%SZ")


MINUTES_FROM_S = 300
"""The window in seconds from which on labels of its axis have no seconds."""


def axis_label(time_ns: int, window_s: float) -> str:
    """As much of a time as distinguishes it within a window: `14:03:20`, `14:03`, `11-20 14:03`."""
    pattern = (
        "%H:%M:%S" if window_s < MINUTES_FROM_S else "%H:%M" if window_s < 86_400 else "%m-%d %H:%M"
    )
    return _formatted(time_ns, pattern)


def utc(time_ns: int) -> datetime:
    """A wall clock in ns as a date in UTC, exact to the microsecond."""
    seconds, rest_ns = divmod(time_ns, SECOND_NS)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest_ns // 1000)


def _formatted(time_ns: int, pattern: str) -> str:
    return utc(time_ns).strftime(pattern)


def clock_text(jumped_ns: int) -> str:
    """That the console's clock was set, in words; after a sleep it has moved forward as well."""
    way = "back" if jumped_ns < 0 else "forward"
    return f"the clock of this machine moved {way} by {duration(round(abs(jumped_ns) / 1e9))}"


def duration(seconds: float) -> str:
    """Elapsed time in full seconds, in its two largest units: `31 s`, `2 min 11 s`, `10 min`."""
    whole = max(0, int(seconds))
    for size, unit, smaller_size, smaller in _LARGER:
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def lasted(from_ns: int, until_ns: int) -> str:
    """How long samples showed something: `31 s`, `under 1 s`; `one sample` where only one did."""
    if from_ns == until_ns:
        return ONE_SAMPLE
    return at_least_a_second((until_ns - from_ns) / SECOND_NS)


def at_least_a_second(seconds: float) -> str:
    """Elapsed time that is not 0: `31 s`, `under 1 s`."""
    return duration(seconds) if seconds >= 1 else "under 1 s"


def full_units(seconds: float) -> str:
    """Elapsed time in its largest unit, those that are full: `34 s`, `12 min`, `3 h`."""
    whole = max(0, int(seconds))
    for size, unit, _, _ in _LARGER:
        if whole >= size:
            return f"{whole // size} {unit}"
    return f"{whole} s"


def interval(seconds: float) -> str:
    """A set or round length of time: `0.5 s`, `50 ms`, `10 min`, `1.5 h`, `7 d`."""
    for size, unit, _, _ in _LARGER:
        if seconds >= size:
            return f"{trimmed(seconds / size)} {unit}"
    if 0 < seconds < 0.1:
        return f"{trimmed(seconds * 1000)} ms"
    return f"{trimmed(seconds)} s"


def measured(seconds: float) -> str:
    """A measured length of time with three digits: `20.0 ms`, `6.20 s`."""
    return f"{number(seconds)} s" if abs(seconds) >= 1 else f"{number(seconds * 1000)} ms"


def age(seconds: float) -> str:
    """Elapsed time in at most four cells: `12s`, `3m`, `5h`, `9d`."""
    whole = max(0, int(seconds))
    if whole < 100:
        return f"{whole}s"
    if whole < 6000:
        return f"{whole // 60}m"
    return f"{whole // 3600}h" if whole < 360_000 else f"{whole // 86_400}d"


def lag(seconds: float) -> str:
    """How far behind now, with a minus sign: minus `02:11`, minus `1:02:11`."""
    whole = max(0, int(seconds))
    minutes = f"{whole % 3600 // 60:02d}:{whole % 60:02d}"
    return f"{MINUS}{whole // 3600}:{minutes}" if whole >= 3600 else f"{MINUS}{minutes}"
