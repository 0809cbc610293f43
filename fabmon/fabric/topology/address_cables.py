"""Cables between watched ports, from addresses in the subnets of point-to-point links."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from fabmon.fabric.flows.addresses import is_routed
from fabmon.fabric.names import cached_if_short
from fabmon.fabric.node_facts import NodeFacts
from fabmon.fabric.topology.mac_cables import PortName

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
