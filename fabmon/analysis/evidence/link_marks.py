"""Which links between switches mark packets with ECN because their own queue is filling.

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
    """Of each port over the last ten ticks, all [ports], False or 0 of all but links between
    switches.

    `counts`: the switch counts what it marks there. `marks`: it marks so many packets, in
    proportion to what it sends, that a queue stands before the link. `ticks` is for how many ticks
    what it sent while it did so would fill it.
    """

    counts: Mask
    marks: Mask
    ticks: Floats


def link_marks(inputs: DetectorInput, t: QueueThresholds) -> LinkMarks:
    """The marks of a tick, computed once."""
    return inputs.once(_link_marks, t)


def _link_marks(inputs: DetectorInput, t: QueueThresholds) -> LinkMarks:
    structure = inputs.structure
    between = np.flatnonzero(structure.is_switch & ~structure.is_edge)
    counted = np.isfinite(rows_of(inputs.window("ecn"), between)).any(axis=1)
    rows = between[counted]
    marked, sent, util = (
        rows_of(each, rows) for each in (inputs.filled("ecn"), inputs.filled("tx_bps"), inputs.sent)
    )
    busy: Mask = util.mean(axis=1) > BUSY_UTIL
    level = per_gbit(marked, sent, busy)
    least = raised_from(level[busy], t.marks_per_gbit, _RISE)
    marks = busy & (level >= least)
    in_ticks = marked > np.float32(least / 1e9) * sent
    found = LinkMarks(
        np.zeros(len(structure.peer), np.bool_),
        np.zeros(len(structure.peer), np.bool_),
        np.zeros(len(structure.peer), np.float32),
    )
    found.counts[rows] = True
    found.marks[rows] = marks
    found.ticks[rows] = np.where(marks, (util * in_ticks).sum(axis=1), 0)
    return found
