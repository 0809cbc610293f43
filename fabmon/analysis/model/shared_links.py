"""The links that several NICs may share, and the NICs whose traffic may cross each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fabmon.analysis.fabric_structure import NONE, FabricStructure, Rows
from fabmon.fabric.model import MANAGEMENT
from fabmon.fabric.routing_mode import NOT_REPORTED, Routing


@dataclass(frozen=True, slots=True, eq=False)
class SharedLinks:
    """Parallel links out of a switch (`is_inward`: into it, from the tier above).

    `rows` [links] are the ports that send into them, `ends` the NICs below the switch, or its ports
    towards hosts that are not watched: what they send may leave by these links, what they receive
    may arrive by them. `is_leaf`: the NICs are cabled to the switch itself.
    """

    node: str
    is_inward: bool
    rows: Rows
    ends: Rows
    is_leaf: bool
    routing: Routing = NOT_REPORTED

    @property
    def has_links_before(self) -> bool:
        """Whether other links between switches send into their switch."""
        return self.is_inward or not self.is_leaf


def shared_links(structure: FabricStructure) -> tuple[SharedLinks, ...]:
    """All sets of parallel links between tiers, in both directions."""
    places = {node.name: place for place, node in enumerate(structure.fabric.nodes)}
    below: dict[int, Rows] = {}
    found: list[SharedLinks] = []
    seen: set[tuple[int, ...]] = set()
    for group in structure.fabric.groups:
        place = places.get(group.node)
        rows = np.array(sorted(group.rows), np.intp)
        if place is None or not structure.is_uplink[rows].all():
            continue
        if place not in below:
            below[place] = _nics_below(structure, place, set())
        ends = below[place]
        is_leaf = place in structure.edges_of or bool((structure.node[ends] == place).any())
        found.append(SharedLinks(group.node, False, rows, ends, is_leaf, group.routing))
        far = structure.peer[rows]
        far = far[far != NONE]
        # Groups that differ by a link whose far end is not known have the same far ends.
        key = tuple(sorted(far.tolist()))
        if len(far) and key not in seen:
            seen.add(key)
            found.append(SharedLinks(group.node, True, far, ends, is_leaf, group.routing))
    return (*found, *_into_unwatched(structure))


def _into_unwatched(structure: FabricStructure) -> Iterator[SharedLinks]:
    """The links from watched switches down to each leaf that is not watched, as NICs name it: its
    uplinks, seen from their other end."""
    far, names = structure.ports.far, list(structure.ports.names)
    is_down = structure.is_switch & ~structure.is_uplink & (structure.peer == NONE)
    is_nic = structure.is_rail & (structure.peer == NONE)
    for leaf in np.unique(far[is_nic]).tolist():
        rows = np.flatnonzero(is_down & (far == leaf))
        if leaf != NONE and len(rows) > 1:
            yield SharedLinks(names[leaf], True, rows, np.flatnonzero(is_nic & (far == leaf)), True)


def _nics_below(structure: FabricStructure, place: int, seen: set[int]) -> Rows:
    """The NICs that are reached from a switch without climbing, but for those below switches that
    were `seen`."""
    seen.add(place)
    own = np.flatnonzero((structure.node == place) & ~structure.is_uplink)
    far = structure.peer[own]
    far = far[far != NONE]
    nics = far[structure.is_rail[far]]
    if not len(nics):
        # Hosts that are not watched: the ports towards them show what they send.
        roles = structure.ports.has_role(MANAGEMENT)
        nics = own[(structure.peer[own] == NONE) & ~roles[own]]
    lower = np.unique(structure.node[far[structure.is_uplink[far]]])
    below = [_nics_below(structure, each, seen) for each in lower.tolist() if each not in seen]
    return np.unique(np.concatenate([nics, *below]))
