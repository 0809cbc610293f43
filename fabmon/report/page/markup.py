"""HTML and SVG from calls: text is escaped unless it was made here."""

from __future__ import annotations

import html
from collections.abc import Iterable

from fabmon.report.records import utc

_VOID = frozenset({"meta", "br", "hr", "circle", "line", "path", "polyline", "rect"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Part = str | Markup | None


def tag(name: str, /, *parts: Part, **attributes: str | float | None) -> Markup:
    """An element. `class_` and `data_x` are the attributes class and data-x; None leaves it out."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID and not parts:
        return Markup(f"<{name}{said}>" if name in ("meta", "br", "hr") else f"<{name}{said}/>")
    return Markup(f"<{name}{said}>{joined(parts)}</{name}>")


def joined(parts: Iterable[Part]) -> Markup:
    """One after the other; None is nothing."""
    return Markup("".join(_escaped(part) for part in parts if part is not None))


def table(head: Iterable[Part], rows: Iterable[Iterable[Part]], numbers: int = 0) -> Markup:
    """A table; from column `numbers` on, cells are numbers and stand right. 0 for none."""

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
    return part if isinstance(part, Markup) else html.escape(part)


def _text(value: str | float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# A time axis for drawings that share the page's width.


CHART_WIDTH = 1000.0
CHART_LEFT = 150.0
"""Room for names before the axis, in units of a drawing that is WIDTH wide."""

_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200,
            86_400, 172_800, 604_800)  # fmt: skip
_MOST_LABELS = 9


def time_position(time_ns: int, from_ns: int, until_ns: int) -> float:
    """Where a time is, held between the ends of the axis."""
    share = (time_ns - from_ns) / max(1, until_ns - from_ns)
    return CHART_LEFT + (CHART_WIDTH - CHART_LEFT) * min(1.0, max(0.0, share))


def time_grid(from_ns: int, until_ns: int, top: float, bottom: float) -> Markup:
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
        x = time_position(at_ns, from_ns, until_ns)
        parts.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"))
        if x < CHART_WIDTH - 20:
            label = utc(at_ns).strftime(style)
            parts.append(tag("text", label, x=x + 3, y=bottom + 13, class_="axis"))
        at_ns += step_ns
    return joined(parts)
