"""Quiet hours: a part of each day in which only severe findings become alerts."""

from __future__ import annotations

import re
import zoneinfo
from datetime import UTC, datetime, time, tzinfo

import msgspec

_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\s*-\s*([01]?\d|2[0-3]):([0-5]\d)(?:\s+(\S+))?")


class QuietHours(msgspec.Struct, frozen=True):
    """From a time of day up to another one, in a zone (None: this machine's). Over midnight where
    the second is earlier; the whole day where both are equal."""

    begin: time
    end: time
    zone: tzinfo | None = None

    def has(self, time_ns: int) -> bool:
        """Whether a time is in them."""
        at = datetime.fromtimestamp(time_ns / 1e9, UTC).astimezone(self.zone).time()
        if self.begin < self.end:
            return self.begin <= at < self.end
        return at >= self.begin or at < self.end


def parse_quiet_hours(text: str) -> QuietHours | None:
    """`22:00-07:00` or `22:00-07:00 Europe/Berlin`; None without hours. Raises ValueError."""
    if not text:
        return None
    found = _HOURS.fullmatch(text.strip())
    if found is None:
        raise ValueError("write hours such as 22:00-07:00, with a zone or without")
    try:
        zone = (
            None if found[5] is None else UTC if found[5] == "UTC" else zoneinfo.ZoneInfo(found[5])
        )
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"there is no time zone {found[5]}: write one such as Europe/Berlin"
        ) from None
    begin, end = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
    return QuietHours(begin, end, zone)
