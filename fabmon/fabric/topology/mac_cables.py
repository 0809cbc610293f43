"""Who is cabled to whom, as far as neighbours' MAC addresses tell when both ends are watched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

PortName = tuple[str, str]
"""(node, port)."""


def _settle(
    contested: Sequence[tuple[PortName, set[PortName]]], seen: dict[PortName, set[PortName]]
) -> None:
    """Where several nodes claim the address that a port sees, the one node that sees that port too
    has it: a copied address costs nobody but its copier."""
    rejected: list[tuple[PortName, set[PortName]]] = []
    for end, owners in contested:
        agreeing = {owner for owner in owners if end in seen.get(owner, _NOBODY)}
        nodes = {node for node, _ in agreeing}
        if len(nodes) == 1:
            rejected.append((end, {owner for owner in owners if owner[0] not in nodes}))
    for end, others in rejected:
        seen[end] -= others


_NOBODY: frozenset[PortName] = frozenset()


def cables(
    facts: Mapping[str, tuple[Mapping[str, Mapping[str, Any]], Sequence[Mapping[str, Any]]]],
) -> dict[PortName, PortName]:
    """Both directions of every cable that is sure.

    `facts` maps a node to its ports' infos and its neighbour entries ({"dev", "mac"}). A MAC may
    belong to several ports of a switch, or be claimed by several nodes; then the entries of the
    other side decide. A cable is sure
    when its two ends name each other, or when just one end names a port that sees nobody. On a
    shared segment, where a port sees several nodes or is seen by them, there is none.
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
            others = owners.get(str(entry.get("mac", "")).lower(), _NOBODY)
            if local is not None:
                mine = seen.setdefault((node, local), set())
                for other in others:
                    if other[0] != node:
                        mine.add(other)
                if len(others) > 1:
                    contested.append(((node, local), set(others)))
    _settle(contested, seen)
    claims: dict[PortName, PortName] = {}
    for end, others in seen.items():
        if len(others) == 1:
            # The usual case, and worth being quick about: one of thousands of ports.
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
            found[other] = end
    return found
