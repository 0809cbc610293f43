"""Tiers, planes and pods of the fabric, from its cables.

A leaf is a switch with hosts, a spine a switch with a leaf and no host, and so on: the number of
hops to the nearest host. That is too many where a switch has no cabled host below it, so a switch
is only above its neighbours if it joins parts that are separate without it. Other switches hang
below them: leaves without hosts, pods of which no host is watched, management switches. Names
decide what cables leave open: `leaf19` is where most of its namesakes are.

Parts without a path to a host have no tier. A fabric whose switches all have hosts is flat; see
flat.py. The plan takes precedence.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from statistics import median

from fabmon.fabric.model import HOST, SWITCH, Shape
from fabmon.fabric.names import natural
from fabmon.fabric.topology.flat import Graph, parts_of, places_of_flat
from fabmon.fabric.topology.plan import Topology

_DIGITS = re.compile(r"\d+")
_CORE = re.compile(r"core|super.?spine|director", re.IGNORECASE)
_FEW_HOSTS = 0.25
"""A switch of whose neighbours the hosts are a share below this times that of the leaves beside it
is no leaf: a manager or a gateway is cabled to a spine."""


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
    flat = places_of_flat(graph, {node: tiers[node] for node in switches}, given.pods)
    planes = given.planes or _planes(graph, switches, tiers)
    pods = given.pods or {**_pods(graph, switches, tiers), **flat.groups}
    return Shape(tiers, dict(planes), dict(pods), flat.links)


def _tiers(roles: Mapping[str, str], graph: Graph, given: Mapping[str, int]) -> dict[str, int]:
    """The tier of every node with a path to a host through switches."""
    hops = _hops(roles, graph, given, _hosts_of_upper(roles, graph))
    switches = {node for node in hops if node in graph and hops[node] > 0}
    tiers = {node: hop for node, hop in hops.items() if hop < 3 or node in given}
    certain = set(tiers)
    hanging = []
    for hop in range(3, max(hops.values(), default=0) + 1):
        level = {node for node in switches if hops[node] == hop and node not in given}
        part_of = _part_numbers(graph, switches - level, hops, hop)
        for node in level:
            near = [tiers[each] for each in _nearer(graph, hops, node)]
            if len({part_of[each] for each in graph[node] if each in part_of}) > 1:
                tiers[node] = max(near) + 1
                certain.add(node)
            else:
                tiers[node] = max(1, min(near) - 1)
                hanging.append(node)
    _follow_names(graph, switches, hops, tiers, certain, hanging)
    return {node: tier for node, tier in tiers.items() if tier or node in graph}


def _hops(
    roles: Mapping[str, str],
    graph: Graph,
    given: Mapping[str, int],
    apart: Collection[tuple[str, str]],
) -> dict[str, int]:
    """Hops to the nearest host, through switches only and not over the cables `apart`."""
    hops = {node: 0 for node, role in roles.items() if role == HOST}
    hops.update(given)
    heap = [(hop, node) for node, hop in hops.items()]
    heapq.heapify(heap)
    while heap:
        hop, node = heapq.heappop(heap)
        for other in graph.get(node, ()):
            if roles.get(other) == SWITCH and other not in hops and (node, other) not in apart:
                hops[other] = hop + 1
                heapq.heappush(heap, (hop + 1, other))
    return hops


def _hosts_of_upper(roles: Mapping[str, str], graph: Graph) -> set[tuple[str, str]]:
    """(host, switch) cables of switches that have a few hosts and are above leaves."""
    share: dict[str, float] = {}
    near: dict[str, tuple[set[str], set[str]]] = {}
    for node, others in graph.items():
        if roles.get(node) == SWITCH:
            hosts = {each for each in others if roles.get(each) == HOST}
            switches = {each for each in others if roles.get(each) == SWITCH}
            near[node] = hosts, switches
            share[node] = len(hosts) / max(1, len(hosts) + len(switches))
    found = set()
    for node, (hosts, switches) in near.items():
        leaves = [share[each] for each in switches if share[each] > 0]
        if hosts and len(leaves) > 1 and share[node] < _FEW_HOSTS * median(leaves):
            found |= {(host, node) for host in hosts}
    return found


def _nearer(graph: Graph, hops: Mapping[str, int], node: str) -> list[str]:
    """The neighbours of a switch that are nearer to a host."""
    return [each for each in graph[node] if hops.get(each, hops[node]) < hops[node]]


def _part_numbers(
    graph: Graph, others: Collection[str], hops: Mapping[str, int], hop: int
) -> dict[str, int]:
    """The part of each switch but those `hop` hops away; none of what hangs below some of those.

    A part that is further from the hosts counts if two or more of the switches lead to it and it is
    as deep as they are high: a pod of which no host is watched. A management switch is not.
    """
    found = {}
    for number, part in enumerate(parts_of(graph, others)):
        above = {each for node in part for each in graph[node] if hops.get(each) == hop}
        is_pod = len(above) > 1 and max(hops[node] for node in part) >= 2 * hop - 1
        if is_pod or any(hops[node] < hop for node in part):
            found.update(dict.fromkeys(part, number))
    return found


def _follow_names(
    graph: Graph,
    switches: Collection[str],
    hops: Mapping[str, int],
    tiers: dict[str, int],
    certain: Collection[str],
    hanging: Collection[str],
) -> None:
    """Move switches that hang below others to the tier of their namesakes, in place.

    Switches that differ in numbers only are namesakes, unless two of them are cabled to each other:
    then the name says nothing about the tier. Where the place of none is certain, a name like
    `core2` keeps a switch above.
    """
    namesakes: dict[str, list[str]] = {}
    for node in switches:
        namesakes.setdefault(_DIGITS.sub("#", node), []).append(node)
    for node in hanging:
        others = namesakes[_DIGITS.sub("#", node)]
        known = Counter(tiers[each] for each in others if each in certain)
        if any(not graph[each].isdisjoint(others) for each in others):
            continue
        if known:
            tiers[node] = known.most_common(1)[0][0]
        elif _CORE.search(node):
            tiers[node] = 1 + max(tiers[each] for each in _nearer(graph, hops, node))


def _planes(graph: Graph, switches: Collection[str], tiers: Mapping[str, int]) -> dict[str, str]:
    """Parts that share hosts and no switch; empty for one part, or for parts without a common
    host."""
    parts = parts_of(graph, switches)
    if len(parts) < 2 or not any(
        sum(not part.isdisjoint(graph[node]) for part in parts) > 1
        for node, tier in tiers.items()
        if tier == 0 and node in graph
    ):
        return {}
    return _named(parts, "plane")


def _pods(graph: Graph, switches: Collection[str], tiers: Mapping[str, int]) -> dict[str, str]:
    """Parts of more than one tier below the highest tier, if there are three tiers or more."""
    top = max((tiers[node] for node in switches), default=0)
    if top < 3:
        return {}
    parts = parts_of(graph, {node for node in switches if tiers[node] < top})
    parts = [part for part in parts if any(tiers[node] == 1 for node in part)]
    with_hosts = [
        part for part in parts if any(tiers.get(o) == 0 for node in part for o in graph[node])
    ]
    names = {_DIGITS.sub("#", node) for part in with_hosts for node in part}
    pods = [
        part
        for part in parts
        if part in with_hosts or any(_DIGITS.sub("#", node) in names for node in part)
    ]
    return _named(pods, "pod") if len(pods) > 1 else {}


def _named(parts: Iterable[set[str]], kind: str) -> dict[str, str]:
    """`plane1`, `plane2` ... in the order of their first nodes."""
    order = sorted(parts, key=lambda part: min(map(natural, part)))
    return {node: f"{kind}{number}" for number, part in enumerate(order, 1) for node in part}
