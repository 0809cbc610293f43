"""Where every port is on the overview: a fabric in, a grid out. Physical order, never by value.

Nodes are shown by group. Beside the hosts of a group stand the uplinks of its switches, the first
switch beside the first host. A group without hosts (the spines) shows its switches' own ports.
Groups stand below each other; when that is too high, side by side as far as there is room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.model import Fabric, Node
from fabmon.tui.section import Block, Section, Shape, sections

SHAPES: tuple[Shape, ...] = ((4, 1), (3, 1), (2, 1), (1, 1), (1, 0))
"""Cell widths and gaps to try, the roomiest first; a cell never gets smaller than the last."""
_SIDE_BY_SIDE: Shape = (1, 1)
"""The smallest cells that groups are put side by side for."""
_BETWEEN = 2
"""Cells between groups side by side."""


@dataclass(frozen=True, slots=True)
class Part:
    """One row of one group: its heading, or a host and the switch that stands beside it.

    `x` is where the group begins; blocks and labels count from the grid's own left.
    """

    x: int
    group: str
    heading: bool
    node: Node | None
    beside: Node | None
    blocks: tuple[Block, ...]
    labels: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """The overview of a fabric. `ports` is [rows, columns] of port rows, -1 where there is none.

    `name` is the width of the names, `beside` that of the names of the switches at the right (0
    when switches are called as their groups are).
    """

    rows: tuple[tuple[Part, ...], ...]
    ports: NDArray[np.intp]
    name: int
    beside: int

    def place(self, port: int) -> tuple[int, int] | None:
        """(row, column) of a port; None when it is not on the grid."""
        found = np.argwhere(self.ports == port)
        return (int(found[0][0]), int(found[0][1])) if len(found) else None


def build(fabric: Fabric, width: int, height: int, keep: frozenset[str] | None = None) -> Grid:
    """The grid of a fabric in `width` cells, and in `height` rows if that can be.

    `keep` are the nodes to show (None for all).
    """
    groups = sections(fabric, keep, width)
    bands = _arrange(groups, width, height)
    rows: list[tuple[Part, ...]] = []
    for band in bands:
        rows.extend(_band(band))
    columns = max(
        (block.first + block.count for row in rows for part in row for block in part.blocks),
        default=0,
    )
    ports = np.full((len(rows), columns), -1, dtype=np.intp)
    for line, row in zip(ports, rows, strict=True):
        for part in row:
            _place(line, part)
    name, beside = (groups[0].name, groups[0].beside) if groups else (0, 0)
    return Grid(tuple(rows), ports, name, beside)


_Placed = tuple[Section, Shape, int]
"""A group, the shape of its cells, and where it begins."""


def _arrange(groups: Sequence[Section], width: int, height: int) -> list[list[_Placed]]:
    """Bands of groups: one group a band where that is low enough, else as many as stand in one."""
    single = [[(group, _roomiest(group, width), 0)] for group in groups]
    shape = min((band[0][1] for band in single if band[0][0].hosts), default=SHAPES[0])
    single = [[(g, shape if g.hosts else min(shape, own), 0)] for [(g, own, _)] in single]
    if sum(group.height for group in groups) <= height:
        return single
    packed = single
    for shape in SHAPES:
        if shape < _SIDE_BY_SIDE:
            break
        trial = _pack(groups, shape, width)
        if max(map(len, trial), default=0) > 1:
            packed = trial
            if sum(max(group.height for group, _, _ in band) for band in trial) <= height:
                break
    return packed


def _roomiest(group: Section, width: int) -> Shape:
    return next((shape for shape in SHAPES if group.width(shape) <= width), SHAPES[-1])


def _pack(groups: Sequence[Section], shape: Shape, width: int) -> list[list[_Placed]]:
    """Groups in reading order, as many side by side as have room."""
    bands: list[list[_Placed]] = []
    x = width + 1
    for group in groups:
        own = min(shape, _roomiest(group, width))
        if x + group.width(own) > width:
            bands.append([])
            x = 0
        bands[-1].append((group, own, x))
        x += group.width(own) + _BETWEEN
    return bands


def _band(band: Sequence[_Placed]) -> list[tuple[Part, ...]]:
    """The rows of groups that stand side by side; their headings are in one row."""
    rows: list[list[Part]] = [[] for _ in range(max(group.height for group, _, _ in band))]
    first = 0
    for group, shape, x in band:
        blocks = tuple(
            Block(x + block.x, block.pitch, block.width, first + block.first, block.count)
            for block in group.blocks(shape)
        )
        labels = tuple((x + at, label) for at, label in group.labels(shape))
        rows[0].append(Part(x, group.title, True, None, None, (), labels))
        for y in range(group.height - 1):
            node, switch = group.nodes(y)
            rows[y + 1].append(Part(x, group.title, False, node, switch, blocks, ()))
        first += sum(block.count for block in blocks)
    return [tuple(row) for row in rows]


def _place(line: NDArray[np.intp], part: Part) -> None:
    """Write the port rows of a part into its columns."""
    for node, ports, block in zip(
        (part.node, part.node, part.beside),
        (Section.left_ports, Section.middle_ports, Section.right_ports),
        part.blocks,
        strict=False,
    ):
        if node is not None:
            for port in ports(node):
                line[block.first + port.index] = port.row
