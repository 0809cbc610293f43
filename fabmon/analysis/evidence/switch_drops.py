"""What a switch receives and does not send on, for traffic that does not slow down (UDP).

Many switches do not count what a queue drops (a Linux qdisc counts it apart from its interface),
but their counters of bytes show it: packets are only dropped where they leave by a full port.
"""

from __future__ import annotations

import numpy as np

from fabmon.analysis.evidence.detector_input import WINDOW_TICKS, DetectorInput, without_nan
from fabmon.analysis.fabric_structure import Mask
from fabmon.fabric.snapshot import Floats

_DROPPED = 0.05
"""Share of a full port's load, 0 to 1, above which what enters a switch and does not leave it was
dropped: clocks and counters differ by less."""


def dropped_bps(inputs: DetectorInput, row: int, ticks: Mask, load_bps: float) -> Floats:
    """[ticks that count]: bits/s that enter the switch of a port, which has such a load, and do not
    leave it; 0 where that is no more than counters differ by, and for a switch that is not read:
    what its far ends count is not all of it."""
    dropped: Floats = np.fmax(inputs.once(_kept_bps, int(inputs.structure.node[row]))[ticks], 0)
    is_lost = dropped.size > 0 and dropped.mean() > _DROPPED * load_bps
    return dropped if is_lost else np.zeros_like(dropped)


def full_ports(inputs: DetectorInput, row: int, ticks: Mask, full_util: float) -> int:
    """How many ports of the switch of a port sent at a share of line rate or more in some ticks,
    on average."""
    own = np.flatnonzero(inputs.structure.node == inputs.structure.node[row])
    sent = without_nan(inputs.leaving(own, WINDOW_TICKS)[:, ticks]).mean(axis=1)
    return int((sent >= full_util * without_nan(inputs.snapshot.line_rate_bps[own])).sum())


def _kept_bps(inputs: DetectorInput, node: int) -> Floats:
    """[WINDOW_TICKS]: bits/s that enter a switch less those that leave it, 0 if it is not read."""
    own = np.flatnonzero(inputs.structure.node == node)
    if not np.isfinite(inputs.window("tx_bps")[own, -1]).any():
        return np.zeros(WINDOW_TICKS, np.float32)
    enters, leaves = (
        without_nan(of(own, WINDOW_TICKS)).sum(axis=0) for of in (inputs.entering, inputs.leaving)
    )
    kept: Floats = enters - leaves
    return kept
