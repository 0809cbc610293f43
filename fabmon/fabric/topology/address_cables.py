"""Cables between watched ports, from the MAC addresses of neighbours and the subnets of links."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fabmon.fabric.flows.addresses import is_routed
from fabmon.fabric.names import cached_if_short
from fabmon.fabric.node_facts import NodeFacts

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


_LENGTHS = ("/31", "/30", "/127", "/126")
"""Prefix lengths of subnets with room for two addresses of nodes: RFC 3021, RFC 6164."""


class LinkAddress(NamedTuple):
    """An address of a point-to-point link, as a number, and its subnet, as in `10.1.0.2/31`."""

    subnet: str
    number: int


def link_addresses(fact: NodeFacts) -> Iterator[tuple[str, LinkAddress]]:
    """The ports of a node that have an address on a point-to-point link, each with it."""
    for item in fact.addresses:
        port = fact.by_device.get(str(item.get("dev")))
        if port is not None:
            for text in item.get("addresses") or ():
                own = _of_link(str(text))
                if own is not None:
                    yield port, own


def cables_by_address(
    addresses: Mapping[str, Iterable[tuple[str, LinkAddress]]],
) -> dict[PortName, PortName]:
    """Both directions of every certain cable, from the `link_addresses` of each node.

    A cable is certain if a point-to-point subnet has exactly two ports, with different addresses
    and on different nodes, and no other such subnet gives one of them another far end. Link-local
    addresses name no far end: every link may use them.
    """
    subnets: dict[str, set[tuple[int, PortName]]] = {}
    for node, of_node in addresses.items():
        for port, own in of_node:
            subnets.setdefault(own.subnet, set()).add((own.number, (node, port)))
    far: dict[PortName, set[PortName]] = {}
    for members in subnets.values():
        if len(members) != 2:
            continue
        (number, one), (other_number, other) = members
        if number != other_number and one[0] != other[0]:
            far.setdefault(one, set()).add(other)
            far.setdefault(other, set()).add(one)
    return {
        end: other
        for end, others in far.items()
        for other in others
        if len(others) == 1 and far[other] == {end}
    }


@cached_if_short
def _of_link(text: str) -> LinkAddress | None:
    """An address with its prefix length; None unless its subnet is that of a link."""
    if not text.endswith(_LENGTHS):
        return None
    try:
        own = ipaddress.ip_interface(text)
    except ValueError:
        return None
    return LinkAddress(str(own.network), int(own.ip)) if is_routed(own.ip) else None
