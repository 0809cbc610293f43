"""The timeline: links over time, the busiest one, events, gaps, and the cursor's place in time."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

import numpy as np
from rich.style import Style

from fabmon.analysis.finding import Finding
from fabmon.analysis.scene import Event
from fabmon.fabric.snapshot import MOST_OF_LINE_RATE
from fabmon.fabric.time_wording import MINUTES_FROM_S, SECOND_NS, axis_label, interval
from fabmon.fabric.wording import percent
from fabmon.tui.line import Line, Span
from fabmon.tui.palette import Depth, Palette
from fabmon.tui.text import chart
from fabmon.tui.text.chart import spread
from fabmon.tui.text.draw_context import TimelineContext
from fabmon.tui.text.header import panel_title
from fabmon.tui.text.link_rows import LinkRows

_GONE = ("lost", "down", "failed")
_WEIGHT = {"│": 1, "◆": 2, "▲": 3, "✖": 4}
_HEAD, _HERE, _IN, _OUT = "▼", "┃", "[", "]"
_STROKES = "─═"
_RULE = "─═│▲✖"
"""Characters of a panel's title line other than words: strokes, and marks of events."""
_LABELS_S = (10, 30, 60, 120, 300, 600, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 604_800)
_WIDE = 100
"""Columns from which on the title is in full."""
_LABEL_EVERY = 18
"""Columns from one time label to the next, at least."""


def timeline(ctx: TimelineContext, links: LinkRows | None = None) -> list[Line]:
    """A title line with times, rows of blocks for the busiest link, the lowest with event marks,
    and below them a row for each of `links`; in a height of one, one row of blocks alone.

    The selected finding's time is a heavy stroke in the first line.
    """
    before = 0 if links is None else links.before
    places = time_columns(ctx.width, ctx.height, _span_s(ctx), before)
    is_alone = ctx.height <= 1
    lines = [_strip(ctx, places[1])] if is_alone else _panel(ctx, links, places)
    if ctx.selected is not None:
        now_ns = ctx.scene.snapshot.time_ns
        lines[0] = with_finding_span(
            lines[0], ctx.selected, ctx.window, places, now_ns, ctx.palette, is_alone=is_alone
        )
    return lines


def _span_s(ctx: TimelineContext) -> int:
    return round((ctx.window[1] - ctx.window[0]) / SECOND_NS)


def _strip(ctx: TimelineContext, columns: int) -> Line:
    """The timeline in one line: its span, the busiest link, and its value now."""
    palette = ctx.palette
    label, now = f" {interval(_span_s(ctx))} ", f" {_load(_here(ctx)):>6} "
    row = _rows(ctx, columns, 1, is_alone=True)[0]
    first = (label, palette.cursor if ctx.is_focused else palette.dim)
    return Line((first, *row.spans, (now, palette.text)))


def _panel(ctx: TimelineContext, links: LinkRows | None, places: tuple[int, int]) -> list[Line]:
    """The title line and the rows; `places` are the columns of time: (first, count)."""
    palette, head = ctx.palette, _head(ctx, places[1])
    at = None if head is None else places[0] + head
    top = panel_title(_title(ctx, links), ctx.width, palette, ctx.time.is_paused)
    lines = [_with_head(_with_times(top, ctx, places, at), at, palette)]
    names = [] if links is None else _link_lines(links, head, palette)
    rows = _rows(ctx, places[1], ctx.height - 1 - len(names))
    texts = (f"   busiest {_load(_here(ctx))}", "   busiest", "")
    name = next(each for each in texts if len(each) < max(places[0], 1))
    for row in rows:
        text = (name if row is rows[-1] else "").ljust(places[0])
        lines.append(Line(((text, palette.text), *row.spans) if text else row.spans))
    return lines + names


def _title(ctx: TimelineContext, links: LinkRows | None) -> list[list[Span]]:
    """The parts of the title: the span, what is shown, and of the busiest link alone its value."""
    palette, live, here = ctx.palette, ctx.time.live, _here(ctx)
    is_last = live is not None and ctx.window[1] == live.snapshot.time_ns
    span = f"{'▸ ' if ctx.is_focused else ''}{'Last ' if is_last else ''}{interval(_span_s(ctx))}"
    title: list[list[Span]] = [[(span, palette.cursor if ctx.is_focused else palette.strong)]]
    is_wide = ctx.width >= _WIDE
    if links is None:
        where = "now" if ctx.time.shown is None else "here"
        what = "Busiest link, % of line rate" if is_wide else "Busiest link"
        title += [[(what, palette.dim)], [(f"{where} {_load(here)}", palette.text)]]
    else:
        title.append([(links.title if is_wide else "Busiest links", palette.dim)])
    if here > MOST_OF_LINE_RATE:
        title.append([("a line rate is wrong", palette.accent)])
    return title


def _link_lines(links: LinkRows, head: int | None, palette: Palette) -> list[Line]:
    """A line for each link; the cursor's column has its stroke."""
    lines = []
    pictures = {code: links.look.picture(code, 1) for code in np.unique(links.cells).tolist()}
    for texts, codes in zip(links.texts, links.cells.tolist(), strict=True):
        cells = [pictures[code] for code in codes]
        if head is not None:
            cells[head] = (_HERE, palette.cursor)
        lines.append(Line((*texts, *_joined(cells))))
    return lines


def _here(ctx: TimelineContext) -> float:
    """Utilisation of the busiest link at the cursor, 0 to 1; NaN where it is not known."""
    known = float(ctx.scene.snapshot.worst(1)[0])
    if np.isnan(known) and ctx.time.shown is not None:
        end_ns = ctx.scene.snapshot.time_ns
        known = float(spread(ctx.curve, (end_ns - SECOND_NS, end_ns), 1)[0])
    return known


def _load(util: float) -> str:
    """A utilisation as text; one that is impossible is not a number: its line rate is wrong."""
    return ">100 %" if util > MOST_OF_LINE_RATE else percent(util)


def column_of(time_ns: int, window: tuple[int, int], columns: int) -> int:
    """The column of a time, below 0 before the window; a tick is at the end of its second."""
    share = (time_ns - window[0]) / max(window[1] - window[0], 1)
    return ceil(share * columns) - 1


def time_at(column: int, window: tuple[int, int], columns: int) -> int:
    """The time at the right edge of a column."""
    return window[0] + (column + 1) * (window[1] - window[0]) // max(columns, 1)


def time_columns(width: int, height: int, span_s: int, before: int = 0) -> tuple[int, int]:
    """(first, count): the columns of the timeline that represent time; `before` them are names."""
    if height > 1:
        return before, max(1, width - before)
    label = len(f" {interval(span_s)} ")
    return label, max(1, width - label - 8)


def event_mark(event: Event) -> str:
    """`✖` something lost or down, `▲` a finding opened, `◆` a bookmark, `│` all other events."""
    if event.kind == "bookmark":
        return "◆"
    if event.text.startswith("close"):
        return "│"
    if any(word in event.text for word in _GONE):
        return "✖"
    return "▲" if event.kind == "finding" else "│"


def _rows(ctx: TimelineContext, columns: int, rows: int, is_alone: bool = False) -> list[Line]:
    """Rows of blocks from the highest down; event marks in the lowest, the cursor's column in its
    own colour. Where the row `is_alone`, without a title line above, the cursor has a character.
    """
    palette, window, time = ctx.palette, ctx.window, ctx.time
    values = spread(ctx.curve, window, columns)
    lines = chart.bars(values, columns, rows, 1.0)
    known = np.flatnonzero(np.isfinite(values))
    ends = int(known[-1]) + 1 if len(known) else 0
    end_ns = time.live.snapshot.time_ns if time.live is not None else window[1]
    if time.live is None and time.cursor.recorded is not None:
        end_ns = time.cursor.recorded.until_ns
    ends = max(ends, min(columns, column_of(end_ns, window, columns) + 1))
    marks = _marks(ctx.events, window, columns)
    head = _head(ctx, columns)
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


def _head(ctx: TimelineContext, columns: int) -> int | None:
    """The cursor's column; None while the screen follows the feed, at the right edge."""
    shown = ctx.time.shown
    if shown is None:
        return None
    return min(max(column_of(shown.snapshot.time_ns, ctx.window, columns), 0), columns - 1)


def _marks(events: Iterable[Event], window: tuple[int, int], columns: int) -> dict[int, str]:
    """Column -> mark of its most severe event."""
    marks: dict[int, str] = {}
    for event in events:
        if window[0] < event.time_ns <= window[1]:
            place, sign = column_of(event.time_ns, window, columns), event_mark(event)
            if _WEIGHT[sign] >= _WEIGHT.get(marks.get(place, ""), 0):
                marks[place] = sign
    return marks


def _style(mark: str, palette: Palette) -> Style:
    return {"▲": palette.accent, "✖": palette.gone, "◆": palette.key}.get(mark, palette.dim)


def _with_times(
    line: Line, ctx: TimelineContext, places: tuple[int, int], head: int | None
) -> Line:
    """`line` with time labels and the marks of a range set into its plain stroke, away from the
    cursor's column `head`. `places` are the columns of time: (first, count).
    """
    palette, cursor, window = ctx.palette, ctx.time.cursor, ctx.window
    stroke, style = line.spans[-1]
    first, width = places
    start = ctx.width - len(stroke) - first
    cells: list[Span] = [(char, style) for char in stroke]
    span_s = (window[1] - window[0]) / SECOND_NS
    for time_ns in _label_times(window, width):
        text = f" {axis_label(time_ns, span_s)} "
        place = column_of(time_ns, window, width) - start - len(text) // 2
        is_free = head is None or not place <= head - first - start < place + len(text)
        if is_free and place >= 2 and place + len(text) < len(cells) - 1:
            cells[place : place + len(text)] = [(char, palette.dim) for char in text]
    # The end may have been marked first, and before the start.
    start_ns, end_ns = cursor.range_ns or (cursor.mark_in_ns, cursor.mark_out_ns)
    marked = ((start_ns, _IN), (end_ns, _OUT))
    for at_ns, sign in marked:
        if at_ns is not None and window[0] <= at_ns <= window[1]:
            place = column_of(at_ns, window, width) - start
            if 0 <= place < len(cells):
                cells[place] = (sign, palette.key)
    return Line((*line.spans[:-1], *_joined(cells)))


def _with_head(line: Line, head: int | None, palette: Palette) -> Line:
    """`line` with the cursor set into its strokes and marks, not into the title or a time: the
    curve below marks its column, too.
    """
    cells = [(char, style) for text, style in line.spans for char in text]
    if head is None or cells[head][0] not in _STROKES + _IN + _OUT:
        return line
    cells[head] = (_HEAD, palette.accent)
    return Line(tuple(_joined(cells)))


def _label_times(window: tuple[int, int], width: int) -> list[int]:
    span_s = (window[1] - window[0]) / SECOND_NS
    wanted_s = span_s / max(1, width / _LABEL_EVERY)
    if span_s >= MINUTES_FROM_S:
        wanted_s = max(wanted_s, 60)
    every_ns = next((s for s in _LABELS_S if s >= wanted_s), _LABELS_S[-1]) * SECOND_NS
    first = window[0] // every_ns * every_ns + every_ns
    return list(range(first, window[1], every_ns))


def _joined(cells: list[Span]) -> list[Span]:
    """Runs of characters with one style as one span."""
    spans: list[Span] = []
    for text, style in cells:
        if spans and spans[-1][1] is style:
            spans[-1] = (spans[-1][0] + text, style)
        else:
            spans.append((text, style))
    return spans


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
    """`drawn` with a mark where the finding began and a heavy stroke for as long as it lasts.

    An open finding lasts until `now_ns`. `window` is (from, until) in ns, drawn in `places`,
    (first, count) columns. The stroke only replaces strokes of a title line, so there is none where
    the curve `is_alone`, without a title line.
    """
    first, count = places
    heavy = "=" if palette.depth is Depth.NONE else "━"
    until_ns = now_ns if finding.until_ns is None else finding.until_ns
    start = max(0, column_of(finding.since_ns, window, count))
    end = min(count - 1, column_of(until_ns, window, count))
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
