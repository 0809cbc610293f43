"""The NICs whose flows may be on a link, and which flows of the flow table these are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fabmon.fabric.flows.flow_table import Connections, FlowTable
from fabmon.fabric.model import DOWNLINK, RAIL, UPLINK
from fabmon.fabric.port_arrays import NONE
from fabmon.fabric.topology.leaves import Mask, Rows, far_node, is_uplink_to


@dataclass(frozen=True, slots=True)
class PossibleEnds:
    """[ports]: NICs that can send into a link, and those that they can reach over it.

    `leaves`: the senders are behind the link, so that all they send elsewhere takes this link or
    one beside it.
    """

    src: Mask
    dst: Mask
    is_exact: bool
    leaves: bool


def possible_ends(connections: Connections, row: int, way: str) -> PossibleEnds | None:
    """The possible ends of flows on a link; None for a port that carries none between nodes."""
    fabric, leaves = connections.fabric, connections.leaves
    if not 0 <= row < len(fabric.ports) or not fabric.ports[row].node:
        return None
    port = fabric.ports[row]
    sends = way == "tx"
    nic = row if port.role == RAIL else port.peer
    if nic is not None and leaves.is_rail[nic]:
        one = np.zeros(len(fabric.ports), np.bool_)
        one[nic] = True
        from_it = sends == (nic == row)
        src, dst = (one, leaves.is_rail) if from_it else (leaves.is_rail, one)
        return PossibleEnds(src, dst, True, from_it)
    if port.role not in (UPLINK, DOWNLINK):
        return None
    far = far_node(port, fabric)
    here = leaves.under(port.node)
    goes_up = is_uplink_to(port, far, fabric)
    below = here if goes_up else leaves.under(far)
    elsewhere = (leaves.is_rail if goes_up else here) & ~below
    if not below.any():
        return None
    upwards = goes_up == sends
    src, dst = (below, elsewhere) if upwards else (elsewhere, below)
    return PossibleEnds(src, dst, False, upwards)


def flows_between(table: FlowTable, ends: Sequence[PossibleEnds]) -> tuple[Rows, int]:
    """The flows that may be on one of some links, as places in a table, and how many more have an
    unknown destination."""
    on_any = np.zeros(len(table), np.bool_)
    unsure = np.zeros(len(table), np.bool_)
    is_known = table.dst != NONE
    for each in ends:
        sent = each.src[table.src]
        reached = np.append(each.dst, False)[table.dst] & is_known
        on_any |= sent & (reached | (~is_known & each.leaves))
        unsure |= sent & ~is_known
    return np.flatnonzero(on_any), int(unsure.sum())


def queue_pairs_on_link(connections: Connections, row: int) -> tuple[int, int]:
    """The number of queue pairs that a port may send for, and of their UDP source ports; 0 where
    there are too many to be joined within a tick."""
    table = connections.flows_if_quick
    ends = possible_ends(connections, row, "tx") if table else None
    if not table or not ends:
        return 0, 0
    picked, _ = flows_between(table, [ends])
    return len(picked), table.distinct_sports(picked)
