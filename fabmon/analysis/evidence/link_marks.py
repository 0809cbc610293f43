"""Which links between switches mark packets with ECN because their own queue is filling.

What a switch counts at a port that sends (SAI_PORT_STAT_ECN_MARKED_PACKETS, `ecn_marked` of mlxsw)
says where a queue is: marks at receivers, and CNPs at senders, are of some queue on the way. Not
all switches count it, and none marks where ECN is off.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
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
    counts = structure.is_switch & ~structure.is_edge
    counts &= np.isfinite(inputs.window("ecn")).any(axis=1)
    if not counts.any():
        return LinkMarks(counts, counts, np.zeros(len(counts), np.float32))
    marked, sent = inputs.filled("ecn"), inputs.filled("tx_bps")
    busy: Mask = counts & (inputs.sent.mean(axis=1) > BUSY_UTIL)
    level = per_gbit(marked, sent, busy)
    least = raised_from(level[busy], t.marks_per_gbit, _RISE)
    marks = busy & (level >= least)
    in_ticks = marked > np.float32(least / 1e9) * sent
    ticks: Floats = np.where(marks, (inputs.sent * in_ticks).sum(axis=1), np.float32(0))
    return LinkMarks(counts, marks, ticks)
