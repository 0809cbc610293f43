"""The strip of time: the busiest link, what happened, what is not known, and where you are."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

import numpy as np
from rich.style import Style

from fabmon.analysis.finding import Finding
from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.time_wording import SECOND_NS, axis_label, interval
from fabmon.fabric.wording import percent
from fabmon.tui.line import Line, Span
from fabmon.tui.palette import Depth, Palette
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.text import chart
from fabmon.tui.text.header import panel_title
from fabmon.tui.time.past_reader import Curve

_GONE = ("lost", "down", "failed")
_WEIGHT = {"│": 1, "◆": 2, "▲": 3, "✖": 4}
_HEAD, _HERE, _IN, _OUT = "▼", "┃", "[", "]"
_LABELS_S = (10, 30, 60, 120, 300, 600, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 604_800)
_LABEL_EVERY = 18
"""Columns from one time label to the next, at least."""


def timeline(
    screen_state: ScreenState, width: int, height: int, is_focused: bool = False
) -> list[Line]:
    """A rule with its times, and `height - 1` rows of blocks with the marks in the lowest; in one
    row, that alone. Nothing before the first scene.
    """
    window, scene, palette = screen_state.strip_window(), screen_state.scene, screen_state.palette
    if window is None or scene is None:
        return []
    span_s = round((window[1] - window[0]) / SECOND_NS)
    named = palette.cursor if is_focused else palette.strong
    here = _here(screen_state, scene)
    if height <= 1:
        label, now = f" {interval(span_s)} ", f" {percent(here):>6} "
        columns = max(1, width - len(label) - len(now))
        row = _rows(screen_state, window, columns, 1, is_alone=True)[0]
        first = (label, named if is_focused else palette.dim)
        return [Line((first, *row.spans, (now, palette.text)))]
    follows = screen_state.shown is None
    last = (
        "Last "
        if screen_state.live is not None and window[1] == screen_state.live.snapshot.time_ns
        else ""
    )
    title: list[list[Span]] = [
        [(f"{last}{interval(span_s)}", named)],
        [("busiest link, % of line rate" if width >= 100 else "busiest link", palette.dim)],
        [(f"{'now' if follows else 'here'} {percent(here)}", palette.text)],
    ]
    head = _head(screen_state, window, width)
    top = _with_times(
        panel_title(title, width, palette, screen_state.paused), screen_state, window, width, head
    )
    top = _with_head(top, head, palette)
    return [top, *_rows(screen_state, window, width, height - 1)]


def _here(screen_state: ScreenState, scene: Scene) -> float:
    """The busiest link at the cursor; NaN where that is not known."""
    known = float(scene.snapshot.worst(1)[0])
    if np.isnan(known) and screen_state.shown is not None:
        end_ns = scene.snapshot.time_ns
        known = float(spread(screen_state.curve(), (end_ns - SECOND_NS, end_ns), 1)[0])
    return known


def column_of(time_ns: int, window: tuple[int, int], columns: int) -> int:
    """The column of a time; a tick stands at the end of its second."""
    share = (time_ns - window[0]) / max(window[1] - window[0], 1)
    return int(np.ceil(share * columns)) - 1


def time_at(column: int, window: tuple[int, int], columns: int) -> int:
    """The time at the right of a column."""
    return window[0] + (column + 1) * (window[1] - window[0]) // max(columns, 1)


def time_columns(width: int, height: int, span_s: int) -> tuple[int, int]:
    """(first, count): the columns of the strip that stand for time."""
    if height > 1:
        return 0, width
    label = len(f" {interval(span_s)} ")
    return label, max(1, width - label - 8)


def event_mark(event: Event) -> str:
    """`✖` something went, `▲` a finding opened, `◆` a bookmark, `│` anything else, as its end."""
    if event.kind == "bookmark":
        return "◆"
    if event.text.startswith("close"):
        return "│"
    if any(word in event.text for word in _GONE):
        return "✖"
    return "▲" if event.kind == "finding" else "│"


def _rows(
    screen_state: ScreenState,
    window: tuple[int, int],
    columns: int,
    rows: int,
    is_alone: bool = False,
) -> list[Line]:
    """Blocks; the lowest row with marks, and the cursor's column in its own colour; where the row
    `is_alone`, without a rule above it, with a sign of its own."""
    palette = screen_state.palette
    values = spread(screen_state.curve(), window, columns)
    lines = chart.bars(values, columns, rows, 1.0)
    known = np.flatnonzero(np.isfinite(values))
    ends = int(known[-1]) + 1 if len(known) else 0
    end_ns = screen_state.live.snapshot.time_ns if screen_state.live is not None else window[1]
    if screen_state.live is None and screen_state.cursor.recorded is not None:
        end_ns = screen_state.cursor.recorded.until_ns
    ends = max(ends, min(columns, column_of(end_ns, window, columns) + 1))
    marks = _marks(screen_state.events(), window, columns)
    head = _head(screen_state, window, columns)
    drawn = []
    for number, text in enumerate(lines):
        is_lowest = number == len(lines) - 1
        spans: list[Span] = []
        for place, char in enumerate(text):
            found = marks.get(place) if is_lowest else None
            char, style = (char, palette.tx) if place < ends else (" ", palette.text)
            if found is not None:
                char, style = found, _style(found, palette)
            if place == head:
                char = _HERE if is_alone else char
                style = palette.cursor if char.strip() else palette.paused
            spans.append((char, style))
        drawn.append(Line(tuple(_joined(spans))))
    return drawn


def spread(curve: Curve | None, window: tuple[int, int], columns: int) -> Floats:
    """[columns] the most of what is known of each; NaN where nothing is."""
    values = np.full(columns, np.nan, np.float32)
    if curve is None or not len(curve.values) or curve.until_ns <= curve.from_ns:
        return values
    part_ns = (curve.until_ns - curve.from_ns) / len(curve.values)
    edges = window[0] + np.arange(columns + 1) * ((window[1] - window[0]) / columns)
    first = np.floor((edges[:-1] - curve.from_ns) / part_ns + 1e-6).astype(int)
    last = np.ceil((edges[1:] - curve.from_ns) / part_ns - 1e-6).astype(int)
    for column in np.flatnonzero((last > 0) & (first < len(curve.values))).tolist():
        part = curve.values[max(first[column], 0) : max(last[column], first[column] + 1)]
        values[column] = np.fmax.reduce(part)
    return values


def _head(screen_state: ScreenState, window: tuple[int, int], columns: int) -> int | None:
    """The cursor's column; None where it is now, at the right."""
    if screen_state.shown is None:
        return None
    return min(max(column_of(screen_state.shown.snapshot.time_ns, window, columns), 0), columns - 1)


def _marks(events: Iterable[Event], window: tuple[int, int], columns: int) -> dict[int, str]:
    """Column -> mark of what happened there, the gravest first."""
    marks: dict[int, str] = {}
    for event in events:
        if window[0] < event.time_ns <= window[1]:
            place, said = column_of(event.time_ns, window, columns), event_mark(event)
            if _WEIGHT[said] >= _WEIGHT.get(marks.get(place, ""), 0):
                marks[place] = said
    return marks


def _style(mark: str, palette: Palette) -> Style:
    return {"▲": palette.hot, "✖": palette.gone, "◆": palette.key}.get(mark, palette.dim)


def _with_times(
    line: Line, screen_state: ScreenState, window: tuple[int, int], width: int, head: int | None
) -> Line:
    """Set times, but where the cursor is, and what is marked into the plain stroke of a rule."""
    palette, cursor = screen_state.palette, screen_state.cursor
    stroke, style = line.spans[-1]
    start = width - len(stroke)
    cells: list[Span] = [(char, style) for char in stroke]
    span_s = (window[1] - window[0]) / SECOND_NS
    for time_ns in _label_times(window, width):
        text = f" {axis_label(time_ns, span_s)} "
        place = column_of(time_ns, window, width) - start - len(text) // 2
        is_free = head is None or not place <= head - start < place + len(text)
        if is_free and place >= 2 and place + len(text) < len(cells) - 1:
            cells[place : place + len(text)] = [(char, palette.dim) for char in text]
    marked = ((cursor.mark_in_ns, _IN), (cursor.mark_out_ns, _OUT))
    for at_ns, sign in marked:
        if at_ns is not None and window[0] <= at_ns <= window[1]:
            place = column_of(at_ns, window, width) - start
            if 0 <= place < len(cells):
                cells[place] = (sign, palette.key)
    return Line((*line.spans[:-1], *_joined(cells)))


def _with_head(line: Line, head: int | None, palette: Palette) -> Line:
    """Set in the cursor, but not into a word: its column is marked in the curve below, too."""
    cells = [(char, style) for text, style in line.spans for char in text]
    if head is None or any(char.isalnum() for char, _ in cells[head : head + 1]):
        return line
    cells[head] = (_HEAD, palette.hot)
    return Line(tuple(_joined(cells)))


def _label_times(window: tuple[int, int], width: int) -> list[int]:
    span_s = (window[1] - window[0]) / SECOND_NS
    wanted_s = span_s / max(1, width / _LABEL_EVERY)
    every_ns = next((s for s in _LABELS_S if s >= wanted_s), _LABELS_S[-1]) * SECOND_NS
    first = window[0] // every_ns * every_ns + every_ns
    return list(range(first, window[1], every_ns))


def _joined(cells: list[Span]) -> list[Span]:
    """Runs of one style as one piece."""
    spans: list[Span] = []
    for text, style in cells:
        if spans and spans[-1][1] is style:
            spans[-1] = (spans[-1][0] + text, style)
        else:
            spans.append((text, style))
    return spans


# The time of the chosen finding, set into the strip of time that is drawn already.


_STROKES = "─═"
_RULE = "─═│▲✖"
"""What a rule has beside its words: strokes, and marks of what happened."""


def with_finding_span(
    drawn: Line,
    finding: Finding,
    window: tuple[int, int],
    places: tuple[int, int],
    now_ns: int,
    palette: Palette,
    *,
    is_alone: bool = False,
) -> Line:
    """The line with a mark where the finding began, and a heavy stroke for as long as it lasts.

    One that is open lasts until `now_ns`, as far as anybody knows there. `window` is (from, until)
    in ns, which `places`, (first, count) columns, stand for. The stroke
    only takes the place of a rule's own; where the curve `is_alone`, without a rule, there is none.
    """
    first, count = places
    heavy = "=" if palette.depth is Depth.NONE else "━"
    until_ns = now_ns if finding.until_ns is None else finding.until_ns
    start = max(0, _column(finding.since_ns, window, count))
    end = min(count - 1, _column(until_ns, window, count))
    spans: list[Span] = []
    x = 0
    for text, style in drawn.spans:
        for char in text:
            place = x - first
            x += 1
            if place == start <= end and (is_alone or char in _RULE):
                spans.append((palette.selection_mark, palette.strong))
            elif start < place <= end and char in _STROKES:
                spans.append((heavy, palette.strong))
            elif spans and spans[-1][1] is style:
                spans[-1] = (spans[-1][0] + char, style)
            else:
                spans.append((char, style))
    return Line(tuple(spans), drawn.target, drawn.hits)


def _column(time_ns: int, window: tuple[int, int], columns: int) -> int:
    """The column of a time; below 0 where it is before the window."""
    share = (time_ns - window[0]) / max(window[1] - window[0], 1)
    return ceil(share * columns) - 1
