"""The units of the heatmap: a leaf with its hosts, switches without hosts, hosts without a switch.

A unit is what can be drawn in one row, or in one row for each of its nodes. Pods are runs of units.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from fabmon.analysis.finding import Finding
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

NICS = (RAIL, STORAGE, FRONTEND)
"""Roles of a host's NICs from the left."""
_MOST_HOSTS = 32
"""Hosts without a switch are split into units of so many."""
_NUMBER = re.compile(r"(?<!\d)\d+$")


@dataclass(frozen=True, slots=True)
class Unit:
    """Nodes that are drawn together. `title` is unique in its fabric; `pod` is empty if unknown."""

    title: str
    hosts: tuple[Node, ...]
    switches: tuple[Node, ...]
    pod: str = ""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Its nodes, switches first."""
        return (*self.switches, *self.hosts)

    @property
    def uplinks(self) -> tuple[tuple[Node, tuple[Port, ...]], ...]:
        """The switches above hosts that have uplinks, with these."""
        if not self.hosts:
            return ()
        each = ((node, ports_of_role(node, UPLINK)) for node in self.switches)
        return tuple((node, ports) for node, ports in each if ports)


def ports_of_role(node: Node, role: str) -> tuple[Port, ...]:
    """The ports of a node with a role, in physical order."""
    return tuple(sorted((p for p in node.ports if p.role == role), key=lambda p: p.index))


def row_ports(node: Node) -> tuple[Port, ...]:
    """The ports in the row of a node: rails, storage and frontend ports of a host (without any, its
    management ports), downlinks of a switch, else its uplinks."""
    if node.role == SWITCH:
        return ports_of_role(node, DOWNLINK) or ports_of_role(node, UPLINK)
    nics = [port for role in NICS for port in ports_of_role(node, role)]
    return tuple(nics) or ports_of_role(node, MANAGEMENT)


def second_ports(node: Node) -> tuple[Port, ...]:
    """The ports after a gap in the row of a node: GPUs of a host, uplinks of a switch that has
    downlinks."""
    if node.role != SWITCH:
        return ports_of_role(node, GPU)
    return ports_of_role(node, UPLINK) if ports_of_role(node, DOWNLINK) else ()


def role_starts(fabric: Fabric) -> dict[str, int]:
    """The first place of each role of NICs, the same for all hosts; a place is left free between
    two roles."""
    starts: dict[str, int] = {}
    free = 0
    for role in NICS:
        starts[role] = free + (1 if free else 0)
        last = max(
            (port.index for port in fabric.ports if port.node and port.role == role), default=-1
        )
        if last >= 0:
            free = starts[role] + last + 1
    return starts


def place_of(port: Port, starts: Mapping[str, int]) -> int:
    """The place of a port in the row of its node."""
    return starts.get(port.role, 0) + port.index


def units_of(fabric: Fabric) -> tuple[Unit, ...]:
    """The units of a fabric in its order."""
    groups: dict[str, list[Node]] = {}
    for node in fabric.nodes:
        groups.setdefault(node.group, []).append(node)
    units: list[Unit] = []
    for is_lone, run in groupby(groups.items(), key=lambda item: _is_lone_switch(item[1])):
        if is_lone:
            nodes = [node for _, each in run for node in each]
            units.append(_unit(range_name([node.name for node in nodes]), nodes, fabric))
        else:
            units += [unit for title, nodes in run for unit in _split(title, nodes, fabric)]
    return tuple(units)


def _is_lone_switch(nodes: Sequence[Node]) -> bool:
    """Whether a group is one switch named like it: such groups are drawn as one unit."""
    return len(nodes) == 1 and nodes[0].role == SWITCH and nodes[0].group == nodes[0].name


def _split(title: str, nodes: Sequence[Node], fabric: Fabric) -> list[Unit]:
    """The units of one group: many hosts without a switch are several."""
    if len(nodes) <= 2 * _MOST_HOSTS or any(node.role == SWITCH for node in nodes):
        return [_unit(title or "fabric", nodes, fabric)]
    runs = [nodes[at : at + _MOST_HOSTS] for at in range(0, len(nodes), _MOST_HOSTS)]
    return [_unit(range_name([node.name for node in run]), run, fabric) for run in runs]


def _unit(title: str, nodes: Sequence[Node], fabric: Fabric) -> Unit:
    switches = tuple(node for node in nodes if node.role == SWITCH)
    pods = {fabric.shape.pods.get(node.name, "") for node in nodes}
    hosts = tuple(node for node in nodes if node.role != SWITCH)
    return Unit(title, hosts, switches, pods.pop() if len(pods) == 1 else "")


def range_name(names: Sequence[str]) -> str:
    """`leaf9-16` for the names from leaf9 to leaf16; both in full where they differ more."""
    first, last = names[0], names[-1]
    if first == last:
        return first
    number = _NUMBER.search(last)
    if number and _NUMBER.sub("", first) == last[: number.start()]:
        return f"{first}-{number[0]}"
    return f"{first} - {last}"


def units_with_findings(
    units: Sequence[Unit], fabric: Fabric, findings: Sequence[Finding]
) -> tuple[str, ...]:
    """Titles of the units with findings, in the order of the findings.

    A finding belongs to the unit of its first port, else to that of the node that it names.
    """
    title_of = {node.name: unit.title for unit in units for node in unit.nodes}
    found: dict[str, None] = {}
    for finding in findings:
        name = finding.subject_node.partition(" ")[0]
        if finding.rows and 0 <= finding.rows[0] < len(fabric.ports):
            name = fabric.ports[finding.rows[0]].node
        if name in title_of:
            found[title_of[name]] = None
    return tuple(found)


def units_with(units: Sequence[Unit], nodes: Collection[str]) -> tuple[str, ...]:
    """Titles of the units with any of these nodes, in physical order; none if all have."""
    found = tuple(unit.title for unit in units if any(node.name in nodes for node in unit.nodes))
    return found if len(found) < len(units) else ()
