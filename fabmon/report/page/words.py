"""Times, spans and numbers as the page says them."""

from __future__ import annotations

import datetime
import math

from fabmon.analysis.finding import Evidence
from fabmon.report.records import utc
from fabmon.report.units import bits, percent


def clock(time_ns: int, dated: bool = False) -> str:
    """`14:03:22`, or `11-21 14:03:22`, UTC."""
    return utc(time_ns).strftime("%m-%d %H:%M:%S" if dated else "%H:%M:%S")


def date(time_ns: int) -> str:
    """`2026-11-21 14:03:22 UTC`."""
    return utc(time_ns).strftime("%Y-%m-%d %H:%M:%S UTC")


def span(seconds: float) -> str:
    """`48 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def rate(bps: float) -> str:
    """Bits a second; a dot for what is absent."""
    return bits(bps if math.isfinite(bps) else None)


def share(value: float) -> str:
    """`98 %`; a dot for what is absent."""
    return percent(value if math.isfinite(value) else None)


def evidence(item: Evidence) -> str:
    """A number behind a finding, with its unit."""
    if isinstance(item.value, str):
        return item.value
    if item.unit == "bps":
        return rate(item.value)
    if item.unit == "%":
        return f"{item.value:.3g} %"
    return f"{item.value:,.4g} {item.unit}".strip()


def cause(name: str) -> str:
    """`ecmp_collision` as people write it."""
    known = {"ecmp": "ECMP", "pcie": "PCIe", "gpu": "GPU", "nic": "NIC", "numa": "NUMA"}
    words = [known.get(word, word) for word in name.split("_")]
    text = " ".join(words)
    return text[:1].upper() + text[1:]


def size(count: float) -> str:
    """Bytes, decimal."""
    for step, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= step:
            return f"{count / step:.3g} {unit}"
    return f"{count:.0f} bytes"


def duration(delta: datetime.timedelta) -> str:
    """As `span`."""
    return span(delta.total_seconds())
