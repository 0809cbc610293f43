"""Flat fabrics, whose switches all have hosts: groups of a dragonfly, dimensions of a torus.

Both are found from the cables. The switches of a dragonfly's group are cabled to (nearly) all
others of it, and share these neighbours; those of two groups share none. In a torus, a mesh or a
hypercube, two cables of a switch whose far ends have no other common neighbour are of the same
dimension, and so are opposite sides of a square: the factors of a product of graphs (Feigenbaum,
Hershberger and Schaeffer 1985). A ring of four is a square itself, and counts as two dimensions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import combinations
from typing import NamedTuple

from fabmon.fabric.names import natural

Graph = dict[str, set[str]]

_GROUP = 3
"""Fewer switches that are cabled to each other are no group of a dragonfly."""
_MESHED = 0.75
"""Share of the pairs of a group that have a cable: some may be missing."""
_MOST_SWITCHES = 4096
_MOST_COMPARED = 20_000_000
"""Neighbours that are compared to find groups, or dimensions, a second's work. A hypercube of 4096
switches has three million; cables that are forged could have billions."""


class Flat(NamedTuple):
    """`groups` is the group of each switch of a dragonfly. `links` says of (switch, far switch)
    what the cable is: `group2` for a global link to that group, else `local`, `dimension 1` or
    `mesh`."""

    groups: dict[str, str]
    links: dict[tuple[str, str], str]


def places_of_flat(graph: Graph, tiers: Mapping[str, int], given: Mapping[str, str]) -> Flat:
    """The places of the switches whose connected part has only leaves; `tiers` are of switches.
    `given` are planned groups: they take precedence."""
    found = Flat({}, {})
    parts = [part for part in parts_of(graph, tiers) if all(tiers[node] == 1 for node in part)]
    for part in sorted(parts, key=lambda part: min(map(natural, part))):
        if not 1 < len(part) <= _MOST_SWITCHES:
            continue
        near = {node: graph[node] & part for node in part}
        names = {node: given[node] for node in part if node in given}
        if len(names) < len(part):
            order = sorted(_groups(near), key=lambda group: min(map(natural, group)))
            first = 1 + len(set(found.groups.values()))
            names = {node: f"group{n}" for n, group in enumerate(order, first) for node in group}
        if names:
            found.groups.update(names)
            for node, other in _edges(near):
                far = names[other]
                found.links[node, other] = "local" if far == names[node] else far
        else:
            found.links.update(_dimensions(near))
    return found


def _groups(near: Graph) -> list[set[str]]:
    """The groups of a dragonfly; empty where the switches have none."""
    degrees = {node: len(others) for node, others in near.items()}
    compared = sum(min(degrees[node], degrees[other]) for node in near for other in near[node])
    if compared > _MOST_COMPARED:
        return []
    local: Graph = {node: set() for node in near}
    for node, others in near.items():
        for other in others:
            # Each is a neighbour of the other, and counts as one of itself.
            shared = len(others & near[other]) + 2
            if 2 * shared >= min(degrees[node], degrees[other]) + 1:
                local[node].add(other)
    groups = parts_of(local, near)
    if len(groups) < 2 or any(len(group) < _GROUP for group in groups):
        return []
    for group in groups:
        pairs = len(group) * (len(group) - 1)
        if sum(len(near[node] & group) for node in group) < _MESHED * pairs:
            return []
    return groups


def _dimensions(near: Graph) -> dict[tuple[str, str], str]:
    """`dimension 1` ... of each cable of a torus, mesh or hypercube; `mesh` where there is one."""
    if all(len(others) == len(near) - 1 for others in near.values()):
        return dict.fromkeys(_edges(near), "mesh")
    if _compared(near) > _MOST_COMPARED:
        return dict.fromkeys(_edges(near), "mesh")
    number = {cable: place for place, cable in enumerate(c for c in _edges(near) if _key(*c) == c)}
    classes = _Classes(len(number))

    def join(one: tuple[str, str], other: tuple[str, str]) -> None:
        classes.join(number[_key(*one)], number[_key(*other)])

    for node in near:
        for one, other in combinations(sorted(near[node]), 2):
            corners = (near[one] & near[other]) - {node}
            if other in near[one] or not corners:
                join((node, one), (node, other))
            else:
                for corner in corners - near[node]:
                    join((node, one), (other, corner))
                    join((node, other), (one, corner))
    roots = {cable: classes.root(place) for cable, place in number.items()}
    order = {root: place for place, root in enumerate(sorted(set(roots.values())), 1)}
    if len(order) < 2:
        return dict.fromkeys(_edges(near), "mesh")
    return {cable: f"dimension {order[roots[_key(*cable)]]}" for cable in _edges(near)}


def _compared(near: Graph) -> int:
    """The neighbours that the pairs of cables of all switches have, at most."""
    return sum(
        len(others) * (len(others) - 1) // 2 * max(len(near[other]) for other in others)
        for others in near.values()
        if others
    )


class _Classes:
    """Disjoint sets of numbers."""

    def __init__(self, size: int) -> None:
        self._parent = list(range(size))

    def root(self, number: int) -> int:
        """The smallest number of the set."""
        while self._parent[number] != number:
            self._parent[number] = self._parent[self._parent[number]]
            number = self._parent[number]
        return number

    def join(self, one: int, other: int) -> None:
        """Make two sets one."""
        low, high = sorted((self.root(one), self.root(other)))
        self._parent[high] = low


def _key(one: str, other: str) -> tuple[str, str]:
    return (one, other) if natural(one) <= natural(other) else (other, one)


def _edges(near: Graph) -> Iterable[tuple[str, str]]:
    """Every cable, from both ends."""
    order = {node: place for place, node in enumerate(sorted(near, key=natural))}
    return ((node, other) for node in order for other in sorted(near[node], key=order.__getitem__))


def parts_of(graph: Graph, nodes: Collection[str]) -> list[set[str]]:
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
