"""Hours of the day and days of the week as the clocks of a place show them."""

from __future__ import annotations

import datetime

import numpy as np
from numpy.typing import NDArray

_QUARTER_S = 900
"""Clocks of today's zones change at quarters of an hour of UTC, and differ from it by quarters."""

_HOUR_S, _DAY_S = 3600, 86_400


def hours(at_ns: NDArray[np.int64], zone: datetime.tzinfo) -> NDArray[np.int64]:
    """[n]: the hour of the day, 0 to 23, at each time (ns since 1970, UTC)."""
    return local_s(at_ns, zone) // _HOUR_S % 24


def weekdays(at_ns: NDArray[np.int64], zone: datetime.tzinfo) -> NDArray[np.int64]:
    """[n]: the day of the week, 0 (Monday) to 6, at each time (ns since 1970, UTC)."""
    # Day 0 of Unix time was a Thursday.
    return (local_s(at_ns, zone) // _DAY_S + 3) % 7


def local_s(at_ns: NDArray[np.int64], zone: datetime.tzinfo) -> NDArray[np.int64]:
    """[n]: what the clocks show, as seconds since they showed the beginning of 1970.

    Each time has the offset of its own: an hour that is set back comes twice.
    """
    seconds = at_ns // 1_000_000_000
    quarters, which = np.unique(seconds // _QUARTER_S, return_inverse=True)
    offsets = [_offset_s(quarter * _QUARTER_S, zone) for quarter in quarters.tolist()]
    shown: NDArray[np.int64] = seconds + np.array(offsets, np.int64)[which]
    return shown


def _offset_s(at_s: int, zone: datetime.tzinfo) -> int:
    shift = datetime.datetime.fromtimestamp(at_s, zone).utcoffset()
    return 0 if shift is None else round(shift.total_seconds())
