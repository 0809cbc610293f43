"""HTML and SVG elements with escaped texts, and the time axis of drawings."""

from __future__ import annotations

import html
from collections.abc import Iterable

from fabmon.fabric.time_wording import DAY_NS, SECOND_NS, utc
from fabmon.fabric.wording import attach_units

_VOID = frozenset({"meta", "br", "hr", "circle", "line", "path", "polyline", "rect"})


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


Part = str | Markup | None


def tag(name: str, /, *parts: Part, **attributes: str | float | None) -> Markup:
    """An element. `class_` and `data_x` are the attributes class and data-x; None omits one."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID and not parts:
        return Markup(f"<{name}{pairs}>" if name in ("meta", "br", "hr") else f"<{name}{pairs}/>")
    return Markup(f"<{name}{pairs}>{joined(parts)}</{name}>")


def joined(parts: Iterable[Part]) -> Markup:
    """The parts one after the other, without those that are None."""
    return Markup("".join(_escaped(part) for part in parts if part is not None))


def table(head: Iterable[Part], rows: Iterable[Iterable[Part]], numbers: int = 0) -> Markup:
    """A table; cells from column `numbers` on are numbers, aligned right. 0 for no numbers."""

    def cells(name: str, row: Iterable[Part]) -> Markup:
        return joined(
            tag(name, cell, class_="number" if numbers and place >= numbers else None)
            for place, cell in enumerate(row)
        )

    return tag(
        "table",
        tag("thead", tag("tr", cells("th", head))),
        tag("tbody", *(tag("tr", cells("td", row)) for row in rows)),
    )


def _escaped(part: str) -> str:
    return part if isinstance(part, Markup) else html.escape(attach_units(part))


def _text(value: str | float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


CHART_WIDTH = 1000.0
CHART_LEFT = 150.0
"""Where the axis begins in a drawing that is CHART_WIDTH wide; names are before it."""

_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200,
            86_400, 172_800, 604_800)  # fmt: skip
_MOST_LABELS = 9


def time_position(time_ns: int, from_ns: int, until_ns: int) -> float:
    """The x coordinate of a time, limited to the ends of the axis."""
    share = (time_ns - from_ns) / max(1, until_ns - from_ns)
    return CHART_LEFT + (CHART_WIDTH - CHART_LEFT) * min(1.0, max(0.0, share))


def time_grid(from_ns: int, until_ns: int, bottom: float) -> Markup:
    """Vertical lines down to `bottom` at round times, with labels below; with dates where it is
    more than a day."""
    is_dated = until_ns - from_ns > DAY_NS
    step_s = next(
        (s for s in _STEPS_S if (until_ns - from_ns) / 1e9 / s <= _MOST_LABELS), _STEPS_S[-1]
    )
    style = "%H:%M:%S" if step_s < 60 else "%H:%M" if step_s < 86_400 else "%m-%d"
    style = f"%m-%d {style}" if is_dated and step_s < 86_400 else style
    step_ns = step_s * SECOND_NS
    at_ns = -(-from_ns // step_ns) * step_ns
    parts = []
    while at_ns <= until_ns:
        x = time_position(at_ns, from_ns, until_ns)
        parts.append(tag("line", x1=x, x2=x, y1=0, y2=bottom, class_="grid"))
        if x < CHART_WIDTH - 20:
            label = utc(at_ns).strftime(style)
            parts.append(tag("text", label, x=x + 3, y=bottom + 13, class_="axis"))
        at_ns += step_ns
    return joined(parts)
