"""From the hosts file and what the nodes say to the fabric: ports, roles, cables, ECMP groups."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fabmon.fabric import lldp, model
from fabmon.fabric.cables import cables
from fabmon.fabric.messages import Hello, ObjectInfo
from fabmon.fabric.model import EcmpGroup, Fabric, Host, Node, Port
from fabmon.fabric.names import matches, natural
from fabmon.fabric.peers import with_peers
from fabmon.fabric.subject import spoken_for, subject

_LOG = logging.getLogger("fabmon.fabric")

MANAGEMENT_PORTS = ("mgmt*", "Management*", "docker*", "virbr*", "cni*", "usb*")
"""Ports that carry no training traffic, by name, unless the configuration says otherwise."""

_FRONT_PANEL = ("swp[0-9]*", "Ethernet[0-9]*")
"""Ports of Linux switches; what is called eth0 beside these leads to the management network."""

_PORT_KINDS = ("ethernet", "infiniband", "gpu", "nvlink", "xgmi")
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
) -> Fabric:
    """The fabric as far as the nodes have described it.

    Nodes without a hello have no ports. Ports seen earlier and gone now keep their row and are in
    no node. Nodes that others tell of come after those of the hosts file.
    """
    given = {host.name: host for host in hosts}
    others = spoken_for(given, hellos)
    hosts = [*hosts, *others.values()]
    facts = _facts(given, hellos)
    told = {name: (fact.ports, fact.neighbours) for name, fact in facts.items()}
    peers = with_peers(told, lldp.with_names(told, cables(told)))
    roles = {host.name: host.role for host in hosts}
    nodes = []
    groups: list[EcmpGroup] = []
    for host in hosts:
        fact = facts.get(host.name, _Facts())
        # What tells of no equal-cost groups is known by its cables.
        uplinks = _uplink_ports(host, fact) or lldp.uplinks(host.name, peers, roles)
        ports = _ports(host, fact, uplinks, rows, peers, management)
        nodes.append(Node(host.name, host.role, "", ports, _about(hellos.get(host.name))))
        groups += _groups(host.name, fact, {port.name: port for port in ports})
    nodes = _grouped(hosts, nodes, roles, peers)
    return Fabric(version, tuple(nodes), _by_row(nodes, len(rows)), tuple(groups))


class _Ways(NamedTuple):
    """An ECMP group as a node tells it: its interfaces, and to how many destinations it leads."""

    devices: frozenset[str]
    destinations: int


class _Facts:
    """What is said of one node, sorted by what it is about."""

    def __init__(self) -> None:
        self.ports: dict[str, dict[str, Any]] = {}
        self.ecmp: list[_Ways] = []
        self.neighbours: list[dict[str, Any]] = []

    def add(self, item: ObjectInfo) -> None:
        """Take in one object."""
        if item.port is not None and item.kind in _PORT_KINDS:
            self.ports[item.port] = {**self.ports.get(item.port, {}), **_port_info(item)}
        elif item.kind == "ecmp":
            self.ecmp.append(_ways(item.info))
        elif item.kind == "neighbour":
            self.neighbours.append(item.info)

    def merge(self, other: _Facts) -> None:
        """Take in all of another's."""
        for name, info in other.ports.items():
            self.ports[name] = {**self.ports.get(name, {}), **info}
        self.ecmp += other.ecmp
        self.neighbours += other.neighbours


def _facts(given: Mapping[str, Host], hellos: Mapping[str, Hello]) -> dict[str, _Facts]:
    facts: dict[str, _Facts] = {name: _Facts() for name in hellos}
    for name, hello in hellos.items():
        try:
            said = _said(given[name], given, hello)
        except Exception:
            # Hellos are checked on arrival; what slips through costs the node that said it.
            _LOG.exception("%s: what it tells of its ports cannot be used", name)
            continue
        for about, fact in said.items():
            facts.setdefault(about, _Facts()).merge(fact)
    return facts


def _said(speaker: Host, given: Mapping[str, Host], hello: Hello) -> dict[str, _Facts]:
    """What one node says, by the node that it is about."""
    said: dict[str, _Facts] = {}
    for block in hello.blocks:
        for item in block.objects:
            about = subject(item, speaker, given)
            if about is not None:
                said.setdefault(about, _Facts()).add(item)
    return said


def _port_info(item: ObjectInfo) -> dict[str, Any]:
    return {**{k: v for k, v in item.info.items() if v is not None}, "kind": item.kind}


def _ways(group: Mapping[str, Any]) -> _Ways:
    devices = frozenset(str(member.get("dev")) for member in group.get("members") or ())
    count = group.get("destinations_count")
    return _Ways(devices, 1 if count is None else int(count))


def _members(fact: _Facts) -> list[tuple[list[str], int]]:
    """Each ECMP group's ports that the node has, in natural order, and its destinations."""
    by_netdev = {str(info.get("netdev", name)): name for name, info in fact.ports.items()}
    return [
        (
            sorted((by_netdev[dev] for dev in group.devices if dev in by_netdev), key=natural),
            group.destinations,
        )
        for group in fact.ecmp
    ]


def _uplink_ports(host: Host, fact: _Facts) -> set[str]:
    if host.role != model.SWITCH:
        return set()
    return {name for members, _ in _members(fact) for name in members}


def _ports(
    host: Host,
    fact: _Facts,
    uplinks: set[str],
    rows: Rows,
    peers: Mapping[tuple[str, str], tuple[str, str]],
    management: Sequence[str],
) -> tuple[Port, ...]:
    """A node's ports in physical order: by PCI address, then by name."""
    if host.role == model.SWITCH and any(matches(name, _FRONT_PANEL) for name in fact.ports):
        management = (*management, "eth[0-9]")
    order = sorted(
        fact.ports, key=lambda name: (str(fact.ports[name].get("pci", "~")), natural(name))
    )
    counts: dict[str, int] = {}
    ports = []
    for name in order:
        info = fact.ports[name]
        role = _role(host, name, info, uplinks, management)
        index = counts.get(role, 0)
        counts[role] = index + 1
        peer = peers.get((host.name, name))
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
                info=info,
            )
        )
    return tuple(ports)


def _role(
    host: Host,
    name: str,
    info: Mapping[str, Any],
    uplinks: set[str],
    management: Sequence[str],
) -> str:
    names = (name, str(info.get("netdev", name)))
    if info.get("kind") in _ROLE_OF_KIND:
        return _ROLE_OF_KIND[str(info["kind"])]
    if any(matches(each, management) for each in names):
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


def _groups(node: str, fact: _Facts, ports: Mapping[str, Port]) -> list[EcmpGroup]:
    """The node's ECMP groups of two ports or more, one for each set of members."""
    destinations: dict[tuple[str, ...], int] = {}
    for names, count in _members(fact):
        members = tuple(name for name in names if name in ports)
        if len(members) > 1:
            destinations[members] = destinations.get(members, 0) + count
    return [
        EcmpGroup(node, f"{node} uplinks", tuple(ports[name].row for name in members), count)
        for members, count in destinations.items()
    ]


def _grouped(
    hosts: Sequence[Host],
    nodes: Sequence[Node],
    roles: Mapping[str, str],
    peers: Mapping[tuple[str, str], tuple[str, str]],
) -> list[Node]:
    """Nodes with the group they are shown under, in the order to show.

    The hosts file decides; else a host goes under the switch that its first rail is cabled to, a
    switch with uplinks leads a group of its own, and switches without come last.
    """
    given = {host.name: host.group for host in hosts}
    placed = []
    for node in nodes:
        group = given[node.name] or _derived_group(node, roles, peers)
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


def _derived_group(
    node: Node, roles: Mapping[str, str], peers: Mapping[tuple[str, str], tuple[str, str]]
) -> str:
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
