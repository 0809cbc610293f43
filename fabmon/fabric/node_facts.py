"""What the nodes say of themselves and of others, sorted by the node that it is about."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from fabmon.fabric.model import Host
from fabmon.fabric.names import natural
from fabmon.fabric.object_owner import owner_of
from fabmon.fabric.wire.messages import Hello, ObjectInfo

_LOG = logging.getLogger("fabmon.fabric")

_PORT_KINDS = frozenset(("ethernet", "infiniband", "gpu", "nvlink", "xgmi"))


class ReportedEcmpGroup(NamedTuple):
    """An ECMP group as a node tells it: its interfaces, and to how many destinations it leads."""

    devices: frozenset[str]
    destinations: int


class ReportedPeer(NamedTuple):
    """Whom a port has at its other end, by the words of `source`: `port` or its interface, and
    what it calls the peer (`node`, `port`, `port_name`, `guid`, `mac`, `role`)."""

    source: str
    port: str
    peer: Mapping[str, Any]


class NodeFacts:
    """What is said of one node. `names` are what it is called besides its name here."""

    def __init__(self) -> None:
        self.ports: dict[str, dict[str, Any]] = {}
        self.ecmp: list[ReportedEcmpGroup] = []
        self.neighbours: list[dict[str, Any]] = []
        self.told: list[ReportedPeer] = []
        self.hostname = ""

    def add(self, item: ObjectInfo, source: str) -> None:
        """Take in one object of a source."""
        if item.port is not None and item.kind in _PORT_KINDS:
            info = {k: v for k, v in item.info.items() if v is not None}
            info["kind"] = item.kind
            known = self.ports.get(item.port)
            self.ports[item.port] = info if known is None else {**known, **info}
            if isinstance(info.get("peer"), Mapping):
                self.told.append(ReportedPeer(source, item.port, info["peer"]))
        elif item.kind == "ecmp":
            self.ecmp.append(_ways(item.info))
        elif item.kind == "neighbour":
            self.neighbours.append(item.info)
            if item.info.get("peer_node") or item.info.get("peer_port"):
                self.told.append(
                    ReportedPeer(source, str(item.info.get("dev", "")), _peer(item.info))
                )

    def merge(self, other: NodeFacts) -> None:
        """Take in all of another's."""
        if not self.ports:
            self.ports.update(other.ports)
        else:
            for name, info in other.ports.items():
                self.ports[name] = {**self.ports.get(name, {}), **info}
        self.ecmp += other.ecmp
        self.neighbours += other.neighbours
        self.told += other.told
        self.hostname = self.hostname or other.hostname

    def by_device(self) -> dict[str, str]:
        """The node's interfaces -> the names of their ports."""
        return {str(info.get("netdev", name)): name for name, info in self.ports.items()}

    def members(self) -> list[tuple[list[str], int]]:
        """Each ECMP group's ports that the node has, in natural order, and its destinations."""
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
    """What every node says, worked out once for each of its hellos."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[Hello, dict[str, NodeFacts]]] = {}
        self._given: dict[str, Host] = {}

    def gather(
        self, given: Mapping[str, Host], hellos: Mapping[str, Hello]
    ) -> dict[str, NodeFacts]:
        """By node, what is said of it; `given` are the nodes that are watched by themselves."""
        if dict(given) != self._given:
            self._given, self._said = dict(given), {}
        facts: dict[str, NodeFacts] = {name: NodeFacts() for name in hellos}
        said = {}
        for name, hello in hellos.items():
            known = self._said.get(name)
            try:
                if known is None or known[0] is not hello:
                    known = hello, _said(given[name], given, hello)
            except Exception:
                # Hellos are checked on arrival; what slips through costs the node that said it.
                _LOG.exception("%s: what it tells of its ports cannot be used", name)
                continue
            said[name] = known
            for about, fact in known[1].items():
                facts.setdefault(about, NodeFacts()).merge(fact)
            facts[name].hostname = hello.hostname
        self._said = said
        return facts


def _said(speaker: Host, given: Mapping[str, Host], hello: Hello) -> dict[str, NodeFacts]:
    """What one node says, by the node that it is about."""
    said: dict[str, NodeFacts] = {}
    for block in hello.blocks:
        for item in block.objects:
            about = owner_of(item, speaker, given)
            if about is not None:
                fact = said.get(about)
                if fact is None:
                    fact = said[about] = NodeFacts()
                fact.add(item, block.source)
    return said


def _ways(group: Mapping[str, Any]) -> ReportedEcmpGroup:
    devices = frozenset(str(member.get("dev")) for member in group.get("members") or ())
    count = group.get("destinations_count")
    return ReportedEcmpGroup(devices, 1 if count is None else int(count))


def _peer(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A neighbour entry's `peer_node`, `peer_port` ... as a port's `peer` has them."""
    return {
        "node": entry.get("peer_node"),
        "port": entry.get("peer_port"),
        "port_name": entry.get("peer_port_name"),
        "mac": entry.get("mac"),
        "role": entry.get("peer_role"),
    }
