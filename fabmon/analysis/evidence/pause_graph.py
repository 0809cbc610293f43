"""Which port pauses which: PFC and 802.3x pause, and InfiniBand's credits, as one graph.

A port whose egress is paused waits for the device at the other end. Every port that waits for a
device, directly or through devices that wait, is its victim (detection.md section 4).
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput, count_ticks, without_nan
from fabmon.analysis.evidence.flow_control import time_waited
from fabmon.analysis.evidence.usual_level import usual_level
from fabmon.analysis.fabric_structure import NONE, Mask, Rows
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.snapshot import Floats


@dataclass(frozen=True, slots=True)
class PauseGraph:
    """`paused` [ports]: the egress is paused. `pauses` [ports]: it pauses its peer.

    `share` is [ports]: the share of time that the egress is paused, the mean of the last ticks.
    `by_pauser` maps the place of a node that pauses others to the ports that wait for it.
    """

    paused: Mask
    pauses: Mask
    share: Floats
    by_pauser: dict[int, list[int]]
    node_of: Rows

    def victims(self, node: int, but: int = NONE) -> list[int]:
        """The rows that wait for a node, directly or not, without one; the nearest first."""
        seen, found = {node}, []
        queue = deque([node])
        while queue:
            for row in self.by_pauser.get(queue.popleft(), ()):
                if row != but:
                    found.append(row)
                further = int(self.node_of[row])
                if further not in seen:
                    seen.add(further)
                    queue.append(further)
        return found


def pause_graph(inputs: DetectorInput, t: ModelThresholds) -> PauseGraph:
    """The graph of a tick, computed once."""
    return inputs.once(_pause_graph, t)


def _pause_graph(inputs: DetectorInput, t: ModelThresholds) -> PauseGraph:
    peer, node = inputs.structure.peer, inputs.structure.node
    # Host and switch port, whichever way the traffic is: idle ones pause nobody.
    busy = np.fmax(inputs.mean_sent, inputs.received_filled.mean(axis=1)) > t.busy
    waits, sends_pause, stalls = (
        _is_paused(inputs.window(column)[:, -t.window :], busy, t)
        for column in ("pause_rx", "pause_tx", "stall")
    )
    waits |= stalls
    paused = waits | np.append(sends_pause, False)[peer]
    pauses = sends_pause | np.append(waits, False)[peer]
    share, by_pauser = np.zeros(len(peer), np.float32), defaultdict[int, list[int]](list)
    if paused.any():
        share = without_nan(time_waited(inputs, t.window))
        for row in np.flatnonzero(paused & (peer != NONE)).tolist():
            by_pauser[int(node[peer[row]])].append(row)
    return PauseGraph(paused, pauses, share, dict(by_pauser), node)


def _is_paused(share: Floats, busy: Mask, t: ModelThresholds) -> Mask:
    """[ports]: whether a share of time [ports, ticks] was well above what is usual now."""
    with np.errstate(invalid="ignore"):
        is_above = share > t.waiting
    if not is_above.any():
        return np.zeros(len(share), np.bool_)
    known = np.isfinite(share).any(axis=1)
    share = without_nan(share)
    usual = usual_level(share.mean(axis=1)[busy & known])
    if usual is not None and t.rise * usual > t.waiting:
        is_above = share > min(t.rise * usual, t.half)
    return count_ticks(is_above) >= t.ticks
