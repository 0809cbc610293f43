"""How steady bandwidth is, as a table: the spread as a bar, and the curve over the time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fabmon.analysis.fluctuation.results import (
    ALL,
    JOB,
    LINK,
    PAIR,
    RAIL,
    Fluctuation,
    Slot,
    Spread,
    Step,
    Subject,
)
from fabmon.analysis.scene import Scene
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.time_wording import date_time, day_time, duration, time_of_day
from fabmon.fabric.wording import RATE, Unit, number, percent, rate
from fabmon.tui.line import Line, PortTarget, Span, SubjectTarget, Target, fit, line, right, wrap
from fabmon.tui.palette import Depth, Palette
from fabmon.tui.text import chart, labels
from fabmon.tui.text.chart import BLOCKS
from fabmon.tui.text.draw_context import DrawContext

_TITLES = {
    JOB: "Jobs: hosts that move together",
    RAIL: "Rails",
    PAIR: "Pairs of switches",
    LINK: "Links, the least steady first",
}
_BAR, _COV = 16, 7
_MOST_STEPS = 8


def over(found: Fluctuation) -> list[str]:
    """`14:06:41Z to 14:21:39Z`, `15 min watched`; `11-20 22:30Z` where it is not one day."""
    if not found.until_ns:
        return ["nothing is known yet"]
    is_day = date_time(found.from_ns)[:10] == date_time(found.until_ns)[:10]
    say = time_of_day if is_day else day_time
    between = f"{say(found.from_ns)} to {say(found.until_ns)}"
    return [between, f"{duration(found.watched_s)} watched"]


def targets(scene: Scene, found: Fluctuation) -> list[tuple[Subject, Target]]:
    """What is chosen with the line of each: a link by its port."""
    rows = {port.id: port.row for port in scene.snapshot.fabric.ports if port.node}
    return [(each, _target(each, rows)) for each in found.subjects]


def _target(subject: Subject, rows: dict[str, int]) -> Target:
    row = rows.get(subject.name) if subject.kind == LINK else None
    return SubjectTarget(subject.kind, name_of(subject, {})) if row is None else PortTarget(row)


def names(scene: Scene) -> dict[str, str]:
    """What the screen calls each port, by its id."""
    return {port.id: labels.port_name(port) for port in scene.snapshot.fabric.ports if port.node}


def page(ctx: DrawContext, found: Fluctuation) -> list[Line]:
    """A line for each subject: median, spread, variation, share of communication, and when."""
    palette = ctx.palette
    rows = {port.id: port.row for port in ctx.fabric.ports if port.node}
    told = [each for each in found.subjects if each.spread is not None]
    named = names(ctx.scene)
    longest = max((len(_name(each, named)) for each in told), default=8)
    name = min(max(longest, len(_TITLES[LINK])), max(20, ctx.width // 4))
    lines = _steps(ctx, found)
    if not told:
        lines.append(line(("   nothing communicated", palette.dim)))
    for kind, title in _TITLES.items():
        subjects = [each for each in told if each.kind == kind]
        if kind == LINK:
            subjects.sort(key=lambda each: -(each.spread.cov if each.spread else 0.0))
        if kind == RAIL:
            subjects = [*(each for each in told if each.kind == ALL), *subjects]
        if subjects:
            lines.append(_head(ctx, title, name))
            lines += [_row(ctx, each, name, rows, named) for each in subjects]
    for text in _notes(found):
        lines += [line((f" {part}", palette.dim)) for part in wrap(text, ctx.width - 2)]
    return lines


def _head(ctx: DrawContext, title: str, name: int) -> Line:
    bar = f"0 {'p5 to p95':─^{_BAR - 6}} max"
    columns = f"{right('median', RATE)}  {bar:<{_BAR}} {right('CoV', _COV)} {right('comm', _COV)}"
    return line(
        (f" {fit(title, name + 1)} ", ctx.palette.strong),
        (fit(f"{columns}  over the time", max(0, ctx.width - name - 3)), ctx.palette.dim),
    )


def _row(
    ctx: DrawContext,
    subject: Subject,
    name: int,
    rows: dict[str, int],
    named: Mapping[str, str],
) -> Line:
    palette, spread = ctx.palette, subject.spread
    assert spread is not None
    line_bps = subject.line_rate_bps or float("nan")
    said = rate(spread.median_bps, line_bps, ctx.unit)
    used = 2 + name + 1 + RATE + 2 + _BAR + 2 * (1 + _COV) + 2
    curve = np.array([np.nan if v is None else v for v in subject.strip], np.float32)
    curve = _narrowed(curve, max(0, ctx.width - used - 1))
    top = float(np.nanmax(curve)) if np.isfinite(curve).any() else 1.0
    spans: list[Span] = [
        (f"  {fit(_name(subject, named), name)} ", palette.text),
        (f"{right(said, RATE)}  ", palette.strong),
        (_bar(spread, max(spread.p95_bps, subject.line_rate_bps or 0.0), palette), palette.tx),
        (
            f" {right(percent(spread.cov), _COV)} {right(percent(spread.share), _COV)}  ",
            palette.dim,
        ),
        (chart.spark(curve, len(curve), top), palette.tx),
    ]
    return line(*spans, target=_target(subject, rows))


def _bar(spread: Spread, top: float, palette: Palette) -> str:
    """From the 5th to the 95th percentile, with the median in it, from nothing to the top."""
    low, middle, high = (
        min(_BAR - 1, int(value / top * _BAR)) if top > 0 else 0
        for value in (spread.p5_bps, spread.median_bps, spread.p95_bps)
    )
    inner, mark = ("=", "#") if palette.depth is Depth.NONE else ("━", "█")
    cells = ["·"] * _BAR
    cells[low : high + 1] = inner * (high + 1 - low)
    cells[middle] = mark
    return "".join(cells)


def _narrowed(curve: Floats, columns: int) -> Floats:
    """As many means as there is room for; NaN where nothing is known."""
    columns = min(columns, len(curve))
    if not columns:
        return curve[:0]
    starts = np.arange(columns) * len(curve) // columns
    known = np.isfinite(curve)
    total = np.add.reduceat(np.where(known, curve, np.float32(0)), starts)
    with np.errstate(invalid="ignore"):
        mean = total / np.add.reduceat(known, starts, dtype=np.float32)
    return mean.astype(np.float32)


def name_of(subject: Subject, named: Mapping[str, str]) -> str:
    """A link as everywhere on the screen; one that is told of by who receives says so."""
    name = named.get(subject.name, subject.name)
    return f"{name} {subject.way}" if subject.way == "rx" else name


def _name(subject: Subject, named: Mapping[str, str]) -> str:
    its, name = subject.iterations, name_of(subject, named)
    return name if its is None else f"{name}, step {number(its.median_s)} s"


def _steps(ctx: DrawContext, found: Fluctuation) -> list[Line]:
    """The largest steps of jobs, else of rails and pairs."""
    told = [(s, each) for each in found.subjects if each.kind in (ALL, JOB) for s in each.steps]
    told = told or [(s, each) for each in found.subjects for s in each.steps]
    largest = sorted(told, key=lambda each: -abs(each[0].change))[:_MOST_STEPS]
    told = sorted(largest, key=lambda each: each[0].at_ns)
    return [line((f" {_step(ctx, *each)}", ctx.palette.hot)) for each in told]


def _step(ctx: DrawContext, step: Step, subject: Subject) -> str:
    line_bps = subject.line_rate_bps or float("nan")
    before, after = (rate(value, line_bps, ctx.unit) for value in (step.before_bps, step.after_bps))
    at = time_of_day(step.at_ns)
    return f"{at} {subject.name}: {before} → {after}, {step.change * 100:+.1f} %"


def _notes(found: Fluctuation) -> list[str]:
    texts = list(found.notes)
    for each in found.foreign:
        if each.low is None or each.high is None:
            texts.append(f"{each.switch}, traffic of others: not known: {each.unseen}")
        elif each.high > 0.005:
            low, high = (f"{share * 100:.0f}" for share in (each.low, each.high))
            span = f"{low} %" if low == high else f"{low} to {high} %"
            texts.append(f"{each.switch}: {span} of what it sends up is not from watched hosts")
    return texts


# What is told of the chosen line of fluctuation: 24 hours as a strip, its drift, its steps.


_HOURS = 24
_MOST_STEPS_hours = 3


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
    largest = sorted(steps, key=lambda step: -abs(step.change))[:_MOST_STEPS_hours]
    told = [
        f"{time_of_day(step.at_ns)} {rate(step.before_bps, line_bps, unit).strip()} → "
        f"{rate(step.after_bps, line_bps, unit).strip()} ({step.change * 100:+.0f} %)"
        for step in sorted(largest, key=lambda step: step.at_ns)
    ]
    more = f" and {len(steps) - len(told)} more" if len(steps) > len(told) else ""
    return f"{said}; {'steps' if len(steps) > 1 else 'step'} {', '.join(told)}{more}"
