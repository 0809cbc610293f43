"""What every picture of a finding is drawn with: its ports, their recent loads, and bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite

import numpy as np

from fabmon.analysis.finding import Finding, holds, shown_moment, shown_ns
from fabmon.analysis.recent_load import RECENT_S, RecentLoad, full_port_ticks, recent
from fabmon.fabric.measures import known_sum
from fabmon.fabric.model import Fabric, Port
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.fabric.time_wording import SECOND_NS, time_of_day
from fabmon.fabric.wording import RATE, per_second, percent, rate
from fabmon.tui.cells import FADED_MARK
from fabmon.tui.line import Hit, Line, PortTarget, Span, fit, line, paragraph, right
from fabmon.tui.palette import Depth, Palette
from fabmon.tui.text import chart
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.labels import port_state

_EVENTS = (("ECN", "ecn"), ("CNP", "cnp"), ("errors", "errors"), ("drops", "drops"))
SHARES = (("paused", "pause_rx"), ("pausing", "pause_tx"), ("stalled", "stall"))
_IDLE = 0.02
"""Below this share of line rate a port is marked as idle."""
_MOST_COLUMNS = 4
_LEAST_WIDTH = 34
_WIDE = 110
_NOTES = (0, 14, 28)
"""Columns for notes: a few widths, so that bars do not change with each number."""
_LEAST_BAR = 8
LIMIT = "┊"
"""The mark in the bars at the `limit`."""


@dataclass(frozen=True)
class Canvas:
    """A finding and the context of its picture, whose width and height are those of `ctx`.

    All of a picture is of one moment, that of the finding's text and evidence (`shown_moment`).
    """

    ctx: DrawContext
    finding: Finding

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
        """The finding's ports that exist in the scene, the one at fault first."""
        known = self.fabric.ports
        rows = [row for row in self.finding.rows if 0 <= row < len(known)]
        return [known[row] for row in rows if known[row].node]

    @property
    def subject_mark(self) -> str:
        """The mark of the port or host at fault."""
        return "▲" if holds(self.finding, self.snapshot) else FADED_MARK

    def is_subject(self, port: Port) -> bool:
        """Whether this port is the one at fault."""
        return port.row == self.finding.rows[0] or port.id == self.finding.subject

    def is_down(self, row: int) -> bool:
        """Whether a port has no carrier."""
        return bool(self.snapshot.up[row] == 0)

    @cached_property
    def before_s(self) -> float:
        """How long before the scene the seconds of the picture end, at the moment that is shown. 0
        where that is now, and where that time is not in memory any more."""
        held_s = self._held_before_s
        rows = [port.row for port in self.ports]
        known = np.isfinite(recent(self.snapshot, "tx_bps", rows, held_s)).any()
        return held_s if known else 0.0

    @property
    def is_later(self) -> bool:
        """Whether the picture is of a later time than the finding, which is not in memory."""
        return self._held_before_s > 0 and not self.before_s

    @cached_property
    def _held_before_s(self) -> float:
        """How long before the scene the moment is that is shown, 0 where that is now."""
        at_ns = shown_ns(self.finding, self.snapshot)
        return 0.0 if at_ns is None else max(0, self.snapshot.time_ns - at_ns) / SECOND_NS

    @property
    def moment(self) -> str:
        """`14:07:30Z, at its worst`: the moment that is shown; empty where that is now."""
        at_ns = shown_ns(self.finding, self.snapshot)
        is_worst = shown_moment(self.finding) is not self.finding
        when = "at its worst" if is_worst else "when it last held"
        return "" if at_ns is None else f"{time_of_day(at_ns)}, {when}"

    @property
    def subject(self) -> Port:
        """The port that the finding is about: the first one may be that of its switch."""
        own = (port for port in self.ports if port.id == self.finding.subject)
        return next(own, self.ports[0])

    @property
    def basis(self) -> str:
        """The time that the picture is a mean of."""
        ticks = full_port_ticks(self.finding, self.snapshot)
        mean_s = RECENT_S if ticks is None else ticks * self.snapshot.interval_s
        text = f"mean of {mean_s:g} s"
        if not self.moment:
            return text
        now = f"{time_of_day(self.snapshot.time_ns)}, after the finding"
        return f"{text} until {self.moment if self.before_s else now}"

    def recent(self, column: str, rows: Sequence[int]) -> Floats:
        """[rows, ticks] of a HEAT column in the seconds of the picture, oldest first."""
        return recent(self.snapshot, column, rows, self.before_s)

    def window(self, column: str, rows: Sequence[int], seconds: float) -> Floats:
        """[rows, ticks] of a HEAT column over the last seconds, oldest first."""
        ticks = max(2, round(seconds / self.snapshot.interval_s))
        return self.snapshot.window(column, rows, ticks)

    def bar(self, share: float, width: int) -> str:
        """A horizontal bar, full at a share of 1; of `#` where there are no colours."""
        if self.palette.depth is Depth.NONE:
            return ("#" * round(share * width if share > 0 else 0)).ljust(width)
        return chart.hbar(share, width)

    def title(self, text: str) -> list[Line]:
        """The picture's title."""
        return paragraph(text, self.ctx.width, self.palette.strong, indent=1)

    def remark(self, text: str) -> list[Line]:
        """A sentence below the title or the picture."""
        return paragraph(text, self.ctx.width, self.palette.text)

    def sized(self, height: int) -> Canvas:
        """The same for a part of the picture, `height` lines or at least two."""
        return Canvas(self.ctx.sized(self.ctx.width, max(2, height)), self.finding)

    def total(self, column: str, ports: Sequence[Port], seconds: float) -> Floats:
        """[ticks] of a HEAT column summed over ports, up to the end of the picture's seconds; NaN
        where none of them is known."""
        later = round(self.before_s / self.snapshot.interval_s)
        values = self.window(column, [port.row for port in ports], seconds + self.before_s)
        values = values[:, : values.shape[1] - later]
        return known_sum(values, axis=0)


class Loads:
    """Mean loads of some ports in one direction, over the seconds of the picture."""

    def __init__(self, canvas: Canvas, rows: Sequence[int], direction: str) -> None:
        """`rows` are ports; `direction` is tx or rx. `bps` is row -> mean bits/s."""
        self._canvas, self._rows = canvas, list(rows)
        self._recent = RecentLoad(
            canvas.snapshot,
            self._rows,
            (direction,),
            canvas.before_s,
            full_port_ticks(canvas.finding, canvas.snapshot),
        )
        self.bps = self._means(f"{direction}_bps")

    def _means(self, column: str) -> dict[int, float]:
        return dict(zip(self._rows, self._recent.mean(column).tolist(), strict=True))

    def share(self, row: int) -> float:
        """Share of line rate, NaN where either is not known."""
        line_rate_bps = float(self._canvas.snapshot.line_rate_bps[row])
        return self.bps[row] / line_rate_bps if line_rate_bps > 0 else float("nan")

    @cached_property
    def notes(self) -> dict[int, str]:
        """Row -> congestion, errors and pause in that time, or the state of a port that is down:
        `ECN 12.3 k/s  paused 8.10 %`.
        """
        notes: dict[int, list[str]] = {row: [] for row in self._rows}
        for names, formatted in ((_EVENTS, per_second), (SHARES, percent)):
            for name, column in names:
                for row, value in self._means(column).items():
                    if value > 0:
                        notes[row].append(f"{name} {formatted(value)}")
        return {
            row: port_state(self._canvas.ctx.scene, row)
            if self._canvas.is_down(row)
            else "  ".join(["idle"] * (self.share(row) < _IDLE) + parts)
            for row, parts in notes.items()
        }


def bars(
    canvas: Canvas,
    ports: Sequence[Port],
    loads: Loads,
    room: int,
    limit: float = float("nan"),
    note: Callable[[Port], str] | None = None,
) -> list[Line]:
    """A bar per port, down the columns, with its rate and notes; the port at fault is marked.

    `room` is how many lines there are; where they do not suffice, the least loaded ports are only
    counted, in the last line. `limit` is a share of line rate to mark in the bars. `note` adds a
    text to a port.
    """
    count, width = len(ports), canvas.ctx.width - 2
    columns = 2 if canvas.ctx.width >= _WIDE and count > 3 else 1
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
    names = [port.label or port.name if one_node else port.display_name for port in shown]
    name = min(max(map(len, names)) + 1, 20)
    notes = [
        "  ".join(filter(None, (loads.notes[port.row], note(port) if note else "")))
        for port in shown
    ]
    # Bars get what the longest note leaves.
    noted = next((room for room in _NOTES if room >= max(map(len, notes))), _NOTES[-1])
    widths = each, max(_LEAST_BAR, each - name - RATE - 7 - noted)
    made = [
        _bar(canvas, port, fit(own, name), loads, widths, limit, text)
        for port, own, text in zip(shown, names, notes, strict=True)
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
        key = canvas.ctx.key("waterfall")
        lines.append(line((f"   and {rest} more: press {key} for all", canvas.palette.dim)))
    return lines


def _foremost(canvas: Canvas, ports: Sequence[Port], loads: Loads, count: int) -> list[Port]:
    """The port at fault and the most loaded ones, in their given order."""

    def weight(place: int) -> tuple[bool, float]:
        bps = loads.bps[ports[place].row]
        return canvas.is_subject(ports[place]), bps if isfinite(bps) else -1.0

    heaviest = sorted(range(len(ports)), key=weight, reverse=True)[:count]
    return [ports[place] for place in sorted(heaviest)]


def _bar(
    canvas: Canvas,
    port: Port,
    name: str,
    loads: Loads,
    widths: tuple[int, int],
    limit: float,
    note: str,
) -> Line:
    """`up5 ████████████▌  392 Gb/s ▲ ECN 12.0 k/s`; `widths` are those of all of it and of the bar
    alone. The mark of the limit is where the bar does not reach."""
    width, room = widths
    palette, snapshot = canvas.palette, canvas.snapshot
    share, unit = loads.share(port.row), canvas.ctx.choices.unit
    load = rate(loads.bps[port.row], float(snapshot.line_rate_bps[port.row]), unit)
    down, is_subject = canvas.is_down(port.row), canvas.is_subject(port)
    mark, accent = (canvas.subject_mark, palette.accent) if is_subject else (" ", palette.tx)
    mark, accent = ("✖", palette.gone) if down else (mark, accent)
    bar = canvas.bar(share, room)
    spans: list[Span] = [(f"   {name}", palette.strong if is_subject else palette.text)]
    at = round(limit * room) if isfinite(limit) and 0 <= limit <= 1 else -1
    at = min(at, room - 1)
    if at >= 0 and bar[at] == " ":
        spans += [(bar[:at], accent), (LIMIT, palette.strong), (bar[at + 1 :], accent)]
    else:
        spans.append((bar, accent))
    spans += [(f" {right(load, RATE)} ", palette.text), (f"{mark} ", accent)]
    left = width - 3 - len(name) - room - RATE - 4
    spans.append((fit(note, max(0, left)), palette.dim))
    return Line(tuple(spans), None, (Hit(0, width, PortTarget(port.row)),))
