"""Cables between watched ports, from the MAC addresses of their neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

PortName = tuple[str, str]
"""(node, port)."""


def _resolve_duplicates(
    contested: Sequence[tuple[PortName, set[PortName]]], seen: dict[PortName, set[PortName]]
) -> None:
    """Where several nodes have the address that a port sees, keep the one node that sees that port
    too: a copied address costs only the node that copied it."""
    rejected: list[tuple[PortName, set[PortName]]] = []
    for end, owners in contested:
        agreeing = {owner for owner in owners if end in seen.get(owner, _NO_PORTS)}
        nodes = {node for node, _ in agreeing}
        if len(nodes) == 1:
            rejected.append((end, {owner for owner in owners if owner[0] not in nodes}))
    for end, others in rejected:
        seen[end] -= others


_NO_PORTS: frozenset[PortName] = frozenset()


def cables_by_mac(
    facts: Mapping[str, tuple[Mapping[str, Mapping[str, Any]], Sequence[Mapping[str, Any]]]],
) -> dict[PortName, PortName]:
    """Every certain cable, from each end that sees the other.

    `facts` maps a node to its ports' infos and its neighbour entries ({"dev", "mac"}). A MAC may
    belong to several ports of a switch, or be used by several nodes; then the entries of the other
    side decide. A cable is certain if its two ends see each other, or if one end sees a port that
    sees no neighbour. On a shared segment, where a port sees several nodes or is seen by several,
    there is no cable.
    """
    owners: dict[str, set[PortName]] = {}
    for node, (ports, _) in facts.items():
        for name, info in ports.items():
            if info.get("mac"):
                owners.setdefault(str(info["mac"]).lower(), set()).add((node, name))
    seen: dict[PortName, set[PortName]] = {}
    contested: list[tuple[PortName, set[PortName]]] = []
    for node, (ports, neighbours) in facts.items():
        by_netdev = {str(info.get("netdev", name)): name for name, info in ports.items()}
        for entry in neighbours:
            local = by_netdev.get(str(entry.get("dev")))
            others = owners.get(str(entry.get("mac", "")).lower(), _NO_PORTS)
            if local is not None:
                mine = seen.setdefault((node, local), set())
                for other in others:
                    if other[0] != node:
                        mine.add(other)
                if len(others) > 1:
                    contested.append(((node, local), set(others)))
    _resolve_duplicates(contested, seen)
    claims: dict[PortName, PortName] = {}
    for end, others in seen.items():
        if len(others) == 1:
            # The usual case, for thousands of ports: keep it fast.
            (other,) = others
            theirs = seen.get(other)
            if not theirs or end in theirs:
                claims[end] = other
            continue
        mutual = {other for other in others if end in seen.get(other, set())}
        sure = mutual or {other for other in others if not seen.get(other)}
        if len(sure) == 1 and len({node for node, _ in others}) == 1:
            claims[end] = next(iter(sure))
    claimants = Counter(claims.values())
    found: dict[PortName, PortName] = {}
    for end, other in claims.items():
        one_sided = not seen.get(other) and claimants[other] == 1
        if claims.get(other) == end or one_sided:
            found[end] = other
    return found
