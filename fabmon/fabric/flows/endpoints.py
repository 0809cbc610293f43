"""The addresses and queue pairs of the flows between two hosts."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import NamedTuple

import msgspec
import numpy as np

from fabmon.fabric.flows.addresses import Addresses, OwnedAddress
from fabmon.fabric.flows.flow_table import FlowTable
from fabmon.fabric.model import RAIL, Fabric, Node, Port
from fabmon.fabric.port_arrays import NONE


class Endpoint(msgspec.Struct, frozen=True):
    """One end of a flow: `port`, and the interface `dev` that has the address."""

    node: str
    port: str
    dev: str
    address: str

    @property
    def id(self) -> str:
        """`node/port`."""
        return f"{self.node}/{self.port}"


class NoEndpoint(Exception):
    """A port or an address does not exist; the message lists those that do."""


def endpoints(
    addresses: Addresses,
    src: Node,
    dst: Node,
    from_port: str | None = None,
    to_port: str | None = None,
) -> tuple[Endpoint, Endpoint]:
    """The ends of a flow from `src` to `dst`, of one address family, IPv4 where both have it.

    A port is named by its name on the screen, interface, RDMA device or label (`r0`).
    Without names it is the first rail of both that have addresses, else any rail of either. Raises
    NoEndpoint.
    """
    ours = _candidates(addresses, src, from_port, "--from-port")
    theirs = _candidates(addresses, dst, to_port, "--to-port")
    pairs = [
        (one, other)
        for one, other in itertools.product(ours, theirs)
        if one[1].address.version == other[1].address.version
    ]
    if not pairs:
        raise NoEndpoint(
            f"no address family in common: {src.name} has {_listed(ours)}, "
            f"{dst.name} has {_listed(theirs)}"
        )
    one, other = min(pairs, key=_rank)
    return _endpoint(*one), _endpoint(*other)


def _candidates(
    addresses: Addresses, node: Node, name: str | None, option: str
) -> list[tuple[Port, OwnedAddress]]:
    ports = [port for port in node.ports if port.role == RAIL]
    if name is not None:
        ports = [port for port in node.ports if name in names_of(port)]
        if not ports:
            known = ", ".join(port.name for port in node.ports) or "none"
            raise NoEndpoint(f"{option}: {node.name} has no port {name}; it has: {known}")
    rows = {port.row for port in ports}
    found = [
        (own.port, own)
        for own in addresses.of(node.name)
        if own.port is not None and own.port.row in rows
    ]
    if found:
        return found
    what = f"its port {name}" if name is not None else "none of its rails"
    if ports and all(port.kind == "infiniband" for port in ports):
        raise NoEndpoint(
            f"{node.name}: {what} is RoCE, and InfiniBand has no ECMP by UDP port to trace"
        )
    has = "has no" if name is not None else "has a"
    names = f" ({', '.join(port.name for port in ports)})" if name is None and ports else ""
    elsewhere = [f"{own.dev} {own.address}" for own in addresses.of(node.name)]
    but = f"; there are: {', '.join(elsewhere)}" if elsewhere else ""
    raise NoEndpoint(
        f"{node.name}: {what}{names} {has} routable IP address{but}; {option} names another port"
    )


def names_of(port: Port) -> set[str]:
    """The accepted names of a port: name, label, id, interface, RDMA device."""
    facts = {str(port.info[key]) for key in ("netdev", "rdma", "bond") if key in port.info}
    return {port.name, port.label, port.id, *facts}


def _rank(
    pair: tuple[tuple[Port, OwnedAddress], tuple[Port, OwnedAddress]],
) -> tuple[bool, int, int, int]:
    (one, own), (other, _) = pair
    return one.index != other.index, own.address.version, one.index, other.index


def _endpoint(port: Port, own: OwnedAddress) -> Endpoint:
    return Endpoint(port.node, port.name, own.dev, str(own.address))


def _listed(ends: list[tuple[Port, OwnedAddress]]) -> str:
    return ", ".join(f"{own.address} on {port.name}" for port, own in ends)


class PairsOfPorts(NamedTuple):
    """The queue pairs from `src` to `dst`, ports of two hosts; `sports` are distinct, ascending."""

    src: str
    dst: str
    sports: tuple[int, ...]


def pairs_between(
    fabric: Fabric,
    flows: FlowTable,
    src: str,
    dst: str,
    from_port: str | None = None,
    to_port: str | None = None,
) -> PairsOfPorts | None:
    """The queue pairs from one host to another, of the two rails that have the most of them.

    `from_port` and `to_port` name ports, which need not be rails. None if no queue pair with a
    computable source port is known.
    """
    known = np.flatnonzero((flows.dst != NONE) & (flows.sport > 0))
    ends = [
        (fabric.ports[one], fabric.ports[other], sport)
        for one, other, sport in zip(
            flows.src[known].tolist(),
            flows.dst[known].tolist(),
            flows.sport[known].tolist(),
            strict=True,
        )
    ]
    ours = [
        (one.name, other.name, sport)
        for one, other, sport in ends
        if (one.node, other.node) == (src, dst)
        and (one.role == RAIL if from_port is None else from_port in names_of(one))
        and (other.role == RAIL if to_port is None else to_port in names_of(other))
    ]
    if not ours:
        return None
    (pair, _), *_ = Counter((one, other) for one, other, _ in ours).most_common(1)
    sports = {sport for one, other, sport in ours if (one, other) == pair}
    return PairsOfPorts(*pair, tuple(sorted(sports)))
