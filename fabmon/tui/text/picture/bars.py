"""Ports beside each other: a bar each, with its rate, what it suffers, and a line to measure by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite

from fabmon.fabric.model import Port
from fabmon.tui.line import Hit, Line, Span, fit, line, right
from fabmon.tui.palette import Depth
from fabmon.tui.target import PortTarget
from fabmon.tui.text import chart
from fabmon.tui.text.picture.canvas import Canvas, Loads
from fabmon.tui.units import RATE, Unit, percent, rate

_MOST_COLUMNS = 4
_LEAST_WIDTH = 34
_WIDE = 110
_NOTES = 28
_LEAST_BAR = 8
LIMIT = "┊"
"""The line in the bars."""


def bars(
    canvas: Canvas,
    ports: Sequence[Port],
    loads: Loads,
    room: int,
    limit: float = float("nan"),
    note: Callable[[Port], str] | None = None,
) -> list[Line]:
    """A bar a port, down the columns; the guilty of the finding stands out.

    `room` is how many lines there are; the least loaded, where they find none, are counted in the
    last of them. `limit` is
    a share of line rate to mark in the bars. `note` says more of a port.
    """
    count, width = len(ports), canvas.width - 2
    columns = 2 if canvas.width >= _WIDE and count > 3 else 1
    while -(-count // columns) > room and columns < _MOST_COLUMNS:
        if width // (columns + 1) < _LEAST_WIDTH:
            break
        columns += 1
    shown = list(ports)
    rest = 0
    if -(-count // columns) > room:
        shown = _foremost(canvas, ports, loads, max(1, room - 1) * columns)
        rest = count - len(shown)
    each, deep = width // columns, -(-len(shown) // columns)
    one_node = len({port.node for port in ports}) == 1
    names = [port.label or port.name if one_node else _name(port) for port in shown]
    name = min(max(map(len, names)) + 1, 20)
    made = [
        _bar(canvas, port, fit(said, name), loads, each, limit, note(port) if note else "")
        for port, said in zip(shown, names, strict=True)
    ]
    lines = []
    for place in range(deep):
        spans: list[Span] = []
        hits: list[Hit] = []
        for column, bar in enumerate(made[place::deep]):
            spans += bar.spans
            x = column * each
            hits += [hit._replace(start=hit.start + x, end=hit.end + x) for hit in bar.hits]
        lines.append(Line(tuple(spans), None, tuple(hits)))
    if rest:
        lines.append(line((f"   and {rest} more; w shows them all", canvas.palette.dim)))
    return lines


def _foremost(canvas: Canvas, ports: Sequence[Port], loads: Loads, count: int) -> list[Port]:
    """The guilty and the most loaded, in the order that they came in."""

    def weight(place: int) -> tuple[bool, float]:
        bps = loads.bps[ports[place].row]
        return canvas.is_guilty(ports[place]), bps if isfinite(bps) else -1.0

    chosen = sorted(range(len(ports)), key=weight, reverse=True)[:count]
    return [ports[place] for place in sorted(chosen)]


def _name(port: Port) -> str:
    return f"{port.node} {port.label or port.name}"


def _bar(
    canvas: Canvas, port: Port, name: str, loads: Loads, width: int, limit: float, note: str
) -> Line:
    """`up5 ████████████▌  392 Gb/s ▲ ECN 12.0 k/s` in `width` cells."""
    palette, moment = canvas.palette, canvas.scene.moment
    share, unit = loads.share(port.row), canvas.stage.choices.unit
    said = rate(loads.bps[port.row], float(moment.line_rate_bps[port.row]), unit)
    if unit is Unit.PERCENT:
        said = percent(share)
    down, guilty = canvas.is_down(port.row), canvas.is_guilty(port)
    mark, accent = (
        ("✖", palette.gone) if down else ("▲", palette.hot) if guilty else (" ", palette.tx)
    )
    room = max(_LEAST_BAR, width - len(name) - RATE - 6 - _NOTES)
    bar = chart.hbar(share, room)
    if palette.depth is Depth.NONE:
        bar = ("#" * round(share * room if share > 0 else 0)).ljust(room)
    spans: list[Span] = [(f"   {name}", palette.strong if guilty else palette.text)]
    at = round(limit * room) if isfinite(limit) and 0 <= limit <= 1 else -1
    if at >= 0:
        at = min(at, room - 1)
        spans += [(bar[:at], accent), (LIMIT, palette.strong), (bar[at + 1 :], accent)]
    else:
        spans.append((bar, accent))
    spans += [(f" {right(said, RATE)} ", palette.text), (f"{mark} ", accent)]
    notes = "  ".join(part for part in (loads.notes[port.row], note) if part)
    left = width - 3 - len(name) - room - RATE - 4
    spans.append((fit(notes, max(0, left)), palette.dim))
    return Line(tuple(spans), None, (Hit(0, width, PortTarget(port.row)),))
