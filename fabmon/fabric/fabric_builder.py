"""Builds the fabric from the hosts file and the hellos: ports, roles, cables, ECMP groups."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from fabmon.fabric import model
from fabmon.fabric.forwarding_tables import joined
from fabmon.fabric.model import Contradiction, EcmpGroup, Fabric, Host, Node, Port
from fabmon.fabric.names import matches, natural
from fabmon.fabric.node_facts import NodeFacts, ReportedFacts
from fabmon.fabric.object_owner import reported_hosts
from fabmon.fabric.roles.port_roles import HostRoles, PortRole, PortRoles
from fabmon.fabric.roles.rules import FRONT_PANEL, RoleRules, names_of_port
from fabmon.fabric.routing_mode import NOT_REPORTED
from fabmon.fabric.topology.cabling import Cabling, Rails, cabling, groups_of, uplinks_of
from fabmon.fabric.topology.mac_cables import PortName
from fabmon.fabric.topology.plan import Topology
from fabmon.fabric.topology.routing import routing_of_nodes
from fabmon.fabric.wire.messages import Hello

_ROLE_OF_KIND = {"gpu": model.GPU, "nvlink": model.NVLINK, "xgmi": model.NVLINK}


class PortRows:
    """Assigns a permanent row to every (node, port). Histories in several threads may share it, so
    that a row is the same port live and in the past."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def of(self, node: str, port: str) -> int:
        """The row of a port; a new one for a new port."""
        with self._lock:
            return self._rows.setdefault((node, port), len(self._rows))


def build(
    hosts: Sequence[Host],
    hellos: Mapping[str, Hello],
    rows: PortRows,
    version: int,
    roles: PortRoles | None = None,
    topology: Topology | None = None,
    reported: ReportedFacts | None = None,
) -> Fabric:
    """The fabric that the hellos and the planned `topology` describe.

    Nodes without a hello have no ports. Ports seen earlier and gone now keep their row and are in
    no node. Nodes that others report come after those of the hosts file. `roles` and `reported`
    keep what earlier calls evaluated.
    """
    with _uncollected():
        topology, reported = topology or Topology(), reported or ReportedFacts()
        return _build(hosts, hellos, rows, version, roles or PortRoles(), topology, reported)


def with_abouts(fabric: Fabric, hellos: Mapping[str, Hello]) -> Fabric:
    """A fabric in which nothing but hostnames and versions of nodes has changed; its `ports` are
    the same object."""
    nodes = tuple(
        msgspec.structs.replace(node, about=_about(hellos.get(node.name))) for node in fabric.nodes
    )
    return msgspec.structs.replace(fabric, version=fabric.version + 1, nodes=nodes)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable the garbage collector: there are no cycles here, and with thousands of new tuples it
    would take as long as everything else."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _build(
    hosts: Sequence[Host],
    hellos: Mapping[str, Hello],
    rows: PortRows,
    version: int,
    roles: PortRoles,
    topology: Topology,
    reported: ReportedFacts,
) -> Fabric:
    given = {host.name: host for host in hosts}
    hosts = [*hosts, *reported_hosts(given, hellos).values()]
    facts = reported.gather(given, hellos)
    cabled = cabling(hosts, facts, topology)
    rails = Rails(topology)
    of_hosts = roles.assign(hosts, facts, cabled, rails)
    nodes = []
    groups: list[EcmpGroup] = []
    for host in hosts:
        fact = facts.get(host.name) or NodeFacts()
        its = of_hosts.get(host.name) or _roles_of_switch(host, fact, cabled, roles.rules)
        ports = _ports(host, fact, rows, cabled, rails, its)
        nodes.append(Node(host.name, host.role, "", ports, _about(hellos.get(host.name))))
        groups += groups_of(host, fact, ports, cabled.shape)
    nodes = _grouped(hosts, nodes, cabled.wiring.peers, topology)
    forwarding = joined(each for name in given if name in facts for each in facts[name].forwarding)
    routing = routing_of_nodes(nodes, facts, topology.routing, forwarding)
    return Fabric(
        version,
        tuple(nodes),
        _by_row(nodes, len(rows)),
        tuple(
            msgspec.structs.replace(each, routing=routing.get(each.node, NOT_REPORTED))
            for each in groups
        ),
        cabled.shape,
        tuple(
            Contradiction(rows.of(*end), believed, doubted)
            for end, believed, doubted in cabled.wiring.disputes
        ),
        routing,
        forwarding,
    )


def _ports(
    host: Host,
    fact: NodeFacts,
    rows: PortRows,
    cabled: Cabling,
    rails: Rails,
    roles: HostRoles,
) -> tuple[Port, ...]:
    """The ports of a node in physical order: by PCI address, then by name."""
    order = sorted(
        fact.ports,
        key=lambda name: (str(fact.ports[name].get("pci", "~")), natural(name)),
    )
    counts: dict[str, int] = {}
    peers, known = cabled.wiring.peers, cabled.wiring.cables
    ports = []
    for name in order:
        info = fact.ports[name]
        role, reason = roles.roles.get(name) or _role_of_kind(info)
        # The links of a GPU are numbered as nvidia-smi does: from 0 for each GPU.
        within = f"{role} {name.partition('/')[0]}" if role == model.NVLINK else role
        index = counts.get(within, 0)
        if role == model.NVLINK:
            link = info.get("link")
            index = link if isinstance(link, int) and link >= 0 else index
        if role == model.RAIL:
            index = roles.rails.get(name, index)
        else:
            counts[within] = index + 1
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
                role_reason=reason,
            )
        )
    return tuple(ports)


def _role_of_kind(info: Mapping[str, Any]) -> PortRole:
    return PortRole(_ROLE_OF_KIND.get(str(info.get("kind")), model.MANAGEMENT), "")


def _roles_of_switch(host: Host, fact: NodeFacts, cabled: Cabling, rules: RoleRules) -> HostRoles:
    """The roles of a switch's ports."""
    is_front_panel = any(matches(name, FRONT_PANEL) for name in fact.ports)
    uplinks = uplinks_of(host, fact, cabled)
    roles = {}
    for name, info in fact.ports.items():
        if info.get("kind") in _ROLE_OF_KIND:
            continue
        if rules.is_management(names_of_port(name, info)[:2], is_front_panel):
            roles[name] = PortRole(model.MANAGEMENT, "its name matches management_ports")
        elif name in uplinks:
            roles[name] = PortRole(model.UPLINK, "leads to a higher tier")
        else:
            roles[name] = PortRole(model.DOWNLINK, "leads to a host or a lower tier")
    return HostRoles(roles, {})


def _label(role: str, index: int) -> str:
    """The short name of a port. NICs and GPUs count from 0, as drivers do; switch ports from 1, as
    front panels do."""
    from_zero = {
        model.RAIL: "r",
        model.GPU: "g",
        model.NVLINK: "nv",
        model.STORAGE: "s",
        model.FRONTEND: "f",
        model.MEMBER: "b",
    }
    if role in from_zero:
        return f"{from_zero[role]}{index}"
    prefix = {model.UPLINK: "up", model.DOWNLINK: "dn"}.get(role, "m")
    return f"{prefix}{index + 1}"


def _grouped(
    hosts: Sequence[Host],
    nodes: Sequence[Node],
    peers: Mapping[PortName, PortName],
    topology: Topology,
) -> list[Node]:
    """The nodes with their groups, in display order.

    The hosts file decides, then the planned topology; else a host is in the group of the switch
    that its first rail is cabled to, a switch with uplinks has its own group, and other switches
    are last.
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
    for port in sorted(node.ports, key=lambda port: port.role != model.RAIL):
        peer = peers.get((node.name, port.name))
        if peer is not None and roles.get(peer[0]) == model.SWITCH:
            return peer[0]
    return ""


def _by_row(nodes: Sequence[Node], count: int) -> tuple[Port, ...]:
    """All ports at their rows; the row of a port that no longer exists has a placeholder without
    node."""
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
