"""Which port pauses which: PFC and 802.3x pause, and InfiniBand's credits, as one graph.

A port whose egress is paused waits for the device at the other end. A device that pauses others and
is not paused itself is a root; a host is always one, since it forwards nothing. Every port that
waits for a root, directly or through devices that wait, is its victim (detection.md section 4).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import NONE, Mask, Rows
from fabmon.analysis.finding import Cause
from fabmon.fabric.model import HOST
from fabmon.fabric.snapshot import Floats

PAUSED = 0.05
"""Share of time, 0 to 1, above which a port counts as paused: below it pause is ordinary flow
control at the end of a burst."""

_OF_TICKS, _TICKS = 5, 3
"""A port is paused when it was above `PAUSED` in so many of the last so many ticks."""

_STORM = 0.8
"""Share of time, 0 to 1, above which a host that pauses its switch is a storm: at 80 % less than a
fifth of the line rate is left ..."""

_STORM_TICKS = 2
"""... in so many ticks running."""

_PAUSE_SHARE_TICKS = 3
"""Ticks of which a finding shows the largest pause share."""

_DROPS = ("rdma_out_of_buffer", "phy_rx_out_of_buffer", "phy_rx_discards", "rdma_rx_drops")
"""Counters that grow when a receiver has no room for what arrives."""


@dataclass(frozen=True, slots=True)
class PauseGraph:
    """`paused` [ports]: the egress is paused. `pauses` [ports]: it pauses its peer.

    `share` is [ports]: the share of time that the egress is paused, the mean of the last ticks.
    `roots` maps the place of a root's node to the ports by which it pauses others. `orphans` are
    paused by a neighbour that is not watched.
    """

    paused: Mask
    pauses: Mask
    share: Floats
    roots: dict[int, Rows] = field(default_factory=dict)
    orphans: Rows = field(default_factory=lambda: np.empty(0, np.intp))
    _by_pauser: dict[int, list[int]] = field(default_factory=dict)
    _node: Rows = field(default_factory=lambda: np.empty(0, np.intp))

    def victims(self, node: int) -> list[int]:
        """The rows that wait for a node, directly or not; the nearest first."""
        seen, found = {node}, []
        queue = deque([node])
        while queue:
            for row in self._by_pauser.get(queue.popleft(), ()):
                found.append(row)
                further = int(self._node[row])
                if further not in seen:
                    seen.add(further)
                    queue.append(further)
        return found

    def cycle(self, node: int) -> list[int]:
        """The rows of the shortest cycle of pauses that a node is in; empty when there is none."""
        came: dict[int, tuple[int, int]] = {}
        queue = deque([node])
        while queue:
            at = queue.popleft()
            for row in self._by_pauser.get(at, ()):
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
    """The graph of a tick, computed once."""
    return inputs.once(_pause_graph)


def _pause_graph(inputs: DetectorInput) -> PauseGraph:
    structure = inputs.structure
    peer, node = structure.peer, structure.node
    waits = inputs.often("pause_rx", PAUSED, _OF_TICKS, _TICKS)
    waits |= inputs.often("stall", PAUSED, _OF_TICKS, _TICKS)
    sends_pause = inputs.often("pause_tx", PAUSED, _OF_TICKS, _TICKS)
    has_peer = peer != NONE
    paused = waits | (np.append(sends_pause, False)[peer] & has_peer)
    pauses = sends_pause | (np.append(waits, False)[peer] & has_peer)
    if not paused.any() and not pauses.any():
        return PauseGraph(paused, pauses, np.zeros(len(peer), np.float32))
    by_pauser: dict[int, list[int]] = {}
    orphans = []
    for row in np.flatnonzero(paused & (node != NONE)).tolist():
        pauser = int(node[peer[row]]) if peer[row] != NONE else NONE
        if pauser == NONE:
            orphans.append(row)
        else:
            by_pauser.setdefault(pauser, []).append(row)
    is_host = [each.role == HOST for each in structure.fabric.nodes]
    waiting = set(node[paused].tolist())
    roots = {
        pauser: np.flatnonzero(pauses & (node == pauser))
        for pauser in sorted(set(node[pauses].tolist()) - {NONE})
        if is_host[pauser] or pauser not in waiting
    }
    return PauseGraph(
        paused=paused,
        pauses=pauses,
        share=_share(inputs, peer),
        roots=roots,
        orphans=np.array(orphans, np.intp),
        _by_pauser=by_pauser,
        _node=node,
    )


def _share(inputs: DetectorInput, peer: Rows) -> Floats:
    """[ports]: the mean share of time paused over the last ticks, as either end counts it."""
    own = np.fmax(inputs.window("pause_rx")[:, -_OF_TICKS:], inputs.window("stall")[:, -_OF_TICKS:])
    sent = np.vstack(
        [inputs.window("pause_tx")[:, -_OF_TICKS:], np.full((1, _OF_TICKS), np.nan)]
    )[peer]
    share: Floats = np.nan_to_num(np.fmax(own, sent)).mean(axis=1)
    return share


@dataclass(frozen=True, slots=True)
class HostPause:
    """A port of a host that pauses its switch.

    `share` is the share of time, the largest of the last ticks. `is_storm`: it all but stops the
    switch port, whatever arrives. `victims` are the rows that wait for the host, directly or not.
    `received_bps` is NaN when the host fell silent a second ago. `drops` are the host's counters
    of packets without room, by name, packets/s.
    """

    row: int
    share: float
    is_storm: bool
    victims: list[int]
    received_bps: float
    drops: dict[str, float]


def host_pauses(inputs: DetectorInput, slow: Cause, storm: Cause) -> tuple[HostPause, ...]:
    """Every port of a host that pauses its switch, computed once a tick.

    A port stays what its open finding says, a slow receiver or a storm.
    """
    return inputs.once(_host_pauses, slow, storm)


def _host_pauses(inputs: DetectorInput, slow: Cause, storm: Cause) -> tuple[HostPause, ...]:
    graph, structure, snapshot = pause_graph(inputs), inputs.structure, inputs.snapshot
    found = []
    for node, rows in graph.roots.items():
        if structure.fabric.nodes[node].role != HOST:
            continue
        for row in rows.tolist():
            share = inputs.pauses_peer(row)
            port = structure.fabric.ports[row].id
            guard_errors = float(snapshot.column("pause_storm_errors")[row])
            is_storm = not inputs.is_open(slow, port) and (
                inputs.is_open(storm, port)
                or bool((share[-_STORM_TICKS:] > _STORM).all())
                or guard_errors > 0
            )
            drops = {name: float(snapshot.column(name)[row]) for name in _DROPS}
            found.append(
                HostPause(
                    row=row,
                    share=float(share[-_PAUSE_SHARE_TICKS:].max()),
                    is_storm=is_storm,
                    victims=[each for each in graph.victims(node) if each != row],
                    received_bps=float(snapshot.column("rx_bps")[row]),
                    drops={name: value for name, value in drops.items() if value > 0},
                )
            )
    return tuple(found)
