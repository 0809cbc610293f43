"""The texts beside the cells of the heatmap: names, ages, marks, or why a node has no cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from rich.cells import cell_len
from rich.style import Style

from fabmon.analysis.scene import Scene
from fabmon.fabric import time_wording
from fabmon.fabric.snapshot import STALE_TICKS
from fabmon.fabric.tick import NodeState
from fabmon.tui.cells import (
    ABSENT,
    DOWN,
    FLAGGED,
    MUTED,
    NOTHING,
    SELECTED,
    STALE,
    CellBlock,
    CellRow,
    Codes,
)
from fabmon.tui.heatmap_layout import AGE, MARK, GridPart, HeatmapGrid
from fabmon.tui.line import fit, right
from fabmon.tui.palette import Palette

_LEFT = 2
"""Blocks of the node at the left: its ports and its GPUs."""

_GONE = (NodeState.LOST, NodeState.FAILED)


def spread(grid: HeatmapGrid, codes: Codes) -> Codes:
    """[rows, columns]: the codes of ports at the places of their cells."""
    padded = np.append(codes, np.uint16(NOTHING)).astype(np.uint16)
    return padded[grid.ports]


class _Texts(NamedTuple):
    """The texts beside the cells of a part's node; a `note` replaces the cells."""

    mark: str = ""
    age: str = ""
    note: str = ""
    gone: bool = False
    muted: bool = False


class HeatmapRows:
    """The rows of a grid; a row whose texts have not changed is the same object as before."""

    def __init__(self, grid: HeatmapGrid, palette: Palette) -> None:
        """For this grid, in these colours."""
        self._grid = grid
        self._palette = palette
        self._made: dict[int, tuple[list[_Texts], CellRow]] = {}
        parts = [part for row in grid.rows for part in row]
        self._nodes = {each.name for part in parts for each in (part.node, part.beside) if each}

    def are_of(self, grid: HeatmapGrid, palette: Palette) -> bool:
        """Whether they were made for this grid and these colours."""
        return self._grid is grid and self._palette == palette

    def of(self, cells: Codes, scene: Scene) -> tuple[CellRow, ...]:
        """The rows of a scene; `cells` are its codes, [rows, columns]."""
        marks = _Marks(self._grid, cells, scene)
        made: list[CellRow] = []
        heading = -1
        for y, parts in enumerate(self._grid.rows):
            if parts[0].heading:
                heading = y
            texts = [_texts_of(part, scene, marks, y, self._palette) for part in parts]
            before = self._made.get(y)
            if before is None or before[0] != texts:
                before = self._made[y] = (texts, self._row(parts, texts, heading))
            made.append(before[1])
        return tuple(made)

    def _row(self, parts: tuple[GridPart, ...], texts: list[_Texts], heading: int) -> CellRow:
        """A row of parts side by side, or of their headings."""
        grid = self._grid
        if parts[0].heading:
            headings = [_heading(part, grid.name, self._palette) for part in parts]
            texts_ = tuple(text for each in headings for text in each)
            return CellRow(
                texts_,
                (),
                -1,
                tuple(_switch_name(part, grid) for part in parts if part.group in self._nodes),
            )
        joined = [
            _part(part, each, grid, self._palette) for part, each in zip(parts, texts, strict=True)
        ]
        return CellRow(
            tuple(text for placed, _ in joined for text in placed),
            tuple(block for _, blocks in joined for block in blocks),
            heading,
            tuple(name for part in parts for name in _names(part, grid)),
        )


class _Marks:
    """Which cells of a grid are down, flagged or selected, and the age of those that are late."""

    def __init__(self, grid: HeatmapGrid, cells: Codes, scene: Scene) -> None:
        selected = (cells & SELECTED) > 0
        bare = cells & ~np.uint16(SELECTED | MUTED)
        muted = (cells & MUTED) > 0
        flags = (
            (bare == DOWN) | (bare == DOWN | STALE),
            (bare < ABSENT) & ((bare & FLAGGED) > 0),
            selected,
            muted,
            (cells != NOTHING) & ~muted,
        )
        # Cumulative sums: whether there is one in any run of columns, in two look-ups.
        sums = np.zeros((len(flags), len(cells), cells.shape[1] + 1), np.intp)
        np.cumsum(np.stack(flags), axis=2, out=sums[:, :, 1:])
        self._sums: list[list[list[int]]] = sums.tolist()
        ages = np.nan_to_num(scene.snapshot.age_s, nan=0, posinf=0)
        ages[ages <= STALE_TICKS * scene.snapshot.interval_s] = 0
        self._ages = np.append(ages, 0)[grid.ports] if ages.any() else None

    def any(self, y: int, own: slice) -> list[bool]:
        """Whether one of the columns of a row is down, flagged, selected, muted, not muted."""
        return [of[y][own.stop] > of[y][own.start] for of in self._sums]

    def age_s(self, y: int, own: slice) -> float:
        """The age of the oldest late cell among the columns of a row; 0 for none."""
        return 0.0 if self._ages is None else float(self._ages[y, own].max(initial=0))


def _texts_of(part: GridPart, scene: Scene, marks: _Marks, y: int, palette: Palette) -> _Texts:
    if part.heading:
        return _Texts()
    left = part.blocks[:_LEFT]
    own = slice(left[0].first, left[-1].first + left[-1].count)
    note, gone = _state(part, scene)
    down, flagged, selected, muted, matched = marks.any(y, own)
    mark = "✖" if gone or down else "▲" if flagged else " "
    age_s = marks.age_s(y, own)
    return _Texts(
        palette.selection_mark + mark if selected else mark,
        time_wording.age(age_s) if age_s else "",
        note,
        gone,
        muted and not matched,
    )


def _state(part: GridPart, scene: Scene) -> tuple[str, bool]:
    """Why the node at the left has no cells, and whether it is lost or failed."""
    status = scene.snapshot.statuses.get(part.node.name) if part.node is not None else None
    if part.node is None or status is None:
        return "", False
    note = ""
    if not part.node.ports:
        note = f"{status.state}: {status.reason}" if status.reason else str(status.state)
    return note, status.state in _GONE


_Placed = tuple[tuple[int, str, Style], ...]
_Names = list[tuple[int, int, str]]
"""(x, width, node) of names that open their node."""


def _switch_name(part: GridPart, grid: HeatmapGrid) -> tuple[int, int, str]:
    """The heading of a group that has the name of its switch."""
    return part.x + 1, min(cell_len(part.group), grid.name + AGE), part.group


def _names(part: GridPart, grid: HeatmapGrid) -> _Names:
    """The names of the node and of the switch beside it."""
    names: _Names = []
    if part.node is not None and part.node.name:
        width = min(cell_len(part.node.name), grid.name)
        names.append((part.x + MARK, width, part.node.name))
    uplinks = part.blocks[_LEFT:]
    if part.beside is not None and part.beside.name and grid.beside and uplinks:
        width = grid.beside - 1
        names.append((uplinks[0].x - width - 1, width, part.beside.name))
    return names


def _heading(part: GridPart, name: int, palette: Palette) -> _Placed:
    first = part.labels[0][0] if part.labels else part.x + MARK + name + AGE
    title = fit(part.group or "fabric", min(first - part.x - 2, name + AGE))
    labels = ((x, label, palette.dim) for x, label in part.labels)
    return ((part.x + 1, title, palette.strong), *labels)


def _part(
    part: GridPart, texts: _Texts, grid: HeatmapGrid, palette: Palette
) -> tuple[_Placed, tuple[CellBlock, ...]]:
    """The texts of a part and its cells; a note replaces the cells."""
    x, blocks = part.x, part.blocks
    name = part.node.name if part.node is not None else ""
    beside = part.beside.name if part.beside is not None and grid.beside else ""
    accent = {"✖": palette.gone, "▲": palette.accent}.get(texts.mark[-1], palette.text)
    accent = palette.rule if texts.muted else accent
    made: list[tuple[int, str, Style]] = []
    if name:
        made.append((x + 2 - len(texts.mark), texts.mark, accent))
        style = palette.gone if texts.gone else palette.rule if texts.muted else palette.text
        made.append((x + MARK, fit(name, grid.name), style))
        made.append((x + MARK + grid.name, right(texts.age, AGE - 1), palette.dim))
    left, uplinks = blocks[:_LEFT], blocks[_LEFT:]
    if beside and uplinks:
        beside = fit(beside, grid.beside - 1)
        made.append((uplinks[0].x - len(beside) - 1, beside, palette.dim))
    if texts.note:
        end = uplinks[0].x if uplinks else left[-1].x + left[-1].count * left[-1].pitch
        room = max(end - left[0].x - 1, 12)
        made.append((left[0].x, fit(texts.note, room), palette.dim))
        blocks = uplinks
    return tuple(sorted(made, key=lambda text: text[0])), blocks
