"""Collisions inferred from hosts alone, for senders behind switches that cannot be asked.

A queue inside the fabric is not seen, but what it does is: packets that cross it are ECN-marked,
the hosts that get them send CNPs, and those who sent them handle these (the sums agree). Where the
hosts that see the marks are not full themselves, do not hold their switch, and their PCIe does not
stall, the queue is not at the last hop; where few of the senders are slowed, it is one link's.
Without ECN, pause at some senders while no receiver is full or holds anybody tells the same, less
surely.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.fabric_queue import (
    MARKS,
    PAUSE,
    Doubt,
    FabricQueue,
    confidence,
    doubts,
    locate_queue,
)
from fabmon.analysis.fabric_structure import NONE, Mask, Rows
from fabmon.analysis.finding import WARNING, Condition, Evidence, Trait
from fabmon.analysis.median import median
from fabmon.analysis.thresholds import FromHosts as Thresholds
from fabmon.fabric.snapshot import Floats

_CROWDED = ("ecmp_collision", "oversubscription", "polarization")
_SILENT_TICKS = 3
_MAD = 1.4826
_NOISE = 0.02
"""Rail peers are never judged closer than this share of their median."""


class FromHosts:
    """Judges all rails together whose own switch tells nothing now: unwatched, or silent."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._t = thresholds

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition for all that one queue slows."""
        structure = inputs.structure
        if not structure.rails:
            return
        telling = _telling(inputs)
        blind = structure.is_rail & ~_is_below(inputs, telling | _accused(inputs))
        if not blind.any():
            return
        queue = self._by_marks(inputs, blind) or self._by_pause(inputs, blind)
        if queue is None or (len(telling) and _is_seen(inputs)):
            return
        sends = inputs.sent > self._t.busy_util
        active: Mask = np.any(sends, axis=1)
        if 1 <= len(queue.senders) <= self._t.most_senders * active.sum():
            yield self._condition(inputs, queue, active)

    def _by_marks(self, inputs: DetectorInput, blind: Mask) -> FabricQueue | None:
        t, rail = self._t, inputs.structure.is_rail
        handled = _recent(inputs, "cnp", t.of_ticks, rail)
        sent = _recent(inputs, "cnp_sent", t.of_ticks, rail)
        seen = np.fmax(sent, _recent(inputs, "ecn", t.of_ticks, rail))
        if (seen.sum(axis=0) > t.marks_per_s).sum() < t.ticks:
            return None
        marks = seen.sum(axis=1)
        innocent = marks * ~self._is_last_hop(inputs, seen)
        inside = float(innocent.sum() / marks.sum())
        received = np.flatnonzero(innocent > t.named * max(float(innocent.max()), 1.0))
        slowed = np.where(blind, handled.sum(axis=1), 0)
        senders = np.flatnonzero(slowed > t.named * max(float(slowed.max()), 1.0))
        if inside < t.inside or not len(senders):
            return None
        if float(marks.max() / marks.sum()) > t.one_receiver and len(senders) > t.few_senders:
            return None  # many send to one: an incast, however full it looks at one sample a second
        agree = float(handled.sum() / sent.sum()) if sent.sum() > 0 else float("nan")
        return FabricQueue(senders, received, MARKS, slowed, innocent, inside, agree)

    def _by_pause(self, inputs: DetectorInput, blind: Mask) -> FabricQueue | None:
        t, rail = self._t, inputs.structure.is_rail
        held = np.fmax(
            _recent(inputs, "pause_rx", t.of_ticks, blind),
            _recent(inputs, "stall", t.of_ticks, blind),
        )
        queued = held.max(axis=0, initial=0.0) > t.held
        if queued.sum() < t.ticks:
            return None
        got = inputs.got[:, -t.of_ticks :]
        full = ((got > t.full) & queued & rail[:, None]).any()
        holds = _recent(inputs, "pause_tx", t.of_ticks, rail).max(initial=0.0) > t.held
        if full or holds or _recent(inputs, "bus", t.of_ticks, rail).max(initial=0.0) > t.bus:
            return None
        share = held.sum(axis=1)
        senders = np.flatnonzero(share > t.held_named * float(share.max()))
        nobody, nothing = np.empty(0, np.intp), np.zeros_like(share)
        return FabricQueue(senders, nobody, PAUSE, share, nothing, 1.0, float("nan"))

    def _is_last_hop(self, inputs: DetectorInput, seen: Floats) -> Mask:
        """[ports]: whether the host itself, or the link to it, explains the marks it gets."""
        t, rail = self._t, inputs.structure.is_rail
        got = inputs.got[:, -t.of_ticks :]
        full = ((got > t.full) & (seen > 0)).sum(axis=1) >= t.full_ticks
        holds = (_recent(inputs, "pause_tx", t.of_ticks, rail) > t.held).any(axis=1)
        stalls = (_recent(inputs, "bus", t.of_ticks, rail) > t.bus).any(axis=1)
        found: Mask = full | holds | stalls
        return found

    def _condition(self, inputs: DetectorInput, queue: FabricQueue, active: Mask) -> Condition:
        structure = inputs.structure
        against = list(doubts(inputs, queue, active))
        subject, where = locate_queue(inputs, queue)
        named = structure.labels(queue.senders, 3)
        deviation = _rail_deviation(inputs, queue.senders)
        fullest = inputs.got[queue.receivers, -self._t.of_ticks :]
        slowed_by = "are slowed by CNPs" if queue.by == MARKS else "are told to wait"
        evidence = [
            Evidence("slowed senders", len(queue.senders), f"of {active.sum()}"),
            Evidence("slowed by", {MARKS: "CNPs", PAUSE: "pause or credits"}[queue.by]),
            Evidence("rail-peer z-score, lowest", round(deviation, 1)),
        ]
        if queue.by == MARKS:
            evidence += [
                Evidence("receivers that see marks", len(queue.receivers), "ports"),
                Evidence("marks not of the last hop", round(queue.inside * 100, 1), "%"),
                Evidence(
                    "fullest such receiver", round(float(fullest.max(initial=0)) * 100, 1), "%"
                ),
            ]
            if np.isfinite(queue.agree):
                evidence.append(Evidence("CNPs handled over sent", round(queue.agree, 2)))
        evidence += [Evidence("speaks against it", doubt.text) for doubt in against]
        return Condition(
            cause="ecmp_collision",
            severity=WARNING,
            subject=_standing_subject(inputs, queue.senders) or subject or _paths(inputs, queue),
            rows=tuple(queue.senders.tolist()),
            text=(
                f"{len(queue.senders)} of {active.sum()} senders ({named}) {slowed_by}, and no"
                f" receiver is full, slow or stalled: inferred, a queue"
                f" {where or 'inside the fabric'}; {_likely(against)}"
            ),
            evidence=tuple(evidence),
            advice=(
                "Watch the leaf switches to see which link it is. Meanwhile give the hash more to"
                " work with: NCCL_IB_QPS_PER_CONNECTION=4, or adaptive routing on the switch."
            ),
            confidence=confidence(against),
            victims=tuple(structure.fabric.ports[row].id for row in queue.receivers[:64].tolist()),
            unseen=f"{_unseen(inputs)}: the link itself, and whether it is sick instead of crowded",
            unless=(Trait.LAST_HOP,),
        )


def _telling(inputs: DetectorInput) -> set[int]:
    """The switches, as places in the fabric's nodes, that tell what their links carry now."""
    structure = inputs.structure
    if not structure.is_switch.any():
        return set()
    fresh = np.isfinite(inputs.window("tx_bps")[:, -_SILENT_TICKS:]).any(axis=1)
    return set(structure.node[structure.is_switch & fresh].tolist())


def _accused(inputs: DetectorInput) -> set[int]:
    """The switches whose links an open finding blames: one that falls silent is blamed still."""
    structure = inputs.structure
    blamed = [each.rows[0] for each in inputs.standing.values() if each.cause in _CROWDED]
    return {int(structure.node[row]) for row in blamed if structure.is_switch[row]}


def _is_below(inputs: DetectorInput, telling: set[int]) -> Mask:
    """[ports]: whether it is known to be cabled to a switch that tells."""
    structure = inputs.structure
    if not telling:
        return np.zeros(len(structure.peer), np.bool_)
    names = {structure.fabric.nodes[node].name for node in telling}
    ends = np.append(structure.node, NONE)[structure.peer]
    told: Mask = (structure.peer != NONE) & np.isin(ends, sorted(telling))
    leaves = np.array([name in names for name in structure.leaves] + [False])
    told |= leaves[structure.leaf]
    return told


def _is_seen(inputs: DetectorInput) -> bool:
    """Whether a switch tells of a collision that may slow these senders: one on the way down, or of
    a switch that nobody is known to be cabled to.
    """
    structure = inputs.structure
    for standing in inputs.standing.values():
        row = standing.rows[0] if standing.cause == "ecmp_collision" else NONE
        if row == NONE or not structure.is_switch[row]:
            continue
        has_hosts = (structure.is_edge & (structure.node == structure.node[row])).any()
        if not (structure.is_uplink[row] and has_hosts):
            return True
    return False


def _unseen(inputs: DetectorInput) -> str:
    return "the switches before them" if _telling(inputs) else "all switches"


def _likely(against: Sequence[Doubt]) -> str:
    """What it is, or may be instead."""
    for doubt in against:
        if doubt.instead:
            return f"it is an ECMP collision, or {doubt.instead}, since {doubt.text}"
    return "most likely an ECMP collision"


def _standing_subject(inputs: DetectorInput, senders: Rows) -> str:
    """What it was called when it opened, as long as it is about some of the same senders."""
    mine = set(senders.tolist())
    for key, standing in inputs.standing.items():
        if key.startswith("ecmp_collision:") and mine & set(standing.rows):
            return standing.subject
    return ""


def _paths(inputs: DetectorInput, queue: FabricQueue) -> str:
    """What it is called where nobody tells of the cables."""
    rails = set(inputs.structure.rail[queue.senders].tolist())
    nodes = {inputs.structure.fabric.ports[row].node for row in queue.senders.tolist()}
    if len(nodes) == 1:
        return f"paths out of {nodes.pop()}"
    return f"paths of rail r{rails.pop()}" if len(rails) == 1 else "paths between hosts"


def _recent(inputs: DetectorInput, column: str, ticks: int, rail: Mask) -> Floats:
    recent: Floats = inputs.filled(column)[:, -ticks:] * rail[:, None]
    return recent


def _rail_deviation(inputs: DetectorInput, rows: Rows) -> float:
    """The lowest robust z-score of what these rails send, against the other hosts' same rail."""
    sent = inputs.sent.mean(axis=1)
    own, own_rail = sent[rows], inputs.structure.rail[rows]
    lowest = 0.0
    for rail in set(own_rail.tolist()):
        peers = sent[inputs.structure.rails[rail]]
        usual = median(peers)
        below = own[own_rail == rail].min() - usual
        if below < 0:
            spread = max(_MAD * median(np.abs(peers - usual)), _NOISE * usual, 1e-6)
            lowest = min(lowest, float(below / spread))
    return lowest
