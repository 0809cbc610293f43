"""One group of the overview: what stands at its left, what at its right, and how wide that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from fabmon.fabric.model import DOWNLINK, GPU, MANAGEMENT, RAIL, SWITCH, UPLINK, Fabric, Node, Port
from fabmon.tui.cells import Block

Shape = tuple[int, int]
"""Width of a cell, and of the gap after it."""

MARK = 3
"""Cells before a name: for the mark of what is wrong in the row."""
AGE = 5
"""Cells that a row keeps for the age of its samples."""
_BETWEEN = 3
"""Cells between the ports of the hosts and the uplinks beside them."""

_Side = tuple[tuple[Node, tuple[Port, ...]], ...]


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """A group. `name` and `beside` are the widths of the names at the left and at the right.

    `slots` is how many places for ports there are at the left, `gpus` how many for GPUs after
    them, the same for all groups of hosts.
    """

    title: str
    left: _Side
    right: _Side
    hosts: bool
    slots: int
    gpus: int
    name: int
    beside: int

    @property
    def height(self) -> int:
        """Rows, the heading included."""
        return 1 + max(len(self.left), len(self.right))

    def nodes(self, y: int) -> tuple[Node | None, Node | None]:
        """What stands at the left and at the right of a row."""
        left = self.left[y][0] if y < len(self.left) else None
        return left, self.right[y][0] if y < len(self.right) else None

    @staticmethod
    def left_ports(node: Node) -> tuple[Port, ...]:
        """The ports at the left: a host's rails, or whatever it has when it has none."""
        if node.role == SWITCH:
            return ports_of_role(node, DOWNLINK)
        return ports_of_role(node, RAIL) or ports_of_role(node, MANAGEMENT)

    @staticmethod
    def middle_ports(node: Node) -> tuple[Port, ...]:
        """The GPUs, between the rails and what stands beside."""
        return ports_of_role(node, GPU)

    @staticmethod
    def right_ports(node: Node) -> tuple[Port, ...]:
        """The ports at the right."""
        return ports_of_role(node, UPLINK)

    def width(self, shape: Shape) -> int:
        """Cells that the group takes."""
        last = self.blocks(shape)[-1]
        return last.x + last.count * last.pitch

    def blocks(self, shape: Shape) -> tuple[Block, ...]:
        """The ports, the GPUs, and the uplinks beside them; the last two may have no cells."""
        cell = shape[0]
        ports = Block(MARK + self.name + AGE, _pitch(self.left, shape), cell, 0, self.slots)
        x = ports.x + ports.count * ports.pitch + (_BETWEEN if self.slots and self.gpus else 0)
        gpus = Block(x, _pitch(self._middle, shape), cell, self.slots, self.gpus)
        before = self.slots + self.gpus
        x = gpus.x + gpus.count * gpus.pitch + (_BETWEEN if before else 0) + self.beside
        uplinks = _slots(self.right)
        if not uplinks:
            return (ports, gpus)
        return (ports, gpus, Block(x, _pitch(self.right, shape), cell, before, uplinks))

    @property
    def _middle(self) -> _Side:
        return tuple((node, gpus) for node, _ in self.left if (gpus := self.middle_ports(node)))

    def labels(self, shape: Shape) -> list[tuple[int, str]]:
        """What the columns are called; where that does not fit, as much of its end as does."""
        made: list[tuple[int, str]] = []
        sides = (self.left, self._middle, self.right)
        for block, side in zip(self.blocks(shape), sides, strict=False):
            names: dict[int, str] = {}
            for _, ports in side:
                for port in ports:
                    names.setdefault(port.index, port.label)
            room = max(1, block.pitch - (1 if block.pitch > 1 else 0))
            fits = all(cell_len(label) <= room for label in names.values())
            for place, (slot, label) in enumerate(sorted(names.items())):
                # Cut labels are told apart by the first one, which says what the block is of.
                cut = label[:room] if not place else label[-room:]
                made.append((block.x + slot * block.pitch, label if fits else cut))
        return made


def group_layouts(fabric: Fabric, keep: frozenset[str] | None, width: int) -> list[GroupLayout]:
    """The groups of a fabric in their order, of the nodes to `keep` (None for all)."""
    groups: dict[str, list[Node]] = {}
    for node in fabric.nodes:
        if keep is None or node.name in keep:
            groups.setdefault(node.group, []).append(node)
    sides = {title: _sides(nodes) for title, nodes in groups.items()}
    longest = max((cell_len(node.name) for node in fabric.nodes), default=0)
    name = min(max(longest, 6), max(8, width // 4))
    slots = max((_slots(left) for left, _, hosts in sides.values() if hosts), default=0)
    gpus = max((len(ports_of_role(node, GPU)) for node in fabric.nodes), default=0)
    beside = max(
        (_beside(title, right) for title, (_, right, hosts) in sides.items() if hosts), default=0
    )
    return [
        GroupLayout(
            title,
            left,
            right,
            hosts,
            slots if hosts else _slots(left),
            gpus if hosts else 0,
            name,
            beside,
        )
        for title, (left, right, hosts) in sides.items()
    ]


def _sides(nodes: list[Node]) -> tuple[_Side, _Side, bool]:
    """What is at the left and at the right, and whether hosts are at the left."""
    hosts = [node for node in nodes if node.role != SWITCH]
    switches = [node for node in nodes if node.role == SWITCH]
    right = tuple((n, ports) for n in switches if (ports := ports_of_role(n, UPLINK)) or hosts)
    left = tuple((node, GroupLayout.left_ports(node)) for node in hosts or switches)
    return left, right, bool(hosts)


def ports_of_role(node: Node, role: str) -> tuple[Port, ...]:
    """The ports of a role, in physical order."""
    return tuple(sorted((p for p in node.ports if p.role == role), key=lambda p: p.index))


def _beside(title: str, right: _Side) -> int:
    """Cells for the names at the right: none when the only switch is named as its group is."""
    names = [node.name for node, _ in right]
    return 0 if names in ([], [title]) else min(max(map(cell_len, names)), 16) + 1


def _slots(side: _Side) -> int:
    return max((port.index + 1 for _, ports in side for port in ports), default=0)


def _pitch(side: _Side, shape: Shape) -> int:
    """From cell to cell: where cells are wide, so far that a column's label fits above it."""
    cell, gap = shape
    longest = max((cell_len(port.label) for _, ports in side for port in ports), default=0)
    return cell + gap if cell < 2 else max(cell + gap, min(longest, 4) + 1)


# Where every port is on the overview: a fabric in, a grid out. Physical order, never by value.
#
# Nodes are shown by group. Beside the hosts of a group stand the uplinks of its switches, the first
# switch beside the first host. A group without hosts (the spines) shows its switches' own ports.
# Groups stand below each other; when that is too high, side by side as far as there is room.


SHAPES: tuple[Shape, ...] = ((4, 1), (3, 1), (2, 1), (1, 1), (1, 0))
"""Cell widths and gaps to try, the roomiest first; a cell never gets smaller than the last."""
_SIDE_BY_SIDE: Shape = (1, 1)
"""The smallest cells that groups are put side by side for."""
_BETWEEN_layout = 2
"""Cells between groups side by side."""


@dataclass(frozen=True, slots=True)
class GridPart:
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

    rows: tuple[tuple[GridPart, ...], ...]
    ports: NDArray[np.intp]
    name: int
    beside: int

    def place(self, port: int) -> tuple[int, int] | None:
        """(row, column) of a port; None when it is not on the grid."""
        found = np.argwhere(self.ports == port)
        return (int(found[0][0]), int(found[0][1])) if len(found) else None


def build_grid(fabric: Fabric, width: int, height: int, keep: frozenset[str] | None = None) -> Grid:
    """The grid of a fabric in `width` cells, and in `height` rows if that can be.

    `keep` are the nodes to show (None for all).
    """
    groups = group_layouts(fabric, keep, width)
    bands = _arrange(groups, width, height)
    rows: list[tuple[GridPart, ...]] = []
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


_Placed = tuple[GroupLayout, Shape, int]
"""A group, the shape of its cells, and where it begins."""


def _arrange(groups: Sequence[GroupLayout], width: int, height: int) -> list[list[_Placed]]:
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


def _roomiest(group: GroupLayout, width: int) -> Shape:
    return next((shape for shape in SHAPES if group.width(shape) <= width), SHAPES[-1])


def _pack(groups: Sequence[GroupLayout], shape: Shape, width: int) -> list[list[_Placed]]:
    """Groups in reading order, as many side by side as have room."""
    bands: list[list[_Placed]] = []
    x = width + 1
    for group in groups:
        own = min(shape, _roomiest(group, width))
        if x + group.width(own) > width:
            bands.append([])
            x = 0
        bands[-1].append((group, own, x))
        x += group.width(own) + _BETWEEN_layout
    return bands


def _band(band: Sequence[_Placed]) -> list[tuple[GridPart, ...]]:
    """The rows of groups that stand side by side; their headings are in one row."""
    rows: list[list[GridPart]] = [[] for _ in range(max(group.height for group, _, _ in band))]
    first = 0
    for group, shape, x in band:
        blocks = tuple(
            Block(x + block.x, block.pitch, block.width, first + block.first, block.count)
            for block in group.blocks(shape)
        )
        labels = tuple((x + at, label) for at, label in group.labels(shape))
        rows[0].append(GridPart(x, group.title, True, None, None, (), labels))
        for y in range(group.height - 1):
            node, switch = group.nodes(y)
            rows[y + 1].append(GridPart(x, group.title, False, node, switch, blocks, ()))
        first += sum(block.count for block in blocks)
    return [tuple(row) for row in rows]


def _place(line: NDArray[np.intp], part: GridPart) -> None:
    """Write the port rows of a part into its columns."""
    for node, ports, block in zip(
        (part.node, part.node, part.beside),
        (GroupLayout.left_ports, GroupLayout.middle_ports, GroupLayout.right_ports),
        part.blocks,
        strict=False,
    ):
        if node is not None:
            for port in ports(node):
                line[block.first + port.index] = port.row
