"""Traced flows: which node each answer is from, which ports the flow crosses, which links it uses.

An answer's address tells the node, not the port: a Linux router answers from the address of the
port by which it sends the answer, others from that of the port by which the flow came in. So ports
are told by the cables between two nodes that both answered: where there is one, it is that one;
where there are several, the one whose far end has the address. What is not known is left open.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from fabmon.fabric.flows.addresses import Addresses, parse_address
from fabmon.fabric.flows.endpoints import Endpoint
from fabmon.fabric.model import Fabric, Port
from fabmon.fabric.wire.messages import TracedPath

_MOST_HOPS = 64


class NamedHop(msgspec.Struct, frozen=True, kw_only=True):
    """Who answered at a TTL: `addresses`, none where nobody did, several where packets of one flow
    go several ways. `rtt_ms` is of the quickest answer.

    `node` is whom the address belongs to, `in_port` and `out_port` are where the flow enters and
    leaves it; empty where that is not known.
    """

    ttl: int
    addresses: tuple[str, ...] = ()
    rtt_ms: float | None = None
    node: str = ""
    in_port: str = ""
    out_port: str = ""


class NamedPath(msgspec.Struct, frozen=True, kw_only=True):
    """The way of the flow with UDP source port `sport`; `end` and `text` as in `TracedPath`."""

    sport: int
    end: str
    text: str
    hops: tuple[NamedHop, ...]


class EcmpSpread(msgspec.Struct, frozen=True, kw_only=True):
    """How flows spread over the equal-cost `links` of a node: source ports by the port they took;
    ports that none took are there too, with none. `unknown` are those that crossed the node by a
    link that is not known."""

    node: str
    group: str
    links: dict[str, tuple[int, ...]]
    unknown: tuple[int, ...] = ()

    @property
    def used(self) -> int:
        """Links that some flow takes."""
        return sum(bool(sports) for sports in self.links.values())


def name_path(
    fabric: Fabric, addresses: Addresses, src: Endpoint, dst: Endpoint, path: TracedPath
) -> NamedPath:
    """A path with the names of what it crosses. Hops behind the last answer are left out."""
    hops: list[NamedHop] = []
    before, leaving = src.node, _port(fabric, src.node, src.port)
    told = [[each for each in hop if parse_address(each[0])] for hop in path.hops[:_MOST_HOPS]]
    answered = max((ttl for ttl, hop in enumerate(told, 1) if hop), default=0)
    for ttl, answers in enumerate(told[:answered], 1):
        who = tuple(dict.fromkeys(address for address, _ in answers))
        node = _node(addresses, dst, before, leaving, who)
        if hops:
            leaving = _leaving(fabric, addresses, before, node, dst, who)
            hops[-1] = msgspec.structs.replace(hops[-1], out_port=leaving.name if leaving else "")
        hops.append(
            NamedHop(
                ttl=ttl,
                addresses=who,
                rtt_ms=min((took_us / 1000 for _, took_us in answers), default=None),
                node=node,
                in_port=_far_port(fabric, leaving, node),
            )
        )
        before, leaving = node, None
    text = path.text or _where_it_ends(fabric, dst, path, hops)
    return NamedPath(sport=path.sport, end=path.end, text=text, hops=tuple(hops))


def spreads(fabric: Fabric, paths: Sequence[NamedPath]) -> list[EcmpSpread]:
    """How the flows spread wherever they had equal-cost links to choose from, in their order."""
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
    """Neighbours on the paths with several cables between them: an address says which it was."""
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
    addresses: Addresses, dst: Endpoint, before: str, leaving: Port | None, who: Sequence[str]
) -> str:
    """The one node that answers from these addresses; empty when it is not known."""
    nodes = set()
    for text in who:
        if text == dst.address:
            nodes.add(dst.node)
            continue
        address = parse_address(text)
        owner = addresses.owner(address) if address is not None else None
        if owner is None and address is not None:
            towards = addresses.port_towards(before, address)
            if towards is not None and towards.cable is not None:
                owner = towards.cable.node
        nodes.add(owner or "")
    return nodes.pop() if len(nodes) == 1 else ""


def _leaving(
    fabric: Fabric,
    addresses: Addresses,
    before: str,
    node: str,
    dst: Endpoint,
    who: Sequence[str],
) -> Port | None:
    """The port by which a flow left the node `before` towards who answered next."""
    if not before or len(who) == 0:
        return None
    ports = [port for port in _ports(fabric, before) if port.cable and port.cable.node == node]
    if node == dst.node and len(ports) > 1:
        ports = [port for port in ports if _far_port(fabric, port, node) == dst.port]
    if len(ports) == 1:
        return ports[0]
    if len(who) > 1:
        return None
    address = parse_address(who[0])
    if address is None:
        return None
    towards = addresses.port_towards(before, address)
    if towards is not None:
        return towards
    far = {port.row: fabric.ports[port.peer] for port in ports if port.peer is not None}
    having = [row for row, port in far.items() if addresses.has(port, address)]
    return fabric.ports[having[0]] if len(having) == 1 else None


def _where_it_ends(
    fabric: Fabric, dst: Endpoint, path: TracedPath, hops: Sequence[NamedHop]
) -> str:
    """What is known of a flow that nobody answers any more."""
    if path.end != "silent":
        return ""
    if not hops:
        return "no hop answers"
    last = hops[-1]
    for port in _ports(fabric, last.node):
        far = _far_port(fabric, port, dst.node)
        if far == dst.port:
            return f"{dst.id} is behind {port.id} and does not answer"
    return f"nobody answers behind hop {last.ttl}"


def _far_port(fabric: Fabric, port: Port | None, node: str) -> str:
    """The port at the other end, where it is one of `node`."""
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
