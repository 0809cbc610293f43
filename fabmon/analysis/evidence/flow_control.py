"""How a receiver stops a sender, in words: pause on Ethernet, credits on InfiniBand.

InfiniBand has neither PFC nor 802.3x: a port sends only for as long as the other end grants it
credits (InfiniBand Architecture Specification, volume 1, "Flow control").
"""

from __future__ import annotations

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput, without_nan
from fabmon.analysis.fabric_structure import NONE, FabricStructure
from fabmon.analysis.finding import Evidence
from fabmon.fabric.model import Port
from fabmon.fabric.snapshot import Floats

PAUSE, CREDITS = "pause", "no credits"

TIME_PAUSED, TIME_WITHOUT_CREDITS = "time paused", "time without credits"
"""Names of the evidence of waiting; the second one also selects the title of a finding."""


def uses_credits(port: Port) -> bool:
    """Whether a port waits for credits, and is never paused."""
    return port.kind == "infiniband"


def time_waiting(port: Port, share: float) -> Evidence:
    """Evidence: the share of time, 0 to 1, in which a port may not send."""
    name = TIME_WITHOUT_CREDITS if uses_credits(port) else TIME_PAUSED
    return Evidence.percent(name, share)


def unseen_victims(structure: FabricStructure, row: int) -> str:
    """What is not visible of what waits for a host's port, in words; empty where its switch is
    watched."""
    is_seen = structure.peer[row] != NONE
    return "" if is_seen else "what waits for it: its switch is not watched"


def time_waited(inputs: DetectorInput, ticks: int) -> Floats:
    """[ports] the share of the last ticks paused or without credits, 0 to 1, by what both ends
    count; NaN where neither does."""
    total = np.zeros(len(inputs.structure.peer), np.float32)
    known = np.zeros(len(total), np.bool_)
    columns = (inputs.window(each) for each in ("pause_rx", "stall", "pause_tx"))
    for paused, stalled, pauses in zip(*(each[:, -ticks:].T for each in columns), strict=True):
        far = np.append(pauses, np.float32(np.nan))[inputs.structure.peer]
        waits = np.fmax(np.fmax(paused, stalled), far)
        known |= np.isfinite(waits)
        total += without_nan(waits)
    return np.where(known, total / np.float32(ticks), np.float32(np.nan))
