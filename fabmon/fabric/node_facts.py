"""Facts that nodes report about themselves and others, sorted by the node that they describe."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache, reduce
from operator import is_
from typing import Any, NamedTuple

from fabmon.fabric import forwarding_tables
from fabmon.fabric.forwarding_tables import ForwardingTables
from fabmon.fabric.model import SWITCH, Host
from fabmon.fabric.names import natural
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
    """The reported facts of one node. `reached_at` is its address that the console connected to.

    Once gathered they do not change: what is computed from them can be kept for the same object.
    """

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
        """Whether the same was reported."""
        names = ("hostname", "reached_at", "ports", "ecmp", "neighbours", "peers", "addresses")
        return self.forwarding == other.forwarding and all(
            getattr(self, name) == getattr(other, name) for name in names
        )

    @cached_property
    def by_device(self) -> dict[str, str]:
        """Interface -> port name, of all ports of the node."""
        return {str(info.get("netdev", name)): name for name, info in self.ports.items()}

    @cached_property
    def members(self) -> list[tuple[list[str], int]]:
        """The ports of each ECMP group, in natural order, with its number of destinations."""
        by_netdev = self.by_device
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
        self._facts: dict[str, tuple[list[NodeFacts], NodeFacts]] = {}

    def gather(
        self, given: Mapping[str, Host], hellos: Mapping[str, Hello]
    ) -> dict[str, NodeFacts]:
        """Facts by node; `given` are the nodes of the hosts file.

        The facts of a node are the same object as before if what is reported about it is unchanged.
        They must not be modified.
        """
        if dict(given) != self._given:
            self._given, self._reported = dict(given), {}
        parts: dict[str, list[NodeFacts]] = {name: [] for name in hellos}
        reported = {}
        for name, hello in hellos.items():
            known = self._reported.get(name)
            try:
                if known is None or known[0] is not hello:
                    known = hello, _unless_equal(known, _facts_of(given[name], given, hello))
            except Exception:
                # Hellos are checked on arrival; an error that remains costs only its own node.
                _LOG.exception("%s: the facts about its ports cannot be used", name)
                known = hello, {name: NodeFacts()}
            reported[name] = known
            for about, fact in known[1].items():
                parts.setdefault(about, []).append(fact)
        self._reported = reported
        self._facts = {name: self._joined(name, each) for name, each in parts.items()}
        return {name: fact for name, (_, fact) in self._facts.items()}

    def _joined(self, name: str, parts: list[NodeFacts]) -> tuple[list[NodeFacts], NodeFacts]:
        """What several nodes report about one, after the reports that it is from."""
        known = self._facts.get(name)
        if known is not None and len(known[0]) == len(parts) and all(map(is_, known[0], parts)):
            return known
        return parts, reduce(NodeFacts.merged, parts)


def _unless_equal(
    known: tuple[Hello, dict[str, NodeFacts]] | None, new: dict[str, NodeFacts]
) -> dict[str, NodeFacts]:
    """The new facts of a sender; the object of before for each node that has the same ones."""
    before = {} if known is None else known[1]
    return {
        about: before[about] if about in before and fact.is_equal(before[about]) else fact
        for about, fact in new.items()
    }


def _facts_of(sender: Host, given: Mapping[str, Host], hello: Hello) -> dict[str, NodeFacts]:
    """The facts of one hello, by the node that they describe; the sender is always among them."""
    own = NodeFacts()
    own.hostname, own.reached_at = hello.hostname, hello.reached_at
    found: dict[str, NodeFacts] = {sender.name: own}
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


def owner_of(item: ObjectInfo, sender: Host, given: Mapping[str, Host]) -> str | None:
    """The node that an object belongs to; None if `sender` may not report it, or if it has no name.

    `given` are the nodes of the hosts file: only they report themselves, so a node with false
    reports costs only its own row. Names with and without domain are the same node.
    """
    if item.node is None or item.node == sender.name:
        return sender.name
    if not sender.reports_other_nodes or not item.node:
        return None
    if _short(item.node) in _short_names(tuple(given)):
        return None
    return item.node


def reported_hosts(given: Mapping[str, Host], hellos: Mapping[str, Hello]) -> dict[str, Host]:
    """The nodes that only others report, each with the `via` of the reporting node."""
    found: dict[str, Host] = {}
    for sender, item in _objects(given, hellos):
        name = owner_of(item, sender, given)
        if name is not None and name != sender.name and name not in found:
            role = str(item.info.get("node_role", SWITCH))
            group = item.info.get("node_group")
            found[name] = Host(
                name=name,
                address=sender.name,
                via=sender.via,
                role=role,
                group=str(group) if group else None,
            )
    return found


@lru_cache(maxsize=8)
def _short_names(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(_short, names))


def _short(name: str) -> str:
    """A name without its domain; an IP address unchanged."""
    first = name.partition(".")[0]
    return name if first.isdecimal() else first


def _objects(
    given: Mapping[str, Host], hellos: Mapping[str, Hello]
) -> Iterable[tuple[Host, ObjectInfo]]:
    for name, hello in hellos.items():
        if given[name].reports_other_nodes:
            for block in hello.blocks:
                for item in block.objects:
                    yield given[name], item
