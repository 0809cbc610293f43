"""Which ports a change of some reports can affect: those connected by names and addresses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fabmon.fabric.node_facts import NodeFacts
from fabmon.fabric.topology.address_cables import PortName
from fabmon.fabric.topology.claims import Claim
from fabmon.fabric.topology.plan import End
from fabmon.fabric.topology.port_lookup import names_of, port_id, short

SUBNET = "subnet"

Token = tuple[str, str]
"""The name of a port with that of its node, or an address."""


class _Tokens(NamedTuple):
    """What a port can be found by, and what the reports of a port name."""

    own: frozenset[Token]
    named: frozenset[Token]


class PortGraph:
    """Ports, and the names and addresses by which reports can mean them.

    The far end of a port's cable depends only on the reports of the ports that are reached from it.
    Planned cables are ports of no node here, which name both of their ends.
    """

    def __init__(self) -> None:
        self._ports: dict[PortName, _Tokens] = {}
        self._owners: defaultdict[Token, set[PortName]] = defaultdict(set)
        self._naming: defaultdict[Token, set[PortName]] = defaultdict(set)

    def remove(self, port: PortName) -> None:
        """Remove a port and its reports."""
        own, named = self._ports.pop(port)
        for tokens, index in ((own, self._owners), (named, self._naming)):
            for token in tokens:
                index[token].discard(port)
                if not index[token]:
                    del index[token]

    def add(self, port: PortName, own: frozenset[Token], named: frozenset[Token]) -> None:
        """Add a port, what it can be found by, and what its reports name."""
        self._ports[port] = _Tokens(own, named)
        for token in own:
            self._owners[token].add(port)
        for token in named:
            self._naming[token].add(port)

    def reached(self, ports: Iterable[PortName]) -> set[PortName]:
        """Those of some ports that exist, and all that are connected to them."""
        found = {port for port in ports if port in self._ports}
        todo = list(found)
        while todo:
            own, named = self._ports[todo.pop()]
            for tokens, index in ((own, self._naming), (named, self._owners)):
                for token in tokens:
                    # A token is looked up, not inserted.
                    if token in index and not index[token] <= found:
                        new = index[token] - found
                        found |= new
                        todo += new
        return found


def tokens_of_claim(claim: Claim) -> Iterator[Token]:
    """What may mean a port at either end of a claim."""
    for end in (claim.one, claim.other):
        yield from _tokens_of_end(end)


def _tokens_of_end(end: End) -> Iterator[Token]:
    node = _key(end.node)
    for name in (end.port, *end.also):
        if node and name:
            yield node, name.lower()
    for each in end.ids:
        yield "", port_id(each)


def tokens_of_ports(node: str, fact: NodeFacts) -> Iterator[tuple[str, frozenset[Token]]]:
    """Every port of a node with what it can be found by."""
    keys = {_key(node), _key(fact.hostname)} - {""}
    for name, info in fact.ports.items():
        names = names_of(name, info)
        own = {(key, each) for key in keys for each in names}
        mac, guid = str(info.get("mac") or ""), str(info.get("guid") or "")
        if mac:
            own |= {("mac", mac.lower()), ("", port_id(mac))}
        if guid:
            own.add(("", port_id(guid)))
        yield name, frozenset(own)


def _key(node: str) -> str:
    return short(node.strip().lower())
