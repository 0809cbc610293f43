"""The fluctuation of bandwidth as a table."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fabmon.analysis.fluctuation.results import (
    ALL,
    JOB,
    KINDS,
    LINK,
    PAIR,
    RAIL,
    Fluctuation,
    Spread,
    Step,
    Subject,
)
from fabmon.analysis.scene import Scene
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.time_wording import date_time, day_time, duration, interval, time_of_day
from fabmon.fabric.time_wording import measured as measured_time
from fabmon.fabric.wording import (
    RATE,
    percent,
    percent_change,
    percent_range,
    plural,
    rate,
)
from fabmon.report.fluctuation import largest_steps
from fabmon.tui.cells import ABSENT, Look, scale
from fabmon.tui.line import (
    Line,
    PortTarget,
    Span,
    SubjectTarget,
    Target,
    fit,
    line,
    more_rows,
    paragraph,
    right,
)
from fabmon.tui.metrics import heat_metric
from fabmon.tui.palette import Depth, Palette
from fabmon.tui.text.draw_context import DrawContext

_TITLES = {
    JOB: "Jobs",
    RAIL: "Rails",
    PAIR: "Pairs of switches",
    LINK: "Links, most variable first",
}
_BAR, _COV = 16, 7
_MOST_STEPS = 8
_MOST_ROWS = 256
"""Rows of a kind, 0.1 ms each at every tick."""
_WIDEST_PART = 4
"""Columns of one value of a curve, at most."""


def over(found: Fluctuation) -> list[str]:
    """`14:06:41Z to 14:21:39Z`, `15 min watched`; with dates where it is more than one day."""
    if not found.until_ns:
        return ["no data yet"]
    return [" to ".join(ends(found)), f"{duration(found.watched_s)} watched"]


def ends(found: Fluctuation) -> tuple[str, str]:
    """The first and the last time of a study; with dates where it is more than one day."""
    is_day = date_time(found.from_ns)[:10] == date_time(found.until_ns)[:10]
    written = time_of_day if is_day else day_time
    return written(found.from_ns), written(found.until_ns)


def targets(scene: Scene, found: Fluctuation) -> list[tuple[Subject, Target]]:
    """Each subject with what its line selects: of a link, the port."""
    rows = {port.id: port.row for port in scene.snapshot.fabric.ports if port.node}
    return [(each, _target(each, rows)) for each in found.subjects]


def _target(subject: Subject, rows: dict[str, int]) -> Target:
    row = rows.get(subject.name) if subject.kind == LINK else None
    return SubjectTarget(subject.kind, name_of(subject, {})) if row is None else PortTarget(row)


def names(scene: Scene) -> dict[str, str]:
    """The display name of each port, by its id."""
    return {port.id: port.display_name for port in scene.snapshot.fabric.ports if port.node}


def page(ctx: DrawContext, found: Fluctuation) -> list[Line]:
    """The largest level changes; then per subject median, spread, CoV, communication and curve."""
    palette = ctx.palette
    rows = {port.id: port.row for port in ctx.fabric.ports if port.node}
    measured = [each for each in found.subjects if each.spread is not None]
    named = names(ctx.scene)
    longest = max((len(_name(each, named)) for each in measured), default=8)
    name = min(max(longest, len(_TITLES[LINK])), max(20, ctx.width // 4))
    lines = [*_selected(ctx), *_steps(ctx, found)]
    if not measured:
        lines.append(line(("   No communication seen", palette.dim)))
    else:
        lines.append(_legend(ctx, found))
    look = Look(palette, scale(heat_metric("util"), palette.depth, False))
    for kind, title in _TITLES.items():
        subjects = [each for each in measured if each.kind == kind]
        if kind == LINK:
            subjects.sort(key=lambda each: -((each.spread and each.spread.cov) or 0.0))
        if kind == RAIL:
            subjects = [*(each for each in measured if each.kind == ALL), *subjects]
        if kind == JOB and all(each.job is None for each in subjects):
            title = f"{title}: hosts whose traffic correlates"
        if subjects:
            lines.append(_head(ctx, title, name))
            shown = subjects[:_MOST_ROWS]
            lines += [_row(ctx, each, name, rows, named, look) for each in shown]
            lines += more_rows(len(subjects) - len(shown), kind, palette.dim)
    for text in _notes(found):
        lines += paragraph(text, ctx.width, palette.dim, indent=1)
    return lines


def _selected(ctx: DrawContext) -> list[Line]:
    """How many ports a filter leaves; empty without one."""
    if ctx.matched is None:
        return []
    left, every = int(ctx.matched.ports.sum()), sum(bool(p.node) for p in ctx.fabric.ports)
    text = f"Of the filter: {left} of {plural(every, 'port')}; esc clears it"
    return paragraph(text, ctx.width, ctx.palette.accent)


def _legend(ctx: DrawContext, found: Fluctuation) -> Line:
    """What the columns and marks of the table mean, as far as there is room."""
    inner, mark = _marks(ctx.palette)
    is_bound = any(each.spread is not None and not each.spread.whole for each in found.subjects)
    parts = (
        f"{inner} p5 to p95  {mark} median of samples of {interval(found.interval_s)}",
        *(("≥ at least: bursts under 3 samples",) if is_bound else ()),
        "CoV deviation/mean",
        "active time with traffic",
        "brightest: its highest",
    )
    text = ""
    for part in parts:
        if len(text) + 3 + len(part) <= ctx.width:
            text += f"{'   ' if text else ' '}{part}"
    return line((text, ctx.palette.dim))


def _head(ctx: DrawContext, title: str, name: int) -> Line:
    bar = f"0{'p5 to p95':^{_BAR - 4}}max"
    if len(title) > name + 1:
        title = title.partition(":")[0]
    columns = f"{right('median', RATE)}  {bar:<{_BAR}} {right('CoV', _COV)} {right('active', _COV)}"
    return line(
        (f" {fit(title, name + 1)} ", ctx.palette.strong),
        (fit(f"{columns}  over time", max(0, ctx.width - name - 3)), ctx.palette.dim),
    )


def _row(
    ctx: DrawContext,
    subject: Subject,
    name: int,
    rows: dict[str, int],
    named: Mapping[str, str],
    look: Look,
) -> Line:
    palette, spread = ctx.palette, subject.spread
    assert spread is not None
    bound = "" if spread.whole else "≥"
    used = 2 + name + 1 + RATE + 2 + _BAR + 2 * (1 + _COV) + 2
    curve = np.array([np.nan if p is None else p.median_bps for p in subject.strip], np.float32)
    curve = _stretched(curve, max(0, ctx.width - used - 1))
    spans: list[Span] = [
        (f"  {fit(_name(subject, named), name)}", palette.text),
        (f"{right(bound + rate_of(ctx, subject, spread.median_bps), RATE + 1)}  ", palette.strong),
        (_bar(spread, max(spread.p95_bps, subject.line_rate_bps or 0.0), palette), palette.tx),
        (
            f" {right(percent(spread.cov), _COV)} {right(percent(spread.share), _COV)}  ",
            palette.dim,
        ),
        *_over_time(look, curve),
    ]
    return line(*spans, target=_target(subject, rows))


def _over_time(look: Look, curve: Floats) -> list[Span]:
    """A cell for each value, by its share of the highest one."""
    if not np.isfinite(curve).any():
        return []
    cells = look.levels.levels_of(curve / max(float(np.nanmax(curve)), 1.0))
    cells[np.isnan(curve)] = ABSENT
    return [look.picture(code, 1) for code in cells.tolist()]


def _bar(spread: Spread, top: float, palette: Palette) -> str:
    """A bar from the 5th to the 95th percentile, the median marked, on a scale from 0 to top."""
    low, middle, high = (
        min(_BAR - 1, int(value / top * _BAR)) if top > 0 else 0
        for value in (spread.p5_bps, spread.median_bps, spread.p95_bps)
    )
    inner, mark = _marks(palette)
    cells = ["·"] * _BAR
    cells[low : high + 1] = inner * (high + 1 - low)
    cells[middle] = mark
    return "".join(cells)


def _marks(palette: Palette) -> tuple[str, str]:
    """The marks in a bar: of its inside, and of the median."""
    return ("=", "#") if palette.depth is Depth.NONE else ("━", "█")


def _stretched(curve: Floats, columns: int) -> Floats:
    """[columns]: means of equal parts of the curve, or its values repeated where there are fewer,
    but not so often that a few of them look like a curve; NaN where nothing is known."""
    columns = min(columns, _WIDEST_PART * len(curve))
    if not columns:
        return curve[:0]
    if columns > len(curve):
        stretched: Floats = curve[np.arange(columns) * len(curve) // columns]
        return stretched
    starts = np.arange(columns) * len(curve) // columns
    known = np.isfinite(curve)
    total = np.add.reduceat(np.where(known, curve, np.float32(0)), starts)
    with np.errstate(invalid="ignore"):
        mean = total / np.add.reduceat(known, starts, dtype=np.float32)
    return mean.astype(np.float32)


def name_of(subject: Subject, named: Mapping[str, str]) -> str:
    """The subject's display name; `rx` follows where it was measured at the receiver."""
    name = named.get(subject.name, subject.name)
    return f"{name} {subject.way}" if subject.way == "rx" else name


def _name(subject: Subject, named: Mapping[str, str]) -> str:
    its, name = subject.iterations, name_of(subject, named)
    return name if its is None else f"{name}, step {measured_time(its.median_s)}"


def _steps(ctx: DrawContext, found: Fluctuation) -> list[Line]:
    """The largest level changes of jobs, else of rails and pairs, by time."""
    steps, _ = largest_steps(found, (ALL, JOB), _MOST_STEPS)
    if not steps:
        steps, _ = largest_steps(found, KINDS, _MOST_STEPS)
    return [line((f" {_step(ctx, *each)}", ctx.palette.accent)) for each in steps]


def _step(ctx: DrawContext, step: Step, subject: Subject) -> str:
    before, after = (rate_of(ctx, subject, bps) for bps in (step.before_bps, step.after_bps))
    change = percent_change(step.change)
    return f"{time_of_day(step.at_ns)} {subject.name}: {before} → {after}, {change}"


def _notes(found: Fluctuation) -> list[str]:
    texts = list(found.notes)
    for each in found.foreign:
        if each.low is None or each.high is None:
            texts.append(f"{each.switch}: share of other traffic unknown: {each.unseen}")
        elif each.high > 0.005:
            share = percent_range(each.low, each.high)
            texts.append(f"{each.switch}: {share} of its uplink traffic is not from watched hosts")
    return texts


def rate_of(ctx: DrawContext, subject: Subject, bps: float) -> str:
    """A rate of a subject in the unit of the screen."""
    return rate(bps, subject.line_rate_bps or float("nan"), ctx.choices.unit)
