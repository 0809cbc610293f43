"""The fabric as arrays by port row, worked out once for every fabric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.model import (
    DOWNLINK,
    HOST,
    MANAGEMENT,
    RAIL,
    SWITCH,
    UPLINK,
    EcmpGroup,
    Fabric,
)
from fabmon.fabric.snapshot import Floats

# What a NIC's PCIe link carries.


_CODING = 128 / 130
"""What the line code leaves of a lane's transfers from PCIe 3 on; eight of ten before."""
_OLD_CODING = 0.8
_PACKETS = 0.9
"""What transaction headers leave."""


def pcie_bps(info: Mapping[str, Any]) -> float:
    """Payload in bits/s one way, of a port's facts; NaN when they do not say."""
    speed, lanes = info.get("pcie_speed_gtps"), info.get("pcie_width")
    if not isinstance(speed, (int, float)) or not isinstance(lanes, int) or not lanes:
        return float("nan")
    coding = _CODING if speed > 5 else _OLD_CODING
    return float(speed) * lanes * coding * _PACKETS * 1e9


Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]

NONE = -1
"""No such port, node or rail."""


@dataclass(frozen=True, slots=True)
class LinkGroup:
    """Parallel links out of a switch, or into one.

    `node` is the switch that they leave or enter, `rows` the ports that send into them. `edges` are
    that switch's other ports, whose traffic they carry, and `hosts` the NICs behind those; what
    comes in for the switch itself, by its management port, they do not carry.
    `is_inward` groups are the far ends of an ECMP group: what the hash of other switches, and the
    spines' own, makes of the way down.
    """

    node: str
    is_inward: bool
    rows: Rows
    edges: Rows
    hosts: Rows


@dataclass(frozen=True, slots=True)
class FabricStructure:
    """What does not tick. All arrays are [ports].

    `peer` is the row at the other end, `node` the place of the port's node in `fabric.nodes`,
    `rail` the index of a rail; NONE where there is none. `is_edge` are switch ports towards a host,
    `is_carrier` all ports that training traffic crosses between nodes. `rails` are the rows
    of the hosts' ports by rail index: they carry the same in a collective. `rails_of_hosts` are
    those of each host that has any; `rail_tables` are the same as [hosts, rails] for each number of
    rails, with the hosts' places in `rails_of_hosts`. `leaf` is the place in `leaves` of the switch
    that a rail is cabled to, watched or not; NONE where nobody tells. `pcie_bps` is what a NIC's
    PCIe link carries one way; NaN unknown.
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
    groups: tuple[LinkGroup, ...]
    rails: dict[int, Rows]
    rails_of_hosts: list[Rows]
    rail_tables: list[tuple[Rows, Rows]]
    leaf: Rows
    leaves: tuple[str, ...]
    pcie_bps: Floats

    def label(self, row: int) -> str:
        """`leaf1 up5`: how a port is called in a sentence."""
        return self.fabric.ports[row].display_name

    def labels(self, rows: Rows, most: int = 4) -> str:
        """Several of them, and how many more."""
        named = [self.label(int(row)) for row in rows[:most]]
        more = len(rows) - len(named)
        return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def build_structure(fabric: Fabric) -> FabricStructure:
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
    of_hosts = _by_node(np.flatnonzero(is_rail), node)
    behind = [port.cable.node if port.cable and port.role == RAIL else "" for port in ports]
    leaves = tuple(sorted(set(behind) - {""}))
    number = {name: place for place, name in enumerate(leaves)}
    is_uplink = there & (role == UPLINK) if len(ports) else np.zeros(0, np.bool_)
    is_downlink = there & (role == DOWNLINK) if len(ports) else np.zeros(0, np.bool_)
    return FabricStructure(
        fabric=fabric,
        peer=peer,
        node=node,
        rail=rail,
        is_rail=is_rail,
        is_uplink=is_uplink,
        is_edge=is_switch & peer_is_rail,
        is_switch=is_switch,
        is_carrier=is_rail | is_uplink | is_downlink,
        groups=tuple(_groups(fabric.groups, _carriers(node, role), peer, is_rail, place)),
        rails=rails,
        rails_of_hosts=of_hosts,
        rail_tables=[
            (np.array(hosts, np.intp), np.stack([of_hosts[host] for host in hosts]))
            for width in sorted({len(each) for each in of_hosts})
            for hosts in [[n for n, each in enumerate(of_hosts) if len(each) == width]]
        ],
        leaf=np.array([number.get(name, NONE) for name in behind], np.intp),
        leaves=leaves,
        pcie_bps=np.array([pcie_bps(port.info) for port in ports], np.float32),
    )


def _carriers(node: Rows, role: NDArray[np.object_]) -> Rows:
    """[ports] the node of each port that forwards; NONE for those of the management network."""
    return np.where(role == MANAGEMENT, NONE, node) if len(node) else node


def _by_node(rows: Rows, node: Rows) -> list[Rows]:
    order = rows[np.argsort(node[rows], kind="stable")]
    starts = np.flatnonzero(np.diff(node[order])) + 1
    return [each for each in np.split(order, starts) if len(each)]


def _groups(
    groups: Iterable[EcmpGroup], node: Rows, peer: Rows, is_rail: Mask, place: dict[str, int]
) -> list[LinkGroup]:
    """Those of the fabric, and the far ends of those that hosts are behind.

    A spine's links to one leaf are among the links into that leaf, and are judged there.
    """
    outward, inward = [], {}
    for group in groups:
        rows = np.array(group.rows, np.intp)
        own = np.flatnonzero(node == place.get(group.node, -2))
        edges = np.setdiff1d(own, rows)
        behind = peer[edges]
        behind = behind[behind != NONE]
        hosts = behind[is_rail[behind]]
        outward.append(LinkGroup(group.node, False, rows, edges, hosts))
        far = peer[rows]
        far = far[far != NONE]
        if len(hosts) and len(far) > 1:
            inward[frozenset(far.tolist())] = LinkGroup(group.node, True, far, edges, hosts)
    return [
        *(each for each in outward if not any(set(each.rows.tolist()) <= own for own in inward)),
        *inward.values(),
    ]
