"""The selected subject of the fluctuation view: over time, by hour of day, and what changed."""

from __future__ import annotations

import numpy as np

from fabmon.analysis.fluctuation.results import Fluctuation, Slot, Subject
from fabmon.fabric.time_wording import time_of_day
from fabmon.fabric.wording import RATE, percent_change, rounded_percent
from fabmon.tui.line import Line, Span, fit, line, right
from fabmon.tui.palette import Depth
from fabmon.tui.text.chart import BLOCKS, GAP
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.pages.fluctuation import ends, rate_of

_HOURS = 24
_MOST_STEPS_OF_ONE = 3
_LEAST_RANGE = 0.2
"""The scale of a band is this share of its highest value at least, so that noise stays flat."""


def details(
    ctx: DrawContext, subject: Subject, name: str, found: Fluctuation, rows: int
) -> list[Line]:
    """The subject in a band of `rows` rows (none: 0), by hour of day, its drift and changes."""
    over_time = band(ctx, subject, found, rows) if rows and any(subject.strip) else []
    return [*over_time, *hours(ctx, subject, name, found)]


def band(ctx: DrawContext, subject: Subject, found: Fluctuation, rows: int) -> list[Line]:
    """Lowest to highest of its means over time, the median marked, in some rows; the scale is
    beside them, and the first and last time below."""
    palette, parts = ctx.palette, [each for each in subject.strip if each is not None]
    highest = max(each.high_bps for each in parts)
    lowest = min(min(each.low_bps for each in parts), (1 - _LEAST_RANGE) * highest)
    columns = max(1, ctx.width - RATE - 3)
    places = np.arange(columns) * len(subject.strip) // columns
    inner, mark = ("-", "=") if palette.depth is Depth.NONE else ("░", "━")

    def row_of(bps: float) -> int:
        return min(rows - 1, int((bps - lowest) / max(highest - lowest, 1.0) * rows))

    drawn = [[(" ", palette.text)] * columns for _ in range(rows)]
    for column, place in enumerate(places.tolist()):
        part = subject.strip[place]
        if part is None:
            drawn[0][column] = (GAP, palette.dim)
            continue
        for row in range(row_of(part.low_bps), row_of(part.high_bps) + 1):
            drawn[row][column] = (inner, palette.dim)
        drawn[row_of(part.median_bps)][column] = (mark, palette.tx)
    scale = {rows - 1: rate_of(ctx, subject, highest), 0: rate_of(ctx, subject, lowest)}
    lines = [
        line((f" {right(scale.get(row, ''), RATE)} ", palette.dim), *drawn[row])
        for row in range(rows - 1, -1, -1)
    ]
    first, last = ends(found)
    text = f"lowest, median and highest of {found.means}"
    between = f"{text:^{max(0, columns - len(first) - len(last))}}"
    lines.append(line((fit(f" {' ' * RATE} {first}{between}{last}", ctx.width), palette.dim)))
    return lines


def hours(ctx: DrawContext, subject: Subject, name: str, found: Fluctuation) -> list[Line]:
    """The selected subject: its title, a bar per hour of day (median), its drift and changes."""
    palette, width = ctx.palette, ctx.width
    slots = {slot.slot: slot for slot in subject.hours}
    cell = min(max(2, (width - 2) // _HOURS), 6)
    top = max((slot.median_bps for slot in subject.hours), default=0.0)
    best = max(subject.hours, key=lambda slot: slot.median_bps, default=None)
    worst = min(subject.hours, key=lambda slot: slot.median_bps, default=None)
    scope = f" by hour, {found.zone}, {found.means}"
    title: list[Span] = [(f" {name}", palette.strong), (scope, palette.text)]
    if best is not None and worst is not None:
        text = f", {_slot_text(ctx, subject, best)}"
        if worst.slot != best.slot:
            text = f", highest {text[2:]}, lowest {_slot_text(ctx, subject, worst)}"
        title.append((text, palette.dim))
    first = line(*title)
    if len(first.text) > width:
        first = line((fit(first.text, width), palette.text))
    labels_ = "".join(
        f"{hour:02}".ljust(cell) if cell > 2 or hour % 3 == 0 else "  " for hour in range(_HOURS)
    )
    bars = [
        (_block(slots.get(hour), top).ljust(cell), palette.tx if hour in slots else palette.dim)
        for hour in range(_HOURS)
    ]
    return [
        first,
        line((f" {labels_}", palette.dim)),
        line((" ", palette.text), *bars),
        line((fit(f" {_changes(ctx, subject)}", width), palette.dim)),
    ]


def _slot_text(ctx: DrawContext, subject: Subject, slot: Slot) -> str:
    """`309 Gb/s at 14 h (CoV 3.1 %)`."""
    cov = rounded_percent(slot.cov)
    return f"{rate_of(ctx, subject, slot.median_bps)} at {slot.slot:02} h (CoV {cov})"


def _block(slot: Slot | None, top: float) -> str:
    """Two cells; dots where nothing is known of the hour."""
    if slot is None:
        return "··"
    level = round(slot.median_bps / top * (len(BLOCKS) - 1)) if top > 0 else 1
    return BLOCKS[max(1, level)] * 2


def _changes(ctx: DrawContext, subject: Subject) -> str:
    """The drift of a subject and its largest level changes."""
    drift, steps = subject.drift, subject.steps
    text = "no drift"
    if drift is None:
        text = "drift: not measurable in so short a time"
    elif drift.is_sure:
        text = f"drift {percent_change(drift.per_hour)} per hour"
    if not steps:
        return f"{text}; no level change"
    largest = sorted(steps, key=lambda step: -abs(step.change))[:_MOST_STEPS_OF_ONE]
    found = [
        f"{time_of_day(step.at_ns)} {rate_of(ctx, subject, step.before_bps)} →"
        f" {rate_of(ctx, subject, step.after_bps)} ({percent_change(step.change)})"
        for step in sorted(largest, key=lambda step: step.at_ns)
    ]
    what = "level change" if len(steps) == 1 else "level changes"
    rest = len(steps) - len(found)
    return f"{text}; {what} {', '.join(found)}" + (f" and {rest} more" if rest else "")
