"""Leaves by spines: the utilisation of every pair's links, up and down, side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rich.cells import cell_len

from fabmon.analysis.finding import sentence
from fabmon.fabric.model import Fabric, Port
from fabmon.fabric.topology.tier_matrix import UNKNOWN, TierLink, TierMatrix
from fabmon.fabric.wording import ABSENT, Unit, rate
from fabmon.tui.cells import DOWN, HOT, LEVEL, NOTHING, SELECTED, STALE, Codes, Look, scale
from fabmon.tui.line import (
    FindingTarget,
    Hit,
    Line,
    PairTarget,
    PortTarget,
    Span,
    fit,
    line,
    right,
    wrap,
)
from fabmon.tui.metrics import heat, traffic_words
from fabmon.tui.text import labels
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.labels import port_state

_MARGIN = 1
_WIDEST = 3
_NAME = 24


@dataclass(frozen=True, slots=True)
class _Codes:
    """[ports] what a cell says, of what a port sends and of what it receives."""

    tx: Codes
    rx: Codes


def page(ctx: DrawContext, tables: tuple[TierMatrix, ...]) -> list[Line]:
    """A table for each tier; columns that find no room follow below."""
    palette = ctx.palette
    matched = ctx.matched
    levels = scale(heat("tx"), ctx.palette.depth, ctx.digits)
    look = Look(palette, levels)
    codes = _Codes(
        ctx.codes(levels, heat("tx")),
        ctx.codes(levels, heat("rx")),
    )
    hot = ctx.hot_rows
    lines: list[Line] = []
    for table in tables:
        lows = [low for low in table.lows if matched is None or _is_left(low, table, matched.nodes)]
        if not lows:
            continue
        lines.append(line((f" {table.title}", palette.strong), (_counts(table), palette.dim)))
        name = min(max(map(cell_len, lows)), _NAME, max(6, ctx.width // 4))
        cell = _cell(look, ctx.width - _MARGIN - name - 1, len(table.highs))
        each = max(1, (ctx.width - _MARGIN - name - 1) // (2 * cell + 1))
        for start in range(0, len(table.highs), each):
            highs = table.highs[start : start + each]
            lines.append(_heading(highs, name, cell, look))
            for low in lows:
                lines.append(_row(low, highs, table, name, cell, look, codes, hot))
        lines.append(line(("", palette.text)))
    if not lines and tables:
        return [line((" No switch is in the filter.", palette.dim))]
    if not lines:
        for text in (
            " No cable between switches is known.",
            " Name the switches with role=switch in the hosts file; their routes, LLDP or an",
            " InfiniBand fabric tell the cables, or give them with --topology FILE.",
        ):
            lines.append(line((text, palette.dim)))
    return lines


def _is_left(low: str, table: TierMatrix, nodes: frozenset[str]) -> bool:
    return low in nodes or any(high in nodes and (low, high) in table.cells for high in table.highs)


def _counts(table: TierMatrix) -> str:
    links = sum(map(len, table.cells.values()))
    unknown = sum(len(cells) for (_, high), cells in table.cells.items() if high == UNKNOWN)
    said = f"  {len(table.lows)} by {sum(high != UNKNOWN for high in table.highs)}, {links} links"
    return f"{said}, {unknown} of unknown end" if unknown else said


def _cell(look: Look, room: int, count: int) -> int:
    """The width of each half of a cell: as wide as all columns allow, with digits at least two."""
    least = 2 if look.levels.digits and look.palette.depth.rgb else 1
    return min(max(least, (room // max(1, count) - 1) // 2), _WIDEST)


def _heading(highs: tuple[str, ...], name: int, cell: int, look: Look) -> Line:
    """The columns' names, without what they have in common where that does not fit."""
    palette, pitch = look.palette, 2 * cell + 1
    known = [high for high in highs if high != UNKNOWN]
    stems = {high.rstrip("0123456789") for high in known}
    common = stems.pop() if len(stems) == 1 else ""
    fits = all(cell_len(high) < pitch for high in known)
    labels = [
        high if fits else (high.removeprefix(common) or high)[-(pitch - 1) :] for high in known
    ] + ["?"] * (len(highs) - len(known))
    shown = "" if fits or not common else f"{common}…"
    spans: list[Span] = [
        (" " * _MARGIN + right(fit(shown, min(name, cell_len(shown))), name) + " ", palette.dim)
    ]
    spans += [(fit(label, pitch), palette.dim) for label in labels]
    return line(*spans)


def _row(
    low: str,
    highs: tuple[str, ...],
    table: TierMatrix,
    name: int,
    cell: int,
    look: Look,
    codes: _Codes,
    hot: set[int],
) -> Line:
    palette = look.palette
    spans: list[Span] = [(" " * _MARGIN + fit(low, name) + " ", palette.text)]
    hits: list[Hit] = []
    x = _MARGIN + name + 1
    for high in highs:
        crossings = table.cells.get((low, high), ())
        if crossings:
            hits.append(Hit(x, x + 2 * cell, PairTarget(low, high), is_colour=True))
        for code in _worst(crossings, codes):
            spans.append(look.picture(code, cell))
        spans.append((" ", palette.text))
        x += 2 * cell + 1
    return line(*spans, hits=tuple(hits))


def _worst(crossings: tuple[TierLink, ...], codes: _Codes) -> tuple[int, int]:
    """What a pair's cell says of up and of down: a link that is down, else the busiest.

    A finding lights a port; of its two directions, that is the busier.
    """
    ups: list[int] = []
    downs: list[int] = []
    for low, high in crossings:
        row = low if low is not None else high
        if row is None:
            continue
        tx, rx = int(codes.tx[row]), int(codes.rx[row])
        if _order(tx)[1] and _order(rx)[1]:
            tx, rx = (tx, rx & ~HOT) if tx & LEVEL >= rx & LEVEL else (tx & ~HOT, rx)
        up, down = (tx, rx) if row == low else (rx, tx)
        ups.append(up)
        downs.append(down)
    marked = SELECTED if any(code & SELECTED for code in ups) else 0
    up, down = max(ups, key=_order, default=NOTHING), max(downs, key=_order, default=NOTHING)
    return up | (marked if ups else 0), down | (marked if downs else 0)


def _order(code: int) -> tuple[bool, bool, bool, int]:
    """Down before hot, hot before known, and then how busy."""
    kind = code & ~(STALE | SELECTED)
    is_level = kind <= (HOT | LEVEL)
    return kind == DOWN, bool(is_level and code & HOT), is_level, code & LEVEL


# The cables between two switches, one by one.


def pair_title(pair: PairTarget) -> str:
    """`leaf1 → spine3`."""
    return f"{pair.low} → {pair.high if pair.high != UNKNOWN else '?'}"


def pair_page(
    ctx: DrawContext,
    pair: PairTarget,
    crossings: tuple[TierLink, ...],
) -> list[Line]:
    """A block for each cable: its two ends, what it carries each way, who says that it is there."""
    palette, snapshot = ctx.palette, ctx.snapshot
    hot = ctx.hot_rows
    lines = [line((f" {_count(len(crossings))}; tx is from {pair.low}", palette.strong))]
    if pair.high == UNKNOWN:
        lines[0] = line(
            (
                f" {_count(len(crossings))} of {pair.low} whose other end nobody tells of",
                palette.strong,
            )
        )
    for crossing in crossings:
        row = crossing.low if crossing.low is not None else crossing.high
        if row is None or row >= len(snapshot.fabric.ports):
            continue
        port = snapshot.fabric.ports[row]
        ends = {each for each in crossing if each is not None}
        down = snapshot.up[row] == 0
        sign, accent = (
            ("✖", palette.gone)
            if down
            else ("▲", palette.hot)
            if ends & hot
            else (" ", palette.text)
        )
        target = PortTarget(row)
        traffic = traffic_words(snapshot, row, ctx.unit)
        lines.append(
            line(
                (f" {sign} ", accent),
                (fit(_ends(port, snapshot.fabric), max(20, ctx.width - 16)), palette.strong),
                (fit(port_state(ctx.scene, row), 12), palette.gone if down else palette.dim),
                target=target,
            )
        )
        if crossing.low is None:
            traffic += f"  (as {port.node} counts it: its tx is towards {pair.low})"
        lines += [
            line((f"     {part}", palette.text), target=target)
            for part in wrap(traffic, ctx.width - 6)
        ]
        lines.append(line((f"     {known(port)}", palette.dim), target=target))
    rows = {row for crossing in crossings for row in crossing if row is not None}
    for finding in ctx.scene.findings:
        if rows & set(finding.rows):
            accent = palette.gone if labels.is_gone(finding) else palette.hot
            title = f"{labels.finding_mark(finding)} {labels.cause_title(finding)}"
            text = f"{title}: {sentence(finding, ctx.snapshot)}"
            lines += [
                line((f" {part}", accent), target=FindingTarget(finding.key))
                for part in wrap(text, ctx.width - 2)
            ]
    return lines


def pair_summary(ctx: DrawContext, pair: PairTarget, crossings: tuple[TierLink, ...]) -> Line:
    """What a cell of the matrix stands for, in one line: the busiest of its links, each way."""
    palette, snapshot = ctx.palette, ctx.snapshot
    spans: list[Span] = [
        (f" {pair_title(pair)}  ", palette.strong),
        (f"{_count(len(crossings))}  ", palette.dim),
    ]
    unit = ctx.unit if ctx.unit is not Unit.PERCENT else Unit.GBIT
    for way, (near, far) in (("up", (0, 1)), ("down", (1, 0))):
        most: tuple[float, str] = (-1.0, ABSENT)
        for crossing in crossings:
            sender, receiver = crossing[near], crossing[far]
            row, side = (receiver, "rx") if sender is None else (sender, "tx")
            if row is None or np.isnan(bps := float(snapshot.column(f"{side}_bps")[row])):
                continue
            line_rate = float(snapshot.line_rate_bps[row])
            share = rate(bps, line_rate, Unit.PERCENT)
            most = max(most, (bps, f"{rate(bps, line_rate, unit):>9} {share:>6}"))
        spans.append((f"{way} {most[1]}  ", palette.text))
    rows = {row for crossing in crossings for row in crossing if row is not None}
    gone = sum(
        any(row is not None and snapshot.up[row] == 0 for row in crossing) for crossing in crossings
    )
    if gone:
        spans.append((f"✖ {gone} down  ", palette.gone))
    for finding in ctx.scene.findings:
        if rows & set(finding.rows[:1]):
            accent = palette.gone if labels.is_gone(finding) else palette.hot
            spans.append(
                (f"{labels.finding_mark(finding)} {labels.cause_title(finding)}  ", accent)
            )
    return Line(tuple(spans))


def known(port: Port) -> str:
    """`known from config, LLDP`: who says where a port's cable leads."""
    if port.cable is None:
        return "the other end is not known: no route, LLDP or topology names it"
    sources = f"known from {', '.join(port.cable.known_from)}"
    return sources if port.peer is not None else f"{sources}; the other end is not watched"


def _count(links: int) -> str:
    return f"{links} link" if links == 1 else f"{links} links"


def _ends(port: Port, fabric: Fabric) -> str:
    if port.peer is not None or port.cable is None:
        return labels.both_ends(port, fabric)
    far = f"{port.cable.node}/{port.cable.port}".rstrip("/")
    return f"{labels.port_name(port)} → {far}"
