"""The IP addresses that the nodes report."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from fabmon.fabric.model import Fabric, Port
from fabmon.fabric.wire.messages import Hello, ObjectInfo

IP = IPv4Address | IPv6Address


class OwnedAddress(NamedTuple):
    """An address of a node, its interface, and the port of that interface (None for an interface
    without a single port)."""

    address: IP
    dev: str
    port: Port | None


class Addresses:
    """The addresses and next hops of all nodes that have sent a hello."""

    def __init__(self, fabric: Fabric, hellos: Mapping[str, Hello]) -> None:
        self._of: dict[str, list[OwnedAddress]] = {}
        self._owners: dict[IP, set[str]] = {}
        self._next: dict[tuple[str, IP], Port] = {}
        for node in fabric.nodes:
            if node.name not in hellos:
                continue
            by_dev = {
                str(port.info[key]): port
                for port in node.ports
                for key in ("bond", "netdev")
                if key in port.info
            }
            own = self._of[node.name] = []
            for item in _own_objects(hellos[node.name]):
                if item.kind == "addresses":
                    dev = str(item.info.get("dev"))
                    over = item.info.get("over") or ()
                    port = next((by_dev[d] for d in (dev, *over) if d in by_dev), None)
                    for text in item.info.get("addresses") or ():
                        address = parse_address(str(text).partition("/")[0])
                        if address is not None and is_routed(address):
                            own.append(OwnedAddress(address, dev, port))
                            self._owners.setdefault(address, set()).add(node.name)
                for dev, via in _next_hops(item):
                    address = parse_address(via)
                    if address is not None and dev in by_dev:
                        self._next.setdefault((node.name, address), by_dev[dev])

    def of(self, node: str) -> list[OwnedAddress]:
        """The routable addresses of a node."""
        return self._of.get(node, [])

    def owner(self, address: IP) -> str | None:
        """The node with this address; None if there is none, or more than one."""
        owners = self._owners.get(address, set())
        return next(iter(owners)) if len(owners) == 1 else None

    def port_towards(self, node: str, address: IP) -> Port | None:
        """The port of a node towards the next hop with this address; None if unknown."""
        return self._next.get((node, address))

    def has(self, port: Port, address: IP) -> bool:
        """Whether a port has this address."""
        own = self._of.get(port.node, ())
        return any(each.address == address and each.port == port for each in own)


def parse_address(text: str) -> IP | None:
    """The IP address of a text; None if it is not one."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_routed(address: IP) -> bool:
    """Whether routers forward to it."""
    return not (address.is_link_local or address.is_loopback or address.is_multicast)


def _own_objects(hello: Hello) -> Iterable[ObjectInfo]:
    return (item for block in hello.blocks for item in block.objects if item.node is None)


def _next_hops(item: ObjectInfo) -> Iterable[tuple[str, str]]:
    """(interface, address) of the next hops of an object."""
    if item.kind == "neighbour":
        yield str(item.info.get("dev")), str(item.info.get("ip"))
    elif item.kind == "ecmp":
        for member in item.info.get("members") or ():
            yield str(member.get("dev")), str(member.get("via"))
