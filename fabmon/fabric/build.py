"""From the hosts file and what the nodes say to the fabric: ports, roles, cables, ECMP groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fabmon.fabric import model
from fabmon.fabric.cables import PortName, cables
from fabmon.fabric.facts import Facts, gather
from fabmon.fabric.messages import Hello
from fabmon.fabric.model import Contradiction, EcmpGroup, Fabric, Host, Node, Port, Shape
from fabmon.fabric.names import matches, natural
from fabmon.fabric.subject import spoken_for
from fabmon.fabric.topology.claims import given_claims, told_claims, told_roles
from fabmon.fabric.topology.given import Topology
from fabmon.fabric.topology.merge import Wiring, merge
from fabmon.fabric.topology.places import Places
from fabmon.fabric.topology.rails import Rails
from fabmon.fabric.topology.shape import shape

MANAGEMENT_PORTS = ("mgmt*", "Management*", "docker*", "virbr*", "cni*", "usb*")
"""Ports that carry no training traffic, by name, unless the configuration says otherwise."""

_FRONT_PANEL = ("swp[0-9]*", "Ethernet[0-9]*")
"""Ports of Linux switches; what is called eth0 beside these leads to the management network."""

_ROLE_OF_KIND = {"gpu": model.GPU, "nvlink": model.NVLINK, "xgmi": model.NVLINK}


class Rows:
    """Gives every (node, port) a row, once and for good."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def of(self, node: str, port: str) -> int:
        """The row of a port, a new one at first sight."""
        return self._rows.setdefault((node, port), len(self._rows))


def build(
    hosts: Sequence[Host],
    hellos: Mapping[str, Hello],
    rows: Rows,
    version: int,
    management: Sequence[str] = MANAGEMENT_PORTS,
    topology: Topology | None = None,
) -> Fabric:
    """The fabric as far as the nodes have described it, and as far as `topology` was given.

    Nodes without a hello have no ports. Ports seen earlier and gone now keep their row and are in
    no node. Nodes that others tell of come after those of the hosts file.
    """
    topology = topology or Topology()
    given = {host.name: host for host in hosts}
    hosts = [*hosts, *spoken_for(given, hellos).values()]
    facts = gather(given, hellos)
    map_ = _map(hosts, facts, topology)
    rails = Rails(topology)
    nodes = []
    groups: list[EcmpGroup] = []
    for host in hosts:
        fact = facts.get(host.name) or Facts()
        ports = _ports(host, fact, rows, map_, rails, tuple(management))
        nodes.append(Node(host.name, host.role, "", ports, _about(hellos.get(host.name))))
        groups += _groups(host, fact, ports, map_.shape)
    nodes = _grouped(hosts, nodes, map_.wiring.peers, topology)
    return Fabric(
        version,
        tuple(nodes),
        _by_row(nodes, len(rows)),
        tuple(groups),
        map_.shape,
        tuple(
            Contradiction(rows.of(*end), believed, doubted)
            for end, believed, doubted in map_.wiring.disputes
        ),
    )


class _Map(NamedTuple):
    """How everything is cabled, and where each node stands."""

    wiring: Wiring
    shape: Shape


def _map(hosts: Sequence[Host], facts: Mapping[str, Facts], topology: Topology) -> _Map:
    places = Places(facts)
    roles = {places.node(name): model.HOST for name in topology.hosts}
    roles |= {places.node(name): model.SWITCH for name in topology.switches}
    roles |= {places.node(name): role for name, role in told_roles(facts).items()}
    roles |= {host.name: host.role for host in hosts}
    switches = {name for name, role in roles.items() if role == model.SWITCH}
    claims = [*given_claims(topology), *told_claims(facts)]
    seen = cables({name: (fact.ports, fact.neighbours) for name, fact in facts.items()})
    wiring = merge(claims, seen, places, switches)
    # Whatever is an equal-cost next hop of a switch routes too.
    for name in switches:
        for members, _ in facts[name].members() if name in facts else ():
            for port in members:
                cable = wiring.cables.get((name, port))
                if cable is not None:
                    roles.setdefault(cable.node, model.SWITCH)
    links = {(end[0], cable.node) for end, cable in wiring.cables.items()}
    named = Topology(
        tiers={places.node(name): tier for name, tier in topology.tiers.items()},
        planes={places.node(name): plane for name, plane in topology.planes.items()},
        pods={places.node(name): pod for name, pod in topology.pods.items()},
    )
    return _Map(wiring, shape(roles, links, named))


def _ports(
    host: Host,
    fact: Facts,
    rows: Rows,
    map_: _Map,
    rails: Rails,
    management: tuple[str, ...],
) -> tuple[Port, ...]:
    """A node's ports in physical order: by PCI address, then by name."""
    if host.role == model.SWITCH and any(matches(name, _FRONT_PANEL) for name in fact.ports):
        management = (*management, "eth[0-9]")
    order = sorted(
        fact.ports,
        key=lambda name: (str(fact.ports[name].get("pci", "~")), natural(name)),
    )
    uplinks = _uplink_ports(host, fact, map_)
    rail_of = rails.of(fact.ports) if host.role != model.SWITCH else {}
    counts: dict[str, int] = {model.RAIL: rails.count if rail_of else 0}
    peers, known = map_.wiring.peers, map_.wiring.cables
    ports = []
    for name in order:
        info = fact.ports[name]
        role = _role(host, name, info, uplinks, management)
        rail = rail_of.get(name) if role == model.RAIL else None
        index = counts.get(role, 0) if rail is None else rail
        if rail is None:
            counts[role] = index + 1
        end = (host.name, name)
        peer = peers.get(end)
        ports.append(
            Port(
                row=rows.of(host.name, name),
                node=host.name,
                name=name,
                kind=str(info.get("kind", "ethernet")),
                role=role,
                index=index,
                label=_label(role, index),
                peer=None if peer is None else rows.of(*peer),
                info=rails.nearest(info, fact.ports),
                cable=known.get(end),
            )
        )
    return tuple(ports)


def _uplink_ports(host: Host, fact: Facts, map_: _Map) -> set[str]:
    """A switch's ports to a higher tier; where tiers are not known, those in ECMP groups."""
    if host.role != model.SWITCH:
        return set()
    tiers = map_.shape.tiers
    own = tiers.get(host.name)
    found = {name for members, _ in fact.members() for name in members}
    if own is None:
        return found
    for name in fact.ports:
        cable = map_.wiring.cables.get((host.name, name))
        tier = tiers.get(cable.node) if cable is not None else None
        if tier is not None and tier > own:
            found.add(name)
        elif tier is not None and tier < own:
            found.discard(name)
    return found


def _role(
    host: Host,
    name: str,
    info: Mapping[str, Any],
    uplinks: set[str],
    management: tuple[str, ...],
) -> str:
    kind = info.get("kind")
    if kind in _ROLE_OF_KIND:
        return _ROLE_OF_KIND[str(kind)]
    netdev = str(info.get("netdev", name))
    if matches(name, management) or (netdev != name and matches(netdev, management)):
        return model.MANAGEMENT
    if host.role != model.SWITCH:
        return model.RAIL
    return model.UPLINK if name in uplinks else model.DOWNLINK


def _label(role: str, index: int) -> str:
    """Rails and GPUs count from 0 as their makers do, switch ports from 1 as faceplates do."""
    from_zero = {model.RAIL: "r", model.GPU: "g", model.NVLINK: "nv"}
    if role in from_zero:
        return f"{from_zero[role]}{index}"
    prefix = {model.UPLINK: "up", model.DOWNLINK: "dn"}.get(role, "m")
    return f"{prefix}{index + 1}"


def _groups(host: Host, fact: Facts, ports: Sequence[Port], shape: Shape) -> list[EcmpGroup]:
    """The node's ECMP groups of two ports or more, one for each set of members.

    A switch that tells no routes balances over its uplinks, those of each plane for themselves.
    """
    own = {port.name: port for port in ports}
    destinations: dict[tuple[str, ...], int] = {}
    for names, count in fact.members():
        members = tuple(name for name in names if name in own)
        if len(members) > 1:
            destinations[members] = destinations.get(members, 0) + count
    if not fact.ecmp and host.role == model.SWITCH:
        planes: dict[str, list[str]] = {}
        for port in ports:
            if port.role == model.UPLINK and port.cable is not None:
                planes.setdefault(shape.planes.get(port.cable.node, ""), []).append(port.name)
        others = sum(tier == shape.tiers.get(host.name) for tier in shape.tiers.values()) - 1
        destinations = {tuple(names): others for names in planes.values() if len(names) > 1}
    return [
        EcmpGroup(
            host.name,
            _group_name(host.name, [own[name] for name in members]),
            tuple(own[name].row for name in members),
            count,
        )
        for members, count in destinations.items()
    ]


def _group_name(node: str, members: Sequence[Port]) -> str:
    """`leaf1 uplinks`, or where parallel links lead down, `spine1 to leaf1`."""
    if all(port.role == model.DOWNLINK for port in members):
        far = {port.cable.node for port in members if port.cable is not None}
        if len(far) == 1:
            return f"{node} to {far.pop()}"
    return f"{node} uplinks"


def _grouped(
    hosts: Sequence[Host],
    nodes: Sequence[Node],
    peers: Mapping[PortName, PortName],
    topology: Topology,
) -> list[Node]:
    """Nodes with the group they are shown under, in the order to show.

    The hosts file decides, then the topology that was given; else a host goes under the switch that
    its first rail is cabled to, a switch with uplinks leads a group of its own, and switches
    without come last.
    """
    given = {host.name: host.group for host in hosts}
    roles = {host.name: host.role for host in hosts}
    placed = []
    for node in nodes:
        group = given[node.name] or topology.groups.get(node.name)
        group = group or _derived_group(node, roles, peers)
        placed.append(Node(node.name, node.role, group, node.ports, node.about))
    first_seen: dict[str, int] = {}
    for node in sorted(placed, key=lambda node: _is_spine(node)):
        first_seen.setdefault(node.group, len(first_seen))
    return sorted(
        placed,
        key=lambda node: (
            first_seen[node.group] if node.group != SPINES else len(first_seen),
            node.role != model.SWITCH,
        ),
    )


SPINES = "spines"


def _is_spine(node: Node) -> bool:
    return node.role == model.SWITCH and all(port.role != model.UPLINK for port in node.ports)


def _derived_group(node: Node, roles: Mapping[str, str], peers: Mapping[PortName, PortName]) -> str:
    if node.role == model.SWITCH:
        return SPINES if _is_spine(node) else node.name
    for port in node.ports:
        peer = peers.get((node.name, port.name))
        if peer is not None and roles.get(peer[0]) == model.SWITCH:
            return peer[0]
    return ""


def _by_row(nodes: Sequence[Node], count: int) -> tuple[Port, ...]:
    """All ports at their rows; a row whose port is gone holds a placeholder of no node."""
    gone = Port(-1, "", "", "", model.MANAGEMENT, 0, "", None, {})
    ports = [gone] * count
    for node in nodes:
        for port in node.ports:
            ports[port.row] = port
    return tuple(ports)


def _about(hello: Hello | None) -> dict[str, str]:
    if hello is None:
        return {}
    return {
        "hostname": hello.hostname,
        "kernel": hello.kernel,
        "python": hello.python,
        "probe": hello.probe,
    }
