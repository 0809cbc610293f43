"""The time of the chosen finding, set into the strip of time that is drawn already."""

from __future__ import annotations

from math import ceil

from fabmon.analysis.finding import Finding
from fabmon.tui.line import Line, Span
from fabmon.tui.palette import Depth, Palette

_STROKES = "─═"
_RULE = "─═│▲✖"
"""What a rule has beside its words: strokes, and marks of what happened."""


def with_span(
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
                spans.append((palette.chosen_mark, palette.strong))
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
