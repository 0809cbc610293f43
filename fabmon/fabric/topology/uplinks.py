"""Which ports of a switch lead up, and which of its ports are equal-cost."""

from __future__ import annotations

from collections.abc import Sequence

from fabmon.fabric import model
from fabmon.fabric.facts import Facts
from fabmon.fabric.model import EcmpGroup, Host, Port, Shape
from fabmon.fabric.topology.cabling import Cabling


def uplinks_of(host: Host, fact: Facts, cabled: Cabling) -> set[str]:
    """A switch's ports to a higher tier; where tiers are not known, those in ECMP groups."""
    if host.role != model.SWITCH:
        return set()
    tiers = cabled.shape.tiers
    own = tiers.get(host.name)
    found = {name for members, _ in fact.members() for name in members}
    if own is None:
        return found
    for name in fact.ports:
        cable = cabled.wiring.cables.get((host.name, name))
        tier = tiers.get(cable.node) if cable is not None else None
        if tier is not None and tier > own:
            found.add(name)
        elif tier is not None and tier < own:
            found.discard(name)
    return found


def groups_of(host: Host, fact: Facts, ports: Sequence[Port], shape: Shape) -> list[EcmpGroup]:
    """The node's ECMP groups of two ports or more, one for each set of members.

    A switch that tells no routes balances over its uplinks, those of each plane for themselves.
    """
    own = {port.name: port for port in ports}
    destinations: dict[tuple[str, ...], int] = {}
    for names, count in fact.members():
        members = tuple(name for name in names if name in own)
        if len(members) > 1:
            destinations[members] = destinations.get(members, 0) + count
    if not fact.ecmp and host.role == model.SWITCH:
        planes: dict[str, list[str]] = {}
        for port in ports:
            if port.role == model.UPLINK and port.cable is not None:
                planes.setdefault(shape.planes.get(port.cable.node, ""), []).append(port.name)
        others = sum(tier == shape.tiers.get(host.name) for tier in shape.tiers.values()) - 1
        destinations = {tuple(names): others for names in planes.values() if len(names) > 1}
    return [
        EcmpGroup(
            host.name,
            _group_name(host.name, [own[name] for name in members]),
            tuple(own[name].row for name in members),
            count,
        )
        for members, count in destinations.items()
    ]


def _group_name(node: str, members: Sequence[Port]) -> str:
    """`leaf1 uplinks`, or where parallel links lead down, `spine1 to leaf1`."""
    if all(port.role == model.DOWNLINK for port in members):
        far = {port.cable.node for port in members if port.cable is not None}
        if len(far) == 1:
            return f"{node} to {far.pop()}"
    return f"{node} uplinks"
