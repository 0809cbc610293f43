"""Cables that one end was told of by the other: by LLDP on a switch, or by an InfiniBand fabric.

A port's `info` then has its `peer`: `{"node", "port"}`, and where known `port_name` (another name
of that port) and `guid`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fabmon.fabric.cables import PortName

Facts = Mapping[str, tuple[Mapping[str, Mapping[str, Any]], Sequence[Mapping[str, Any]]]]
"""A node to its ports' infos and its neighbour entries ({"dev", "mac"})."""

_NAMES = ("netdev", "rdma", "alias", "mac")
"""What else a port may be called by a neighbour."""


def with_peers(facts: Facts, guessed: Mapping[PortName, PortName]) -> dict[PortName, PortName]:
    """The cables that an end was told of, and of those `guessed` the ones that contradict none."""
    told = _told(facts)
    rest = {end: other for end, other in guessed.items() if end not in told and other not in told}
    return {**rest, **told}


def _told(facts: Facts) -> dict[PortName, PortName]:
    """The cables that an end names. Where two say different things of a port, none is believed."""
    places = _Places(facts)
    claims: dict[PortName, set[PortName]] = {}
    for node, (ports, _) in facts.items():
        for name, info in ports.items():
            other = places.find(info.get("peer"))
            if other is not None and other != (node, name):
                claims.setdefault((node, name), set()).add(other)
                claims.setdefault(other, set()).add((node, name))
    return {
        end: other
        for end, others in claims.items()
        for other in others
        if len(others) == 1 and claims[other] == {end}
    }


class _Places:
    """Finds the port that a peer speaks of, by whatever it is called there."""

    def __init__(self, facts: Facts) -> None:
        self._ports: dict[PortName, PortName] = {}
        self._guids: dict[int, set[PortName]] = {}
        self._nodes: dict[str, set[str]] = {}
        for node, (ports, _) in facts.items():
            self._nodes.setdefault(_short(node), set()).add(node)
            for name, info in ports.items():
                for called in (name, *(info.get(key) for key in _NAMES)):
                    if called:
                        self._ports.setdefault((node, str(called).lower()), (node, name))
                guid = _guid(info.get("guid"))
                if guid is not None:
                    self._guids.setdefault(guid, set()).add((node, name))

    def find(self, peer: object) -> PortName | None:
        """The port, when there is one and no other that it could be."""
        if not isinstance(peer, Mapping):
            return None
        guid = _guid(peer.get("guid"))
        found = self._guids.get(guid, set()) if guid is not None else set()
        if len(found) == 1:
            return next(iter(found))
        for node in self._candidates(str(peer.get("node", ""))):
            for key in ("port", "port_name"):
                place = self._ports.get((node, str(peer.get(key, "")).lower()))
                if place is not None:
                    return place
        return None

    def _candidates(self, node: str) -> Iterable[str]:
        """Nodes of that name, or the one whose name is the same without its domain."""
        named = self._nodes.get(_short(node), set())
        return (node,) if node in named else named if len(named) == 1 else ()


def _short(node: str) -> str:
    return node.partition(".")[0].lower()


def _guid(text: object) -> int | None:
    """`fc6a:1c03:0012:3456` or `fc6a1c0300123456` as a number."""
    try:
        return int(str(text).replace(":", ""), 16) if text else None
    except ValueError:
        return None
