"""Cables by name: what LLDP, or a fabric manager, calls the other end of a port."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fabmon.fabric.cables import PortName
from fabmon.fabric.model import SWITCH

Facts = Mapping[str, tuple[Mapping[str, Mapping[str, Any]], Sequence[Mapping[str, Any]]]]
"""Node -> its ports' infos, and its neighbour entries."""


def with_names(facts: Facts, known: Mapping[PortName, PortName]) -> dict[PortName, PortName]:
    """The cables that are known, and those that names add where nothing is known.

    An entry is {"dev", "peer_node", "peer_port"}. A cable is sure when a port has one neighbour, no
    other port has the same one, and that one, if it says anything, says the same. A node is known
    by its name with or without a domain, a port by its name, interface, RDMA device or alias.
    """
    found = dict(known)
    for end, other in _sure(facts):
        if end not in found and other not in found:
            found[end] = other
            found[other] = end
    return found


def uplinks(node: str, peers: Mapping[PortName, PortName], roles: Mapping[str, str]) -> set[str]:
    """The ports of a switch that lead to switches, if others of it lead to hosts."""
    if roles.get(node) != SWITCH:
        return set()
    ends = {end[1]: roles.get(other[0]) for end, other in peers.items() if end[0] == node}
    if all(role == SWITCH for role in ends.values()):
        return set()
    return {name for name, role in ends.items() if role == SWITCH}


def _sure(facts: Facts) -> Iterator[tuple[PortName, PortName]]:
    claims: dict[PortName, set[PortName]] = {}
    for end, other in _claims(facts):
        claims.setdefault(end, set()).add(other)
    sure = {end: next(iter(others)) for end, others in claims.items() if len(others) == 1}
    claimants = Counter(sure.values())
    for end, other in sure.items():
        if sure.get(other, end) == end and claimants[other] == 1 and other[0] != end[0]:
            yield end, other


def _claims(facts: Facts) -> Iterator[tuple[PortName, PortName]]:
    """(port, the neighbour that its entry names), where both are watched."""
    nodes = {**{name.partition(".")[0]: name for name in facts}, **{name: name for name in facts}}
    names = {node: _names(ports) for node, (ports, _) in facts.items()}
    for node, (ports, neighbours) in facts.items():
        by_netdev = {str(info.get("netdev", name)): name for name, info in ports.items()}
        for entry in neighbours:
            local = by_netdev.get(str(entry.get("dev")))
            said = str(entry.get("peer_node", ""))
            peer = nodes.get(said) or nodes.get(said.partition(".")[0])
            port = names[peer].get(str(entry.get("peer_port"))) if peer is not None else None
            if local is not None and peer is not None and port is not None:
                yield (node, local), (peer, port)


def _names(ports: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """All that a port may be called by its neighbour -> its name."""
    names: dict[str, str] = {}
    for key in ("alias", "rdma", "netdev"):
        names.update({str(info[key]): name for name, info in ports.items() if info.get(key)})
    return {**names, **{name: name for name in ports}}
