"""HTML and SVG from calls: text is escaped unless it was made here."""

from __future__ import annotations

import html
from collections.abc import Iterable

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
