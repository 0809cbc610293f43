"""Cables between watched ports, from addresses in the subnets of point-to-point links."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fabmon.fabric.flows.addresses import is_routed
from fabmon.fabric.node_facts import NodeFacts
from fabmon.fabric.topology.mac_cables import PortName

Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface

_LENGTHS = ("/31", "/30", "/127", "/126")
"""Prefix lengths of subnets with room for two addresses of nodes: RFC 3021, RFC 6164."""


def link_addresses(fact: NodeFacts) -> Iterator[tuple[str, Interface]]:
    """The ports of a node that have an address on a point-to-point link, each with it."""
    for item in fact.addresses:
        port = fact.by_device.get(str(item.get("dev")))
        if port is not None:
            for own in _point_to_point(item):
                yield port, own


def cables_by_address(
    addresses: Mapping[str, Iterable[tuple[str, Interface]]],
) -> dict[PortName, PortName]:
    """Both directions of every certain cable, from the `link_addresses` of each node.

    A cable is certain if a point-to-point subnet has exactly two ports, with different addresses
    and on different nodes, and no other such subnet gives one of them another far end. Link-local
    addresses name no far end: every link may use them.
    """
    subnets: dict[object, set[tuple[Interface, PortName]]] = {}
    for node, of_node in addresses.items():
        for port, own in of_node:
            subnets.setdefault(own.network, set()).add((own, (node, port)))
    far: dict[PortName, set[PortName]] = {}
    for members in subnets.values():
        if len(members) != 2:
            continue
        (own, one), (other_own, other) = members
        if own.ip != other_own.ip and one[0] != other[0]:
            far.setdefault(one, set()).add(other)
            far.setdefault(other, set()).add(one)
    return {
        end: other
        for end, others in far.items()
        for other in others
        if len(others) == 1 and far[other] == {end}
    }


def _point_to_point(item: Mapping[str, Any]) -> Iterator[Interface]:
    for text in item.get("addresses") or ():
        if not str(text).endswith(_LENGTHS):
            continue
        try:
            own = ipaddress.ip_interface(str(text))
        except ValueError:
            continue
        if is_routed(own.ip):
            yield own
