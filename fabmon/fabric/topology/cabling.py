"""The cabling of the fabric from plans and reports, and the rails, uplinks and ECMP groups of each
node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

from fabmon.fabric import model
from fabmon.fabric.model import EcmpGroup, Host, Port, Shape
from fabmon.fabric.node_facts import NodeFacts
from fabmon.fabric.topology.claims import Wiring
from fabmon.fabric.topology.plan import Topology


class Cabling(NamedTuple):
    """The cables, and the place of each node.

    `links` are the pairs of nodes that a cable connects, watched or not. `changed` is the number of
    the update in which a node's cables last changed.
    """

    wiring: Wiring
    shape: Shape
    links: Set[tuple[str, str]]
    changed: Mapping[str, int]


Ports = Mapping[str, Mapping[str, Any]]


class Rails:
    """The planned order of rails, and the NICs nearest to each GPU. A missing rail keeps its
    index."""

    def __init__(self, topology: Topology) -> None:
        self.count = len(topology.rails)
        self._place = {name.lower(): place for place, name in enumerate(topology.rails)}
        self._near = topology.nearness

    def of(self, ports: Ports) -> dict[str, int]:
        """Port -> rail, for the ports in the plan; a rail has one port."""
        found: dict[str, int] = {}
        taken: set[int] = set()
        for name, info in ports.items():
            if not self._place or info.get("kind") not in ("ethernet", "infiniband"):
                continue
            for alias in (name, info.get("netdev"), info.get("rdma"), info.get("pci")):
                place = self._place.get(str(alias).lower())
                if place is not None and place not in taken:
                    found[name] = place
                    taken.add(place)
                    break
        return found

    def nearest(self, info: dict[str, Any], ports: Ports) -> dict[str, Any]:
        """The facts of a GPU, with its distance to each NIC from NCCL's topology."""
        if not self._near.between or info.get("kind") != "gpu":
            return info
        gpu = str(info.get("pci", "")).lower()
        near = {
            name: self._near.between[gpu, pci]
            for name, other in ports.items()
            if (gpu, pci := str(other.get("pci", "")).lower()) in self._near.between
        }
        return {**info, "affinity": near} if near else info


def uplinks_of(host: Host, fact: NodeFacts, cabled: Cabling) -> set[str]:
    """The ports of a switch to a higher tier, or in a flat fabric to other switches; where tiers
    are unknown, its ports in ECMP groups."""
    if host.role != model.SWITCH:
        return set()
    tiers = cabled.shape.tiers
    own = tiers.get(host.name)
    found = {name for members, _ in fact.members for name in members}
    if own is None:
        return found
    for name in fact.ports:
        cable = cabled.wiring.cables.get((host.name, name))
        tier = tiers.get(cable.node) if cable is not None else None
        is_flat = cable is not None and (host.name, cable.node) in cabled.shape.flat_links
        if is_flat or (tier is not None and tier > own):
            found.add(name)
        elif tier is not None and tier < own:
            found.discard(name)
    return found


def groups_of(host: Host, fact: NodeFacts, ports: Sequence[Port], shape: Shape) -> list[EcmpGroup]:
    """The ECMP groups of a node with two or more ports, one for each set of members.

    A switch that reports no routes is taken to balance over its uplinks, separately per plane; in a
    flat fabric over its links to another group, or to the same switch.
    """
    own = {port.name: port for port in ports}
    destinations: dict[tuple[str, ...], int] = {}
    for names, count in fact.members:
        members = tuple(name for name in names if name in own)
        if len(members) > 1:
            destinations[members] = destinations.get(members, 0) + count
    if not fact.ecmp and host.role == model.SWITCH:
        planes: dict[str, list[str]] = {}
        for port in ports:
            if port.role == model.UPLINK and port.cable is not None:
                far = port.cable.node
                where = shape.flat_links.get((host.name, far))
                if where is None:
                    place = shape.planes.get(far, "")
                else:
                    place = where if where == shape.pods.get(far) else far
                planes.setdefault(place, []).append(port.name)
        others = sum(tier == shape.tiers.get(host.name) for tier in shape.tiers.values()) - 1
        destinations = {tuple(names): others for names in planes.values() if len(names) > 1}
    return [
        EcmpGroup(
            host.name,
            _group_name(host.name, [own[name] for name in members], shape),
            tuple(own[name].row for name in members),
            count,
        )
        for members, count in destinations.items()
    ]


def _group_name(node: str, members: Sequence[Port], shape: Shape) -> str:
    """`leaf1 uplinks`, or for parallel downlinks, `spine1 to leaf1`, and of a flat fabric `sw1 to
    group2`, `sw1 to sw9, dimension 2`."""
    far = {port.cable.node for port in members if port.cable is not None}
    places = {shape.flat_links.get((node, each), "") for each in far}
    if len(places) == 1 and (place := places.pop()):
        if place in {shape.pods.get(each) for each in far}:
            return f"{node} to {place}"
        if len(far) == 1:
            return f"{node} to {far.pop()}" + (f", {place}" if place != "local" else "")
    if all(port.role == model.DOWNLINK for port in members) and len(far) == 1:
        return f"{node} to {far.pop()}"
    return f"{node} uplinks"
