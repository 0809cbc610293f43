"""One port: its traffic over the last minutes, every counter with its meaning, what it is."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from rich.style import Style

from collectors.catalog import CATALOG, GAUGE
from fabmon.analysis.finding import sentence
from fabmon.analysis.scene import Scene
from fabmon.fabric.filter import Term
from fabmon.fabric.model import GPU, Fabric, Port
from fabmon.fabric.moment import Floats, Moment
from fabmon.tui import units
from fabmon.tui.clock import MINUS
from fabmon.tui.line import Line, Span, fit, line, right, wrap
from fabmon.tui.metrics import traffic_words, unit_of
from fabmon.tui.palette import Depth, Palette
from fabmon.tui.stage import Stage
from fabmon.tui.target import peer
from fabmon.tui.text import burst, chart, flows, words
from fabmon.tui.text.inspect import state
from fabmon.tui.text.node import facts, flow, troubles
from fabmon.tui.text.nvlinks import nvlinks
from fabmon.tui.trend import Trend
from fabmon.tui.units import Unit

SPANS = (1, 2, 5, 10)
"""Minutes that the charts can show from memory."""
_COUNTER = 34
"""Cells of the longest name of a counter."""
_AXIS = 10
_MEAN_ROWS = 4
"""A curve that is lower has no room for a mean beside the highest."""
_PRIORITY = re.compile(r"(_prio)\d$")
_TOPICS = (
    ("traffic", "Traffic"),
    ("packets", "Packets"),
    ("pause", "Pause"),
    ("congestion", "Congestion"),
    ("error", "Errors"),
    ("drop", "Drops"),
    ("mended", "Mended by error correction; a good link has them too"),
    ("state", "State"),
    ("probe", "Probe"),
)


def page(
    stage: Stage, scene: Scene, port: Port, shown: int | Trend, width: int, height: int
) -> list[Line]:
    """The whole of a port; its charts over the last minutes or a trend."""
    palette, moment = stage.palette, scene.moment
    bad = moment.up[port.row] == 0
    lines = [
        line(
            (f" {state(scene, port.row)}  ", palette.gone if bad else palette.strong),
            (traffic_words(moment, port.row, stage.choices.unit), palette.text),
        )
    ]
    told = [
        [(f" {name} ", palette.dim), (said, palette.text if busy else palette.dim)]
        for name, said, busy in troubles(scene, port.row)
    ]
    lines += [Line(tuple(spans)) for spans in flow(told, width, palette)]
    told_of = (port.id, _cabled(port, moment.fabric), facts(port.info))
    about = ", ".join(text for text in told_of if text)
    lines += [line((f" {text}", palette.dim)) for text in wrap(about, width - 2)]
    for finding in scene.findings:
        if port.row in finding.rows:
            accent = palette.gone if words.gone(finding) else palette.hot
            text = (
                f" {words.mark(finding)} {words.cause(finding)}: {sentence(finding, scene.moment)}"
            )
            lines += [line((part, accent)) for part in wrap(text, width - 1)]
    lines += _charts(stage, scene, port, shown, width, height)
    lines += burst.section(stage, scene, port, width)
    lines += flows.of_port(stage, scene, port, width)
    if port.role == GPU:
        lines += nvlinks(stage, scene, port, width)
    lines += counters(scene, port, stage.choices.terms, width, palette)
    return lines


def _cabled(port: Port, fabric: Fabric) -> str:
    """What the port is cabled to, and who says so; empty when nobody does."""
    other = peer(port, fabric)
    if port.cable is None:
        return f"cabled to {words.port(other)} ({other.id})" if other is not None else ""
    sources = ", ".join(port.cable.known_from)
    if other is None:
        far = f"{port.cable.node}/{port.cable.port}".rstrip("/")
        return f"cabled to {far} ({sources}; not watched)"
    return f"cabled to {words.port(other)} ({other.id}; {sources})"


def _charts(
    stage: Stage, scene: Scene, port: Port, shown: int | Trend, width: int, height: int
) -> list[Line]:
    """tx and rx: beside each other where there is room, else one below the other."""
    palette, moment = stage.palette, scene.moment
    beside = width >= 100
    rows = max(3, min(10, (height - 12) // (1 if beside else 2)))
    each = (width - 3) // 2 if beside else width - 2
    bins = (each - _AXIS - 1) * (2 if palette.depth.rgb else 1)
    curves = _curves(moment, port, shown, bins)
    top = float(moment.line_rate_bps[port.row])
    rated = top > 0
    if not rated:
        known = np.concatenate([curve.values for curve in curves.values()])
        known = known[np.isfinite(known)]
        top = float(known.max()) if len(known) and known.max() > 0 else 1.0
    styles = {"tx": palette.tx, "rx": palette.rx}
    # A share of a line rate that nobody knows would be a share of whatever was seen.
    shared = stage.choices.unit is Unit.PERCENT and not rated
    unit = unit_of(port.kind, Unit.GBIT if shared else stage.choices.unit)
    drawn = {
        name: _chart(name, curve, top, rated, each, rows, styles[name], unit, stage)
        for name, curve in curves.items()
    }
    if not beside:
        return [Line(tuple(spans)) for spans in (*drawn["tx"], *drawn["rx"])]
    gap: Span = ("  ", palette.text)
    return [
        Line((*left, gap, *after)) for left, after in zip(drawn["tx"], drawn["rx"], strict=True)
    ]


class _Curve(NamedTuple):
    """Bits/s of a direction, in words over which time, and what stands at its ends.

    `mean` is [values] where `values` are the highest of bins; None where they are ticks.
    """

    values: Floats
    mean: Floats | None
    over: str
    ends: tuple[str, str]


def _curves(moment: Moment, port: Port, shown: int | Trend, bins: int) -> dict[str, _Curve]:
    """tx and rx, of the last minutes or of a trend."""
    directions = ("tx", "rx")
    names = [f"{each}_bps" for each in directions]
    if isinstance(shown, int):
        ticks = max(2, round(shown * 60 / moment.interval_s))
        over, ends = f"last {shown} min", (f"{MINUS}{shown} min", "now")
        seen = [moment.window(name, [port.row], ticks)[0] for name in names]
        return {
            each: _Curve(values, None, over, ends)
            for each, values in zip(directions, seen, strict=True)
        }
    tier = shown.of([port], names, of_line_rate=False, most_bins=bins)
    return {
        each: _Curve(most, mean, shown.said(tier.wanted.bin_ns), shown.ends)
        for each, most, mean in zip(directions, tier.most[:, 0], tier.mean[:, 0], strict=True)
    }


def _chart(
    name: str,
    curve: _Curve,
    top: float,
    rated: bool,
    width: int,
    rows: int,
    style: Style,
    unit: Unit,
    stage: Stage,
) -> list[list[Span]]:
    """A curve between its axes. The scale is the line rate, so that it never moves."""
    palette = stage.palette
    columns = width - _AXIS - 1
    draw = chart.braille if palette.depth.rgb else chart.bars
    drawn = draw(curve.values, columns, rows, top)
    title = f" {name}, {unit}, {curve.over}"
    has_mean = curve.mean is not None and rows >= _MEAN_ROWS and palette.depth is not Depth.NONE
    more = f", scale to {'line rate' if rated else 'greatest seen'}"
    for said in (", bright: mean" if has_mean else "", more):
        title += said if len(title) + len(said) <= width else ""
    lines: list[list[Span]] = [[(fit(title, width), palette.dim)]]
    levels = np.zeros(columns, int)
    if has_mean and curve.mean is not None:
        levels = chart.levels(curve.mean, columns, rows, top)
    for row, text in enumerate(drawn):
        share = {0: 1.0, rows // 2: 1 - (rows // 2) / rows, rows - 1: 0.0}.get(row)
        said = "" if share is None else units.rate(top * share, top, unit)
        spans: list[Span] = [(f"{right(said, _AXIS)}│", palette.dim)]
        if has_mean:
            inside = levels >= rows - row
            spans += _runs(text, [style if each else palette.dim for each in inside.tolist()])
        else:
            spans.append((text, style))
        lines.append(spans)
    start, end = curve.ends
    axis = " " * _AXIS + "└" + start + "─" * (columns - len(start) - len(end)) + end
    lines.append([(fit(axis, width), palette.dim)])
    return lines


def _runs(text: str, styles: Sequence[Style]) -> list[Span]:
    """Characters with a style each, as few spans."""
    pairs = zip(text, styles, strict=True)
    return [
        ("".join(char for char, _ in run), style)
        for style, run in itertools.groupby(pairs, key=lambda pair: pair[1])
    ]


def counters(
    scene: Scene, port: Port, terms: tuple[Term, ...], width: int, palette: Palette
) -> list[Line]:
    """Every counter that the port has, by topic, with its rate, its unit and its meaning.

    Words of the filter choose among their names.
    """
    moment = scene.moment
    words_ = [term for term in terms if not term.operator]
    topics: dict[str, list[str]] = defaultdict(list)
    missing = []
    for name in dict.fromkeys((*CATALOG, *moment.columns)):
        if not all((term.value in name) is not term.negated for term in words_):
            continue
        if name not in moment.columns or np.isnan(moment.column(name)[port.row]):
            missing.append(name)
        else:
            topics[CATALOG[name].topic if name in CATALOG else "other"].append(name)
    lines: list[Line] = []
    if moment.saturated[port.row]:
        text = (
            "? a counter sticks at its maximum: its true value is unknown (perfquery -R resets it)"
        )
        lines.append(line((f" {text}", palette.hot)))
    for topic, title in (*_TOPICS, ("other", "Others")):
        if topics[topic]:
            lines.append(line((f" {title}", palette.strong)))
        for name in sorted(topics[topic]):
            lines.extend(_counter(name, float(moment.column(name)[port.row]), width, palette))
    return lines + _absent(
        missing, {name for names in topics.values() for name in names}, width, palette
    )


def _absent(missing: list[str], there: set[str], width: int, palette: Palette) -> list[Line]:
    """What the port lacks: single counters of families that it has, whole families else."""
    families = {_family(name) for name in there}
    single = sorted(_PRIORITY.sub(r"\1*", name) for name in missing if _family(name) in families)
    whole = sorted({_family(name) for name in missing} - families)
    lines: list[Line] = []
    for title, names in (
        (
            "Absent here: not supported, not permitted, or not yet known",
            list(dict.fromkeys(single)),
        ),
        ("Nothing here of", whole),
    ):
        if names:
            lines.append(line((f" {title}", palette.strong)))
            text = "  ".join(names)
            lines += [line((f"   {part}", palette.dim)) for part in wrap(text, width - 4)]
    return lines


def _family(name: str) -> str:
    return name.partition("_")[0].rstrip("0123456789")


def _counter(name: str, value: float, width: int, palette: Palette) -> list[Line]:
    metric = CATALOG.get(name)
    if metric is None:
        said, meaning = units.per_second(value), ""
    elif metric.kind == GAUGE:
        said, meaning = units.level(value, metric.unit), metric.meaning
    else:
        said, meaning = units.counted(value, metric.unit), metric.meaning
    label = fit(name, _COUNTER)
    first = (f"   {label}", palette.text), (f"{right(said, 18)}", palette.text)
    style = palette.dim
    if width >= 100:
        room = width - _COUNTER - 24
        parts = wrap(meaning, room) or [""]
        lines = [line(*first, (f"  {parts[0]}", style))]
        return lines + [line((" " * (_COUNTER + 23) + part, style)) for part in parts[1:]]
    return [line(*first), *(line((f"     {part}", style)) for part in wrap(meaning, width - 7))]
