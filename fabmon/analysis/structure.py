"""The fabric as arrays by port row, worked out once for every fabric."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.model import DOWNLINK, HOST, RAIL, SWITCH, UPLINK, EcmpGroup, Fabric

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]

NONE = -1
"""No such port, node or rail."""


@dataclass(frozen=True, slots=True)
class Group:
    """An ECMP group: its rows, and those of the other ports of its node, which feed it."""

    group: EcmpGroup
    rows: Rows
    feeders: Rows


@dataclass(frozen=True, slots=True)
class Structure:
    """What does not tick. All arrays are [ports].

    `peer` is the row at the other end, `node` the place of the port's node in `fabric.nodes`,
    `rail` the index of a rail; NONE where there is none. `is_edge` are switch ports towards a host,
    `is_carrier` all ports that training traffic crosses between nodes. `rails` are the rows of the
    hosts' ports by rail index: they carry the same in a collective.
    """

    fabric: Fabric
    peer: Rows
    node: Rows
    rail: Rows
    is_rail: Mask
    is_uplink: Mask
    is_edge: Mask
    is_switch: Mask
    is_carrier: Mask
    groups: tuple[Group, ...]
    rails: dict[int, Rows]

    def label(self, row: int) -> str:
        """`leaf1 up5`: how a port is called in a sentence."""
        port = self.fabric.ports[row]
        return f"{port.node} {port.label}" if port.label else port.id

    def labels(self, rows: Rows, most: int = 4) -> str:
        """Several of them, and how many more."""
        named = [self.label(int(row)) for row in rows[:most]]
        more = len(rows) - len(named)
        return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def structure(fabric: Fabric) -> Structure:
    """The arrays of a fabric."""
    ports = fabric.ports
    place = {node.name: number for number, node in enumerate(fabric.nodes)}
    is_switch_node = np.array([node.role == SWITCH for node in fabric.nodes] + [False])
    node = np.array([place.get(port.node, NONE) for port in ports], np.intp)
    peer = np.array([NONE if port.peer is None else port.peer for port in ports], np.intp)
    role = np.array([port.role for port in ports], dtype=object)
    there = node != NONE
    peer[(peer != NONE) & (np.append(node, NONE)[peer] == NONE)] = NONE
    is_rail = there & (role == RAIL) if len(ports) else np.zeros(0, np.bool_)
    is_switch = there & is_switch_node[node]
    rail = np.array([port.index if port.role == RAIL else NONE for port in ports], np.intp)
    has_peer = peer != NONE
    peer_is_rail = np.append(is_rail, False)[peer] & has_peer
    of_host = {number for number, each in enumerate(fabric.nodes) if each.role == HOST}
    rails = {
        int(index): np.flatnonzero(is_rail & (rail == index))
        for index in np.unique(rail[is_rail])
        if of_host
    }
    is_uplink = there & (role == UPLINK) if len(ports) else np.zeros(0, np.bool_)
    is_downlink = there & (role == DOWNLINK) if len(ports) else np.zeros(0, np.bool_)
    return Structure(
        fabric=fabric,
        peer=peer,
        node=node,
        rail=rail,
        is_rail=is_rail,
        is_uplink=is_uplink,
        is_edge=is_switch & peer_is_rail,
        is_switch=is_switch,
        is_carrier=is_rail | is_uplink | is_downlink,
        groups=tuple(_group(group, node, place) for group in fabric.groups),
        rails=rails,
    )


def _group(group: EcmpGroup, node: Rows, place: dict[str, int]) -> Group:
    rows = np.array(group.rows, np.intp)
    own = np.flatnonzero(node == place.get(group.node, -2))
    return Group(group, rows, np.setdiff1d(own, rows))
