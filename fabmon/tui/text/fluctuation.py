"""How steady bandwidth is, as a table: the spread as a bar, and the curve over the time."""

from __future__ import annotations

import numpy as np

from fabmon.analysis.fluctuation.records import (
    ALL,
    JOB,
    LINK,
    PAIR,
    RAIL,
    Fluctuation,
    Spread,
    Step,
    Subject,
)
from fabmon.analysis.scene import Scene
from fabmon.fabric.moment import Floats
from fabmon.tui import clock
from fabmon.tui.line import Line, Span, fit, line, right, wrap
from fabmon.tui.palette import Depth, Palette
from fabmon.tui.stage import Stage
from fabmon.tui.target import PortTarget, SubjectTarget, Target
from fabmon.tui.text import chart
from fabmon.tui.units import RATE, percent, rate, significant

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
    is_day = clock.stamp(found.from_ns)[:10] == clock.stamp(found.until_ns)[:10]
    say = clock.hms if is_day else clock.date
    between = f"{say(found.from_ns)} to {say(found.until_ns)}"
    return [between, f"{clock.span(found.watched_s)} watched"]


def targets(scene: Scene, found: Fluctuation) -> list[tuple[Subject, Target]]:
    """What is chosen with the line of each: a link by its port."""
    rows = {port.id: port.row for port in scene.moment.fabric.ports if port.node}
    return [(each, _target(each, rows)) for each in found.subjects]


def _target(subject: Subject, rows: dict[str, int]) -> Target:
    row = rows.get(subject.name) if subject.kind == LINK else None
    return SubjectTarget(subject.kind, name_of(subject)) if row is None else PortTarget(row)


def page(stage: Stage, scene: Scene, found: Fluctuation, width: int) -> list[Line]:
    """A line for each subject: median, spread, variation, share of communication, and when."""
    palette = stage.palette
    rows = {port.id: port.row for port in scene.moment.fabric.ports if port.node}
    told = [each for each in found.subjects if each.spread is not None]
    longest = max((len(_name(each)) for each in told), default=8)
    name = min(max(longest, len(_TITLES[LINK])), max(20, width // 4))
    lines = _steps(found, palette, stage)
    if not told:
        lines.append(line(("   nothing communicated", palette.dim)))
    for kind, title in _TITLES.items():
        subjects = [each for each in told if each.kind == kind]
        if kind == LINK:
            subjects.sort(key=lambda each: -(each.spread.cov if each.spread else 0.0))
        if kind == RAIL:
            subjects = [*(each for each in told if each.kind == ALL), *subjects]
        if subjects:
            lines.append(_head(title, name, width, palette))
            lines += [_row(each, name, width, stage, rows) for each in subjects]
    for text in _notes(found):
        lines += [line((f" {part}", palette.dim)) for part in wrap(text, width - 2)]
    return lines


def _head(title: str, name: int, width: int, palette: Palette) -> Line:
    bar = f"0 {'p5 to p95':─^{_BAR - 6}} max"
    columns = f"{right('median', RATE)}  {bar:<{_BAR}} {right('CoV', _COV)} {right('comm', _COV)}"
    return line(
        (f" {fit(title, name + 1)} ", palette.strong),
        (fit(f"{columns}  over the time", max(0, width - name - 3)), palette.dim),
    )


def _row(subject: Subject, name: int, width: int, stage: Stage, rows: dict[str, int]) -> Line:
    palette, spread = stage.palette, subject.spread
    assert spread is not None
    line_bps = subject.line_rate_bps or float("nan")
    said = rate(spread.median_bps, line_bps, stage.choices.unit)
    used = 2 + name + 1 + RATE + 2 + _BAR + 2 * (1 + _COV) + 2
    curve = np.array([np.nan if v is None else v for v in subject.strip], np.float32)
    curve = _narrowed(curve, max(0, width - used - 1))
    top = float(np.nanmax(curve)) if np.isfinite(curve).any() else 1.0
    spans: list[Span] = [
        (f"  {fit(_name(subject), name)} ", palette.text),
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


def name_of(subject: Subject) -> str:
    """A link that is told of by who receives says so."""
    return f"{subject.name} {subject.way}" if subject.way == "rx" else subject.name


def _name(subject: Subject) -> str:
    its, name = subject.iterations, name_of(subject)
    return name if its is None else f"{name}, step {significant(its.median_s)} s"


def _steps(found: Fluctuation, palette: Palette, stage: Stage) -> list[Line]:
    """The largest steps of jobs, else of rails and pairs."""
    told = [(s, each) for each in found.subjects if each.kind in (ALL, JOB) for s in each.steps]
    told = told or [(s, each) for each in found.subjects for s in each.steps]
    largest = sorted(told, key=lambda each: -abs(each[0].change))[:_MOST_STEPS]
    told = sorted(largest, key=lambda each: each[0].at_ns)
    return [line((f" {_step(*each, stage)}", palette.hot)) for each in told]


def _step(step: Step, subject: Subject, stage: Stage) -> str:
    line_bps = subject.line_rate_bps or float("nan")
    before, after = (
        rate(value, line_bps, stage.choices.unit) for value in (step.before_bps, step.after_bps)
    )
    at = clock.hms(step.at_ns)
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
