"""The grid of the heatmap: which rows there are, and the ports of every cell.

Within a level the order is physical, never by value. At the level of ports every node has a row,
and a leaf's uplinks have a row above its hosts. At the level of leaves a unit is one row, at that
of pods several units share a row; there a cell is the busiest of several ports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from fabmon.fabric.model import Node, Port
from fabmon.tui.cells import CellBlock
from fabmon.tui.heatmap_units import Unit

Shape = tuple[int, int]
"""(width of a cell, width of the gap after it) in columns."""
SHAPES: tuple[Shape, ...] = ((4, 1), (3, 1), (2, 1), (1, 1), (1, 0))
"""Cell widths and gaps to try, widest first; the last is the smallest."""

MARK = 3
"""Columns before a name, for the mark of a row."""
NOTE = 16
"""Columns for `max 98.2 % up5` after the cells."""
AGE = 5
"""Columns for the age of a node's samples after its cells."""
BLOCK_GAP = 3
"""Columns between two strips of one row."""
_LEAST_CURVE, _MOST_CURVE = 8, 120
"""Columns of a curve after the cells."""
_TICK_EVERY = 5
"""Uplinks are labelled 1, 5, 10, 15 …"""

Members = tuple[int, ...]
"""The port rows of one cell: none is a gap, several are drawn as the busiest."""


class Level(IntEnum):
    """What has a row of its own."""

    PODS = 0
    LEAVES = 1
    PORTS = 2
    LINKS = 3


class Kind(Enum):
    """What a part of a row is."""

    TEXT = "a sentence"
    CAPTION = "labels of the columns below"
    UPLINKS = "the uplinks of a switch"
    NODE = "a node"
    GPU = "the NVLinks of a GPU"
    UNIT = "a unit"
    POD = "several units"


@dataclass(frozen=True, slots=True)
class Strip:
    """Cells from column `x` on."""

    x: int
    shape: Shape
    cells: tuple[Members, ...]

    @property
    def end(self) -> int:
        """The column after the last cell."""
        return self.x + len(self.cells) * sum(self.shape)


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a row before it is placed: `note` and `curve` are (first column, columns)."""

    kind: Kind
    x: int
    title: str = ""
    unit: str = ""
    nodes: tuple[Node, ...] = ()
    strips: tuple[Strip, ...] = ()
    labels: tuple[tuple[int, str], ...] = ()
    note: tuple[int, int] = (0, 0)
    curve: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class GridPart:
    """One part of a row: a name and cells, or labels.

    `unit` is the title of its unit. `note` is the room for a text, `curve` that for a curve, as
    (first column, columns); (0, 0) for none.
    """

    kind: Kind
    x: int
    title: str
    unit: str
    nodes: tuple[Node, ...]
    blocks: tuple[CellBlock, ...]
    labels: tuple[tuple[int, str], ...]
    note: tuple[int, int]
    curve: tuple[int, int]

    @property
    def columns(self) -> slice:
        """Its columns of cells."""
        if not self.blocks:
            return slice(0, 0)
        return slice(self.blocks[0].first, self.blocks[-1].first + self.blocks[-1].count)


@dataclass(frozen=True)
class HeatmapGrid:
    """The heatmap of a fabric.

    `cells` [rows, columns] are rows of ports; from `ports` on they are aggregates, -1 is none.
    `members` are the port rows of all aggregates, which start at `starts`. `headings` [rows] are
    the rows of captions that stay while a row scrolls, -1 for none. `name` is the width of names.
    """

    level: Level
    rows: tuple[tuple[GridPart, ...], ...]
    headings: tuple[int, ...]
    cells: NDArray[np.intp]
    ports: int
    members: NDArray[np.intp]
    starts: NDArray[np.intp]
    name: int

    def ports_at(self, cell: tuple[int, int]) -> list[int]:
        """The port rows of a cell; none of one that an earlier layout had."""
        if not (cell[0] < self.cells.shape[0] and cell[1] < self.cells.shape[1]):
            return []
        value = int(self.cells[cell])
        if value < self.ports:
            return [value] if value >= 0 else []
        first = value - self.ports
        end = self.starts[first + 1] if first + 1 < len(self.starts) else len(self.members)
        members: list[int] = self.members[self.starts[first] : end].tolist()
        return members

    def first_place(self) -> tuple[int, int] | None:
        """The first cell of a port in the row of a node, else the first cell; None without any."""
        places = np.argwhere(self.cells >= 0).tolist()
        in_nodes = (
            (y, x)
            for y, x in places
            if (part := self.part((y, x))) is not None and part.kind is Kind.NODE
        )
        first = next(in_nodes, None) if self.level >= Level.PORTS else None
        return first or next(((y, x) for y, x in places), None)

    def place(self, port: int) -> tuple[int, int] | None:
        """(row, column) of the cell of a port, else of an aggregate with it; None without one."""
        if port < 0:
            return None
        found = np.argwhere(self.cells == port)
        if not len(found):
            inside = np.flatnonzero(self.members == port)
            owners = np.searchsorted(self.starts, inside, "right") - 1 + self.ports
            found = np.argwhere(np.isin(self.cells, owners)) if len(inside) else found
        return (int(found[0][0]), int(found[0][1])) if len(found) else None

    def part(self, cell: tuple[int, int]) -> GridPart | None:
        """The part that a cell belongs to."""
        row, column = cell
        parts = (
            part for part in self.rows[row] if part.columns.start <= column < part.columns.stop
        )
        return next(parts, None)

    @cached_property
    def spans(self) -> NDArray[np.intp]:
        """[2 * parts]: first and end of the cells of every part in the flattened `cells`."""
        columns = self.cells.shape[1]
        ends = [
            y * columns + column
            for y, parts in enumerate(self.rows)
            for part in parts
            for column in (part.columns.start, part.columns.stop)
        ]
        return np.array(ends, np.intp)

    def ports_of(self, room: str, every: bool = False) -> list[tuple[int, ...]]:
        """For every part, the ports that its `note` (those of its last strip) or its `curve` (of
        its first) is about, or `every` port of it; none for parts without that room."""
        found: list[tuple[int, ...]] = []
        for y, parts in enumerate(self.rows):
            for part in parts:
                ports: tuple[int, ...] = ()
                if getattr(part, room)[1] and part.blocks:
                    place = -1 if room == "note" else 0
                    blocks = part.blocks if every else (part.blocks[place],)
                    cells = (x for b in blocks for x in range(b.first, b.first + b.count))
                    ports = tuple(row for x in cells for row in self.ports_at((y, x)))
                found.append(ports)
        return found


class GridBuilder:
    """Collects rows of pieces and numbers their cells."""

    def __init__(self, level: Level, ports: int, name: int) -> None:
        """`ports` are all ports of the fabric, `name` is the width of names."""
        self._level, self._ports, self._name = level, ports, name
        self._rows: list[tuple[GridPart, ...]] = []
        self._headings: list[int] = []
        self._cells: list[list[int]] = []
        self._members: list[int] = []
        self._starts: list[int] = []
        self._heading = -1

    def add(self, *pieces: Piece) -> None:
        """Add a row."""
        parts: list[GridPart] = []
        cells: list[int] = []
        for piece in pieces:
            blocks = []
            for strip in piece.strips:
                width, gap = strip.shape
                count = len(strip.cells)
                blocks.append(CellBlock(strip.x, width + gap, width, len(cells), count))
                cells += [self._number(members) for members in strip.cells]
            parts.append(
                GridPart(
                    piece.kind,
                    piece.x,
                    piece.title,
                    piece.unit,
                    piece.nodes,
                    tuple(blocks),
                    piece.labels,
                    piece.note,
                    piece.curve,
                )
            )
        is_caption = any(piece.kind is Kind.CAPTION for piece in pieces)
        if is_caption:
            self._heading = len(self._rows)
        self._headings.append(-1 if is_caption or not cells else self._heading)
        self._rows.append(tuple(parts))
        self._cells.append(cells)

    def _number(self, members: Members) -> int:
        if len(members) < 2:
            return members[0] if members else -1
        self._starts.append(len(self._members))
        self._members.extend(members)
        return self._ports + len(self._starts) - 1

    def grid(self) -> HeatmapGrid:
        """The grid of all rows so far."""
        columns = max(map(len, self._cells), default=0)
        cells = np.full((len(self._cells), columns), -1, dtype=np.intp)
        for line, row in zip(cells, self._cells, strict=True):
            line[: len(row)] = row
        return HeatmapGrid(
            self._level,
            tuple(self._rows),
            tuple(self._headings),
            cells,
            self._ports,
            np.array(self._members, np.intp),
            np.array(self._starts, np.intp),
            self._name,
        )


def widest(count: int, room: int) -> Shape | None:
    """The widest cells of which `count` fit; None if even the smallest do not."""
    return next((shape for shape in SHAPES if count * sum(shape) - shape[1] <= room), None)


def merged(cells: Sequence[Members], count: int) -> tuple[Members, ...]:
    """The cells, or `count` aggregates of neighbours where there are more."""
    if len(cells) <= count or count < 1:
        return tuple(cells)
    each = -(-len(cells) // count)
    runs = (cells[at : at + each] for at in range(0, len(cells), each))
    return tuple(tuple(row for members in run for row in members) for run in runs)


def ticks(strip: Strip, numbers: Sequence[int]) -> list[tuple[int, str]]:
    """(x, label) at 1, 5, 10 … of a strip; `numbers` are those of its cells' first ports, and what
    would touch the label before is left out."""
    labels: list[tuple[int, str]] = []
    free = strip.x
    for place, (number, after) in enumerate(
        pairwise([*numbers, numbers[-1] + 1 if numbers else 0])
    ):
        shown = next((n for n in range(number, max(after, number + 1)) if n % _TICK_EVERY == 0), 0)
        x = strip.x + place * sum(strip.shape)
        if (number == 1 or shown) and x >= free:
            label = str(shown or number)
            labels.append((x, label))
            free = x + len(label) + 1
    return labels


def name_width(units: Iterable[Unit], width: int) -> int:
    """Columns for names: of the longest, at most a quarter of the width."""
    names = [unit.title for unit in units] + [node.name for unit in units for node in unit.nodes]
    return min(max([6, *map(cell_len, names)]), max(8, width // 4))


@dataclass(frozen=True, slots=True)
class Frame:
    """Where the pieces of a unit are drawn: `width` columns from `x`, `name` of them for names.

    `starts` are the first places of the roles of NICs.
    """

    x: int
    width: int
    name: int
    starts: Mapping[str, int]

    @property
    def cells_x(self) -> int:
        """The first column of cells."""
        return self.x + MARK + self.name + 1

    @property
    def room(self) -> int:
        """Columns from there on."""
        return self.width - MARK - self.name - 1


def rest(frame: Frame, end: int, note: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(first column, columns) of a note of up to `note` columns, and of a curve, after `end`."""
    left = frame.x + frame.width - end - 1
    noted = (end + 1, min(note, left)) if note and left >= 6 else (0, 0)
    begin = (noted[0] + noted[1] if noted[1] else end) + 1
    left = min(frame.x + frame.width - begin, _MOST_CURVE)
    return noted, (begin, left) if left >= _LEAST_CURVE else (0, 0)


def slots(ports: Sequence[Port], starts: Mapping[str, int], count: int) -> tuple[Members, ...]:
    """`count` cells with each port at the place of its role and index."""
    placed: list[Members] = [()] * count
    for port in ports:
        placed[starts.get(port.role, 0) + port.index] = (port.row,)
    return tuple(placed)
