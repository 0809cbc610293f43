"""The links of a fabric, each direction once, and the rails and pairs of switches they form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fabmon.fabric.model import DOWNLINK, RAIL, SWITCH, UPLINK, Fabric, Port
from fabmon.fabric.names import matches, natural


class TrafficLink(NamedTuple):
    """One direction of a cable, as counted by one of its ports.

    `name` is the port's id. `way` is `tx` where the sending port is watched, else `rx`: then names
    and `row` are those of the receiving port. `rail` and `pair` are empty where the link is part of
    none.
    """

    name: str
    display_name: str
    way: str
    row: int
    node: str
    rail: str
    pair: str

    @property
    def key(self) -> str:
        """The name by which it is matched between recordings."""
        return self.name if self.way == "tx" else f"{self.name} {self.way}"


PortFilter = Callable[[Port], bool]
"""Whether the links of a port are studied."""


def all_ports(_: Port) -> bool:
    """The filter that passes every port."""
    return True


def port_filter(patterns: Sequence[str]) -> PortFilter:
    """The filter of ports that match one of several patterns; without patterns, of all ports.

    A pattern matches a port (`leaf1/*`), a node or a label (`r3`).
    """
    if not patterns:
        return all_ports
    return lambda port: any(matches(n, patterns) for n in (port.id, port.node, port.label))


def is_of_pattern(link: TrafficLink, pattern: str) -> bool:
    """Whether the filter of a pattern passes the port of a link."""
    label = link.display_name.removeprefix(f"{link.node} ")
    return any(matches(name, (pattern,)) for name in (link.name, link.node, label))


def traffic_links(fabric: Fabric, wanted: PortFilter = all_ports) -> list[TrafficLink]:
    """What hosts send into each rail, and what switches send each other, in the order to show.

    What a switch sends to a watched host is left out: other hosts' links already have it.
    """
    roles = {node.name: node.role for node in fabric.nodes}
    links = []
    for node in fabric.nodes:
        for port in filter(wanted, node.ports):
            rail = port.label if port.role == RAIL else ""
            links += [
                TrafficLink(
                    port.id, port.display_name, way, port.row, port.node, rail, _pair(port, way)
                )
                for way in _directions(port, fabric, roles)
            ]
    return links


def _directions(port: Port, fabric: Fabric, roles: Mapping[str, str]) -> tuple[str, ...]:
    """The directions of a port's cable that are counted at this port."""
    if port.role == RAIL:
        return ("tx",)
    if port.role not in (UPLINK, DOWNLINK) or roles.get(port.node) != SWITCH:
        return ()
    peer = None if port.peer is None else fabric.ports[port.peer]
    if peer is not None and peer.node:
        return ("tx",) if roles.get(peer.node) == SWITCH else ()
    return ("tx", "rx") if port.role == UPLINK else ()


def _pair(port: Port, way: str) -> str:
    """`leaf1 → spine3`; empty where the far end is unknown, or one of the ends is a host."""
    if port.role == RAIL or port.cable is None:
        return ""
    ends = (port.node, port.cable.node)
    return " → ".join(ends if way == "tx" else reversed(ends))


def links_by_group(links: Sequence[TrafficLink], of: str) -> dict[str, list[int]]:
    """By name, the indices of the links of each group; `of` is `rail` or `pair`."""
    groups: dict[str, list[int]] = {}
    for index, link in enumerate(links):
        name = link.rail if of == "rail" else link.pair
        if name:
            groups.setdefault(name, []).append(index)
    return dict(sorted(groups.items(), key=lambda each: natural(each[0])))
