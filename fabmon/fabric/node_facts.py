"""Facts that nodes report about themselves and others, sorted by the node that they describe."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from fabmon.fabric import forwarding_tables
from fabmon.fabric.forwarding_tables import ForwardingTables
from fabmon.fabric.model import Host
from fabmon.fabric.names import natural
from fabmon.fabric.object_owner import owner_of
from fabmon.fabric.wire.messages import Hello, ObjectInfo

_LOG = logging.getLogger("fabmon.fabric")

_PORT_KINDS = frozenset(("ethernet", "infiniband", "gpu", "nvlink", "xgmi"))


class ReportedEcmpGroup(NamedTuple):
    """An ECMP group as a node reports it: its interfaces and its number of destinations.

    `hash_policy` is Linux' fib_multipath_hash_policy, None where not reported. `adaptive` is the
    place that says that adaptive routing is on, else empty.
    """

    devices: frozenset[str]
    destinations: int
    hash_policy: int | None = None
    adaptive: str = ""


class ReportedPeer(NamedTuple):
    """The far end of a port as `source` reports it: `port` or its interface, and the names of the
    peer (`node`, `port`, `port_name`, `guid`, `mac`, `role`)."""

    source: str
    port: str
    peer: Mapping[str, Any]


class NodeFacts:
    """The reported facts of one node. `reached_at` is its address that the console connected to."""

    def __init__(self) -> None:
        self.ports: dict[str, dict[str, Any]] = {}
        self.ecmp: list[ReportedEcmpGroup] = []
        self.neighbours: list[dict[str, Any]] = []
        self.peers: list[ReportedPeer] = []
        self.addresses: list[dict[str, Any]] = []
        self.forwarding: list[ForwardingTables] = []
        self.hostname = ""
        self.reached_at = ""

    def add(self, item: ObjectInfo, source: str) -> None:
        """Add one object of a source."""
        if item.port is not None and item.kind in _PORT_KINDS:
            info = {k: v for k, v in item.info.items() if v is not None}
            info["kind"] = item.kind
            known = self.ports.get(item.port)
            self.ports[item.port] = info if known is None else {**known, **info}
            if isinstance(info.get("peer"), Mapping):
                self.peers.append(ReportedPeer(source, item.port, info["peer"]))
        elif item.kind == "ecmp":
            self.ecmp.append(_ecmp_group(item.info))
        elif item.kind == "addresses":
            self.addresses.append(item.info)
        elif item.kind == forwarding_tables.KIND:
            self.forwarding.append(forwarding_tables.forwarding_tables(item.info))
        elif item.kind == "neighbour":
            self.neighbours.append(item.info)
            if item.info.get("peer_node") or item.info.get("peer_port"):
                self.peers.append(
                    ReportedPeer(source, str(item.info.get("dev", "")), _peer(item.info))
                )

    def merged(self, other: NodeFacts) -> NodeFacts:
        """These facts with all of another report."""
        both = NodeFacts()
        both.ports = dict(self.ports)
        for name, info in other.ports.items():
            both.ports[name] = {**self.ports.get(name, {}), **info}
        both.ecmp = self.ecmp + other.ecmp
        both.neighbours = self.neighbours + other.neighbours
        both.peers = self.peers + other.peers
        both.addresses = self.addresses + other.addresses
        both.forwarding = self.forwarding + other.forwarding
        both.hostname = self.hostname or other.hostname
        both.reached_at = self.reached_at or other.reached_at
        return both

    def is_equal(self, other: NodeFacts) -> bool:
        """Whether the same was reported about ports, cables, routes and addresses."""
        return not (self.forwarding or other.forwarding) and all(
            getattr(self, name) == getattr(other, name)
            for name in ("ports", "ecmp", "neighbours", "peers", "addresses")
        )

    def by_device(self) -> dict[str, str]:
        """Interface -> port name, of all ports of the node."""
        return {str(info.get("netdev", name)): name for name, info in self.ports.items()}

    def members(self) -> list[tuple[list[str], int]]:
        """The ports of each ECMP group, in natural order, with its number of destinations."""
        if not self.ecmp:
            return []
        by_netdev = self.by_device()
        return [
            (
                sorted((by_netdev[dev] for dev in group.devices if dev in by_netdev), key=natural),
                group.destinations,
            )
            for group in self.ecmp
        ]


class ReportedFacts:
    """The facts of all nodes; each hello is evaluated once."""

    def __init__(self) -> None:
        self._reported: dict[str, tuple[Hello, dict[str, NodeFacts]]] = {}
        self._given: dict[str, Host] = {}

    def gather(
        self, given: Mapping[str, Host], hellos: Mapping[str, Hello]
    ) -> dict[str, NodeFacts]:
        """Facts by node; `given` are the nodes of the hosts file.

        The facts of a node are the same object as before if all that reports about it is unchanged
        and of one node. They must not be modified.
        """
        if dict(given) != self._given:
            self._given, self._reported = dict(given), {}
        facts: dict[str, NodeFacts | None] = dict.fromkeys(hellos)
        reported = {}
        for name, hello in hellos.items():
            known = self._reported.get(name)
            try:
                if known is None or known[0] is not hello:
                    known = hello, _facts_of(given[name], given, hello)
            except Exception:
                # Hellos are checked on arrival; an error that remains costs only its own node.
                _LOG.exception("%s: the facts about its ports cannot be used", name)
                continue
            reported[name] = known
            for about, fact in known[1].items():
                others = facts.get(about)
                facts[about] = fact if others is None else others.merged(fact)
            own = facts[name] = facts[name] or known[1].setdefault(name, NodeFacts())
            own.hostname, own.reached_at = hello.hostname, hello.reached_at
        self._reported = reported
        return {name: fact or NodeFacts() for name, fact in facts.items()}

    def is_unchanged(self, node: str, hello: Hello) -> bool:
        """Whether a new hello of a node reports what its last one did, so that `gather` would find
        the same; then it replaces that one."""
        before = self._reported.get(node)
        if before is None or node not in self._given:
            return False
        old, known = before
        if (old.hostname, old.reached_at) != (hello.hostname, hello.reached_at):
            return False
        try:
            facts = _facts_of(self._given[node], self._given, hello)
        except Exception:
            return False
        facts.setdefault(node, NodeFacts())
        if facts.keys() != known.keys() or not all(
            fact.is_equal(known[about]) for about, fact in facts.items()
        ):
            return False
        self._reported[node] = hello, known
        return True


def _facts_of(sender: Host, given: Mapping[str, Host], hello: Hello) -> dict[str, NodeFacts]:
    """The facts of one hello, by the node that they describe."""
    found: dict[str, NodeFacts] = {}
    for block in hello.blocks:
        for item in block.objects:
            about = owner_of(item, sender, given)
            if item.kind == forwarding_tables.KIND and not sender.reports_other_nodes:
                continue
            if about is not None:
                fact = found.get(about)
                if fact is None:
                    fact = found[about] = NodeFacts()
                fact.add(item, block.source)
    return found


def _ecmp_group(group: Mapping[str, Any]) -> ReportedEcmpGroup:
    devices = frozenset(str(member.get("dev")) for member in group.get("members") or ())
    count = group.get("destinations_count")
    return ReportedEcmpGroup(
        devices,
        1 if count is None else int(count),
        group.get("hash_policy"),
        group.get("adaptive_routing") or "",
    )


def _peer(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The keys `peer_node`, `peer_port` ... of a neighbour entry, named as in a port's `peer`."""
    return {
        "node": entry.get("peer_node"),
        "port": entry.get("peer_port"),
        "port_name": entry.get("peer_port_name"),
        "mac": entry.get("mac"),
        "role": entry.get("peer_role"),
    }
