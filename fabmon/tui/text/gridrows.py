"""What stands beside the cells of the heatmap: names, ages, marks, and why a node has no cells."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from rich.style import Style

from fabmon.analysis.scene import Scene
from fabmon.fabric.tick import NodeState
from fabmon.tui import clock
from fabmon.tui.cells import ABSENT, CHOSEN, DOWN, HOT, NOTHING, STALE, STALE_TICKS, Codes
from fabmon.tui.layout import Grid, Part
from fabmon.tui.line import fit, right
from fabmon.tui.palette import Palette
from fabmon.tui.section import AGE, MARK, Block
from fabmon.tui.widgets.rowpainter import Row

_LEFT = 2
"""Blocks that belong to the node at the left: its ports, and its GPUs."""

_GONE = (NodeState.LOST, NodeState.FAILED)


def spread(grid: Grid, codes: Codes) -> Codes:
    """[rows, columns]: the codes of ports, at the places of their cells."""
    padded = np.append(codes, np.uint16(NOTHING)).astype(np.uint16)
    return padded[grid.ports]


def rows(grid: Grid, cells: Codes, scene: Scene, palette: Palette) -> tuple[Row, ...]:
    """A row for each row of the grid; what has not changed is the same object as before."""
    chosen = (cells & CHOSEN) > 0
    cells = cells & ~np.uint16(CHOSEN)
    hot = (cells < ABSENT) & ((cells & HOT) > 0)
    down = (cells == DOWN) | (cells == DOWN | STALE)
    late = STALE_TICKS * scene.moment.interval_s
    ages = np.append(np.nan_to_num(scene.moment.age_s, nan=0, posinf=0), 0)[grid.ports]
    ages[ages <= late] = 0
    heading = -1
    made: list[Row] = []
    for y, parts in enumerate(grid.rows):
        if parts[0].heading:
            heading = y
            made.append(_join(tuple(_heading(part, grid.name, palette) for part in parts), -1))
            continue
        texts = []
        for part in parts:
            left = part.blocks[:_LEFT]
            own = slice(left[0].first, left[-1].first + left[-1].count)
            name, note, gone = _node(part, scene)
            mark = "✖" if gone or down[y, own].any() else "▲" if hot[y, own].any() else " "
            if chosen[y, own].any():
                mark = palette.chosen_mark + mark
            old = float(ages[y, own].max(initial=0))
            beside = part.beside.name if part.beside is not None and grid.beside else ""
            said = (name, fit(beside, grid.beside - 1) if beside else "", note)
            age = clock.age(old) if old else ""
            texts.append(_part(said, part.blocks, part.x, grid.name, mark, gone, age, palette))
        made.append(_join(tuple(texts), heading))
    return tuple(made)


def _node(part: Part, scene: Scene) -> tuple[str, str, bool]:
    """(name of the node at the left, why it has no cells, whether it is gone)."""
    if part.node is None:
        return "", "", False
    status = scene.moment.statuses.get(part.node.name)
    if status is None:
        return part.node.name, "", False
    note = ""
    if not part.node.ports:
        note = f"{status.state}: {status.reason}" if status.reason else str(status.state)
    return part.node.name, note, status.state in _GONE


_Texts = tuple[tuple[int, str, Style], ...]


@lru_cache(maxsize=16384)
def _join(parts: tuple[tuple[_Texts, tuple[Block, ...]], ...], heading: int) -> Row:
    """Parts side by side as one row."""
    texts = tuple(text for part, _ in parts for text in part)
    return Row(texts, tuple(block for _, blocks in parts for block in blocks), heading)


def _heading(part: Part, name: int, palette: Palette) -> tuple[_Texts, tuple[Block, ...]]:
    first = part.labels[0][0] if part.labels else part.x + MARK + name + AGE
    title = fit(part.group or "fabric", min(first - part.x - 2, name + AGE))
    labels = ((x, label, palette.dim) for x, label in part.labels)
    return ((part.x + 1, title, palette.strong), *labels), ()


@lru_cache(maxsize=16384)
def _part(
    said: tuple[str, str, str],
    blocks: tuple[Block, ...],
    x: int,
    width: int,
    mark: str,
    gone: bool,
    age: str,
    palette: Palette,
) -> tuple[_Texts, tuple[Block, ...]]:
    """`said` are the names at the left and at the right, and what stands in place of cells."""
    name, beside, note = said
    accent = {"✖": palette.gone, "▲": palette.hot}.get(mark[-1], palette.text)
    made: list[tuple[int, str, Style]] = []
    if name:
        made.append((x + 2 - len(mark), mark, accent))
        made.append((x + MARK, fit(name, width), palette.gone if gone else palette.text))
        made.append((x + MARK + width, right(age, AGE - 1), palette.dim))
    left, uplinks = blocks[:_LEFT], blocks[_LEFT:]
    if beside and uplinks:
        made.append((uplinks[0].x - len(beside) - 1, beside, palette.dim))
    if note:
        end = uplinks[0].x if uplinks else left[-1].x + left[-1].count * left[-1].pitch
        room = max(end - left[0].x - 1, 12)
        made.append((left[0].x, fit(note, room), palette.dim))
        blocks = uplinks
    return tuple(sorted(made, key=lambda text: text[0])), blocks
