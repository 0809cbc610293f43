"""A line of the screen: styled pieces of text (never markup) and the targets that it opens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.style import Style

from fabmon.fabric.model import Fabric, Port
from fabmon.fabric.wording import ABSENT, NO_BREAK_SPACE, attach_units, plural


class NodeTarget(NamedTuple):
    """A node, by name; `row` is the port that is selected first."""

    node: str
    row: int | None = None


class PortTarget(NamedTuple):
    """A port, by row."""

    row: int


class FindingTarget(NamedTuple):
    """A finding, or a group of findings, by key."""

    key: str


class EventTarget(NamedTuple):
    """An event, by time and text: opening it goes to that time."""

    time_ns: int
    text: str


class FoldTarget(NamedTuple):
    """Nodes that failed for the same reason: opening expands or collapses them."""

    state: str
    cause: str


class PairTarget(NamedTuple):
    """The cables between two switches; `high` is empty where the far end is not known."""

    low: str
    high: str


class SubjectTarget(NamedTuple):
    """A job or a rail in the fluctuation view; it can be selected, not opened."""

    kind: str
    name: str


class JobTarget(NamedTuple):
    """A job of the scheduler, by its number: opening it filters the overview to its nodes."""

    number: str


class EntryTarget(NamedTuple):
    """A line of a list to choose from, by its number."""

    number: int


class MetricTarget(NamedTuple):
    """A metric, by name."""

    name: str


Target = (
    EntryTarget
    | MetricTarget
    | SubjectTarget
    | JobTarget
    | PairTarget
    | NodeTarget
    | PortTarget
    | FindingTarget
    | FoldTarget
    | EventTarget
)


def peer(port: Port, fabric: Fabric) -> Port | None:
    """The port at the other end of the cable; None if it is not watched."""
    if port.peer is None or port.peer >= len(fabric.ports):
        return None
    other = fabric.ports[port.peer]
    return other if other.node else None


Span = tuple[str, Style]
_BREAKS = re.compile(r"[ \t\r\n]+")


class Hit(NamedTuple):
    """Columns `start` to `end` (exclusive) of a line that open `target`.

    A hit that `is_colour` is drawn in full blocks, which hide a background: the cursor is drawn as
    brackets in the blanks on both sides.
    """

    start: int
    end: int
    target: Target
    is_colour: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """Styled pieces of text from left to right.

    The line opens `target`; the parts in `hits` open targets of their own. A line with either can
    be selected.
    """

    spans: tuple[Span, ...]
    target: Target | None = None
    hits: tuple[Hit, ...] = ()

    @property
    def text(self) -> str:
        """The text without styles."""
        return "".join(text for text, _ in self.spans)


def line(*spans: Span, target: Target | None = None, hits: tuple[Hit, ...] = ()) -> Line:
    """A `Line` of these spans."""
    return Line(spans, target, hits)


def being_read(lines: Sequence[Line]) -> list[Line]:
    """The lines with `…` for each value that is not known: it is being read from the recording."""
    return [
        replace(each, spans=tuple((text.replace(ABSENT, "…"), style) for text, style in each.spans))
        for each in lines
    ]


def width_of(spans: tuple[Span, ...] | list[Span]) -> int:
    """The number of columns that spans take."""
    return sum(cell_len(text) for text, _ in spans)


def fit(text: str, width: int) -> str:
    """`text` padded to `width` columns, or cut to them with an ellipsis."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + "…"


def right(text: str, width: int) -> str:
    """`text` right-aligned in `width` columns, or cut to them with an ellipsis."""
    missing = width - cell_len(text)
    return " " * missing + text if missing >= 0 else fit(text, width)


def flow(parts: Sequence[list[Span]], width: int, style: Style) -> list[list[Span]]:
    """Parts side by side, on as many lines as they need; each line but the first is indented."""
    lines: list[list[Span]] = []
    current: list[Span] = []
    for part in parts:
        if current and width_of(current) + 2 + width_of(part) > width:
            lines.append(current)
            current = []
        if current:
            current.append(("  ", style))
        elif lines:
            current.append((" " * 5, style))
        current.extend(part)
    return [*lines, current]


def paragraph(
    text: str, width: int, style: Style, target: Target | None = None, indent: int = 3
) -> list[Line]:
    """`text` in lines of `width` cells, indented; no line for an empty text."""
    return [
        line((" " * indent + part, style), target=target) for part in wrap(text, width - indent - 1)
    ]


def more_rows(count: int, what: str, style: Style) -> list[Line]:
    """That a table has so many more rows than it shows; no line for 0."""
    return [line((f"   {plural(count, f'more {what}')}: / filters", style))] if count else []


def wrap(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` cells, broken at spaces where there are any.

    A number and its unit stay on one line.
    """
    lines: list[str] = []
    current = ""
    for word in _BREAKS.split(attach_units(text).strip()):
        word = word.replace(NO_BREAK_SPACE, " ")
        while cell_len(word) > width > 1:
            head = set_cell_size(word, width).rstrip()
            lines.extend(part for part in (current, head) if part)
            current, word = "", word[len(head) :]
        joined = f"{current} {word}" if current else word
        if cell_len(joined) <= width:
            current = joined
        else:
            lines.append(current)
            current = word
    if current:
        lines.append(current)
    return lines
