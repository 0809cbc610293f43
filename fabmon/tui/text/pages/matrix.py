"""The matrix of switch pairs (utilisation up and down), and the page of the links of one pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from rich.cells import cell_len

from fabmon.analysis.causes import finding_title
from fabmon.fabric.filter import Matched
from fabmon.fabric.model import Fabric, Port
from fabmon.fabric.topology.tier_matrix import UNKNOWN, TierLink, TierMatrix, down_up, ratio_text
from fabmon.fabric.wording import ABSENT, Unit, plural, rate
from fabmon.tui.cells import (
    DOWN,
    FADED,
    FLAGGED,
    LEVEL,
    NOTHING,
    NUMBERED,
    SELECTED,
    STALE,
    Codes,
    Look,
    scale,
)
from fabmon.tui.line import (
    FindingTarget,
    Hit,
    Line,
    PairTarget,
    PortTarget,
    Span,
    fit,
    line,
    paragraph,
    right,
)
from fabmon.tui.metrics import heat_metric, traffic_text
from fabmon.tui.text import labels
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.labels import port_state

_MARGIN = 1
_WIDEST = 12
_DEEPEST = 5
_NAME = 24

_DOWN_UP = "down:up"

_Capacity = Mapping[str, tuple[float, float]]
"""The capacity of each leaf to its hosts and of its uplinks, bits/s."""


@dataclass(frozen=True, slots=True)
class _Codes:
    """[ports] cell codes of what each port sends (tx) and receives (rx)."""

    tx: Codes
    rx: Codes


def page(ctx: DrawContext, tables: tuple[TierMatrix, ...]) -> list[Line]:
    """A table per tier: a row per lower switch, with the down:up ratio of a leaf, and a column per
    upper one.

    Columns for which there is no room follow below.
    """
    palette, matched = ctx.palette, ctx.matched
    levels = scale(heat_metric("tx"), palette.depth, ctx.choices.digits, NUMBERED)
    look = Look(palette, levels)
    codes = _Codes(ctx.codes(levels, heat_metric("tx")), ctx.codes(levels, heat_metric("rx")))
    shown = [
        (table, lows)
        for table in tables
        if (lows := [low for low in table.lows if matched is None or _matches(low, table, matched)])
    ]
    capacity = down_up(ctx.fabric, ctx.line_rate_bps, ctx.snapshot.up)
    plans = [_plan(ctx, look, table, lows, capacity) for table, lows in shown]
    rows = sum(plan.parts * len(lows) for plan, (_, lows) in zip(plans, shown, strict=True))
    fixed = sum(plan.parts + 2 for plan in plans)
    deep = min(max(1, (ctx.height - fixed) // max(1, rows)), _DEEPEST)
    lines: list[Line] = []
    for plan, (table, lows) in zip(plans, shown, strict=True):
        title = (f" {table.title}", palette.strong)
        lines.append(line(title, (_counts(table, capacity), palette.dim)))
        for start in range(0, len(table.highs), plan.each):
            highs = table.highs[start : start + plan.each]
            lines.append(_heading(highs, plan, look))
            for low in lows:
                pairs = [table.cells.get((low, high), ()) for high in highs]
                lines += _row(low, highs, pairs, plan, look, codes, deep)
        lines.append(line(("", palette.text)))
    if not lines and tables:
        return [line((" No switch matches the filter", palette.dim))]
    if not lines:
        text = (
            "No cable between switches is known. Name the switches with role=switch in the hosts"
            " file: cables are read from routes, LLDP or an InfiniBand fabric. Or list them with"
            " --topology FILE."
        )
        lines = paragraph(text, ctx.width, palette.dim, indent=1)
    return lines


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a table is drawn.

    `ratios` is the down:up ratio of each leaf. `name`, `ratio` (0 without any) and `cell` are the
    widths of names, of the ratios and of half a cell; the cells begin at column `left`. There are
    `each` columns side by side, and so the table is drawn in `parts`, below each other.
    """

    ratios: Mapping[str, str]
    name: int
    ratio: int
    left: int
    cell: int
    each: int
    parts: int


def _plan(
    ctx: DrawContext, look: Look, table: TierMatrix, lows: list[str], capacity: _Capacity
) -> _Plan:
    name = min(max(map(cell_len, lows)), _NAME, max(6, ctx.width // 4))
    ratios = {low: ratio_text(*capacity[low]) for low in lows if low in capacity}
    ratio = max(map(cell_len, ratios.values()), default=0)
    left = _MARGIN + name + 1 + (ratio + 1 if ratio else 0)
    room = ctx.width - left
    cell = _cell(look, room, len(table.highs))
    each = max(1, room // (2 * cell + 1))
    return _Plan(ratios, name, ratio, left, cell, each, -(-len(table.highs) // each))


def _matches(low: str, table: TierMatrix, matched: Matched) -> bool:
    nodes = matched.nodes
    return low in nodes or any(high in nodes and (low, high) in table.cells for high in table.highs)


def _counts(table: TierMatrix, capacity: _Capacity) -> str:
    links = sum(map(len, table.cells.values()))
    unknown = sum(len(cells) for (_, high), cells in table.cells.items() if high == UNKNOWN)
    highs = sum(high != UNKNOWN for high in table.highs)
    text = f"  {len(table.lows)} by {highs}, {plural(links, 'link')}"
    text = f"{text}, {unknown} with unknown end" if unknown else text
    return text + _ratios(table, capacity)


def _ratios(table: TierMatrix, capacity: _Capacity) -> str:
    """`, down:up 1:1`, or from the lowest ratio to the highest; empty where none is known."""
    known = [capacity[low] for low in table.lows if low in capacity]
    ratios = sorted(known, key=lambda bps: bps[0] / bps[1])
    if not ratios:
        return ""
    texts = dict.fromkeys(ratio_text(*bps) for bps in (ratios[0], ratios[-1]))
    return f", {_DOWN_UP} {' to '.join(texts)}"


def _cell(look: Look, room: int, count: int) -> int:
    """The width of each half of a cell: as all columns allow, with digits at least two."""
    least = 2 if look.levels.digits and look.palette.depth.rgb else 1
    return min(max(least, (room // max(1, count) - 1) // 2), _WIDEST)


def _heading(highs: tuple[str, ...], plan: _Plan, look: Look) -> Line:
    """The names of the columns, without their common stem where they are too long. The stem is
    before them, else what the ratios are, where there is room."""
    palette, pitch, room = look.palette, 2 * plan.cell + 1, plan.left - _MARGIN - 1
    known = [high for high in highs if high != UNKNOWN]
    stems = {high.rstrip("0123456789") for high in known}
    common = stems.pop() if len(stems) == 1 else ""
    fits = all(cell_len(high) < pitch for high in known)
    names = [
        high if fits else (high.removeprefix(common) or high)[-(pitch - 1) :] for high in known
    ] + ["?"] * (len(highs) - len(known))
    shown = "" if fits or not common else f"{common}…"
    if not shown and plan.ratio and cell_len(_DOWN_UP) <= room:
        shown = _DOWN_UP
    spans: list[Span] = [
        (" " * _MARGIN + right(fit(shown, min(room, cell_len(shown))), room) + " ", palette.dim)
    ]
    spans += [(fit(label, pitch), palette.dim) for label in names]
    return line(*spans)


def _row(
    low: str,
    highs: tuple[str, ...],
    pairs: list[tuple[TierLink, ...]],
    plan: _Plan,
    look: Look,
    codes: _Codes,
    deep: int,
) -> list[Line]:
    """A lower switch with the cells of its pairs in `deep` lines, the last one blank.

    The value is in the middle line of a cell.
    """
    palette, cell = look.palette, plan.cell
    name: list[Span] = [(" " * _MARGIN + fit(low, plan.name) + " ", palette.text)]
    if plan.ratio:
        name.append((right(plan.ratios.get(low, ABSENT), plan.ratio) + " ", palette.dim))
    below = (" " * plan.left, palette.text)
    colours: list[Span] = []
    hits: list[Hit] = []
    x = plan.left
    for high, links in zip(highs, pairs, strict=True):
        if links:
            hits.append(Hit(x, x + 2 * cell, PairTarget(low, high), is_colour=True))
        colours += [look.picture(code, cell) for code in _worst(links, codes)]
        colours.append((" ", palette.text))
        x += 2 * cell + 1
    plain: list[Span] = [(" " * cell_len(text), style) for text, style in colours]
    thick = max(1, deep - 1)
    lines = [
        line(*name, *colours, hits=tuple(hits))
        if place == (thick - 1) // 2
        else line(below, *plain, hits=tuple(hits))
        for place in range(thick)
    ]
    return [*lines, *([line(("", palette.text))] if deep > 1 else [])]


def _worst(links: tuple[TierLink, ...], codes: _Codes) -> tuple[int, int]:
    """(up, down): the code of the worst link of a pair in each direction: down, flagged, busiest.

    Of a port with a finding only the busier direction is flagged.
    """
    ups: list[int] = []
    downs: list[int] = []
    for low, high in links:
        row = low if low is not None else high
        if row is None:
            continue
        tx, rx = int(codes.tx[row]), int(codes.rx[row])
        if _order(tx)[1] and _order(rx)[1]:
            tx, rx = (tx, rx & ~FLAGGED) if tx & LEVEL >= rx & LEVEL else (tx & ~FLAGGED, rx)
        up, down = (tx, rx) if row == low else (rx, tx)
        ups.append(up)
        downs.append(down)
    marked = SELECTED if any(code & SELECTED for code in ups) else 0
    up, down = max(ups, key=_order, default=NOTHING), max(downs, key=_order, default=NOTHING)
    return up | (marked if ups else 0), down | (marked if downs else 0)


def _order(code: int) -> tuple[bool, bool, bool, int]:
    """Down before flagged, flagged before known; then by utilisation."""
    kind = code & ~(STALE | SELECTED | FADED)
    is_level = kind <= (FLAGGED | LEVEL)
    return kind == DOWN, bool(is_level and code & FLAGGED), is_level, code & LEVEL


def pair_title(pair: PairTarget) -> str:
    """`leaf1 → spine3`."""
    return f"{pair.low} → {pair.high if pair.high != UNKNOWN else '?'}"


def pair_page(
    ctx: DrawContext,
    pair: PairTarget,
    links: tuple[TierLink, ...],
) -> list[Line]:
    """A block per cable: both ends, state, traffic each direction and the cable's sources; then the
    findings of the pair.
    """
    palette, snapshot = ctx.palette, ctx.snapshot
    rest = f"; tx is from {pair.low}"
    if pair.high == UNKNOWN:
        rest = f" of {pair.low} with unknown other end"
    lines = [line((f" {plural(len(links), 'link')}{rest}", palette.strong))]
    for link in links:
        row = link.low if link.low is not None else link.high
        if row is None or row >= len(ctx.fabric.ports):
            continue
        port = ctx.fabric.ports[row]
        sign, accent = labels.port_sign(ctx, {each for each in link if each is not None})
        down = snapshot.up[row] == 0
        target = PortTarget(row)
        traffic = traffic_text(snapshot, row, ctx.choices.unit)
        lines.append(
            line(
                (f" {sign} ", accent),
                (fit(_ends(port, ctx.fabric), max(20, ctx.width - 16)), palette.strong),
                (fit(port_state(ctx.scene, row), 12), palette.gone if down else palette.dim),
                target=target,
            )
        )
        if link.low is None:
            traffic += f"  (counted by {port.node}: its tx is towards {pair.low})"
        lines += paragraph(traffic, ctx.width, palette.text, target, indent=5)
        lines.append(line((f"     {cable_sources(port)}", palette.dim), target=target))
    rows = {row for link in links for row in link if row is not None}
    for finding in ctx.scene.findings:
        if rows & set(finding.rows):
            lines += labels.finding_paragraph(ctx, finding, FindingTarget(finding.key))
    return lines


def pair_summary(ctx: DrawContext, pair: PairTarget, links: tuple[TierLink, ...]) -> Line:
    """One line on a pair: its busiest link in each direction, links that are down, findings."""
    palette, snapshot = ctx.palette, ctx.snapshot
    spans: list[Span] = [
        (f" {pair_title(pair)}  ", palette.strong),
        (f"{'max of ' if len(links) > 1 else ''}{plural(len(links), 'link')}  ", palette.dim),
    ]
    unit = ctx.choices.unit if ctx.choices.unit is not Unit.PERCENT else Unit.GBIT
    for direction, (near, far) in (("up", (0, 1)), ("down", (1, 0))):
        most: tuple[float, str] = (-1.0, ABSENT)
        for link in links:
            sender, receiver = link[near], link[far]
            row, side = (receiver, "rx") if sender is None else (sender, "tx")
            if row is None or np.isnan(bps := float(snapshot.column(f"{side}_bps")[row])):
                continue
            line_rate = float(snapshot.line_rate_bps[row])
            share = rate(bps, line_rate, Unit.PERCENT)
            most = max(most, (bps, f"{rate(bps, line_rate, unit):>9} {share:>6}"))
        spans.append((f"{direction} {most[1]}  ", palette.text))
    rows = {row for link in links for row in link if row is not None}
    gone = sum(any(row is not None and snapshot.up[row] == 0 for row in link) for link in links)
    if gone:
        spans.append((f"✖ {gone} down  ", palette.gone))
    for finding in ctx.scene.findings:
        if rows & set(finding.rows[:1]):
            sign, style = labels.finding_sign(finding, snapshot, palette)
            spans.append((f"{sign} {finding_title(finding)}  ", style))
    return Line(tuple(spans))


def cable_sources(port: Port) -> str:
    """`known from config, LLDP`: the sources of a port's cable."""
    if port.cable is None:
        return "other end unknown: no route, LLDP or topology names it"
    sources = f"known from {', '.join(port.cable.known_from)}"
    return sources if port.peer is not None else f"{sources}; the other end is not watched"


def _ends(port: Port, fabric: Fabric) -> str:
    if port.peer is not None or port.cable is None:
        return labels.both_ends(port, fabric)
    far = f"{port.cable.node}/{port.cable.port}".rstrip("/")
    return f"{port.display_name} → {far}"
