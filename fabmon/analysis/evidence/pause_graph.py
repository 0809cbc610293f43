"""Which port pauses which: PFC and 802.3x pause, and InfiniBand's credits, as one graph.

A port whose egress is paused waits for the device at the other end. A device that pauses others and
is not paused itself is a root; a host is always one, since it forwards nothing. Every port that
waits for a root, directly or through devices that wait, is its victim (detection.md section 4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fabmon.analysis.evidence.detector_input import (
    TICKS,
    DetectorInput,
    count_ticks,
    has_values,
    rows_of,
    without_nan,
)
from fabmon.analysis.evidence.flow_control import time_waiting, uses_credits
from fabmon.analysis.evidence.usual_level import MIN_PORTS, usual_level
from fabmon.analysis.fabric_structure import NONE, Mask, Rows
from fabmon.analysis.finding import Cause, Condition, Evidence
from fabmon.analysis.median import median
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.model import HOST
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import bit_rate, rounded_percent

SHARE_TICKS = 3
"""Ticks of which a finding shows the largest pause share."""

_DROPS = ("rdma_out_of_buffer", "phy_rx_out_of_buffer", "phy_rx_discards", "rdma_rx_drops")
"""Counters that grow when a receiver has no room for what arrives."""

_RECEIVE_NOT_POSTED = ("rdma_out_of_buffer", "rdma_rnr_naks_sent")
"""Counters that grow when a program posts receives too late: its NIC answers with RNR NAKs, which
slow the sender without pause."""

_POSTS_LATE = " Besides, a program posts receives too late ({counter} grows), which makes RNR NAKs."

_NO_CREDITS = (
    "Drain the host, then reset or reload its HCA; check the HCA's firmware and PCIe errors. The"
    " switch discards what waits longer than its head-of-queue lifetime limit (HOQLife):"
    " port_xmit_discards."
)
"""Advice for a storm on InfiniBand, which has no PFC and no watchdog of it."""


@dataclass(frozen=True, slots=True)
class PauseGraph:
    """`paused` [ports]: the egress is paused. `pauses` [ports]: it pauses its peer.

    `share` is [ports]: the share of time that the egress is paused, the mean of the last ticks.
    `roots` maps the place of a root's node to the ports by which it pauses others.
    """

    paused: Mask
    pauses: Mask
    share: Floats
    roots: dict[int, Rows] = field(default_factory=dict)
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

    def cycle(self, node: int, among: Mask) -> list[int]:
        """The rows of the shortest cycle of pauses `among` some ports [ports] that a node is in;
        empty when there is none."""
        came: dict[int, tuple[int, int]] = {}
        queue = deque([node])
        while queue:
            at = queue.popleft()
            for row in self._by_pauser.get(at, ()):
                further = int(self._node[row])
                if not among[row]:
                    continue
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


def pause_graph(inputs: DetectorInput, t: ModelThresholds) -> PauseGraph:
    """The graph of a tick, computed once."""
    return inputs.once(_pause_graph, t)


def _pause_graph(inputs: DetectorInput, t: ModelThresholds) -> PauseGraph:
    structure = inputs.structure
    peer, node = structure.peer, structure.node
    busy = inputs.mean_sent > t.busy
    waits, sends_pause, stalls = (
        _is_paused(inputs.window(column)[:, -t.window :], busy, t)
        for column in ("pause_rx", "pause_tx", "stall")
    )
    waits |= stalls
    has_peer = peer != NONE
    paused = waits | (np.append(sends_pause, False)[peer] & has_peer)
    pauses = sends_pause | (np.append(waits, False)[peer] & has_peer)
    if not paused.any() and not pauses.any():
        return PauseGraph(paused, pauses, np.zeros(len(peer), np.float32))
    by_pauser: dict[int, list[int]] = {}
    for row in np.flatnonzero(paused & (node != NONE)).tolist():
        pauser = int(node[peer[row]]) if peer[row] != NONE else NONE
        if pauser != NONE:
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
        share=_share(inputs, peer, t.window),
        roots=roots,
        _by_pauser=by_pauser,
        _node=node,
    )


def _is_paused(share: Floats, busy: Mask, t: ModelThresholds) -> Mask:
    """[ports]: whether a share of time [ports, ticks] was well above what is usual now."""
    with np.errstate(invalid="ignore"):
        is_above = share > t.waiting
    if not is_above.any():
        return np.zeros(len(share), np.bool_)
    share = without_nan(share)
    usual = usual_level(share.mean(axis=1)[busy])
    if usual is not None and t.rise * usual > t.waiting:
        is_above = share > min(t.rise * usual, t.half)
    return count_ticks(is_above) >= t.ticks


def _share(inputs: DetectorInput, peer: Rows, ticks: int) -> Floats:
    """[ports]: the mean share of time paused over the last ticks, as either end counts it."""
    own = np.fmax(inputs.filled("pause_rx"), inputs.filled("stall"))[:, -ticks:]
    sent = rows_of(inputs.filled("pause_tx")[:, -ticks:], peer)
    sent[peer == NONE] = 0
    share: Floats = np.fmax(own, sent).mean(axis=1, dtype=np.float64)
    return share


def _waits_before_hosts(inputs: DetectorInput) -> tuple[Rows, Floats, Floats]:
    """The ports of switches towards hosts that count how long they wait; the share of line rate
    that each sends, and the share of time that it waits, both 0 to 1, over the last TICKS."""
    counts = has_values(inputs.window("stall")) & inputs.structure.is_edge
    edges = np.flatnonzero(counts)
    return edges, inputs.mean_sent[edges], inputs.total("stall")[edges] / np.float32(TICKS)


@dataclass(frozen=True, slots=True)
class _HostPause:
    """A port of a host that pauses its switch for `share` of the time, the largest of the last
    ticks, and receives `received_bps` in the same tick; `victims` are the rows that wait for the
    host, directly or not."""

    row: int
    share: float
    received_bps: float
    is_storm: bool
    victims: list[int]


class HostPauses:
    """Finds the ports of hosts that pause their switch, for the two detectors that report them.

    A `slow` receiver pauses its switch for as long as it takes to drain what has arrived; a `storm`
    all but stops the switch port, whatever arrives.
    """

    def __init__(self, storm: Cause, t: ModelThresholds) -> None:
        self._storm = storm
        self._t = t

    def conditions(self, inputs: DetectorInput, cause: Cause) -> Iterator[Condition]:
        """One condition for each port with one of the two causes."""
        for pause in inputs.once(self._pauses):
            if pause.is_storm == (cause is self._storm):
                yield self._condition(inputs, pause, cause)

    def _pauses(self, inputs: DetectorInput) -> tuple[_HostPause, ...]:
        t = self._t
        graph, nodes = pause_graph(inputs, t), inputs.structure.fabric.nodes
        found = []
        for node, rows in graph.roots.items():
            if nodes[node].role != HOST:
                continue
            waiting = graph.victims(node)
            for row in rows.tolist():
                share = inputs.pauses_peer(row)
                if inputs.received_filled[row, -SHARE_TICKS:].max() >= t.accounts:
                    continue
                if self._is_background(inputs, graph, row):
                    continue
                worst = int(share[-SHARE_TICKS:].argmax()) - SHARE_TICKS
                found.append(
                    _HostPause(
                        row,
                        float(share[worst]),
                        float(inputs.window("rx_bps")[row, worst]),
                        self._is_storm(inputs, row, share),
                        [each for each in waiting if each != row],
                    )
                )
        return tuple(found)

    def _is_background(self, inputs: DetectorInput, graph: PauseGraph, row: int) -> bool:
        """Whether the switch before a port waits for credits no more than on a loaded path."""
        t, edge = self._t, int(inputs.structure.peer[row])
        if edge == NONE or not np.isfinite(inputs.window("stall")[edge]).any():
            return False
        if float(graph.share[edge]) >= t.no_credits:
            return False
        own = float(inputs.total("stall")[edge]) / TICKS
        if own < t.waiting:
            return True
        edges, sent, waits = inputs.once(_waits_before_hosts)
        others = waits[(sent >= t.half * inputs.mean_sent[edge]) & (edges != edge)]
        return len(others) < MIN_PORTS or own < t.scatter * median(others)

    def _is_storm(self, inputs: DetectorInput, row: int, share: Floats) -> bool:
        if (share[-self._t.ticks :] > self._t.storm).all():
            return True
        return float(inputs.snapshot.column("pause_storm_errors")[row]) > 0

    def _condition(self, inputs: DetectorInput, pause: _HostPause, cause: Cause) -> Condition:
        structure, snapshot, row = inputs.structure, inputs.snapshot, pause.row
        ports = structure.fabric.ports
        received = pause.received_bps
        drops = [
            Evidence(name, round(value), "packets/s")
            for name in _DROPS
            if (value := float(snapshot.column(name)[row])) > 0
        ]
        # A host that fell silent a second ago still pauses its switch, with no known rate.
        known = np.isfinite(received)
        at = f" while it receives at {bit_rate(received)}" if known else ""
        of_time = f"{rounded_percent(pause.share)} of the time{at}"
        if uses_credits(ports[row]):
            pauses, waits = "gives its switch no credits", "its switch waits for credits"
        else:
            pauses, waits = "pauses its switch", "it pauses its switch"
        if pause.is_storm:
            what = f"{pauses} {of_time}: it all but stops the traffic to it"
        else:
            what = f"cannot keep up: {waits} {of_time}"
        return Condition(
            cause=cause.name,
            severity=cause.severity,
            subject=ports[row].id,
            rows=(row, *pause.victims),
            text=f"{structure.label(row)} {what}",
            evidence=(
                time_waiting(ports[row], pause.share),
                *([Evidence("received", round(received), "bps")] if known else []),
                *drops,
            ),
            advice=self._advice(inputs, pause, cause),
            confidence=0.9 if drops or pause.is_storm else 0.8,
            lost=round(pause.share, 3),
            victims=tuple(dict.fromkeys(structure.ids(pause.victims))),
            unseen=""
            if structure.peer[row] != NONE
            else "what waits for it: its switch is not watched",
        )

    def _advice(self, inputs: DetectorInput, pause: _HostPause, cause: Cause) -> str:
        if pause.is_storm:
            port = inputs.structure.fabric.ports[pause.row]
            return _NO_CREDITS if uses_credits(port) else cause.advice
        late = [
            name
            for name in _RECEIVE_NOT_POSTED
            if float(inputs.snapshot.column(name)[pause.row]) > 0
        ]
        return cause.advice + (_POSTS_LATE.format(counter=late[0]) if late else "")
