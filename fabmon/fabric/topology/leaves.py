"""The leaf of every NIC, and the leaves below every switch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.model import RAIL, SWITCH, UPLINK, Fabric, Port
from fabmon.fabric.port_arrays import NONE

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Leaves:
    """`names` of the leaves, watched or not; `of` [ports] is the index of the leaf that a NIC is
    cabled to, NONE for other ports and where it is unknown. `is_rail` is [ports]. `below` are the
    leaves below every switch, by its name.
    """

    names: tuple[str, ...]
    of: Rows
    is_rail: Mask
    below: dict[str, frozenset[int]]

    def under(self, switch: str) -> Mask:
        """[ports]: whether the port is a NIC below a switch of any tier."""
        is_wanted = np.zeros(len(self.names) + 1, np.bool_)
        is_wanted[list(self.below.get(switch, ()))] = True
        found: Mask = is_wanted[self.of]
        return found


def leaves(fabric: Fabric) -> Leaves:
    """The leaves of a fabric, from its cables."""
    switches = {node.name for node in fabric.nodes if node.role == SWITCH}
    places: dict[str, int] = {}
    of = np.full(len(fabric.ports), NONE, np.intp)
    is_rail = np.zeros(len(fabric.ports), np.bool_)
    above: dict[str, set[str]] = {}
    tiers = fabric.shape.tiers
    for port in fabric.ports:
        if not port.node:
            continue
        far = far_node(port, fabric)
        if port.role == RAIL:
            is_rail[port.row] = True
            if far and (far in switches or tiers.get(far, 1) > 0):
                of[port.row] = places.setdefault(far, len(places))
        elif far and port.node in switches and is_uplink_to(port, far, fabric):
            above.setdefault(port.node, set()).add(far)
    below: dict[str, set[int]] = {}
    for name, place in places.items():
        for switch in _reached(name, above):
            below.setdefault(switch, set()).add(place)
    names = tuple(places)
    return Leaves(names, of, is_rail, {name: frozenset(each) for name, each in below.items()})


def far_node(port: Port, fabric: Fabric) -> str:
    """The node at the other end of a port's cable; empty if unknown."""
    if port.cable is not None:
        return port.cable.node
    return fabric.ports[port.peer].node if port.peer is not None else ""


def is_uplink_to(port: Port, far: str, fabric: Fabric) -> bool:
    """Whether a port of a switch leads up to the node `far`."""
    here, there = fabric.shape.tiers.get(port.node), fabric.shape.tiers.get(far)
    if here is None or there is None:
        return port.role == UPLINK
    return here < there


def _reached(start: str, above: dict[str, set[str]]) -> Iterable[str]:
    """A switch and all switches above it."""
    seen = {start}
    todo = [start]
    while todo:
        for switch in above.get(todo.pop(), ()):
            if switch not in seen:
                seen.add(switch)
                todo.append(switch)
    return seen
