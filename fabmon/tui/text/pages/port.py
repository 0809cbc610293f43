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
from fabmon.fabric import wording
from fabmon.fabric.filter import Term
from fabmon.fabric.model import GPU, NVLINK, Fabric, Port
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.fabric.time_wording import MINUS
from fabmon.fabric.wording import RATE, Unit, percent, rate
from fabmon.tui.line import Line, PortTarget, Span, fit, line, peer, right, wrap
from fabmon.tui.metrics import traffic_words, unit_of
from fabmon.tui.palette import Depth
from fabmon.tui.text import chart, flows, labels
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.labels import port_state
from fabmon.tui.text.pages import port_charts
from fabmon.tui.text.pages.node import facts, flow, troubles
from fabmon.tui.time.trend import Trend

# The links of one GPU, a line each: what it carries both ways, and where it ends.


def nvlinks(ctx: DrawContext, gpu: Port) -> list[Line]:
    """Every link of the GPU; a line opens its link."""
    palette, snapshot = ctx.palette, ctx.snapshot
    links = [
        port
        for port in snapshot.fabric.node(gpu.node).ports
        if port.role == NVLINK and port.name.startswith(f"{gpu.name}/")
    ]
    if not links:
        return []
    lines = [line((f" Links {len(links)}; each one direction, GB/s", palette.strong))]
    for port in links:
        down = snapshot.up[port.row] == 0
        bps = {way: float(snapshot.column(f"{way}_bps")[port.row]) for way in ("tx", "rx")}
        top = float(snapshot.line_rate_bps[port.row])
        shares = {"tx": snapshot.tx_util, "rx": snapshot.rx_util}
        said = "  ".join(
            f"{way} {right(rate(bps[way], top, unit_of(port.kind, Unit.GBIT)), RATE)}"
            f" {right(percent(float(shares[way][port.row])), 6)}"
            for way in ("tx", "rx")
        )
        lines.append(
            line(
                (f" {'✖' if down else ' '} ", palette.gone),
                (fit(port.name.partition("/")[2], 6), palette.strong),
                (fit(port_state(ctx.scene, port.row), 12), palette.gone if down else palette.dim),
                (said, palette.text),
                (fit(f"  {_end(port)}", max(0, ctx.width - 70)), palette.dim),
                target=PortTarget(port.row),
            )
        )
    return lines


def _end(port: Port) -> str:
    """`→ nvswitch 0000:05:00.0`, as far as it is known."""
    known = [str(port.info[key]) for key in ("remote", "remote_pci") if key in port.info]
    return f"→ {' '.join(known)}" if known else ""


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
    ("corrected", "Corrected errors; a good link has them too"),
    ("state", "State"),
    ("probe", "Probe"),
)


def page(ctx: DrawContext, port: Port, shown: int | Trend) -> list[Line]:
    """The whole of a port; its charts over the last minutes or a trend."""
    palette, snapshot = ctx.palette, ctx.snapshot
    bad = snapshot.up[port.row] == 0
    lines = [
        line(
            (f" {port_state(ctx.scene, port.row)}  ", palette.gone if bad else palette.strong),
            (traffic_words(snapshot, port.row, ctx.unit), palette.text),
        )
    ]
    told = [
        [(f" {name} ", palette.dim), (said, palette.text if busy else palette.dim)]
        for name, said, busy in troubles(ctx.scene, port.row)
    ]
    lines += [Line(tuple(spans)) for spans in flow(ctx, told)]
    told_of = (port.id, _cabled(port, snapshot.fabric), facts(port.info))
    about = ", ".join(text for text in told_of if text)
    lines += [line((f" {text}", palette.dim)) for text in wrap(about, ctx.width - 2)]
    for finding in ctx.scene.findings:
        if port.row in finding.rows:
            accent = palette.gone if labels.is_gone(finding) else palette.hot
            title = f" {labels.finding_mark(finding)} {labels.cause_title(finding)}"
            text = f"{title}: {sentence(finding, ctx.snapshot)}"
            lines += [line((part, accent)) for part in wrap(text, ctx.width - 1)]
    lines += _charts(ctx, port, shown)
    lines += port_charts.burst_section(ctx, port)
    lines += flows.of_port(ctx, port)
    if port.role == GPU:
        lines += nvlinks(ctx, port)
    lines += counters(ctx, port, ctx.terms)
    return lines


def _cabled(port: Port, fabric: Fabric) -> str:
    """What the port is cabled to, and who says so; empty when nobody does."""
    other = peer(port, fabric)
    if port.cable is None:
        return f"cabled to {labels.port_name(other)} ({other.id})" if other is not None else ""
    sources = ", ".join(port.cable.known_from)
    if other is None:
        far = f"{port.cable.node}/{port.cable.port}".rstrip("/")
        return f"cabled to {far} ({sources}; not watched)"
    return f"cabled to {labels.port_name(other)} ({other.id}; {sources})"


def _charts(ctx: DrawContext, port: Port, shown: int | Trend) -> list[Line]:
    """tx and rx: beside each other where there is room, else one below the other."""
    palette, snapshot = ctx.palette, ctx.snapshot
    beside = ctx.width >= 100
    rows = max(3, min(10, (ctx.height - 12) // (1 if beside else 2)))
    each = (ctx.width - 3) // 2 if beside else ctx.width - 2
    bins = (each - _AXIS - 1) * (2 if palette.depth.rgb else 1)
    curves = _curves(snapshot, port, shown, bins)
    top = float(snapshot.line_rate_bps[port.row])
    rated = top > 0
    if not rated:
        known = np.concatenate([curve.values for curve in curves.values()])
        known = known[np.isfinite(known)]
        top = float(known.max()) if len(known) and known.max() > 0 else 1.0
    styles = {"tx": palette.tx, "rx": palette.rx}
    # A share of a line rate that nobody knows would be a share of whatever was seen.
    shared = ctx.unit is Unit.PERCENT and not rated
    unit = unit_of(port.kind, Unit.GBIT if shared else ctx.unit)
    drawn = {
        name: _chart(ctx.sized(each), name, curve, top, rated, rows, styles[name], unit)
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


def _curves(snapshot: Snapshot, port: Port, shown: int | Trend, bins: int) -> dict[str, _Curve]:
    """tx and rx, of the last minutes or of a trend."""
    directions = ("tx", "rx")
    names = [f"{each}_bps" for each in directions]
    if isinstance(shown, int):
        ticks = max(2, round(shown * 60 / snapshot.interval_s))
        over, ends = f"last {shown} min", (f"{MINUS}{shown} min", "now")
        seen = [snapshot.window(name, [port.row], ticks)[0] for name in names]
        return {
            each: _Curve(values, None, over, ends)
            for each, values in zip(directions, seen, strict=True)
        }
    tier = shown.of([port], names, of_line_rate=False, most_bins=bins)
    return {
        each: _Curve(most, mean, shown.said(tier.wanted.bin_ns), shown.ends)
        for each, most, mean in zip(directions, tier.highest[:, 0], tier.mean[:, 0], strict=True)
    }


def _chart(
    ctx: DrawContext,
    name: str,
    curve: _Curve,
    top: float,
    rated: bool,
    rows: int,
    style: Style,
    unit: Unit,
) -> list[list[Span]]:
    """A curve between its axes. The scale is the line rate, so that it never moves."""
    palette = ctx.palette
    columns = ctx.width - _AXIS - 1
    draw = chart.braille if palette.depth.rgb else chart.bars
    drawn = draw(curve.values, columns, rows, top)
    title = f" {name}, {unit}, {curve.over}"
    has_mean = curve.mean is not None and rows >= _MEAN_ROWS and palette.depth is not Depth.NONE
    more = f", scale to {'line rate' if rated else 'greatest seen'}"
    for said in (", bright: mean" if has_mean else "", more):
        title += said if len(title) + len(said) <= ctx.width else ""
    lines: list[list[Span]] = [[(fit(title, ctx.width), palette.dim)]]
    levels = np.zeros(columns, int)
    if has_mean and curve.mean is not None:
        levels = chart.levels(curve.mean, columns, rows, top)
    for row, text in enumerate(drawn):
        share = {0: 1.0, rows // 2: 1 - (rows // 2) / rows, rows - 1: 0.0}.get(row)
        said = "" if share is None else wording.rate(top * share, top, unit)
        spans: list[Span] = [(f"{right(said, _AXIS)}│", palette.dim)]
        if has_mean:
            inside = levels >= rows - row
            spans += _runs(text, [style if each else palette.dim for each in inside.tolist()])
        else:
            spans.append((text, style))
        lines.append(spans)
    start, end = curve.ends
    axis = " " * _AXIS + "└" + start + "─" * (columns - len(start) - len(end)) + end
    lines.append([(fit(axis, ctx.width), palette.dim)])
    return lines


def _runs(text: str, styles: Sequence[Style]) -> list[Span]:
    """Characters with a style each, as few spans."""
    pairs = zip(text, styles, strict=True)
    return [
        ("".join(char for char, _ in run), style)
        for style, run in itertools.groupby(pairs, key=lambda pair: pair[1])
    ]


def counters(ctx: DrawContext, port: Port, terms: tuple[Term, ...]) -> list[Line]:
    """Every counter that the port has, by topic, with its rate, its unit and its meaning.

    Words of the filter choose among their names.
    """
    snapshot = ctx.snapshot
    words_ = [term for term in terms if not term.operator]
    topics: dict[str, list[str]] = defaultdict(list)
    missing = []
    for name in dict.fromkeys((*CATALOG, *snapshot.columns)):
        if not all((term.value in name) is not term.negated for term in words_):
            continue
        if name not in snapshot.columns or np.isnan(snapshot.column(name)[port.row]):
            missing.append(name)
        else:
            topics[CATALOG[name].topic if name in CATALOG else "other"].append(name)
    lines: list[Line] = []
    if snapshot.saturated[port.row]:
        text = (
            "? a counter sticks at its maximum: its true value is unknown (perfquery -R resets it)"
        )
        lines.append(line((f" {text}", ctx.palette.hot)))
    for topic, title in (*_TOPICS, ("other", "Others")):
        if topics[topic]:
            lines.append(line((f" {title}", ctx.palette.strong)))
        for name in sorted(topics[topic]):
            lines.extend(_counter(ctx, name, float(snapshot.column(name)[port.row])))
    families = {_family(name) for names in topics.values() for name in names}
    similar = [each.row for each in snapshot.fabric.ports if each.kind == port.kind]
    expected = [
        name
        for name in missing
        if _family(name) in families
        or (name in snapshot.columns and not np.isnan(snapshot.column(name)[similar]).all())
    ]
    return lines + _absent(ctx, expected)


def _absent(ctx: DrawContext, names: list[str]) -> list[Line]:
    """Counters that the port lacks, of families that it or another port of its kind has."""
    if not names:
        return []
    text = "  ".join(dict.fromkeys(sorted(_PRIORITY.sub(r"\1*", name) for name in names)))
    title = "Absent here: not supported, not permitted, or not yet known"
    return [
        line((f" {title}", ctx.palette.strong)),
        *(line((f"   {part}", ctx.palette.dim)) for part in wrap(text, ctx.width - 4)),
    ]


def _family(name: str) -> str:
    return name.partition("_")[0].rstrip("0123456789")


def _counter(ctx: DrawContext, name: str, value: float) -> list[Line]:
    metric = CATALOG.get(name)
    if metric is None:
        said, meaning = wording.per_second(value), ""
    elif metric.kind == GAUGE:
        said, meaning = wording.gauge(value, metric.unit), metric.meaning
    else:
        said, meaning = wording.counter_rate(value, metric.unit), metric.meaning
    label = fit(name, _COUNTER)
    first = (f"   {label}", ctx.palette.text), (f"{right(said, 18)}", ctx.palette.text)
    style = ctx.palette.dim
    if ctx.width >= 100:
        room = ctx.width - _COUNTER - 24
        parts = wrap(meaning, room) or [""]
        lines = [line(*first, (f"  {parts[0]}", style))]
        return lines + [line((" " * (_COUNTER + 23) + part, style)) for part in parts[1:]]
    return [line(*first), *(line((f"     {part}", style)) for part in wrap(meaning, ctx.width - 7))]
