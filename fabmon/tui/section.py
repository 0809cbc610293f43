"""One group of the overview: what stands at its left, what at its right, and how wide that is."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len

from fabmon.fabric.model import DOWNLINK, GPU, MANAGEMENT, RAIL, SWITCH, UPLINK, Fabric, Node, Port

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
class Block:
    """Cells side by side: the first at `x`, then every `pitch`; columns from `first`."""

    x: int
    pitch: int
    width: int
    first: int
    count: int

    def at(self, x: int) -> int | None:
        """The column whose cell is at `x`; None between cells and outside."""
        place, inside = divmod(x - self.x, self.pitch)
        return self.first + place if 0 <= place < self.count and inside < self.width else None


@dataclass(frozen=True, slots=True)
class Section:
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
            return shown(node, DOWNLINK)
        return shown(node, RAIL) or shown(node, MANAGEMENT)

    @staticmethod
    def middle_ports(node: Node) -> tuple[Port, ...]:
        """The GPUs, between the rails and what stands beside."""
        return shown(node, GPU)

    @staticmethod
    def right_ports(node: Node) -> tuple[Port, ...]:
        """The ports at the right."""
        return shown(node, UPLINK)

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


def sections(fabric: Fabric, keep: frozenset[str] | None, width: int) -> list[Section]:
    """The groups of a fabric in their order, of the nodes to `keep` (None for all)."""
    groups: dict[str, list[Node]] = {}
    for node in fabric.nodes:
        if keep is None or node.name in keep:
            groups.setdefault(node.group, []).append(node)
    sides = {title: _sides(nodes) for title, nodes in groups.items()}
    longest = max((cell_len(node.name) for node in fabric.nodes), default=0)
    name = min(max(longest, 6), max(8, width // 4))
    slots = max((_slots(left) for left, _, hosts in sides.values() if hosts), default=0)
    gpus = max((len(shown(node, GPU)) for node in fabric.nodes), default=0)
    beside = max(
        (_beside(title, right) for title, (_, right, hosts) in sides.items() if hosts), default=0
    )
    return [
        Section(
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
    right = tuple((n, ports) for n in switches if (ports := shown(n, UPLINK)) or hosts)
    left = tuple((node, Section.left_ports(node)) for node in hosts or switches)
    return left, right, bool(hosts)


def shown(node: Node, role: str) -> tuple[Port, ...]:
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
