"""What is told of the chosen line of fluctuation: 24 hours as a strip, its drift, its steps."""

from __future__ import annotations

from fabmon.analysis.fluctuation.records import Slot, Subject
from fabmon.tui import clock
from fabmon.tui.line import Line, Span, fit, line
from fabmon.tui.palette import Palette
from fabmon.tui.text.chart import BLOCKS
from fabmon.tui.units import Unit, percent, rate

_HOURS = 24
_MOST_STEPS = 3


def hours(
    subject: Subject, name: str, zone: str, unit: Unit, width: int, tone: Palette
) -> list[Line]:
    """The title, 24 cells as high as the hour's median, its median in figures, and what moved."""
    slots = {slot.slot: slot for slot in subject.hours}
    cell = min(max(2, (width - 2) // _HOURS), 6)
    top = max((slot.median_bps for slot in subject.hours), default=0.0)
    best = max(subject.hours, key=lambda slot: slot.median_bps, default=None)
    worst = min(subject.hours, key=lambda slot: slot.median_bps, default=None)
    line_bps = subject.line_rate_bps or float("nan")
    title: list[Span] = [(f" {name}", tone.strong), (f" by hour of day, {zone}", tone.text)]
    if best is not None and worst is not None:
        said = f", {_said(best, line_bps, unit)}"
        if worst.slot != best.slot:
            said = f", highest {_said(best, line_bps, unit)}, lowest {_said(worst, line_bps, unit)}"
        title.append((said, tone.dim))
    names = "".join(
        f"{hour:02}".ljust(cell) if cell > 2 or hour % 3 == 0 else "  " for hour in range(_HOURS)
    )
    blocks = [_block(slots.get(hour), top).ljust(cell) for hour in range(_HOURS)]
    spans = [(block, tone.tx if hour in slots else tone.dim) for hour, block in enumerate(blocks)]
    return [
        line((fit("".join(text for text, _ in title), width), tone.text))
        if sum(len(text) for text, _ in title) > width
        else line(*title),
        line((f" {names}", tone.dim)),
        line((" ", tone.text), *spans),
        line((fit(f" {_moved(subject, line_bps, unit)}", width), tone.dim)),
    ]


def _said(slot: Slot, line_bps: float, unit: Unit) -> str:
    """`309 Gb/s at 14 h (CoV 3 %)`."""
    median = rate(slot.median_bps, line_bps, unit).strip()
    return f"{median} at {slot.slot:02} h (CoV {percent(slot.cov).strip()})"


def _block(slot: Slot | None, top: float) -> str:
    """Two cells; dots where nothing is known of the hour."""
    if slot is None:
        return "··"
    level = round(slot.median_bps / top * (len(BLOCKS) - 1)) if top > 0 else 1
    return BLOCKS[max(1, level)] * 2


def _moved(subject: Subject, line_bps: float, unit: Unit) -> str:
    """Its drift and the largest of its steps."""
    drift, steps = subject.drift, subject.steps
    if drift is None:
        said = "drift: too short to tell"
    elif not drift.is_sure:
        said = "no drift"
    else:
        said = f"drift {drift.per_hour * 100:+.2g} % an hour"
    if not steps:
        return f"{said}; no step of the level"
    largest = sorted(steps, key=lambda step: -abs(step.change))[:_MOST_STEPS]
    told = [
        f"{clock.hms(step.at_ns)} {rate(step.before_bps, line_bps, unit).strip()} → "
        f"{rate(step.after_bps, line_bps, unit).strip()} ({step.change * 100:+.0f} %)"
        for step in sorted(largest, key=lambda step: step.at_ns)
    ]
    more = f" and {len(steps) - len(told)} more" if len(steps) > len(told) else ""
    return f"{said}; {'steps' if len(steps) > 1 else 'step'} {', '.join(told)}{more}"
