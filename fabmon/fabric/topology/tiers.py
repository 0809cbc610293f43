"""Tiers, planes and pods of the fabric, from its cables.

A leaf is a switch with a host, a spine a switch with a leaf and no host, and so on. Parts without a
path to a host have no tier. The plan takes precedence.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping

from fabmon.fabric.model import HOST, SWITCH, Shape
from fabmon.fabric.names import natural
from fabmon.fabric.topology.plan import Topology

Graph = dict[str, set[str]]


def shape(roles: Mapping[str, str], links: Iterable[tuple[str, str]], given: Topology) -> Shape:
    """The tiers, planes and pods; `links` are pairs of nodes that a cable connects, watched or
    not."""
    graph: Graph = {}
    for one, other in links:
        if one != other:
            graph.setdefault(one, set()).add(other)
            graph.setdefault(other, set()).add(one)
    tiers = _tiers(roles, graph, given.tiers)
    switches = {node for node, tier in tiers.items() if tier > 0}
    planes = given.planes or _planes(graph, switches, tiers)
    pods = given.pods or _pods(graph, switches, tiers)
    return Shape(tiers, dict(planes), dict(pods))


def _tiers(roles: Mapping[str, str], graph: Graph, given: Mapping[str, int]) -> dict[str, int]:
    """Number of hops from the nearest host, through switches only."""
    tiers = {node: 0 for node, role in roles.items() if role == HOST}
    tiers.update(given)
    heap = [(tier, node) for node, tier in tiers.items()]
    heapq.heapify(heap)
    while heap:
        tier, node = heapq.heappop(heap)
        for other in graph.get(node, ()):
            if roles.get(other) == SWITCH and other not in tiers:
                tiers[other] = tier + 1
                heapq.heappush(heap, (tier + 1, other))
    return {node: tier for node, tier in tiers.items() if tier or node in graph}


def _planes(graph: Graph, switches: Collection[str], tiers: Mapping[str, int]) -> dict[str, str]:
    """Parts that share hosts and no switch; empty for one part, or for parts without a common
    host."""
    parts = _parts(graph, switches)
    if len(parts) < 2 or not any(
        sum(not part.isdisjoint(graph[node]) for part in parts) > 1
        for node, tier in tiers.items()
        if tier == 0 and node in graph
    ):
        return {}
    return _named(parts, "plane")


def _pods(graph: Graph, switches: Collection[str], tiers: Mapping[str, int]) -> dict[str, str]:
    """Parts below the highest tier, if there are three tiers or more."""
    top = max((tiers[node] for node in switches), default=0)
    if top < 3:
        return {}
    parts = _parts(graph, {node for node in switches if tiers[node] < top})
    return _named(parts, "pod") if len(parts) > 1 else {}


def _parts(graph: Graph, nodes: Collection[str]) -> list[set[str]]:
    """The connected components of some nodes."""
    left = set(nodes)
    parts = []
    while left:
        part = {left.pop()}
        queue = list(part)
        while queue:
            found = graph.get(queue.pop(), set()) & left
            left -= found
            part |= found
            queue += found
        parts.append(part)
    return parts


def _named(parts: Iterable[set[str]], kind: str) -> dict[str, str]:
    """`plane1`, `plane2` ... in the order of their first nodes."""
    order = sorted(parts, key=lambda part: min(map(natural, part)))
    return {node: f"{kind}{number}" for number, part in enumerate(order, 1) for node in part}
