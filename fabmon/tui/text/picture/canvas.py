"""What every picture of a finding is drawn with, and the numbers of the seconds that matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite

import numpy as np

from fabmon.analysis.finding import Finding
from fabmon.analysis.scene import Scene
from fabmon.fabric.model import Fabric, Port
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.fabric.wording import RATE, Unit, per_second, percent, rate
from fabmon.tui.line import Hit, Line, PortTarget, Span, fit, line, right, wrap
from fabmon.tui.palette import Depth, Palette
from fabmon.tui.text import chart
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.labels import port_state

RECENT_S = 5
"""Seconds that the bars are means of, as far as there was traffic in them: what parallel links are
judged over, too."""
_BUSY = 0.5
"""Share of the busiest of those seconds from which on one counts."""
_EVENTS = (("ECN", "ecn"), ("CNP", "cnp"), ("errors", "errors"), ("drops", "drops"))
_SHARES = (("paused", "pause_rx"), ("pausing", "pause_tx"), ("stalled", "stall"))


@dataclass(frozen=True)
class Canvas:
    """A finding in a scene, and the room for its picture: `width` cells, `height` lines."""

    ctx: DrawContext
    finding: Finding

    @property
    def width(self) -> int:
        """Cells across."""
        return self.ctx.width

    @property
    def height(self) -> int:
        """Lines."""
        return self.ctx.height

    @property
    def scene(self) -> Scene:
        """The scene."""
        return self.ctx.scene

    @property
    def snapshot(self) -> Snapshot:
        """The counters and rates of the scene."""
        return self.ctx.snapshot

    @property
    def palette(self) -> Palette:
        """The colours in use."""
        return self.ctx.palette

    @property
    def fabric(self) -> Fabric:
        """The fabric of the scene."""
        return self.ctx.fabric

    @cached_property
    def ports(self) -> list[Port]:
        """The finding's ports that are there, the guilty first."""
        known = self.fabric.ports
        rows = [row for row in self.finding.rows if 0 <= row < len(known)]
        return [known[row] for row in rows if known[row].node]

    def is_guilty(self, port: Port) -> bool:
        """Whether the finding is about this port above all."""
        return port.row == self.finding.rows[0] or port.id == self.finding.subject

    def is_down(self, row: int) -> bool:
        """Whether a port has no carrier."""
        return bool(self.snapshot.up[row] == 0)

    def window(self, column: str, rows: Sequence[int], seconds: float) -> Floats:
        """[rows, ticks] of a HEAT column over the last seconds, oldest first."""
        ticks = max(2, round(seconds / self.snapshot.interval_s))
        return self.snapshot.window(column, rows, ticks)

    def title(self, text: str) -> list[Line]:
        """What the picture is of."""
        parts = wrap(text, self.width - 2)
        return [line((f" {part}", self.palette.strong)) for part in parts]

    def said(self, text: str) -> list[Line]:
        """A remark, indented."""
        return [line((f"   {part}", self.palette.text)) for part in wrap(text, self.width - 4)]


class Loads:
    """What some ports did in the last seconds in which they, together, had traffic one way."""

    def __init__(self, canvas: Canvas, rows: Sequence[int], way: str) -> None:
        """Of ports, by row; `way` is tx or rx."""
        self._canvas, self._rows = canvas, list(rows)
        bps = canvas.window(f"{way}_bps", self._rows, RECENT_S)
        top = np.nan_to_num(bps).max(axis=0, initial=0)
        self._counts = (top >= _BUSY * top.max(initial=0)) & (top > 0)
        self.bps = dict(zip(self._rows, _mean(bps, self._counts).tolist(), strict=True))

    def share(self, row: int) -> float:
        """Of line rate; NaN where either is not known."""
        rate = float(self._canvas.snapshot.line_rate_bps[row])
        return self.bps[row] / rate if rate > 0 else float("nan")

    @cached_property
    def notes(self) -> dict[int, str]:
        """Row -> what it suffered in that time, or its state: `ECN 12.3 k/s  paused 8.10 %`."""
        told: dict[int, list[str]] = {row: [] for row in self._rows}
        for names, say in ((_EVENTS, per_second), (_SHARES, percent)):
            for name, column in names:
                seen = self._canvas.window(column, self._rows, RECENT_S)
                for row, value in zip(self._rows, _mean(seen, self._counts).tolist(), strict=True):
                    if value > 0:
                        told[row].append(f"{name} {say(value)}")
        return {
            row: port_state(self._canvas.scene, row)
            if self._canvas.is_down(row)
            else "  ".join(["idle"] * (self.share(row) < _IDLE) + parts)
            for row, parts in told.items()
        }


_IDLE = 0.02


def _mean(values: Floats, counts: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
    """[rows]: means over the ticks that count; the last value where none does."""
    if not counts.any():
        last: Floats = values[:, -1]
        return last
    known = np.isfinite(values[:, -len(counts) :]) & counts
    sums = np.where(known, values[:, -len(counts) :], 0).sum(axis=1)
    with np.errstate(invalid="ignore"):
        mean: Floats = sums / known.sum(axis=1)
    return mean


# Ports beside each other: a bar each, with its rate, what it suffers, and a line to measure by.


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
    palette, snapshot = canvas.palette, canvas.snapshot
    share, unit = loads.share(port.row), canvas.ctx.unit
    said = rate(loads.bps[port.row], float(snapshot.line_rate_bps[port.row]), unit)
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
