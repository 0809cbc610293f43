"""Traced flows: the node of each answer, the ports that a flow crosses, the links that flows use.

The address of an answer identifies the node, not the port: a Linux router answers from the address
of the port by which it sends the answer, other routers from that of the port by which the flow
arrived. So ports are found by the cables between two nodes that both answered. Where there is one
cable, it is that one; where there are several, the one whose far end has the address. Ports that
cannot be found this way are left empty.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from fabmon.fabric.flows.addresses import Addresses, parse_address
from fabmon.fabric.flows.endpoints import Endpoint
from fabmon.fabric.model import Fabric, Port
from fabmon.fabric.wire.messages import TracedPath


class NamedHop(msgspec.Struct, frozen=True, kw_only=True):
    """The answers at one TTL. `addresses` is empty without an answer, and has several entries where
    packets of one flow take several paths. `rtt_ms` is the shortest round trip.

    `node` owns the address; `in_port` and `out_port` are where the flow enters and leaves it. They
    are empty where not known.
    """

    ttl: int
    addresses: tuple[str, ...] = ()
    rtt_ms: float | None = None
    node: str = ""
    in_port: str = ""
    out_port: str = ""


class NamedPath(msgspec.Struct, frozen=True, kw_only=True):
    """The path of the flow with UDP source port `sport`; `end` and `text` as in `TracedPath`."""

    sport: int
    end: str
    text: str
    hops: tuple[NamedHop, ...]


class EcmpSpread(msgspec.Struct, frozen=True, kw_only=True):
    """How flows spread over the equal-cost `links` of a node: their source ports by the port that
    they took; ports without a flow are included. `unknown` are the flows that crossed the node by a
    link that is not known."""

    node: str
    group: str
    links: dict[str, tuple[int, ...]]
    unknown: tuple[int, ...] = ()

    @property
    def used(self) -> int:
        """The number of links that some flow takes."""
        return sum(bool(sports) for sports in self.links.values())


def name_path(
    fabric: Fabric, addresses: Addresses, src: Endpoint, dst: Endpoint, path: TracedPath
) -> NamedPath:
    """A path with the nodes and ports that it crosses, up to the last hop that answered."""
    hops: list[NamedHop] = []
    previous, leaving = src.node, _port(fabric, src.node, src.port)
    answers = [[each for each in hop if parse_address(each[0])] for hop in path.hops]
    answered = max((ttl for ttl, hop in enumerate(answers, 1) if hop), default=0)
    for ttl, hop in enumerate(answers[:answered], 1):
        from_addresses = tuple(dict.fromkeys(address for address, _ in hop))
        node = _node(addresses, dst, previous, leaving, from_addresses)
        if hops:
            leaving = _leaving(fabric, addresses, previous, node, dst, from_addresses)
            hops[-1] = msgspec.structs.replace(hops[-1], out_port=leaving.name if leaving else "")
        hops.append(
            NamedHop(
                ttl=ttl,
                addresses=from_addresses,
                rtt_ms=min((took_us / 1000 for _, took_us in hop), default=None),
                node=node,
                in_port=_far_port(fabric, leaving, node),
            )
        )
        previous, leaving = node, None
    text = path.text or _where_it_ends(fabric, dst, path, hops)
    return NamedPath(sport=path.sport, end=path.end, text=text, hops=tuple(hops))


def spreads(fabric: Fabric, paths: Sequence[NamedPath]) -> list[EcmpSpread]:
    """How flows spread at each node with equal-cost links, in the order of the paths."""
    found: dict[tuple[str, str], dict[str, list[int]]] = {}
    for path in paths:
        for hop in path.hops:
            port = _port(fabric, hop.node, hop.out_port)
            group = fabric.group_of(port.row) if port is not None else None
            if port is None or group is None:
                continue
            names = [fabric.ports[row].name for row in group.rows]
            links = found.setdefault((hop.node, group.name), {name: [] for name in names})
            if port.name in links:
                links[port.name].append(path.sport)
    return [
        EcmpSpread(
            node=node,
            group=group,
            links={name: tuple(sports) for name, sports in links.items()},
            unknown=tuple(
                path.sport
                for path in paths
                if any(hop.node == node and not hop.out_port for hop in path.hops)
            ),
        )
        for (node, group), links in found.items()
    ]


def parallel(fabric: Fabric, paths: Sequence[NamedPath]) -> list[tuple[str, str]]:
    """Neighbours on the paths with several cables between them, where the address decides which."""
    pairs = {
        (one.node, other.node)
        for path in paths
        for one, other in itertools.pairwise(path.hops)
        if one.out_port and other.node
    }
    return sorted(
        (one, other)
        for one, other in pairs
        if sum(bool(p.cable and p.cable.node == other) for p in _ports(fabric, one)) > 1
    )


def _node(
    addresses: Addresses, dst: Endpoint, previous: str, leaving: Port | None, answers: Sequence[str]
) -> str:
    """The one node that answers from some addresses; empty when not known, or several."""
    nodes = set()
    for text in answers:
        if text == dst.address:
            nodes.add(dst.node)
            continue
        address = parse_address(text)
        owner = addresses.owner(address) if address is not None else None
        if owner is None and address is not None:
            towards = addresses.port_towards(previous, address)
            if towards is not None and towards.cable is not None:
                owner = towards.cable.node
        nodes.add(owner or "")
    return nodes.pop() if len(nodes) == 1 else ""


def _leaving(
    fabric: Fabric,
    addresses: Addresses,
    previous: str,
    node: str,
    dst: Endpoint,
    answers: Sequence[str],
) -> Port | None:
    """The port by which a flow left the node `previous` towards the next hop; None if not known."""
    if not previous or len(answers) == 0:
        return None
    ports = [port for port in _ports(fabric, previous) if port.cable and port.cable.node == node]
    if node == dst.node and len(ports) > 1:
        ports = [port for port in ports if _far_port(fabric, port, node) == dst.port]
    if len(ports) == 1:
        return ports[0]
    if len(answers) > 1:
        return None
    address = parse_address(answers[0])
    if address is None:
        return None
    towards = addresses.port_towards(previous, address)
    if towards is not None:
        return towards
    far = {port.row: fabric.ports[port.peer] for port in ports if port.peer is not None}
    having = [row for row, port in far.items() if addresses.has(port, address)]
    return fabric.ports[having[0]] if len(having) == 1 else None


def _where_it_ends(
    fabric: Fabric, dst: Endpoint, path: TracedPath, hops: Sequence[NamedHop]
) -> str:
    """Where a flow ended that got no further answer; empty for other ends."""
    if path.end != "silent":
        return ""
    if not hops:
        return (
            f"no hop answers: no router is between them and the NIC of {dst.node} takes the"
            " datagrams itself, or a filter drops UDP to port 4791 or the ICMP answers to it"
        )
    last = hops[-1]
    for port in _ports(fabric, last.node):
        far = _far_port(fabric, port, dst.node)
        if far == dst.port:
            return f"{dst.id} is behind {port.id} and does not answer"
    return f"no answer after hop {last.ttl}"


def _far_port(fabric: Fabric, port: Port | None, node: str) -> str:
    """The name of the port at the other end of a cable to `node`; empty when it is not known."""
    if port is None:
        return ""
    if port.peer is not None and fabric.ports[port.peer].node == node:
        return fabric.ports[port.peer].name
    if port.cable is not None and port.cable.node == node:
        return port.cable.port
    return ""


def _ports(fabric: Fabric, node: str) -> tuple[Port, ...]:
    return next((each.ports for each in fabric.nodes if each.name == node), ())


def _port(fabric: Fabric, node: str, name: str) -> Port | None:
    return next((port for port in _ports(fabric, node) if port.name == name), None)
