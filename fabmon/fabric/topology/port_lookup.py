"""Finds the port that somebody speaks of, by whatever they call it."""

from __future__ import annotations

from collections.abc import Mapping

from fabmon.fabric.node_facts import NodeFacts
from fabmon.fabric.topology.mac_cables import PortName
from fabmon.fabric.topology.plan import End

_NAMES = ("netdev", "rdma", "alias")
"""What else a port may be called by a neighbour."""
_IDS = ("mac", "guid")


class PortLookup:
    """The watched nodes and their ports.

    A node is known by its name, its hostname, and either without the domain; a port by its name,
    interface, RDMA device or alias, in any case, and by an address that no other port has, of
    that node where one is named.
    """

    def __init__(self, facts: Mapping[str, NodeFacts]) -> None:
        self._facts = facts
        self._nodes = _nodes(facts)
        self._ports: dict[str, dict[str, str]] = {}
        self._ids: dict[str, list[PortName]] | None = None

    def node(self, said: str) -> str:
        """The name of a node here; its name in small letters without domain if it is not watched.
        Empty for an empty one."""
        if said in self._facts:
            return said
        low = said.strip().lower()
        known = self._nodes.get(low) or self._nodes.get(short(low))
        return known or short(low)

    def is_watched(self, node: str) -> bool:
        """Whether it has told of its ports."""
        return node in self._facts

    def has_hostname(self, node: str) -> bool:
        """Whether it has said how it calls itself, so that nobody can mean it by another name."""
        fact = self._facts.get(node)
        return fact is not None and bool(fact.hostname)

    def port(self, end: End) -> PortName | None:
        """The port, when it is watched and there is one that it must be."""
        node = self.node(end.node) if end.node else ""
        if node in self._facts:
            names = self._ports.get(node)
            if names is None:
                names = self._ports[node] = _names(self._facts[node])
            name = names.get(end.port.lower())
            if name is not None:
                return node, name
            for called in end.also:
                name = names.get(called.lower()) if called else None
                if name is not None:
                    return node, name
        for each in end.ids:
            # Who is named decides between those that claim an address; without a name it says
            # nothing when several do.
            owners = self._by_id().get(_id(each), [])
            meant = [own for own in owners if own[0] == node] if node in self._facts else owners
            if len(meant) == 1:
                return meant[0]
        return None

    def _by_id(self) -> dict[str, list[PortName]]:
        if self._ids is None:
            self._ids = {}
            for node, fact in self._facts.items():
                for name, info in fact.ports.items():
                    for each in {_id(str(info[key])) for key in _IDS if info.get(key)}:
                        self._ids.setdefault(each, []).append((node, name))
        return self._ids


def short(name: str) -> str:
    """A name without its domain; an address is itself."""
    first = name.partition(".")[0]
    return name if first.isdigit() else first


def _nodes(facts: Mapping[str, NodeFacts]) -> dict[str, str]:
    """All that a node may be called, in small letters -> its name; what two are called, is not."""
    found: dict[str, str] = {}
    shared: set[str] = set()
    for node, fact in facts.items():
        own = {called for name in (node, fact.hostname) if name for called in _ways_to_say(name)}
        for called in own:
            if found.setdefault(called, node) != node:
                shared.add(called)
    exact = {node.lower(): node for node in facts}
    return {**{called: node for called, node in found.items() if called not in shared}, **exact}


def _ways_to_say(name: str) -> tuple[str, str]:
    low = name.lower()
    return low, short(low)


def _names(fact: NodeFacts) -> dict[str, str]:
    names: dict[str, str] = {}
    for key in reversed(_NAMES):
        for name, info in fact.ports.items():
            if info.get(key):
                names[str(info[key]).lower()] = name
    names.update({name.lower(): name for name in fact.ports})
    names.pop("", None)
    return names


def _id(text: str) -> str:
    """`fc6a:1c03:0012:3456` and `0xfc6a1c0300123456` are the same, and so with zeros in front."""
    return text.lower().replace(":", "").replace(".", "").removeprefix("0x").lstrip("0")
