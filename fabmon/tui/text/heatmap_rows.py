"""What stands beside the cells of the heatmap: names, ages, marks, and why a node has no cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from rich.style import Style

from fabmon.analysis.scene import Scene
from fabmon.fabric import time_wording
from fabmon.fabric.snapshot import STALE_TICKS
from fabmon.fabric.tick import NodeState
from fabmon.tui.cells import ABSENT, DOWN, HOT, NOTHING, SELECTED, STALE, Block, CellRow, Codes
from fabmon.tui.heatmap_layout import AGE, MARK, Grid, GridPart
from fabmon.tui.line import fit, right
from fabmon.tui.palette import Palette

_LEFT = 2
"""Blocks that belong to the node at the left: its ports, and its GPUs."""

_GONE = (NodeState.LOST, NodeState.FAILED)


def spread(grid: Grid, codes: Codes) -> Codes:
    """[rows, columns]: the codes of ports, at the places of their cells."""
    padded = np.append(codes, np.uint16(NOTHING)).astype(np.uint16)
    return padded[grid.ports]


class _Said(NamedTuple):
    """What stands beside the cells of a part's node; `note` stands in place of them."""

    mark: str = ""
    age: str = ""
    note: str = ""
    gone: bool = False


class HeatmapRows:
    """A row for each row of a grid; what says the same as before is the same object."""

    def __init__(self, grid: Grid, palette: Palette) -> None:
        """Of this grid, in these colours."""
        self._grid = grid
        self._palette = palette
        self._made: dict[int, tuple[list[_Said], CellRow]] = {}

    def are_of(self, grid: Grid, palette: Palette) -> bool:
        """Whether they are of this grid and in these colours."""
        return self._grid is grid and self._palette == palette

    def of(self, cells: Codes, scene: Scene) -> tuple[CellRow, ...]:
        """Those of a scene whose cells are [rows, columns]."""
        marks = _Marks(self._grid, cells, scene)
        made: list[CellRow] = []
        heading = -1
        for y, parts in enumerate(self._grid.rows):
            if parts[0].heading:
                heading = y
            said = [_said(part, scene, marks, y, self._palette) for part in parts]
            before = self._made.get(y)
            if before is None or before[0] != said:
                before = self._made[y] = (said, self._row(parts, said, heading))
            made.append(before[1])
        return tuple(made)

    def _row(self, parts: tuple[GridPart, ...], said: list[_Said], heading: int) -> CellRow:
        """Parts side by side."""
        grid = self._grid
        if parts[0].heading:
            texts = [_heading(part, grid.name, self._palette) for part in parts]
            return CellRow(tuple(text for each in texts for text in each), (), -1)
        joined = [
            _part(part, each, grid, self._palette) for part, each in zip(parts, said, strict=True)
        ]
        return CellRow(
            tuple(text for texts, _ in joined for text in texts),
            tuple(block for _, blocks in joined for block in blocks),
            heading,
        )


class _Marks:
    """Which of the cells of a grid's nodes are down, hot or chosen, and how late the latest is."""

    def __init__(self, grid: Grid, cells: Codes, scene: Scene) -> None:
        chosen = (cells & SELECTED) > 0
        bare = cells & ~np.uint16(SELECTED)
        flags = (
            (bare == DOWN) | (bare == DOWN | STALE),
            (bare < ABSENT) & ((bare & HOT) > 0),
            chosen,
        )
        # Sums from the left: of any run of columns whether there is one, without looking at it.
        sums = np.zeros((len(flags), len(cells), cells.shape[1] + 1), np.intp)
        np.cumsum(np.stack(flags), axis=2, out=sums[:, :, 1:])
        self._sums: list[list[list[int]]] = sums.tolist()
        ages = np.nan_to_num(scene.snapshot.age_s, nan=0, posinf=0)
        ages[ages <= STALE_TICKS * scene.snapshot.interval_s] = 0
        self._ages = np.append(ages, 0)[grid.ports] if ages.any() else None

    def any(self, y: int, own: slice) -> list[bool]:
        """Whether one of the columns of a row is down, hot, chosen."""
        return [of[y][own.stop] > of[y][own.start] for of in self._sums]

    def age_s(self, y: int, own: slice) -> float:
        """Of the columns of a row the age of the oldest that is late; 0 for none."""
        return 0.0 if self._ages is None else float(self._ages[y, own].max(initial=0))


def _said(part: GridPart, scene: Scene, marks: _Marks, y: int, palette: Palette) -> _Said:
    if part.heading:
        return _Said()
    left = part.blocks[:_LEFT]
    own = slice(left[0].first, left[-1].first + left[-1].count)
    note, gone = _state(part, scene)
    down, hot, chosen = marks.any(y, own)
    mark = "✖" if gone or down else "▲" if hot else " "
    age_s = marks.age_s(y, own)
    return _Said(
        palette.selection_mark + mark if chosen else mark,
        time_wording.age(age_s) if age_s else "",
        note,
        gone,
    )


def _state(part: GridPart, scene: Scene) -> tuple[str, bool]:
    """Why the node at the left has no cells, and whether it is gone."""
    status = scene.snapshot.statuses.get(part.node.name) if part.node is not None else None
    if part.node is None or status is None:
        return "", False
    note = ""
    if not part.node.ports:
        note = f"{status.state}: {status.reason}" if status.reason else str(status.state)
    return note, status.state in _GONE


_Texts = tuple[tuple[int, str, Style], ...]


def _heading(part: GridPart, name: int, palette: Palette) -> _Texts:
    first = part.labels[0][0] if part.labels else part.x + MARK + name + AGE
    title = fit(part.group or "fabric", min(first - part.x - 2, name + AGE))
    labels = ((x, label, palette.dim) for x, label in part.labels)
    return ((part.x + 1, title, palette.strong), *labels)


def _part(
    part: GridPart, said: _Said, grid: Grid, palette: Palette
) -> tuple[_Texts, tuple[Block, ...]]:
    """The texts of a part and its cells, of which a note takes the place."""
    x, blocks = part.x, part.blocks
    name = part.node.name if part.node is not None else ""
    beside = part.beside.name if part.beside is not None and grid.beside else ""
    accent = {"✖": palette.gone, "▲": palette.hot}.get(said.mark[-1], palette.text)
    made: list[tuple[int, str, Style]] = []
    if name:
        made.append((x + 2 - len(said.mark), said.mark, accent))
        style = palette.gone if said.gone else palette.text
        made.append((x + MARK, fit(name, grid.name), style))
        made.append((x + MARK + grid.name, right(said.age, AGE - 1), palette.dim))
    left, uplinks = blocks[:_LEFT], blocks[_LEFT:]
    if beside and uplinks:
        beside = fit(beside, grid.beside - 1)
        made.append((uplinks[0].x - len(beside) - 1, beside, palette.dim))
    if said.note:
        end = uplinks[0].x if uplinks else left[-1].x + left[-1].count * left[-1].pitch
        room = max(end - left[0].x - 1, 12)
        made.append((left[0].x, fit(said.note, room), palette.dim))
        blocks = uplinks
    return tuple(sorted(made, key=lambda text: text[0])), blocks
