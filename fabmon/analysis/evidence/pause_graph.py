"""Who makes whom wait: pause of PFC and 802.3x, and InfiniBand's credits, as one graph.

A port whose egress is held waits for the device at the other end. A device that holds others and
is not held itself is a root; a host is always one, since it forwards nothing. Everything that waits
for a root, directly or through devices that wait, is its victim (detection.md section 4).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import NONE, Mask, Rows
from fabmon.fabric.model import HOST
from fabmon.fabric.snapshot import Floats

PAUSED = 0.05
"""Share of time held above which a port counts as paused ..."""
_TICKS, _LEAST = 5, 3
"""... in so many ticks, at least so often."""


@dataclass(frozen=True, slots=True)
class PauseGraph:
    """`held` [ports]: the egress is held. `holds` [ports]: it tells its peer to hold.

    `share` is [ports]: the share of time held, the mean of the last ticks. `roots` maps the place
    of a root's node to the ports that it holds others through. `orphans` are held by a neighbour
    that is not watched.
    """

    held: Mask
    holds: Mask
    share: Floats
    roots: dict[int, Rows] = field(default_factory=dict)
    orphans: Rows = field(default_factory=lambda: np.empty(0, np.intp))
    _by_holder: dict[int, list[int]] = field(default_factory=dict)
    _node: Rows = field(default_factory=lambda: np.empty(0, np.intp))

    def victims(self, node: int) -> list[int]:
        """The rows that wait for a node, directly or not; the nearest first."""
        seen, found = {node}, []
        queue = deque([node])
        while queue:
            for row in self._by_holder.get(queue.popleft(), ()):
                found.append(row)
                further = int(self._node[row])
                if further not in seen:
                    seen.add(further)
                    queue.append(further)
        return found

    def loop(self, node: int) -> list[int]:
        """The rows of the shortest cycle of waiting that a node is in; empty when there is none."""
        came: dict[int, tuple[int, int]] = {}
        queue = deque([node])
        while queue:
            at = queue.popleft()
            for row in self._by_holder.get(at, ()):
                further = int(self._node[row])
                if further == node:
                    path = [row]
                    while at != node:
                        row_before, at = came[at]
                        path.append(row_before)
                    return path
                if further not in came:
                    came[further] = row, at
                    queue.append(further)
        return []


def pause_graph(inputs: DetectorInput) -> PauseGraph:
    """The graph of a tick, worked out once."""
    if inputs.pauses is None:
        inputs.pauses = _pauses(inputs)
    return inputs.pauses


def _pauses(inputs: DetectorInput) -> PauseGraph:
    structure = inputs.structure
    peer, node = structure.peer, structure.node
    told = inputs.often("pause_rx", PAUSED, _TICKS, _LEAST)
    told |= inputs.often("stall", PAUSED, _TICKS, _LEAST)
    tells = inputs.often("pause_tx", PAUSED, _TICKS, _LEAST)
    has_peer = peer != NONE
    held = told | (np.append(tells, False)[peer] & has_peer)
    holds = tells | (np.append(told, False)[peer] & has_peer)
    if not held.any() and not holds.any():
        return PauseGraph(held, holds, np.zeros(len(peer), np.float32))
    by_holder: dict[int, list[int]] = {}
    orphans = []
    for row in np.flatnonzero(held & (node != NONE)).tolist():
        holder = int(node[peer[row]]) if peer[row] != NONE else NONE
        if holder == NONE:
            orphans.append(row)
        else:
            by_holder.setdefault(holder, []).append(row)
    roots = {}
    is_host = [each.role == HOST for each in structure.fabric.nodes]
    waiting = set(node[held].tolist())
    for holder in sorted(set(node[holds].tolist()) - {NONE}):
        if is_host[holder] or holder not in waiting:
            roots[holder] = np.flatnonzero(holds & (node == holder))
    return PauseGraph(
        held=held,
        holds=holds,
        share=_share(inputs, peer),
        roots=roots,
        orphans=np.array(orphans, np.intp),
        _by_holder=by_holder,
        _node=node,
    )


def _share(inputs: DetectorInput, peer: Rows) -> Floats:
    """[ports]: the mean share of time held over the last ticks, as either end saw it."""
    own = np.fmax(inputs.window("pause_rx")[:, -_TICKS:], inputs.window("stall")[:, -_TICKS:])
    other = np.vstack([inputs.window("pause_tx")[:, -_TICKS:], np.full((1, _TICKS), np.nan)])[peer]
    share: Floats = np.nan_to_num(np.fmax(own, other)).mean(axis=1)
    return share
