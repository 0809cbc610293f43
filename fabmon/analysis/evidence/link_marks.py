"""Which links mark packets with ECN because their own queue is filling.

What a switch counts at a port that sends (SAI_PORT_STAT_ECN_MARKED_PACKETS, `ecn_marked` of mlxsw)
says where a queue is: marks at receivers, and CNPs at senders, are of some queue on the way. Not
all switches count it, and none marks where ECN is off.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput, rows_of
from fabmon.analysis.evidence.queue_signals import (
    BUSY_UTIL,
    QueueThresholds,
    per_gbit,
    raised_from,
)
from fabmon.analysis.fabric_structure import Mask
from fabmon.fabric.snapshot import Floats

_RISE = 10.0
"""How many times the usual marks of links a queue makes: background differs more between links
than between hosts, which see the whole path."""


@dataclass(frozen=True, slots=True)
class LinkMarks:
    """Of each switch's port over the last ten ticks, all [ports].

    `marks`: it marks so many packets, in proportion to what it sends, that it has a queue.
    `ticks` is for how many ticks what it sent while it did so would fill it. `has_none`: it has no
    queue, while some other port has one, and its switch counts marks that it makes elsewhere:
    counters that never move say nothing.
    """

    marks: Mask
    ticks: Floats
    has_none: Mask


def link_marks(inputs: DetectorInput, t: QueueThresholds) -> LinkMarks:
    """The marks of a tick, computed once."""
    return inputs.once(_link_marks, t)


def _link_marks(inputs: DetectorInput, t: QueueThresholds) -> LinkMarks:
    structure = inputs.structure
    switches = np.flatnonzero(structure.is_switch)
    rows = switches[np.isfinite(rows_of(inputs.window("ecn"), switches)).any(axis=1)]
    marked, sent, util = (
        rows_of(each, rows) for each in (inputs.filled("ecn"), inputs.filled("tx_bps"), inputs.sent)
    )
    busy: Mask = util.mean(axis=1) > BUSY_UTIL
    level = per_gbit(marked, sent, busy)
    # Ports towards hosts have queues of their own whenever several send to one.
    usual = level[busy & ~structure.is_edge[rows]]
    least = raised_from(usual, t.marks_per_gbit, _RISE)
    marks = busy & (level >= least)
    in_ticks = marked > np.float32(least / 1e9) * sent
    shape = len(structure.peer)
    found = LinkMarks(
        np.zeros(shape, np.bool_), np.zeros(shape, np.float32), np.zeros(shape, np.bool_)
    )
    found.marks[rows] = marks
    found.ticks[rows] = np.where(marks, (util * in_ticks).sum(axis=1), 0)
    node = structure.node[rows]
    counts = np.isin(node, node[marked.any(axis=1)])
    found.has_none[rows] = ~marks & counts & marks.any()
    return found
