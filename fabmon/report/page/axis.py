"""A time axis for drawings that share the page's width."""

from __future__ import annotations

from fabmon.report.page.markup import Markup, joined, tag
from fabmon.report.records import utc

WIDTH = 1000.0
LEFT = 150.0
"""Room for names before the axis, in units of a drawing that is WIDTH wide."""

_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200,
            86_400, 172_800, 604_800)  # fmt: skip
_MOST_LABELS = 9


def place(time_ns: int, from_ns: int, until_ns: int) -> float:
    """Where a time is, held between the ends of the axis."""
    share = (time_ns - from_ns) / max(1, until_ns - from_ns)
    return LEFT + (WIDTH - LEFT) * min(1.0, max(0.0, share))


def grid(from_ns: int, until_ns: int, top: float, bottom: float) -> Markup:
    """Lines at round times, and their labels below, with the date where it is more than a day."""
    is_dated = until_ns - from_ns > 86_400 * 10**9
    step_s = next(
        (s for s in _STEPS_S if (until_ns - from_ns) / 1e9 / s <= _MOST_LABELS), _STEPS_S[-1]
    )
    style = "%H:%M:%S" if step_s < 60 else "%H:%M" if step_s < 86_400 else "%m-%d"
    style = f"%m-%d {style}" if is_dated and step_s < 86_400 else style
    step_ns = step_s * 1_000_000_000
    at_ns = -(-from_ns // step_ns) * step_ns
    parts = []
    while at_ns <= until_ns:
        x = place(at_ns, from_ns, until_ns)
        parts.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"))
        if x < WIDTH - 20:
            label = utc(at_ns).strftime(style)
            parts.append(tag("text", label, x=x + 3, y=bottom + 13, class_="axis"))
        at_ns += step_ns
    return joined(parts)
