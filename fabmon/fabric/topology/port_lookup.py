"""Finds a watched port by any of its names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fabmon.fabric.names import is_address
from fabmon.fabric.node_facts import NodeFacts
from fabmon.fabric.topology.address_cables import PortName
from fabmon.fabric.topology.plan import End

_NAMES = ("netdev", "rdma", "alias")
"""Facts with further names of a port."""
_IDS = ("mac", "guid")


class PortLookup:
    """The watched nodes and their ports.

    A node is found by its name or hostname, each also without the domain; a port by its name,
    interface, RDMA device or alias, case-insensitively, and by an address that no other port has
    (no other port of the node, if one is named).
    """

    def __init__(self, facts: Mapping[str, NodeFacts]) -> None:
        self._facts = dict(facts)
        self._nodes = _nodes(facts)
        self._ports: dict[str, dict[str, str]] = {}
        self._ids: dict[str, list[PortName]] | None = None

    def replace(self, node: str, fact: NodeFacts) -> None:
        """Set the facts of a node that is among them already, under the same hostname."""
        if self._ids is not None:
            for each, end in _ids_of(node, self._facts[node]):
                self._ids[each].remove(end)
            for each, end in _ids_of(node, fact):
                self._ids.setdefault(each, []).append(end)
        self._ports.pop(node, None)
        self._facts[node] = fact

    def node(self, name: str) -> str:
        """The name of a watched node; for others the lower-case name without domain. Empty for an
        empty name."""
        if name in self._facts or not name:
            return name
        low = name.strip().lower()
        known = self._nodes.get(low) or self._nodes.get(short(low))
        return known or short(low)

    def is_watched(self, node: str) -> bool:
        """Whether the node has reported its ports."""
        return node in self._facts

    def has_hostname(self, node: str) -> bool:
        """Whether the node has reported its hostname, so that no other name can mean it."""
        fact = self._facts.get(node)
        return fact is not None and bool(fact.hostname)

    def find(self, end: End) -> tuple[str, PortName | None]:
        """The node of an end, as of `node`, and its port, if it is watched and unambiguous."""
        node = self.node(end.node)
        place = self._port(node, end)
        return (node if place is None else place[0]), place

    def _port(self, node: str, end: End) -> PortName | None:
        if node in self._facts:
            names = self._ports.get(node)
            if names is None:
                names = self._ports[node] = _names(self._facts[node])
            name = names.get(end.port.lower())
            if name is not None:
                return node, name
            for alias in end.also:
                name = names.get(alias.lower()) if alias else None
                if name is not None:
                    return node, name
        for each in end.ids:
            # Of several ports with this address the named node decides; without a node it is
            # ambiguous.
            owners = self._by_id().get(port_id(each), [])
            candidates = (
                [own for own in owners if own[0] == node] if node in self._facts else owners
            )
            if len(candidates) == 1:
                return candidates[0]
        return None

    def _by_id(self) -> dict[str, list[PortName]]:
        if self._ids is None:
            self._ids = {}
            for node, fact in self._facts.items():
                for each, end in _ids_of(node, fact):
                    self._ids.setdefault(each, []).append(end)
        return self._ids


def short(name: str) -> str:
    """A name without its domain; an IP address unchanged."""
    first = name.partition(".")[0]
    return name if first.isdecimal() else first


def _nodes(facts: Mapping[str, NodeFacts]) -> dict[str, str]:
    """Every lower-case name of a node -> the node; names of two nodes are left out.

    The names of the hosts file, with any domain, come before hostnames, which nodes report
    themselves; of these, that of a node that is listed by its address comes first: it has no other
    name.
    """
    by_rank: list[dict[str, set[str]]] = [{}, {}, {}, {}]
    for node in facts:
        exact, without_domain = _aliases(node)
        by_rank[0].setdefault(exact, set()).add(node)
        by_rank[1].setdefault(without_domain, set()).add(node)
    for node, fact in facts.items():
        aliases = _aliases(fact.hostname) if fact.hostname else ()
        if not aliases or node not in by_rank[1].get(aliases[1], {node}):
            continue
        for alias in aliases:
            by_rank[2 if is_address(node) else 3].setdefault(alias, set()).add(node)
    found: dict[str, str] = {}
    for names in reversed(by_rank):
        for alias, nodes in names.items():
            if len(nodes) == 1:
                (found[alias],) = nodes
            else:
                found.pop(alias, None)
    return found


def _aliases(name: str) -> tuple[str, str]:
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


def _ids_of(node: str, fact: NodeFacts) -> Iterator[tuple[str, PortName]]:
    for name, info in fact.ports.items():
        for each in {port_id(str(info[key])) for key in _IDS if info.get(key)}:
            yield each, (node, name)


def names_of(port: str, info: Mapping[str, Any]) -> set[str]:
    """All names by which a port can be found on its node, in lower case."""
    return {port.lower(), *(str(info[key]).lower() for key in _NAMES if info.get(key))}


def all_names(fact: NodeFacts) -> list[tuple[object, ...]]:
    """Each port of a node with all facts by which it is found."""
    return [
        (port, *(info.get(key) for key in (*_NAMES, *_IDS))) for port, info in fact.ports.items()
    ]


def port_id(text: str) -> str:
    """An address in one notation: `fc6a:1c03:0012:3456` is `0xfc6a1c0300123456`, leading zeros or
    not."""
    return text.lower().replace(":", "").replace(".", "").removeprefix("0x").lstrip("0")
