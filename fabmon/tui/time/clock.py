"""Times as the screen says them: UTC, and all from scenes. Nothing here has a clock."""

from __future__ import annotations

from datetime import UTC, datetime

SECOND_NS = 1_000_000_000
MINUS = "\N{MINUS SIGN}"


def hms(time_ns: int) -> str:
    """`14:03:22Z`."""
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC).strftime("%H:%M:%SZ")


def stamp(time_ns: int) -> str:
    """`2026-11-20 14:03:22Z`."""
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def date(time_ns: int) -> str:
    """`11-20 14:03Z`."""
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC).strftime("%m-%d %H:%MZ")


def label(time_ns: int, span_s: float) -> str:
    """As much of a time as tells it from others within a span: `14:03:20`, `14:03`, `11-20`."""
    pattern = "%H:%M:%S" if span_s < 300 else "%H:%M" if span_s < 86_400 else "%m-%d %H:%M"
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC).strftime(pattern)


def short(seconds: float) -> str:
    """A length of time in its largest unit: `10 min`, `3 h`, `7 d`."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def whole(seconds: float) -> str:
    """A length of time in its largest unit, of those that are full: `34 s`, `12 min`, `3 h`."""
    full = max(0, int(seconds))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if full >= size:
            return f"{full // size} {unit}"
    return f"{full} s"


def span(seconds: float) -> str:
    """A length of time in the two units that matter: `31 s`, `2 min 11 s`, `3 h 12 min`."""
    whole = max(0, int(seconds))
    for size, unit, below, smaller in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // below} {smaller}"
    return f"{whole} s"


def age(seconds: float) -> str:
    """A length of time in at most four cells: `12s`, `3m`, `5h`, `9d`."""
    whole = max(0, int(seconds))
    if whole < 100:
        return f"{whole}s"
    if whole < 6000:
        return f"{whole // 60}m"
    return f"{whole // 3600}h" if whole < 360_000 else f"{whole // 86400}d"


def lag(seconds: float) -> str:
    """How far behind now: minus `02:11`, minus `1:02:11`."""
    whole = max(0, int(seconds))
    minutes = f"{whole % 3600 // 60:02d}:{whole % 60:02d}"
    return f"{MINUS}{whole // 3600}:{minutes}" if whole >= 3600 else f"{MINUS}{minutes}"
