"""The links in the timeline, a row each: which ones, and their values over its time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.cells import cell_len

from fabmon.analysis.finding import Finding
from fabmon.fabric.measures import measure
from fabmon.fabric.model import RAIL, UPLINK, Port
from fabmon.fabric.snapshot import HEAT, Snapshot, believed
from fabmon.fabric.time_wording import SECOND_NS
from fabmon.scenes.recording_contents import Curve
from fabmon.tui.cells import ABSENT, FADED_MARK, NOTHING, READING, Codes, Look, scale
from fabmon.tui.line import Span, fit
from fabmon.tui.metrics import HeatMetric, heat_metric
from fabmon.tui.text.chart import spread
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.time.trend import Trend

_KEPT_NS = 60 * SECOND_NS
"""Rows stay as long as no finding opens or closes: nothing moves under the eye."""
_MEMORY_TICKS = 900
_MARK = 3


@dataclass(frozen=True, slots=True)
class LinkRows:
    """Links of the timeline from the top down: marks and names in `before` columns, then `cells`
    [links, columns], the codes of the highest value of each column's time."""

    title: str
    texts: tuple[tuple[Span, ...], ...]
    cells: Codes
    look: Look
    before: int


class LinkChoice:
    """Which links have a row: those that findings name or have named, then the busiest ones of each
    leaf, or without leaves of each host, in physical order. They stay for a minute."""

    def __init__(self) -> None:
        self._chosen: tuple[Port, ...] = ()
        self._of: tuple[object, ...] = ()

    def of(self, ctx: DrawContext, count: int, from_ns: int) -> tuple[Port, ...]:
        """At most `count` links; none where no uplink or rail has a known value. The timeline
        begins at `from_ns`."""
        ports, found = ctx.fabric.ports, [*ctx.scene.findings, *_ended(ctx, from_ns)]
        named = dict.fromkeys(each.rows[0] for each in found if each.rows)
        flagged = [row for row in named if 0 <= row < len(ports) and _is_link(ports[row])]
        # With one more filter or finding the rows change at once.
        filtered = None if ctx.matched is None else ctx.choices.filter
        of = (tuple(flagged), count, ctx.scene.snapshot.time_ns // _KEPT_NS, filtered)
        if self._of != of or not self._is_of(ctx):
            self._of, self._chosen = of, _chosen(ctx, flagged, count)
        return self._chosen

    def _is_of(self, ctx: DrawContext) -> bool:
        ports = ctx.fabric.ports
        return all(each.row < len(ports) and ports[each.row] is each for each in self._chosen)


def _ended(ctx: DrawContext, from_ns: int) -> list[Finding]:
    """Findings that ended in the time of the timeline, the latest first."""
    return [each for each in ctx.closed if (each.until_ns or 0) >= from_ns]


def _is_link(port: Port) -> bool:
    return port.role in (UPLINK, RAIL)


def _chosen(ctx: DrawContext, flagged: Sequence[int], count: int) -> tuple[Port, ...]:
    ports = ctx.fabric.ports
    role = UPLINK if any(port.role == UPLINK and port.node for port in ports) else RAIL
    rows = [port.row for port in ports if port.role == role and port.node]
    if ctx.matched is not None:
        rows = [row for row in rows if ctx.matched.ports[row]] or rows
    values = ctx.metric.values(ctx.snapshot)
    rows = [row for row in rows if np.isfinite(values[row])]
    of_node: dict[str, list[int]] = defaultdict(list)
    for row in sorted(rows, key=lambda each: -values[each]):
        of_node[ports[row].node].append(row)
    # The busiest of each node, the nodes with the busiest first; then the second ones.
    ranked = sorted(
        (place, -values[row], row) for each in of_node.values() for place, row in enumerate(each)
    )
    first = flagged[:count]
    others = [row for _, _, row in ranked if row not in first][: count - len(first)]
    return tuple(ports[row] for row in (*first, *sorted(others)))


def link_rows(
    ctx: DrawContext,
    ports: Sequence[Port],
    newest: Snapshot,
    window: tuple[int, int],
    trend: Trend | None,
) -> LinkRows:
    """The rows of links over a `window` of time (from, until, in ns) in `ctx.width` columns: the
    ticks in memory up to `newest`, the rest from the recording."""
    longest = max((cell_len(port.display_name) for port in ports), default=1)
    name = min(longest, max(8, ctx.width // 5))
    before = _MARK + name + 1
    columns = max(1, ctx.width - before)
    metric = _kept_metric(ctx)
    values = spread(_in_memory(metric, ports, newest, window), window, columns)
    is_reading = ctx.time.is_reading
    if trend is not None:
        tier = trend.of(ports, metric.columns, metric.traffic, columns)
        highest = np.fmax.reduce(tier.highest, axis=0) / np.float32(measure(metric.name).per)
        recorded = Curve(tier.wanted.from_ns, tier.wanted.until_ns, highest)
        values = np.where(np.isnan(values), spread(recorded, window, columns), values)
        is_reading |= trend.is_reading()
    look = Look(ctx.palette, scale(metric, ctx.palette.depth, ctx.choices.digits))
    cells = look.levels.levels_of(values)
    cells[np.isnan(values)] = READING if is_reading else ABSENT
    known = np.flatnonzero(np.isfinite(values).any(axis=0))
    if not is_reading and len(known):
        # What was not watched yet, and what is not recorded yet, is not absent.
        cells[:, : known[0]] = cells[:, known[-1] + 1 :] = NOTHING
    tone = ctx.palette
    ended = {row for each in _ended(ctx, window[0]) for row in each.rows[:1]} | ctx.faded_rows
    texts = tuple(
        (
            (" ▲ ", tone.accent)
            if port.row in ctx.flagged_rows
            else (f" {FADED_MARK if port.row in ended else ' '} ", tone.dim),
            (fit(port.display_name, name).ljust(name) + " ", tone.strong),
        )
        for port in ports
    )
    title = "Flagged and busiest links"
    if metric is not ctx.metric:
        title += f", {metric.title}"
    return LinkRows(title, texts, cells, look, before)


def _kept_metric(ctx: DrawContext) -> HeatMetric:
    """The chosen metric where it is kept over time, else the share of line rate."""
    is_kept = all(column in HEAT for column in ctx.metric.columns)
    return ctx.metric if is_kept else heat_metric("util")


def has_left_memory(newest: Snapshot, window: tuple[int, int]) -> bool:
    """Whether a window has times that memory does not reach: long ago, or after `newest`."""
    tick_ns = int(newest.interval_s * SECOND_NS)
    return window[0] < newest.time_ns - _MEMORY_TICKS * tick_ns or window[1] > newest.time_ns


def _in_memory(
    metric: HeatMetric, ports: Sequence[Port], newest: Snapshot, window: tuple[int, int]
) -> Curve:
    """[links, ticks] of the last ticks, as far as they are in the window; NaN of a port that was
    gone before `newest`."""
    tick_ns = max(1, int(newest.interval_s * SECOND_NS))
    ticks = max(0, min((newest.time_ns - window[0]) // tick_ns + 1, _MEMORY_TICKS))
    values = np.full((len(ports), ticks), np.nan, np.float32)
    there = [place for place, each in enumerate(ports) if each.row < len(newest.line_rate_bps)]
    if ticks and there:
        rows = [ports[place].row for place in there]
        seen = np.fmax.reduce([newest.window(each, rows, ticks) for each in metric.columns])
        with np.errstate(divide="ignore", invalid="ignore"):
            if metric.traffic:
                seen = believed(seen / newest.line_rate_bps[rows][:, None])
        values[there] = seen / measure(metric.name).per
    return Curve(newest.time_ns - ticks * tick_ns, newest.time_ns, values)
