"""Leaves by spines: the utilisation of every pair's links, up and down, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len

from fabmon.analysis.scene import Scene
from fabmon.fabric.crossings import UNKNOWN, Crossing, Table
from fabmon.tui.cells import CHOSEN, DOWN, HOT, LEVEL, NOTHING, STALE, Codes, Look, scale
from fabmon.tui.line import Hit, Line, Span, fit, line, right
from fabmon.tui.metrics import heat
from fabmon.tui.stage import Stage, lit
from fabmon.tui.target import PairTarget

_MARGIN = 1
_WIDEST = 3
_NAME = 24


@dataclass(frozen=True, slots=True)
class _Codes:
    """[ports] what a cell says, of what a port sends and of what it receives."""

    tx: Codes
    rx: Codes


def page(stage: Stage, scene: Scene, tables: tuple[Table, ...], width: int) -> list[Line]:
    """A table for each tier; columns that find no room follow below."""
    palette = stage.palette
    matched = stage.matched(scene)
    levels = scale(heat("tx"), stage.depth, stage.choices.digits)
    look = Look(palette, levels)
    codes = _Codes(
        stage.cells(scene, levels, heat("tx")),
        stage.cells(scene, levels, heat("rx")),
    )
    hot = lit(scene)
    lines: list[Line] = []
    for table in tables:
        lows = [low for low in table.lows if matched is None or _is_left(low, table, matched.nodes)]
        if not lows:
            continue
        lines.append(line((f" {table.title}", palette.strong), (_counts(table), palette.dim)))
        name = min(max(map(cell_len, lows)), _NAME, max(6, width // 4))
        cell = _cell(look, width - _MARGIN - name - 1, len(table.highs))
        each = max(1, (width - _MARGIN - name - 1) // (2 * cell + 1))
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


def _is_left(low: str, table: Table, nodes: frozenset[str]) -> bool:
    return low in nodes or any(high in nodes and (low, high) in table.cells for high in table.highs)


def _counts(table: Table) -> str:
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
    table: Table,
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


def _worst(crossings: tuple[Crossing, ...], codes: _Codes) -> tuple[int, int]:
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
    marked = CHOSEN if any(code & CHOSEN for code in ups) else 0
    up, down = max(ups, key=_order, default=NOTHING), max(downs, key=_order, default=NOTHING)
    return up | (marked if ups else 0), down | (marked if downs else 0)


def _order(code: int) -> tuple[bool, bool, bool, int]:
    """Down before hot, hot before known, and then how busy."""
    kind = code & ~(STALE | CHOSEN)
    is_level = kind <= (HOT | LEVEL)
    return kind == DOWN, bool(is_level and code & HOT), is_level, code & LEVEL
