"""The last ten minutes: the busiest link, what happened when, and where nothing is known."""

from __future__ import annotations

import numpy as np
from rich.style import Style

from fabmon.analysis.finding import Finding
from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.moment import Floats
from fabmon.tui.clock import SECOND_NS
from fabmon.tui.line import Line, Span
from fabmon.tui.palette import Depth, Palette
from fabmon.tui.text import chart
from fabmon.tui.text.rule import rule
from fabmon.tui.units import percent

MINUTES = 10
_GONE = ("lost", "down", "failed")
_WEIGHT = {"│": 1, "▲": 2, "✖": 3}


def timeline(
    scene: Scene,
    width: int,
    height: int,
    palette: Palette,
    paused: bool,
    chosen: Finding | None = None,
) -> list[Line]:
    """A rule with the marks in it, and `height - 1` rows of blocks; in one row, blocks alone.

    The time of the chosen finding is marked: where it began, and in the rule how long it lasts.
    """
    moment = scene.moment
    ticks = max(1, round(MINUTES * 60 / max(moment.interval_s, 0.001)))
    worst = moment.worst(ticks)
    if height <= 1:
        return [_single(worst, scene, width, palette, chosen)]
    marks = _marks(scene, width)
    if chosen is not None:
        marks = _span(chosen, scene, width, palette, marks)
    title: list[list[Span]] = [
        [(f"Last {MINUTES} min", palette.strong)],
        [("busiest link, % of line rate", palette.dim)],
        [(_now(worst), palette.text)],
    ]
    first = rule(title, width, palette, paused)
    first = _overlay(first, marks, width, palette)
    rows = chart.bars(worst, width, height - 1, 1.0)
    return [first, *(Line(((row, palette.tx),)) for row in rows)]


def _now(worst: Floats) -> str:
    now = float(worst[-1]) if len(worst) else float("nan")
    return f"now {percent(now)}"


def _single(
    worst: Floats, scene: Scene, width: int, palette: Palette, chosen: Finding | None
) -> Line:
    label = f" {MINUTES} min "
    now = f" {percent(float(worst[-1]) if len(worst) else float('nan')):>6} "
    columns = max(1, width - len(label) - len(now))
    marks = _marks(scene, columns)
    if chosen is not None:
        marks[max(0, _place(chosen.since_ns, scene, columns))] = palette.chosen_mark
    strip = chart.spark(worst, columns, 1.0)
    spans: list[Span] = [(label, palette.dim)]
    for place, char in enumerate(strip):
        mark = marks.get(place)
        spans.append((mark, _style(mark, palette)) if mark else (char, palette.tx))
    return Line((*spans, (now, palette.text)))


def _marks(scene: Scene, columns: int) -> dict[int, str]:
    """Column -> mark of what happened there, the gravest first."""
    marks: dict[int, str] = {}
    for event in scene.events:
        place = _place(event.time_ns, scene, columns)
        if 0 <= place < columns and _WEIGHT[mark(event)] >= _WEIGHT.get(marks.get(place, ""), 0):
            marks[place] = mark(event)
    return marks


def _place(time_ns: int, scene: Scene, columns: int) -> int:
    """The column of a time; below 0 where it is further back than the strip."""
    ago = (scene.moment.time_ns - time_ns) / SECOND_NS
    return columns - 1 - int(np.floor(ago / (MINUTES * 60) * columns))


def _span(
    chosen: Finding, scene: Scene, columns: int, palette: Palette, marks: dict[int, str]
) -> dict[int, str]:
    """The marks, and among them the time of a finding: where it began, and a heavy stroke."""
    stroke = "=" if palette.depth is Depth.NONE else "━"
    first = _place(chosen.since_ns, scene, columns)
    last = columns - 1 if chosen.until_ns is None else _place(chosen.until_ns, scene, columns)
    spanned = dict.fromkeys(range(max(0, first), last + 1), stroke) | marks
    return spanned | {first: palette.chosen_mark}


def mark(event: Event) -> str:
    """`✖` something went, `▲` a finding opened, `│` anything else, as its end."""
    if event.text.startswith("close"):
        return "│"
    if any(word in event.text for word in _GONE):
        return "✖"
    return "▲" if event.kind == "finding" else "│"


def _style(mark: str, palette: Palette) -> Style:
    chosen = dict.fromkeys((palette.chosen_mark, "━", "="), palette.strong)
    return {"▲": palette.hot, "✖": palette.gone, **chosen}.get(mark, palette.dim)


def _overlay(line: Line, marks: dict[int, str], width: int, palette: Palette) -> Line:
    """Set the marks into the part of the rule that is a plain stroke."""
    text, style = line.spans[-1]
    start = width - len(text)
    spans: list[Span] = list(line.spans[:-1])
    run = ""
    for place in range(start, width):
        found = marks.get(place)
        if found is None:
            run += text[place - start]
            continue
        spans += [(run, style), (found, _style(found, palette))]
        run = ""
    return Line((*spans, (run, style)))
