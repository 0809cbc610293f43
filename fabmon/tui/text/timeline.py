"""The last ten minutes: the busiest link, what happened when, and where nothing is known."""

from __future__ import annotations

import numpy as np
from rich.style import Style

from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.moment import Floats
from fabmon.tui.clock import SECOND_NS
from fabmon.tui.line import Line, Span
from fabmon.tui.palette import Palette
from fabmon.tui.text import chart
from fabmon.tui.text.rule import rule
from fabmon.tui.units import percent

MINUTES = 10
_GONE = ("lost", "down", "failed")
_WEIGHT = {"│": 1, "▲": 2, "✖": 3}


def timeline(scene: Scene, width: int, height: int, palette: Palette, paused: bool) -> list[Line]:
    """A rule with the marks in it, and `height - 1` rows of blocks; in one row, blocks alone."""
    moment = scene.moment
    ticks = max(1, round(MINUTES * 60 / max(moment.interval_s, 0.001)))
    worst = moment.worst(ticks)
    if height <= 1:
        return [_single(worst, scene, width, palette)]
    marks = _marks(scene, width)
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


def _single(worst: Floats, scene: Scene, width: int, palette: Palette) -> Line:
    label = f" {MINUTES} min "
    now = f" {percent(float(worst[-1]) if len(worst) else float('nan')):>6} "
    columns = max(1, width - len(label) - len(now))
    marks = _marks(scene, columns)
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
        ago = (scene.moment.time_ns - event.time_ns) / SECOND_NS
        place = columns - 1 - int(np.floor(ago / (MINUTES * 60) * columns))
        if 0 <= place < columns and _WEIGHT[mark(event)] >= _WEIGHT.get(marks.get(place, ""), 0):
            marks[place] = mark(event)
    return marks


def mark(event: Event) -> str:
    """`✖` something went, `▲` a finding opened, `│` anything else, as its end."""
    if event.text.startswith("close"):
        return "│"
    if any(word in event.text for word in _GONE):
        return "✖"
    return "▲" if event.kind == "finding" else "│"


def _style(mark: str, palette: Palette) -> Style:
    return {"▲": palette.hot, "✖": palette.gone}.get(mark, palette.dim)


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
