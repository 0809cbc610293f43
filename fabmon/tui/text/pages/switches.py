"""The page of switches: the uplinks of each side by side, as vertical bars with numbers."""

from __future__ import annotations

import numpy as np

from fabmon.fabric.model import DOWNLINK, SWITCH, UPLINK, Node, Port
from fabmon.fabric.wording import Unit, bit_rate, compact, number, percent, plural
from fabmon.tui.heatmap_units import ports_of_role
from fabmon.tui.line import Hit, Line, NodeTarget, PortTarget, Span, fit, flow, line, right
from fabmon.tui.palette import Depth, Palette
from fabmon.tui.text import labels
from fabmon.tui.text.chart import BLOCKS
from fabmon.tui.text.draw_context import DrawContext

_LABEL = 11
_PITCH = 6
_ROWS = 3


def page(ctx: DrawContext) -> list[Line]:
    """A block per switch: a title, then bars and numbers of what its uplinks send and receive."""
    matched, palette = ctx.matched, ctx.palette
    lines: list[Line] = []
    for node in ctx.fabric.nodes:
        if node.role != SWITCH or (matched is not None and node.name not in matched.nodes):
            continue
        ports = ports_of_role(node, UPLINK) or ports_of_role(node, DOWNLINK)
        lines.extend(_title(ctx, node, ports))
        # As many in every row: the last one is not left with a single port.
        most = max(1, (ctx.width - _LABEL - 1) // _PITCH)
        each = -(-len(ports) // max(1, -(-len(ports) // most))) or 1
        for start in range(0, len(ports), each):
            lines.extend(_bank(ctx, ports[start : start + each]))
        lines.append(line(("", palette.text)))
    if not lines:
        is_watched = any(node.role == SWITCH for node in ctx.fabric.nodes)
        text = (
            " No switch matches the filter"
            if is_watched
            else " No switch is watched: name the switches with role=switch in the hosts file"
        )
        lines = [line((text, palette.dim))]
    return lines


def _title(ctx: DrawContext, node: Node, ports: tuple[Port, ...]) -> list[Line]:
    """`leaf1  8 uplinks of 400 Gb/s  tx mean 46.8 %, max/mean 2.10  rx …`."""
    count = plural(len(ports), ports[0].role if ports else "port")
    spans: list[Span] = [
        (f" {node.name}", ctx.palette.strong),
        (f"  {count}", ctx.palette.dim),
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
            text = f" {name} mean {percent(known.mean())}, max/mean {number(uneven)}"
            parts.append([(text, ctx.palette.text)])
    target = NodeTarget(node.name)
    return [Line(tuple(spans), target) for spans in flow(parts, ctx.width, ctx.palette.text)]


def _bank(ctx: DrawContext, ports: tuple[Port, ...]) -> list[Line]:
    """The labels of some ports, then for tx and rx bars `_ROWS` high with a number under each."""
    palette, snapshot = ctx.palette, ctx.snapshot
    names = [(fit(f" {port.label}", _PITCH), palette.dim) for port in ports]
    lines = [line((" " * _LABEL, palette.text), *names)]
    unit = ctx.choices.unit
    head = unit if unit is Unit.PERCENT else f"{_prefix(ctx, ports)}{unit[1:]}"
    for name, values in (("tx", snapshot.tx_util), ("rx", snapshot.rx_util)):
        for row in range(_ROWS - 1, -1, -1):
            side = f"   {name}" if row == 0 else ""
            spans: list[Span] = [(fit(side, _LABEL), palette.dim)]
            for port in ports:
                style = palette.tx if name == "tx" else palette.rx
                if port.row in ctx.flagged_rows and name == "tx":
                    style = palette.accent
                text = _column(float(values[port.row]), row, palette)
                sign: Span = (" ", palette.text)
                if name == "tx":
                    sign = _sign(ctx, port, row)
                spans += [(f" {text * 3} ", style), sign]
            lines.append(line(*spans))
        lines.append(_numbers(ctx, ports, snapshot.column(f"{name}_bps"), head))
    return lines


def _column(share: float, row: int, palette: Palette) -> str:
    """One row of a vertical bar; without colours of `#`."""
    if np.isnan(share):
        return "·" if row == 0 else " "
    eighths = int(np.clip(np.ceil(share * _ROWS * 8), 0, _ROWS * 8)) - row * 8
    if palette.depth is Depth.NONE:
        return "#" if eighths >= 4 else " "
    return BLOCKS[min(max(eighths, 0), 8)]


def _sign(ctx: DrawContext, port: Port, row: int) -> Span:
    """The mark beside a bar: at its top of a flagged port, below if its finding is selected."""
    if row == _ROWS - 1 and (sign := labels.flag_sign(ctx, {port.row}))[0] != " ":
        return sign
    if row == _ROWS - 2 and ctx.selection is not None and port.row in ctx.selection.rows:
        return ctx.palette.selection_mark, ctx.palette.strong
    return " ", ctx.palette.text


def _numbers(ctx: DrawContext, ports: tuple[Port, ...], bps: np.ndarray, head: str) -> Line:
    """The numbers under the bars, all in the unit `head`; `✖` for a port that is down."""
    palette, snapshot = ctx.palette, ctx.snapshot
    stale = snapshot.stale
    spans: list[Span] = [(fit(f"   {head}", _LABEL), palette.dim)]
    hits = []
    for place, port in enumerate(ports):
        style = palette.text
        if snapshot.up[port.row] == 0:
            text, style = "✖", palette.gone
        else:
            text = _number(float(bps[port.row]), float(snapshot.line_rate_bps[port.row]), head)
            style = palette.dim if stale[port.row] else palette.text
        spans.append((right(text, _PITCH - 2) + "  ", style))
        start = _LABEL + place * _PITCH
        hits.append(Hit(start, start + _PITCH - 1, PortTarget(port.row)))
    return line(*spans, hits=tuple(hits))


def _number(bps: float, line_rate: float, head: str) -> str:
    if head == Unit.PERCENT:
        return compact(number(100 * bps / line_rate)) if line_rate > 0 else "·"
    size = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[head[0]]
    return compact(number(bps / size / (8 if head[1] == "B" else 1)))


def _prefix(ctx: DrawContext, ports: tuple[Port, ...]) -> str:
    """The decimal prefix that suits the line rates of some ports: M below 1 Gb/s, else G."""
    rates = ctx.snapshot.line_rate_bps[[port.row for port in ports]]
    known = rates[np.isfinite(rates)]
    return "M" if len(known) and known.max() < 1e9 else "G"
