"""The uplinks of every switch side by side: even or not is seen before any number is read."""

from __future__ import annotations

import numpy as np

from fabmon.analysis.scene import Scene
from fabmon.fabric.model import DOWNLINK, SWITCH, UPLINK, Node, Port
from fabmon.fabric.snapshot import stale_ports
from fabmon.fabric.wording import Unit, bit_rate, compact, number, percent
from fabmon.tui.heatmap_layout import ports_of_role
from fabmon.tui.line import Hit, Line, NodeTarget, PortTarget, Span, fit, line, right
from fabmon.tui.palette import Depth, Palette
from fabmon.tui.text.chart import BLOCKS
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.pages.node import flow

_LABEL = 11
_PITCH = 6
_ROWS = 3


def page(ctx: DrawContext) -> list[Line]:
    """A block for each switch: bars of what it sends and what it gets, with numbers."""
    matched, palette = ctx.matched, ctx.palette
    hot, marked = ctx.hot_rows, ctx.selection
    rows = frozenset[int]() if marked is None else frozenset(marked.rows.tolist())
    lines: list[Line] = []
    for node in ctx.fabric.nodes:
        if node.role != SWITCH or (matched is not None and node.name not in matched.nodes):
            continue
        ports = ports_of_role(node, UPLINK) or ports_of_role(node, DOWNLINK)
        lines.extend(_title(ctx, node, ports))
        each = max(1, (ctx.width - _LABEL - 1) // _PITCH)
        for start in range(0, len(ports), each):
            lines.extend(_bank(ctx, ports[start : start + each], hot, rows))
        lines.append(line(("", palette.text)))
    if not lines:
        text = " No switch is watched: name some with role=switch in the hosts file."
        lines = [line((text, palette.dim))]
    return lines


def _title(ctx: DrawContext, node: Node, ports: tuple[Port, ...]) -> list[Line]:
    """`leaf1  8 uplinks of 400 Gb/s  tx mean 46.8 %, max/mean 2.10  rx …`."""
    what = ports[0].role if ports else "port"
    spans: list[Span] = [
        (f" {node.name}", ctx.palette.strong),
        (f"  {len(ports)} {what}s", ctx.palette.dim),
    ]
    rows = [port.row for port in ports]
    rates = {float(rate) for rate in ctx.snapshot.line_rate_bps[rows] if np.isfinite(rate)}
    if len(rates) == 1:
        spans.append((f" of {bit_rate(rates.pop())}", ctx.palette.dim))
    parts = [spans]
    for name, values in (("tx", ctx.snapshot.tx_util), ("rx", ctx.snapshot.rx_util)):
        known = values[rows][np.isfinite(values[rows])]
        if len(known) > 1 and known.mean() > 0.005:
            uneven = float(known.max() / known.mean())
            said = f"{name} mean {percent(float(known.mean()))}, max/mean {number(uneven)}"
            parts.append([(f" {said}", ctx.palette.text)])
    target = NodeTarget(node.name)
    return [Line(tuple(spans), target) for spans in flow(ctx, parts)]


def _bank(
    ctx: DrawContext,
    ports: tuple[Port, ...],
    hot: set[int],
    chosen: frozenset[int],
) -> list[Line]:
    """Labels, then tx and rx: bars `_ROWS` high and a number under each."""
    palette, snapshot = ctx.palette, ctx.snapshot
    labels: list[Span] = [(" " * _LABEL, palette.text)]
    for port in ports:
        labels.append((fit(f" {port.label}", _PITCH), palette.dim))
    lines = [line(*labels)]
    unit = ctx.unit
    head = unit if unit is Unit.PERCENT else f"{_prefix(ctx.scene, ports)}{unit[1:]}"
    for name, values in (("tx", snapshot.tx_util), ("rx", snapshot.rx_util)):
        for row in range(_ROWS - 1, -1, -1):
            side = f"   {name}" if row == 0 else ""
            spans: list[Span] = [(fit(side, _LABEL), palette.dim)]
            for port in ports:
                style = palette.tx if name == "tx" else palette.rx
                if port.row in hot and name == "tx":
                    style = palette.hot
                text = _column(float(values[port.row]), row, palette)
                sign: Span = (" ", palette.text)
                if name == "tx":
                    sign = _sign(port, row, hot, chosen, palette)
                spans += [(f" {text * 3} ", style), sign]
            lines.append(line(*spans))
        bps = snapshot.column(f"{name}_bps")
        lines.append(_numbers(ctx, ports, bps, head))
    return lines


def _column(share: float, row: int, palette: Palette) -> str:
    """One row of a standing bar; in no colour it is the same, for it is shape and not colour."""
    if np.isnan(share):
        return "·" if row == 0 else " "
    eighths = int(np.clip(np.ceil(share * _ROWS * 8), 0, _ROWS * 8)) - row * 8
    if palette.depth is Depth.NONE:
        return "#" if eighths >= 4 else " "
    return BLOCKS[min(max(eighths, 0), 8)]


def _sign(port: Port, row: int, hot: set[int], chosen: frozenset[int], palette: Palette) -> Span:
    """Beside a bar: at its top whether it is hot, below that whether its link is chosen."""
    if row == _ROWS - 1 and port.row in hot:
        return "▲", palette.hot
    if row == _ROWS - 2 and port.row in chosen:
        return palette.selection_mark, palette.strong
    return " ", palette.text


def _numbers(ctx: DrawContext, ports: tuple[Port, ...], bps: np.ndarray, head: str) -> Line:
    """What is under the bars: rates in one unit for all, or why there is none."""
    palette, snapshot = ctx.palette, ctx.snapshot
    stale = stale_ports(snapshot)
    spans: list[Span] = [(fit(f"   {head}", _LABEL), palette.dim)]
    hits = []
    for place, port in enumerate(ports):
        style = palette.text
        if snapshot.up[port.row] == 0:
            said, style = "✖", palette.gone
        else:
            said = _number(float(bps[port.row]), float(snapshot.line_rate_bps[port.row]), head)
            style = palette.dim if stale[port.row] else palette.text
        spans.append((right(said, _PITCH - 2) + "  ", style))
        start = _LABEL + place * _PITCH
        hits.append(Hit(start, start + _PITCH - 1, PortTarget(port.row)))
    return line(*spans, hits=tuple(hits))


def _number(bps: float, line_rate: float, head: str) -> str:
    if head == Unit.PERCENT:
        return compact(number(100 * bps / line_rate)) if line_rate > 0 else "·"
    size = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[head[0]]
    return compact(number(bps / size / (8 if head[1] == "B" else 1)))


def _prefix(scene: Scene, ports: tuple[Port, ...]) -> str:
    """The decimal prefix that suits the line rate of these ports."""
    rates = scene.snapshot.line_rate_bps[[port.row for port in ports]]
    known = rates[np.isfinite(rates)]
    return "M" if len(known) and known.max() < 1e9 else "G"
