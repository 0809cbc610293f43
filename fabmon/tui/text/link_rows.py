"""The links in the timeline, a row each: which ones, and their values over its time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from rich.cells import cell_len

from fabmon.fabric.measures import measure
from fabmon.fabric.model import RAIL, UPLINK, Port
from fabmon.fabric.snapshot import RING_TICKS, Snapshot
from fabmon.fabric.time_wording import SECOND_NS
from fabmon.scenes.recording_contents import Curve
from fabmon.tui.cells import ABSENT, FADED_MARK, NOTHING, READING, Codes, Look, scale
from fabmon.tui.line import Span, fit
from fabmon.tui.metrics import HeatMetric, heat_metric
from fabmon.tui.text.chart import spread
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.finding_groups import port_of
from fabmon.tui.time.trend import Trend

_KEPT_NS = 60 * SECOND_NS
"""Rows stay as long as no finding opens or closes: nothing moves under the eye."""
_MARK = 3

MarkedLink = tuple[Port, str]
"""A link, and the mark of its finding: `▲`, `△`, or a blank."""


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
    """Which links have a row, and their marks: `▲` those of findings that hold, `△` of others that
    were open in the timeline, then the busiest ones of each leaf, or without leaves of each host,
    in physical order. They stay for a minute. `left_out` is how many links of findings that hold
    have no row."""

    def __init__(self) -> None:
        self.left_out = 0
        self._chosen: tuple[MarkedLink, ...] = ()
        self._of: tuple[object, ...] = ()

    def of(self, ctx: DrawContext, count: int, from_ns: int) -> tuple[MarkedLink, ...]:
        """At most `count` links of a timeline that begins at `from_ns`, with their marks; none
        where no uplink or rail has a known value."""
        flagged, earlier = _links(ctx, ctx.flagged_rows), _earlier(ctx, from_ns)
        self.left_out = max(0, len(flagged) - count)
        # With one more filter or finding the rows change at once.
        filtered = None if ctx.matched is None else ctx.choices.filter
        time = ctx.scene.snapshot.time_ns // _KEPT_NS
        of = (frozenset(flagged), tuple(earlier), count, time, filtered)
        # Before the first rates there is none to keep.
        if self._of != of or not self._chosen or not self._is_of(ctx):
            self._of, self._chosen = of, _chosen(ctx, flagged, earlier, count)
        return self._chosen

    def _is_of(self, ctx: DrawContext) -> bool:
        ports = ctx.fabric.ports
        return all(p.row < len(ports) and ports[p.row] is p for p, _ in self._chosen)


def _links(ctx: DrawContext, rows: Iterable[int]) -> list[int]:
    """The rows of the links at ports: of a leaf's port to a host the host's NIC, of a spine's the
    leaf's uplink, each once, in their order."""
    ports = ctx.fabric.ports
    ends = [(row, ports[row].peer) for row in rows]
    links = [
        next((end for end in both if end is not None and _is_link(ports, end)), None)
        for both in ends
    ]
    return list(dict.fromkeys(row for row in links if row is not None))


def _is_link(ports: Sequence[Port], row: int) -> bool:
    return row < len(ports) and ports[row].role in (UPLINK, RAIL)


def _earlier(ctx: DrawContext, from_ns: int) -> list[int]:
    """The rows of links that findings are about which no longer hold, or ended after `from_ns`,
    latest first."""
    ended = [each for each in ctx.closed if (each.until_ns or 0) > from_ns]
    closed = [port.row for each in ended if (port := port_of(each, ctx.fabric)) is not None]
    return _links(ctx, [*sorted(ctx.faded_rows), *closed])


def _chosen(
    ctx: DrawContext, flagged: Sequence[int], earlier: Sequence[int], count: int
) -> tuple[MarkedLink, ...]:
    ports = ctx.fabric.ports
    role = UPLINK if any(port.role == UPLINK and port.node for port in ports) else RAIL
    rows = [port.row for port in ports if port.role == role and port.node]
    if ctx.matched is not None:
        rows = [row for row in rows if ctx.matched.ports[row]] or rows
    values = np.nan_to_num(ctx.metric.values(ctx.snapshot), nan=-1)
    rows = [row for row in rows if values[row] >= 0]
    of_node: dict[str, list[int]] = defaultdict(list)
    for row in sorted(rows, key=lambda each: -values[each]):
        of_node[ports[row].node].append(row)
    # The busiest of each node, the nodes with the busiest first; then the second ones.
    ranked = sorted(
        (place, -values[row], row) for each in of_node.values() for place, row in enumerate(each)
    )
    first = sorted(flagged, key=lambda row: -values[row])[:count]
    # Half of the room is left to what is busy.
    first += [row for row in earlier if row not in first][: (count - len(first)) // 2]
    others = [row for _, _, row in ranked if row not in first][: count - len(first)]
    signs = dict.fromkeys(earlier, FADED_MARK) | dict.fromkeys(flagged, "▲")
    return tuple((ports[row], signs.get(row, " ")) for row in (*first, *sorted(others)))


def link_rows(
    ctx: DrawContext,
    chosen: Sequence[MarkedLink],
    newest: Snapshot,
    window: tuple[int, int],
    trend: Trend | None,
    left_out: int = 0,
) -> LinkRows:
    """The rows of links, with their marks, over a `window` of time (from, until, in ns) in
    `ctx.width` columns: the ticks in memory up to `newest`, the rest from the recording.
    `left_out` is as in LinkChoice."""
    ports = [port for port, _ in chosen]
    longest = max((cell_len(port.display_name) for port in ports), default=1)
    name = min(longest, max(8, ctx.width // 5))
    before = _MARK + name + 1
    columns = max(1, ctx.width - before)
    metric = ctx.metric if measure(ctx.metric.name).is_kept else heat_metric("util")
    values = spread(_in_memory(metric, ports, newest, window), window, columns)
    is_reading = ctx.time.is_reading
    if trend is not None:
        tier = trend.of(ports, metric.columns, metric.is_traffic, columns)
        highest = measure(metric.name).greatest(tier.highest)
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
    texts = tuple(
        (
            (f" {mark} ", tone.accent if mark == "▲" else tone.dim),
            (fit(port.display_name, name) + " ", tone.strong),
        )
        for port, mark in chosen
    )
    title = f"Flagged links, {left_out} more" if left_out else "Flagged and busiest links"
    if metric is not ctx.metric:
        title += f", {metric.title}"
    return LinkRows(title, texts, cells, look, before)


def has_left_memory(newest: Snapshot, window: tuple[int, int]) -> bool:
    """Whether a window has times that memory does not reach: long ago, or after `newest`."""
    tick_ns = int(newest.interval_s * SECOND_NS)
    return window[0] < newest.time_ns - RING_TICKS * tick_ns or window[1] > newest.time_ns


def _in_memory(
    metric: HeatMetric, ports: Sequence[Port], newest: Snapshot, window: tuple[int, int]
) -> Curve:
    """[links, ticks] of the last ticks, as far as they are in the window; NaN of a port that was
    gone before `newest`."""
    tick_ns = max(1, int(newest.interval_s * SECOND_NS))
    ticks = max(0, min((newest.time_ns - window[0]) // tick_ns + 1, RING_TICKS))
    values = np.full((len(ports), ticks), np.nan, np.float32)
    there = [place for place, each in enumerate(ports) if each.row < len(newest.line_rate_bps)]
    if ticks and there:
        rows = [ports[place].row for place in there]
        values[there] = measure(metric.name).window(newest, rows, ticks)
    return Curve(newest.time_ns - ticks * tick_ns, newest.time_ns, values)
