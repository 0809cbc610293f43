"""Which links have a queue of their own: by the packets that they mark with ECN, or drop.

What a switch counts at a port that sends (SAI_PORT_STAT_ECN_MARKED_PACKETS, `ecn_marked` of mlxsw;
ifOutDiscards) says where a queue is: marks at receivers, and CNPs at senders, are of some queue on
the way. Not all switches count marks, and none marks where ECN is off. Lossless traffic waits; all
other traffic is dropped where the queue is full.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput, has_values, rows_of
from fabmon.analysis.evidence.queue_signals import (
    BUSY_UTIL,
    QueueThresholds,
    per_gbit,
    raised_from,
    usual_level,
)
from fabmon.analysis.fabric_structure import Mask, Rows
from fabmon.analysis.median import quantile
from fabmon.fabric.snapshot import Floats

_RISE = 10.0
"""How many times the marks or drops of the quieter quarter of links a queue makes: background
differs more between links than between hosts, which see the whole path ..."""

_RISE_OF_DROPS, _NOISY = 4.0, 0.75
"""... or, of drops, how many times those that three quarters of links have at most, where that is
less, as where background hardly differs: TCP slows down at few drops."""

_MANY = 30.0
"""Drops before a host, as a multiple of those that are more than background, from which on it need
not be full for whole seconds."""

_OF_MOST = 0.05
"""Share of the marks of the most marked link of a switch, 0 to 1, below which others had a queue
for moments only: with the same thresholds, ten times as many flows mark ten times as much."""

_LASTING = 3
"""Ticks of the last ten in which a link with a queue marks or drops: moments of it are normal."""


@dataclass(frozen=True, slots=True)
class LinkQueues:
    """Of each switch's port over the last ten ticks, all [ports].

    `queued`: it marks or drops so many packets, in proportion to what it sends, that it has a
    queue, and in several ticks. `ticks` is for how many ticks what it sent while it did so would
    fill it. `has_none`: it marks none, while some other port does, and its switch counts marks that
    it makes elsewhere: counters that never move say nothing.
    """

    queued: Mask
    ticks: Floats
    has_none: Mask


def link_queues(inputs: DetectorInput, t: QueueThresholds) -> LinkQueues:
    """The queues of a tick, computed once."""
    return inputs.once(_link_queues, t)


def _link_queues(inputs: DetectorInput, t: QueueThresholds) -> LinkQueues:
    structure = inputs.structure
    shape = len(structure.peer)
    found = LinkQueues(
        np.zeros(shape, np.bool_), np.zeros(shape, np.float32), np.zeros(shape, np.bool_)
    )
    switches = np.flatnonzero(structure.is_switch)
    for column, least_per_gbit in (("ecn", t.marks_per_gbit), ("tx_drops", t.drops_per_gbit)):
        if not inputs.total(column)[switches].any():
            continue
        rows = switches[has_values(rows_of(inputs.window(column), switches))]
        # Ports towards hosts have queues of their own whenever several send to one.
        is_edge = structure.is_edge[rows]
        level, queued, in_ticks = _standing_out(inputs, column, rows, ~is_edge, least_per_gbit)
        node = structure.node[rows]
        if column == "ecn":
            marks = inputs.total(column)[rows] > 0
            found.has_none[rows] = ~queued & np.isin(node, node[marks]) & queued.any()
            most = np.zeros(len(structure.fabric.nodes), np.float32)
            np.maximum.at(most, node, np.where(is_edge, 0, level))
            queued &= level >= _OF_MOST * most[node]
        ticks = np.where(queued, (rows_of(inputs.sent, rows) * in_ticks).sum(axis=1), 0)
        found.queued[rows] |= queued
        found.ticks[rows] = np.fmax(found.ticks[rows], ticks)
    return found


def drops_before_hosts(inputs: DetectorInput, t: QueueThresholds) -> Mask:
    """[ports]: the switch before a rail without RDMA counters drops much of what it sends to it,
    and in proportion several times more than switches drop before others; computed once."""
    return inputs.once(_drops_before_hosts, t)


def _drops_before_hosts(inputs: DetectorInput, t: QueueThresholds) -> Mask:
    structure = inputs.structure
    edges = np.flatnonzero(structure.is_edge)
    drops = np.zeros(len(structure.peer) + 1, np.bool_)
    if inputs.total("tx_drops")[edges].any():
        edges = edges[has_values(rows_of(inputs.window("tx_drops"), edges))]
        among, least = np.ones(len(edges), np.bool_), _MANY * t.drops_per_gbit
        _, drops[edges], _ = _standing_out(inputs, "tx_drops", edges, among, least)
    before: Mask = drops[structure.peer] & structure.is_rail & ~inputs.has_rdma_counters
    return before


def _standing_out(
    inputs: DetectorInput, column: str, rows: Rows, among: Mask, least_per_gbit: float
) -> tuple[Floats, Mask, Mask]:
    """[rows] marks or drops per gigabit of some ports; which of them are busy and have many more
    than usual of some `among` [rows] them, in several ticks; and [rows, TICKS] in which ticks."""
    busy: Mask = inputs.mean_sent[rows] > BUSY_UTIL
    level = per_gbit(inputs.total(column)[rows], inputs.total("tx_bps")[rows], busy)
    usual = level[busy & among]
    least = raised_from(usual, least_per_gbit, _RISE)
    if column == "tx_drops" and usual_level(usual) is not None:
        noisy = _RISE_OF_DROPS * quantile(usual, _NOISY)
        least = max(least_per_gbit, min(least, noisy))
    events, sent = (rows_of(inputs.filled(each), rows) for each in (column, "tx_bps"))
    in_ticks: Mask = events > np.float32(least / 1e9) * sent
    queued: Mask = busy & (level >= least) & (in_ticks.sum(axis=1) >= _LASTING)
    return level, queued, in_ticks
