"""Builds the fabric from the hosts file and the hellos: ports, roles, cables, ECMP groups."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence, Set
from itertools import chain
from typing import NamedTuple

import msgspec

from fabmon.fabric import model
from fabmon.fabric.forwarding_tables import joined
from fabmon.fabric.garbage_collection import without_garbage_collection
from fabmon.fabric.model import Contradiction, EcmpGroup, Fabric, Host, Node, Port, Shape
from fabmon.fabric.node_facts import NodeFacts, ReportedFacts, reported_hosts
from fabmon.fabric.node_ports import ports_of, roles_of_switch
from fabmon.fabric.roles.port_roles import HostRoles, PortRoles
from fabmon.fabric.routing_mode import NOT_REPORTED
from fabmon.fabric.topology.address_cables import PortName
from fabmon.fabric.topology.cabling import Cabling, Rails, groups_of
from fabmon.fabric.topology.known_cabling import KnownCabling
from fabmon.fabric.topology.plan import Topology
from fabmon.fabric.topology.routing import KnownRouting
from fabmon.fabric.wire.messages import Hello


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
) -> Fabric:
    """The fabric that the hellos and the planned `topology` describe; see FabricBuilder."""
    return FabricBuilder(rows, roles, topology).build(hosts, hellos, version)


class _KnownNode(NamedTuple):
    """A node as it was built, and from what: its facts and roles, the update of its cables."""

    host: Host
    fact: NodeFacts
    roles: HostRoles
    update: int
    shape: Shape
    ports: tuple[Port, ...]
    groups: list[EcmpGroup]


class FabricBuilder:
    """Builds one fabric after the other. What has not changed is not computed again: the result is
    the same as from the same hellos at once.

    `roles` keep what earlier hellos reported.
    """

    def __init__(
        self,
        rows: PortRows,
        roles: PortRoles | None = None,
        topology: Topology | None = None,
    ) -> None:
        self._rows = rows
        self._roles = roles or PortRoles()
        self._topology = topology or Topology()
        self._rails = Rails(self._topology)
        self._reported = ReportedFacts()
        self._cabling = KnownCabling(self._topology)
        self._switch_roles: dict[str, tuple[NodeFacts, int, Shape, HostRoles]] = {}
        self._nodes: dict[str, _KnownNode] = {}
        self._placed: dict[str, tuple[Hello | None, Node]] = {}
        self._routing = KnownRouting(self._topology.routing)
        self._fabric: Fabric | None = None

    def build(self, hosts: Sequence[Host], hellos: Mapping[str, Hello], version: int) -> Fabric:
        """The fabric that the hellos and the planned topology describe.

        Nodes without a hello have no ports. Ports seen earlier and gone now keep their row and are
        in no node. Nodes that others report come after those of the hosts file. Its `ports` are the
        same object as before if nothing but hostnames and versions of nodes has changed.
        """
        # The collections would take as long as everything else: there are thousands of new tuples.
        with without_garbage_collection():
            return self._build(hosts, hellos, version)

    def _build(self, hosts: Sequence[Host], hellos: Mapping[str, Hello], version: int) -> Fabric:
        given = {host.name: host for host in hosts}
        hosts = [*hosts, *reported_hosts(given, hellos).values()]
        facts = self._reported.gather(given, hellos)
        cabled = self._cabling.update(hosts, facts)
        roles = self._roles.assign(hosts, facts, cabled, self._rails)
        roles |= self._roles_of_switches(hosts, facts, cabled, roles.keys())
        before = self._nodes
        self._nodes = {
            host.name: self._node(host, facts.get(host.name), cabled, roles[host.name])
            for host in hosts
        }
        nodes = self._grouped(hosts, hellos, cabled.wiring.peers)
        forwarding = joined(
            each for name in given if name in facts for each in facts[name].forwarding
        )
        routing = self._routing.of_nodes(nodes, facts, forwarding)
        wiring = cabled.wiring
        fabric = Fabric(
            version,
            tuple(nodes),
            self._by_row(before),
            tuple(
                msgspec.structs.replace(each, routing=routing.get(each.node, NOT_REPORTED))
                for known in self._nodes.values()
                for each in known.groups
            ),
            cabled.shape,
            tuple(
                Contradiction(self._rows.of(*end), believed, doubted)
                for end in sorted(wiring.disputes)
                for _, believed, doubted in wiring.disputes[end]
            ),
            routing,
            forwarding,
        )
        known = self._fabric
        if known is not None and _differ_only_in_abouts(known, fabric):
            fabric = msgspec.structs.replace(fabric, ports=known.ports)
        self._fabric = fabric
        return fabric

    def _roles_of_switches(
        self,
        hosts: Sequence[Host],
        facts: Mapping[str, NodeFacts],
        cabled: Cabling,
        others: Set[str],
    ) -> dict[str, HostRoles]:
        """The roles of the ports of all nodes but `others`."""
        before, self._switch_roles = self._switch_roles, {}
        for host in hosts:
            name, fact = host.name, facts.get(host.name)
            if name in others or fact is None or not fact.ports:
                continue
            known, update = before.get(name), cabled.changed.get(name, 0)
            if (
                known is None
                or known[0] is not fact
                or known[1] != update
                or known[2] is not cabled.shape
            ):
                roles = roles_of_switch(host, fact, cabled, self._roles.rules)
                if known is not None and known[3] == roles:
                    roles = known[3]
                known = fact, update, cabled.shape, roles
            self._switch_roles[name] = known
        found = {host.name: _NO_ROLES for host in hosts if host.name not in others}
        return found | {name: roles for name, (*_, roles) in self._switch_roles.items()}

    def _node(
        self, host: Host, fact: NodeFacts | None, cabled: Cabling, roles: HostRoles
    ) -> _KnownNode:
        """The ports of a node, and its ECMP groups."""
        known = self._nodes.get(host.name)
        fact = fact or _NO_FACTS
        update = cabled.changed.get(host.name, 0)
        is_known = (
            known is not None
            and known.host == host
            and known.fact is fact
            and known.roles is roles
            and known.update == update
        )
        if known is not None and is_known and known.shape is cabled.shape:
            return known
        ports: tuple[Port, ...]
        if known is not None and is_known:
            ports = known.ports
        else:
            ports = ports_of(host, fact, self._rows.of, cabled, self._rails, roles)
            if known is not None and known.ports == ports:
                ports = known.ports
        groups = groups_of(host, fact, ports, cabled.shape)
        return _KnownNode(host, fact, roles, update, cabled.shape, ports, groups)

    def _by_row(self, before: Mapping[str, _KnownNode]) -> tuple[Port, ...]:
        """All ports at their rows; the row of a port that no longer exists has a placeholder
        without node."""
        gone = Port(-1, "", "", "", model.MANAGEMENT, 0, "", None, {})
        ports = [] if self._fabric is None else list(self._fabric.ports)
        ports += [gone] * (len(self._rows) - len(ports))
        old = [
            known.ports
            for name, known in before.items()
            if name not in self._nodes or self._nodes[name].ports is not known.ports
        ]
        for port in chain.from_iterable(old):
            ports[port.row] = gone
        for name, known in self._nodes.items():
            if name not in before or before[name].ports is not known.ports:
                for port in known.ports:
                    ports[port.row] = port
        return tuple(ports)

    def _grouped(
        self,
        hosts: Sequence[Host],
        hellos: Mapping[str, Hello],
        peers: Mapping[PortName, PortName],
    ) -> list[Node]:
        """The nodes with their groups, in display order.

        The hosts file decides, then the planned topology; else a host is in the group of the switch
        that its first rail is cabled to, a switch with uplinks has its own group, and other
        switches are last.
        """
        roles = {host.name: host.role for host in hosts}
        before, self._placed = self._placed, {}
        for host in hosts:
            ports, hello = self._nodes[host.name].ports, hellos.get(host.name)
            known = before.get(host.name)
            group = host.group or self._topology.groups.get(host.name)
            group = group or _derived_group(host, ports, roles, peers)
            if (
                known is None
                or known[0] is not hello
                or (
                    known[1].ports is not ports
                    or known[1].group != group
                    or known[1].role != host.role
                )
            ):
                about, limits = _about(hello), _limits(hello)
                known = hello, Node(host.name, host.role, group, ports, about, limits)
            self._placed[host.name] = known
        placed = [node for _, node in self._placed.values()]
        spines = {node.name for node in placed if _is_spine(node.role, node.ports)}
        first_seen: dict[str, int] = {}
        for node in sorted(placed, key=lambda node: node.name in spines):
            first_seen.setdefault(node.group, len(first_seen))
        first_seen[SPINES] = len(first_seen)
        return sorted(placed, key=lambda node: (first_seen[node.group], node.role != model.SWITCH))


_NO_ROLES = HostRoles({}, {})
_NO_FACTS = NodeFacts()


def _differ_only_in_abouts(one: Fabric, other: Fabric) -> bool:
    """Whether two fabrics, one built after the other, are equal but for facts about nodes."""
    return (
        len(one.nodes) == len(other.nodes)
        and all(
            a.ports is b.ports and (a.name, a.role, a.group) == (b.name, b.role, b.group)
            for a, b in zip(one.nodes, other.nodes, strict=True)
        )
        and len(one.ports) == len(other.ports)
        and one.shape is other.shape
        and one.groups == other.groups
        and one.contradictions == other.contradictions
        and one.routing == other.routing
        and one.forwarding == other.forwarding
    )


SPINES = "spines"


def _is_spine(role: str, ports: Sequence[Port]) -> bool:
    return role == model.SWITCH and all(port.role != model.UPLINK for port in ports)


def _derived_group(
    host: Host,
    ports: Sequence[Port],
    roles: Mapping[str, str],
    peers: Mapping[PortName, PortName],
) -> str:
    if host.role == model.SWITCH:
        return SPINES if _is_spine(host.role, ports) else host.name
    for is_rail in (True, False):
        for port in ports:
            peer = (
                peers.get((port.node, port.name)) if (port.role == model.RAIL) == is_rail else None
            )
            if peer is not None and roles.get(peer[0]) == model.SWITCH:
                return peer[0]
    return ""


def _limits(hello: Hello | None) -> tuple[str, ...]:
    found = () if hello is None else hello.limits or ()
    return tuple(f"{each.source}: {each.text}" for each in found)


def _about(hello: Hello | None) -> dict[str, str]:
    if hello is None:
        return {}
    return {
        "hostname": hello.hostname,
        "kernel": hello.kernel,
        "python": hello.python,
        "probe": hello.probe,
    }
