"""The fabric as arrays by port row, computed once for every fabric."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from fabmon.fabric.model import HOST, MEMBER, RAIL, SWITCH, UPLINK, EcmpGroup, Fabric, Node, Port
from fabmon.fabric.port_arrays import NONE as NONE
from fabmon.fabric.port_arrays import PortArrays, port_arrays
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.topology.leaves import Mask as Mask
from fabmon.fabric.topology.leaves import Rows as Rows
from fabmon.fabric.wording import name_list

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class FabricStructure:
    """What does not change from tick to tick. All arrays are [ports].

    `peer` is the row at the other end, as it was before where nothing reports it any more (LLDP
    forgets the neighbour of a port that is down), `node` the place of the port's node in
    `fabric.nodes`, `rail` the index of a rail; NONE where there is none. `is_edge` are switch ports
    towards a host.
    `edges_of` are those of each node that has any, by its place. `groups` are sets of parallel
    links: the ports of ECMP groups, and those at the far ends of the groups of leaves.
    `rails` are the rows of the hosts' ports by rail index: they carry the same in a collective.
    `rails_of_hosts` are those of each host that has any; `rail_tables` are the same as
    [hosts, rails] for each number of rails, with the hosts' places in `rails_of_hosts`. `leaf` is
    the place in `leaves` of the switch that a rail is cabled to, watched or not; NONE where no
    cable is known. `pcie_bps` is what a NIC's PCIe link carries one way, bits/s; NaN unknown.
    `ports` are the arrays that these are from.
    """

    fabric: Fabric
    ports: PortArrays
    peer: Rows
    node: Rows
    rail: Rows
    is_rail: Mask
    is_uplink: Mask
    is_edge: Mask
    is_switch: Mask
    edges_of: dict[int, Rows]
    groups: tuple[Rows, ...]
    rails: dict[int, Rows]
    rails_of_hosts: list[Rows]
    rail_tables: list[tuple[Rows, Rows]]
    leaf: Rows
    leaves: tuple[str, ...]
    pcie_bps: Floats
    _memo: dict[Callable[[Any], Any], Any] = field(default_factory=dict)
    _node_memo: dict[Callable[[Node], Any], dict[str, tuple[tuple[Port, ...], Any]]] = field(
        default_factory=dict
    )

    def once(self, compute: Callable[[Fabric], T]) -> T:
        """`compute(fabric)`, computed once for the fabric."""
        if compute not in self._memo:
            self._memo[compute] = compute(self.fabric)
        found: T = self._memo[compute]
        return found

    def of_nodes(self, compute: Callable[[Node], U], combine: Callable[[list[U]], T]) -> T:
        """`combine` of `compute(node)` of every node: this computed once for the ports of the node,
        that once for the fabric."""
        if combine not in self._memo:
            self._memo[combine] = combine(self._computed(compute))
        found: T = self._memo[combine]
        return found

    def _computed(self, compute: Callable[[Node], U]) -> list[U]:
        known = self._node_memo.get(compute, {})
        found = {
            node.name: known[node.name]
            if node.name in known and known[node.name][0] is node.ports
            else (node.ports, compute(node))
            for node in self.fabric.nodes
        }
        self._node_memo[compute] = found
        return [value for _, value in found.values()]

    def ids(self, rows: Sequence[int]) -> list[str]:
        """The ids of some ports, `leaf1/swp5`."""
        known = self.once(_ids) if rows else []
        return [known[row] for row in rows]

    def label(self, row: int) -> str:
        """A port's name in a sentence, `leaf1 up5`."""
        return self.fabric.ports[row].display_name

    def labels(self, rows: Rows, most: int = 4) -> str:
        """The names of the first `most` ports, and how many more there are."""
        return name_list([self.label(row) for row in rows.tolist()], most)


def build_structure(
    fabric: Fabric, before: FabricStructure | None = None, cables: Rows | None = None
) -> FabricStructure:
    """The arrays of a fabric. `before` is the structure of an earlier one: of nodes whose ports are
    the same nothing is read again. `cables` is its `peer`, to keep what nothing reports any more.
    """
    ports = port_arrays(fabric, None if before is None else before.ports)
    if before is not None and _is_same(before, fabric, ports):
        return replace(before, fabric=fabric, ports=ports, _memo={})
    names = [each.name for each in fabric.nodes]
    # By number of a name, the place of the node; one more for ports without a node.
    place_of = np.full(len(ports.names) + 1, NONE, np.intp)
    place_of[[ports.names[name] for name in names if name in ports.names]] = [
        number for number, name in enumerate(names) if name in ports.names
    ]
    node: Rows = place_of[ports.node]
    is_switch_node = np.array([each.role == SWITCH for each in fabric.nodes] + [False])
    peer = ports.peer.copy()
    exists = node != NONE
    peer[(peer != NONE) & (np.append(node, NONE)[peer] == NONE)] = NONE
    if cables is not None:
        rows = np.flatnonzero(cables != NONE)
        keep_cables(peer, node, ports, rows, cables[rows])
    is_rail = ports.has_role(RAIL)
    is_switch = exists & is_switch_node[node]
    rail = np.where(is_rail, ports.index, NONE)
    # The links of a bond that is one rail are cabled to the leaf, the rail itself is not.
    is_nic = ports.has_role(RAIL, MEMBER)
    peer_is_rail = np.append(is_nic, False)[peer] & (peer != NONE)
    has_hosts = any(each.role == HOST for each in fabric.nodes)
    of_hosts = _by_node(np.flatnonzero(is_rail), node)
    behind = np.where(is_rail, ports.far, NONE)
    name_of = list(ports.names)
    leaves = sorted((name_of[far], far) for far in np.unique(behind[behind != NONE]).tolist())
    leaf_place = np.full(len(name_of) + 1, NONE, np.intp)
    leaf_place[[far for _, far in leaves]] = np.arange(len(leaves))
    before_nics = np.append(is_rail, False)[peer] & (peer != NONE) & exists
    with_nics = {names[place] for place in np.unique(node[before_nics]).tolist()}
    is_edge: Mask = is_switch & peer_is_rail
    return FabricStructure(
        fabric=fabric,
        ports=ports,
        peer=peer,
        node=node,
        rail=rail,
        is_rail=is_rail,
        is_uplink=ports.has_role(UPLINK),
        is_edge=is_edge,
        is_switch=is_switch,
        edges_of=_of_nodes(is_edge, node),
        groups=tuple(_groups(fabric.groups, peer, with_nics)),
        rails=_of_nodes(is_rail, rail) if has_hosts else {},
        rails_of_hosts=of_hosts,
        rail_tables=[
            (np.array(hosts, np.intp), np.stack([of_hosts[host] for host in hosts]))
            for width in sorted({len(each) for each in of_hosts})
            for hosts in [[n for n, each in enumerate(of_hosts) if len(each) == width]]
        ],
        leaf=leaf_place[behind],
        leaves=tuple(name for name, _ in leaves),
        pcie_bps=ports.pcie_bps,
        _node_memo={} if before is None else before._node_memo,
    )


def keep_cables(peer: Rows, node: Rows, ports: PortArrays, one: Rows, other: Rows) -> None:
    """Set `peer` at both ends of cables that were known before, where nothing reports a cable now.
    `one` and `other` are the rows of their ends."""
    is_free = (node != NONE) & (peer == NONE) & (ports.far == NONE)
    is_kept = is_free[one] & is_free[other]
    peer[one[is_kept]], peer[other[is_kept]] = other[is_kept], one[is_kept]


def _ids(fabric: Fabric) -> list[str]:
    return [port.id for port in fabric.ports]


def _is_same(before: FabricStructure, fabric: Fabric, ports: PortArrays) -> bool:
    """Whether the nodes, ports and groups of a fabric are where they were: then all arrays are."""
    return (
        before.ports.is_same(ports)
        and [(each.name, each.role) for each in before.fabric.nodes]
        == [(each.name, each.role) for each in fabric.nodes]
        and before.fabric.groups == fabric.groups
    )


def _of_nodes(ports: Mask, node: Rows) -> dict[int, Rows]:
    """Some ports [ports] of each node, or of each rail, that has any, by its place."""
    return {int(node[rows[0]]): rows for rows in _by_node(np.flatnonzero(ports), node)}


def _by_node(rows: Rows, node: Rows) -> list[Rows]:
    order = rows[np.argsort(node[rows], kind="stable")]
    starts = np.flatnonzero(np.diff(node[order])) + 1
    return [each for each in np.split(order, starts) if len(each)]


def _groups(groups: Sequence[EcmpGroup], peer: Rows, leaves: Collection[str]) -> list[Rows]:
    """The ports of the groups of the fabric, and those at the far ends of the groups of leaves.

    A spine's links to one leaf are among the links into that leaf, and are compared there.
    """
    far_ends = dict.fromkeys(
        frozenset(peer[list(each.rows)].tolist()) - {NONE} for each in groups if each.node in leaves
    )
    inward = [each for each in far_ends if len(each) > 1]
    outward = [
        rows
        for rows in map(frozenset, (each.rows for each in groups))
        if not any(rows <= far for far in inward)
    ]
    return [np.array(sorted(each), np.intp) for each in (*outward, *inward)]
