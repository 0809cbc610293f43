"""Which links there are in a fabric, each direction once, and what they make up together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fabmon.fabric.model import DOWNLINK, HOST, RAIL, SWITCH, UPLINK, Fabric, Port
from fabmon.fabric.names import matches, natural


class TrafficLink(NamedTuple):
    """One direction of a cable: `way` is `tx` where the sender is watched, else `rx`."""

    name: str
    way: str
    row: int
    node: str
    rail: str
    pair: str

    @property
    def label(self) -> str:
        """As it is told to a person and matched between recordings."""
        return self.name if self.way == "tx" else f"{self.name} {self.way}"


PortFilter = Callable[[Port], bool]
"""Whether the links of a port are looked at."""


def all_ports(_: Port) -> bool:
    """Of all ports."""
    return True


def port_filter(patterns: Sequence[str]) -> PortFilter:
    """Of those that a pattern fits: ports (`leaf1/*`), nodes or labels (`r3`); all without any."""
    if not patterns:
        return all_ports
    return lambda port: any(matches(n, patterns) for n in (port.id, port.node, port.label))


def traffic_links(fabric: Fabric, wanted: PortFilter = all_ports) -> list[TrafficLink]:
    """What hosts send into each rail, and what switches send each other, in the order to show.

    What switches send to watched hosts is what other hosts send, and is left out.
    """
    roles = {node.name: node.role for node in fabric.nodes}
    found = []
    for node in fabric.nodes:
        for port in node.ports:
            if not wanted(port):
                continue
            for way in _ways(port, fabric, roles):
                rail = port.label if port.role == RAIL else ""
                found.append(TrafficLink(port.id, way, port.row, port.node, rail, _pair(port, way)))
    return found


def _ways(port: Port, fabric: Fabric, roles: Mapping[str, str]) -> tuple[str, ...]:
    if port.role == RAIL:
        return ("tx",)
    if port.role not in (UPLINK, DOWNLINK) or roles.get(port.node) != SWITCH:
        return ()
    peer = None if port.peer is None else fabric.ports[port.peer]
    if peer is not None and peer.node:
        return ("tx",) if roles.get(peer.node) == SWITCH else ()
    return ("tx", "rx") if port.role == UPLINK else ()


def _pair(port: Port, way: str) -> str:
    """`leaf1 → spine3`; nothing where the far end is not known, or a host is one of the ends."""
    if port.role == RAIL or port.cable is None:
        return ""
    ends = (port.node, port.cable.node)
    return " → ".join(ends if way == "tx" else reversed(ends))


def links_by_group(found: Sequence[TrafficLink], of: str) -> dict[str, list[int]]:
    """Places of the links of each rail or pair (`of` says which), by name."""
    named: dict[str, list[int]] = {}
    for place, link in enumerate(found):
        name = link.rail if of == "rail" else link.pair
        if name:
            named.setdefault(name, []).append(place)
    return dict(sorted(named.items(), key=lambda each: natural(each[0])))


def hosts_of(fabric: Fabric) -> list[str]:
    """The hosts that have rails."""
    return [
        node.name
        for node in fabric.nodes
        if node.role == HOST and any(port.role == RAIL for port in node.ports)
    ]
