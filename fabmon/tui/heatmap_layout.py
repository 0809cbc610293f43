"""The layout of the heatmap: the place of every port on the overview.

The order is physical, never by value. Nodes are listed by group. To the right of the hosts of a
group are the uplinks of its switches, the first switch beside the first host. A group without hosts
(the spines) shows the ports of its switches. Groups are stacked; where that is too high, they are
placed side by side as far as the width allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from fabmon.fabric.model import (
    DOWNLINK,
    FRONTEND,
    GPU,
    MANAGEMENT,
    RAIL,
    STORAGE,
    SWITCH,
    UPLINK,
    Fabric,
    Node,
    Port,
)
from fabmon.tui.cells import CellBlock

Shape = tuple[int, int]
"""(width of a cell, width of the gap after it) in columns."""

MARK = 3
"""Columns before a name, for the mark of a row."""
AGE = 5
"""Columns of a row for the age of its samples."""
_BLOCK_GAP = 3
"""Columns between the ports of the hosts and the uplinks beside them."""

_NICS = (RAIL, STORAGE, FRONTEND)
"""Roles of a host's NICs from the left."""

_Side = tuple[tuple[Node, tuple[Port, ...]], ...]


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """One group of nodes. `name` and `beside` are the widths of the names at both sides.

    `slots` is the number of places for ports at the left, `gpus` that of places for GPUs after
    them, `starts` the first place of each role at the left; all groups of hosts have the same.
    """

    title: str
    left: _Side
    right: _Side
    hosts: bool
    slots: int
    gpus: int
    name: int
    beside: int
    starts: Mapping[str, int]

    @property
    def height(self) -> int:
        """Rows, including the heading."""
        return 1 + max(len(self.left), len(self.right))

    def nodes(self, y: int) -> tuple[Node | None, Node | None]:
        """The nodes at the left and at the right of row `y`; None where there is none."""
        left = self.left[y][0] if y < len(self.left) else None
        return left, self.right[y][0] if y < len(self.right) else None

    @staticmethod
    def left_ports(node: Node) -> tuple[Port, ...]:
        """Ports at the left: rails, storage and frontend ports of a host (without any, its
        management ports), downlinks of a switch."""
        if node.role == SWITCH:
            return ports_of_role(node, DOWNLINK)
        nics = [port for role in _NICS for port in ports_of_role(node, role)]
        return tuple(nics) or ports_of_role(node, MANAGEMENT)

    @staticmethod
    def middle_ports(node: Node) -> tuple[Port, ...]:
        """GPUs, between the rails and the uplinks."""
        return ports_of_role(node, GPU)

    @staticmethod
    def right_ports(node: Node) -> tuple[Port, ...]:
        """Ports at the right: uplinks."""
        return ports_of_role(node, UPLINK)

    def width(self, shape: Shape) -> int:
        """The width of the group in columns."""
        last = self.blocks(shape)[-1]
        return last.x + last.count * last.pitch

    def blocks(self, shape: Shape) -> tuple[CellBlock, ...]:
        """The cells of ports, GPUs and uplinks; the last two can be empty."""
        cell = shape[0]
        ports = CellBlock(MARK + self.name + AGE, _pitch(self.left, shape), cell, 0, self.slots)
        x = ports.x + ports.count * ports.pitch + (_BLOCK_GAP if self.slots and self.gpus else 0)
        gpus = CellBlock(x, _pitch(self._middle, shape), cell, self.slots, self.gpus)
        before = self.slots + self.gpus
        x = gpus.x + gpus.count * gpus.pitch + (_BLOCK_GAP if before else 0) + self.beside
        uplinks = _slots(self.right, self.starts)
        if not uplinks:
            return (ports, gpus)
        return (ports, gpus, CellBlock(x, _pitch(self.right, shape), cell, before, uplinks))

    @property
    def _middle(self) -> _Side:
        return tuple((node, gpus) for node, _ in self.left if (gpus := self.middle_ports(node)))

    def labels(self, shape: Shape) -> list[tuple[int, str]]:
        """(x, label) of the columns; a label that is too long keeps its end."""
        made: list[tuple[int, str]] = []
        sides = (self.left, self._middle, self.right)
        for block, side in zip(self.blocks(shape), sides, strict=False):
            names: dict[int, str] = {}
            for _, ports in side:
                for port in ports:
                    names.setdefault(_place_of(port, self.starts), port.label)
            room = max(1, block.pitch - (1 if block.pitch > 1 else 0))
            fits = all(cell_len(label) <= room for label in names.values())
            for place, (slot, label) in enumerate(sorted(names.items())):
                # The first label keeps its start: it names the kind of port for the cut ones.
                cut = label[:room] if not place else label[-room:]
                made.append((block.x + slot * block.pitch, label if fits else cut))
        return made


def group_layouts(fabric: Fabric, keep: frozenset[str] | None, width: int) -> list[GroupLayout]:
    """The groups of a fabric in its order, restricted to the nodes in `keep` (None: all)."""
    groups: dict[str, list[Node]] = {}
    for node in fabric.nodes:
        if keep is None or node.name in keep:
            groups.setdefault(node.group, []).append(node)
    sides = {title: _sides(nodes) for title, nodes in groups.items()}
    longest = max((cell_len(node.name) for node in fabric.nodes), default=0)
    name = min(max(longest, 6), max(8, width // 4))
    starts = role_starts(fabric)
    slots = max((_slots(left, starts) for left, _, hosts in sides.values() if hosts), default=0)
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
            slots if hosts else _slots(left, starts),
            gpus if hosts else 0,
            name,
            beside,
            starts,
        )
        for title, (left, right, hosts) in sides.items()
    ]


def _sides(nodes: list[Node]) -> tuple[_Side, _Side, bool]:
    """(left, right, whether hosts are at the left) of the nodes of a group."""
    hosts = [node for node in nodes if node.role != SWITCH]
    switches = [node for node in nodes if node.role == SWITCH]
    right = tuple((n, ports) for n in switches if (ports := ports_of_role(n, UPLINK)) or hosts)
    left = tuple((node, GroupLayout.left_ports(node)) for node in hosts or switches)
    return left, right, bool(hosts)


def ports_of_role(node: Node, role: str) -> tuple[Port, ...]:
    """The ports of a node with a role, in physical order."""
    return tuple(sorted((p for p in node.ports if p.role == role), key=lambda p: p.index))


def _beside(title: str, right: _Side) -> int:
    """Columns for names at the right: 0 if the only switch has the name of its group."""
    names = [node.name for node, _ in right]
    return 0 if names in ([], [title]) else min(max(map(cell_len, names)), 16) + 1


def role_starts(fabric: Fabric) -> dict[str, int]:
    """The first place of each role of NICs, the same for all hosts; a place is left free between
    two roles."""
    starts: dict[str, int] = {}
    free = 0
    for role in _NICS:
        starts[role] = free + (1 if free else 0)
        last = max(
            (port.index for port in fabric.ports if port.node and port.role == role), default=-1
        )
        if last >= 0:
            free = starts[role] + last + 1
    return starts


def _place_of(port: Port, starts: Mapping[str, int]) -> int:
    return starts.get(port.role, 0) + port.index


def _slots(side: _Side, starts: Mapping[str, int]) -> int:
    return max((_place_of(port, starts) + 1 for _, ports in side for port in ports), default=0)


def _pitch(side: _Side, shape: Shape) -> int:
    """Columns from cell to cell; wide cells leave room for the labels above them."""
    cell, gap = shape
    longest = max((cell_len(port.label) for _, ports in side for port in ports), default=0)
    return cell + gap if cell < 2 else max(cell + gap, min(longest, 4) + 1)


SHAPES: tuple[Shape, ...] = ((4, 1), (3, 1), (2, 1), (1, 1), (1, 0))
"""Cell widths and gaps to try, widest first; the last is the smallest."""
_SIDE_BY_SIDE: Shape = (1, 1)
"""The smallest cells with which groups are placed side by side."""
_GROUP_GAP = 2
"""Columns between groups side by side."""


@dataclass(frozen=True, slots=True)
class GridPart:
    """One row of one group: its heading, or a host and the switch beside it.

    `x` is the first column of the group; blocks and labels count from the left of the grid.
    """

    x: int
    group: str
    heading: bool
    node: Node | None
    beside: Node | None
    blocks: tuple[CellBlock, ...]
    labels: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class HeatmapGrid:
    """The heatmap of a fabric. `ports` [rows, columns] are rows of ports, -1 where there is none.

    `name` is the width of the names, `beside` that of the names of the switches at the right (0 if
    switches have the names of their groups).
    """

    rows: tuple[tuple[GridPart, ...], ...]
    ports: NDArray[np.intp]
    name: int
    beside: int

    def place(self, port: int) -> tuple[int, int] | None:
        """(row, column) of a port; None if it is not on the grid."""
        found = np.argwhere(self.ports == port)
        return (int(found[0][0]), int(found[0][1])) if len(found) else None


def build_grid(
    fabric: Fabric, width: int, height: int, keep: frozenset[str] | None = None
) -> HeatmapGrid:
    """The grid of a fabric in `width` columns, and in `height` rows if possible.

    `keep` are the names of the nodes to show (None: all).
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
    starts = groups[0].starts if groups else {}
    ports = np.full((len(rows), columns), -1, dtype=np.intp)
    for line, row in zip(ports, rows, strict=True):
        for part in row:
            _place(line, part, starts)
    name, beside = (groups[0].name, groups[0].beside) if groups else (0, 0)
    return HeatmapGrid(tuple(rows), ports, name, beside)


_Placed = tuple[GroupLayout, Shape, int]
"""(group, shape of its cells, first column)."""


def _arrange(groups: Sequence[GroupLayout], width: int, height: int) -> list[list[_Placed]]:
    """Bands of groups: one group per band if that fits the height, else several side by side."""
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
    """Bands of groups in reading order, as many per band as the width allows."""
    bands: list[list[_Placed]] = []
    x = width + 1
    for group in groups:
        own = min(shape, _roomiest(group, width))
        if x + group.width(own) > width:
            bands.append([])
            x = 0
        bands[-1].append((group, own, x))
        x += group.width(own) + _GROUP_GAP
    return bands


def _band(band: Sequence[_Placed]) -> list[tuple[GridPart, ...]]:
    """The rows of a band; the headings of its groups are in one row."""
    rows: list[list[GridPart]] = [[] for _ in range(max(group.height for group, _, _ in band))]
    first = 0
    for group, shape, x in band:
        blocks = tuple(
            CellBlock(x + block.x, block.pitch, block.width, first + block.first, block.count)
            for block in group.blocks(shape)
        )
        labels = tuple((x + at, label) for at, label in group.labels(shape))
        rows[0].append(GridPart(x, group.title, True, None, None, (), labels))
        for y in range(group.height - 1):
            node, switch = group.nodes(y)
            rows[y + 1].append(GridPart(x, group.title, False, node, switch, blocks, ()))
        first += sum(block.count for block in blocks)
    return [tuple(row) for row in rows]


def _place(line: NDArray[np.intp], part: GridPart, starts: Mapping[str, int]) -> None:
    """Write the rows of the ports of a part into its columns of `line`."""
    for node, ports, block in zip(
        (part.node, part.node, part.beside),
        (GroupLayout.left_ports, GroupLayout.middle_ports, GroupLayout.right_ports),
        part.blocks,
        strict=False,
    ):
        if node is not None:
            for port in ports(node):
                line[block.first + _place_of(port, starts)] = port.row
