"""ECMP collisions inferred from hosts alone, for senders whose switches are not watched.

A queue between switches is not observable there, but its effects are: packets that cross it are
ECN-marked, the hosts that receive them send CNPs, and the senders handle these (the two counts
agree). Where the receivers of the marks are not full themselves, do not pause their switch and
their PCIe does not stall, the queue is not at the last hop; where it slows few of the senders, it
is one link's. Without ECN, pause at some senders while no receiver is full or pauses its switch
gives the same conclusion with less confidence.

The cause is that of `ecmp_collision`, which is passed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
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
from fabmon.analysis.finding import Cause, Condition, Evidence, Trait
from fabmon.analysis.median import median
from fabmon.analysis.thresholds import Share, Ticks
from fabmon.fabric.snapshot import Floats

_SILENT_TICKS = 3
"""Ticks without traffic counters after which a switch counts as not watched."""

_MAD_TO_SIGMA = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation."""

_LEAST_SPREAD = 0.02
"""Least spread that rail peers are judged by, as a share of their median: two per cent of
difference between equal rails is the noise of reading counters at different instants."""

_MAX_VICTIMS = 64
"""Receivers listed in a finding."""


class InferredCollisionThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [from_hosts]; shares are of line rate, of time, or of the most affected port's."""

    ticks: Ticks
    of_ticks: Ticks
    marks_per_s: float
    inside: Share
    full: Share
    full_ticks: Ticks
    held: Share
    held_named: Share
    bus: Share
    named: Share
    busy_util: Share
    most_senders: Share
    one_receiver: Share
    few_senders: int


def inferred_collisions(
    inputs: DetectorInput, t: InferredCollisionThresholds, collision: Cause
) -> Iterator[Condition]:
    """At most one condition: all senders behind unwatched switches that one queue slows."""
    structure = inputs.structure
    if not structure.rails:
        return
    reporting = _reporting_switches(inputs)
    unwatched = structure.is_rail & ~_is_below(inputs, reporting | _blamed_switches(inputs))
    if not unwatched.any():
        return
    queue = _by_marks(inputs, t, unwatched) or _by_pause(inputs, t, unwatched)
    if queue is None or (len(reporting) and _is_explained(inputs, collision)):
        return
    active: Mask = np.any(inputs.sent > t.busy_util, axis=1)
    if 1 <= len(queue.senders) <= t.most_senders * active.sum():
        yield _condition(inputs, t, collision, queue, active, bool(reporting))


def _by_marks(
    inputs: DetectorInput, t: InferredCollisionThresholds, unwatched: Mask
) -> FabricQueue | None:
    rail = inputs.structure.is_rail
    handled = _recent(inputs, t, "cnp", rail)
    sent = _recent(inputs, t, "cnp_sent", rail)
    marks = np.fmax(sent, _recent(inputs, t, "ecn", rail))
    if (marks.sum(axis=0) > t.marks_per_s).sum() < t.ticks:
        return None
    total = marks.sum(axis=1)
    unexplained = total * ~_is_last_hop(inputs, t, marks)
    inside = float(unexplained.sum() / total.sum())
    receivers = np.flatnonzero(unexplained > t.named * max(float(unexplained.max()), 1.0))
    slowed = np.where(unwatched, handled.sum(axis=1), 0)
    senders = np.flatnonzero(slowed > t.named * max(float(slowed.max()), 1.0))
    if inside < t.inside or not len(senders):
        return None
    if float(total.max() / total.sum()) > t.one_receiver and len(senders) > t.few_senders:
        return None  # many senders, one receiver: an incast that one sample a second hides
    ratio = float(handled.sum() / sent.sum()) if sent.sum() > 0 else float("nan")
    return FabricQueue(senders, receivers, MARKS, slowed, unexplained, inside, ratio)


def _by_pause(
    inputs: DetectorInput, t: InferredCollisionThresholds, unwatched: Mask
) -> FabricQueue | None:
    rail = inputs.structure.is_rail
    paused = np.fmax(
        _recent(inputs, t, "pause_rx", unwatched), _recent(inputs, t, "stall", unwatched)
    )
    queued = paused.max(axis=0, initial=0.0) > t.held
    if queued.sum() < t.ticks:
        return None
    received = inputs.received_filled[:, -t.of_ticks :]
    full = ((received > t.full) & queued & rail[:, None]).any()
    pauses = _recent(inputs, t, "pause_tx", rail).max(initial=0.0) > t.held
    if full or pauses or _recent(inputs, t, "bus", rail).max(initial=0.0) > t.bus:
        return None
    share = paused.sum(axis=1)
    senders = np.flatnonzero(share > t.held_named * float(share.max()))
    nobody, nothing = np.empty(0, np.intp), np.zeros_like(share)
    return FabricQueue(senders, nobody, PAUSE, share, nothing, 1.0, float("nan"))


def _is_last_hop(inputs: DetectorInput, t: InferredCollisionThresholds, marks: Floats) -> Mask:
    """[ports]: whether the host itself, or the link to it, explains the marks it receives."""
    rail = inputs.structure.is_rail
    received = inputs.received_filled[:, -t.of_ticks :]
    full = ((received > t.full) & (marks > 0)).sum(axis=1) >= t.full_ticks
    pauses = (_recent(inputs, t, "pause_tx", rail) > t.held).any(axis=1)
    stalls = (_recent(inputs, t, "bus", rail) > t.bus).any(axis=1)
    found: Mask = full | pauses | stalls
    return found


def _recent(
    inputs: DetectorInput, t: InferredCollisionThresholds, column: str, ports: Mask
) -> Floats:
    """[ports, of_ticks] of a HEAT column; 0 for absent values and for all other ports."""
    recent: Floats = inputs.filled(column)[:, -t.of_ticks :] * ports[:, None]
    return recent


def _is_explained(inputs: DetectorInput, collision: Cause) -> bool:
    """Whether a watched switch has a collision that may slow these senders: one on the way
    down, or one of a switch to which no host is known to be cabled.
    """
    structure = inputs.structure
    for finding in inputs.open_of(collision):
        row = finding.rows[0]
        if not structure.is_switch[row]:
            continue
        has_hosts = (structure.is_edge & (structure.node == structure.node[row])).any()
        if not (structure.is_uplink[row] and has_hosts):
            return True
    return False


def _condition(
    inputs: DetectorInput,
    t: InferredCollisionThresholds,
    collision: Cause,
    queue: FabricQueue,
    active: Mask,
    some_report: bool,
) -> Condition:
    structure = inputs.structure
    against = list(doubts(inputs, queue, active))
    subject, where = locate_queue(inputs, queue)
    senders = f"{len(queue.senders)} of {active.sum()} senders"
    by_marks = queue.seen_by == MARKS
    fullest = inputs.received_filled[queue.receivers, -t.of_ticks :].max(initial=0)
    evidence = [
        Evidence("slowed senders", len(queue.senders), f"of {active.sum()}"),
        Evidence("slowed by", "CNPs" if by_marks else "pause or credits"),
        Evidence("rail-peer z-score, lowest", round(_rail_deviation(inputs, queue.senders), 1)),
    ]
    if by_marks:
        evidence += [
            Evidence("receivers that see marks", len(queue.receivers), "ports"),
            Evidence("marks not of the last hop", round(queue.inside * 100, 1), "%"),
            Evidence("fullest such receiver", round(float(fullest) * 100, 1), "%"),
        ]
        if np.isfinite(queue.cnp_ratio):
            evidence.append(Evidence("CNPs handled over sent", round(queue.cnp_ratio, 2)))
    evidence += [Evidence("speaks against it", doubt.text) for doubt in against]
    switches = "the switches before the senders" if some_report else "all switches"
    return Condition(
        cause=collision.name,
        severity=collision.severity,
        subject=_open_subject(inputs, collision, queue.senders) or subject or _paths(inputs, queue),
        rows=tuple(queue.senders.tolist()),
        text=(
            f"{senders} ({structure.labels(queue.senders, 3)}) are"
            f" {'slowed by CNPs' if by_marks else 'paused'}, and no receiver is full, slow or"
            f" stalled: inferred, a queue {where or 'between switches'}; {_verdict(against)}"
        ),
        evidence=tuple(evidence),
        advice=(
            "Watch the leaf switches to see which link it is. Until then give the hash more"
            " flows: NCCL_IB_QPS_PER_CONNECTION=4, or adaptive routing on the switch."
        ),
        confidence=confidence(against),
        victims=tuple(
            structure.fabric.ports[row].id for row in queue.receivers[:_MAX_VICTIMS].tolist()
        ),
        unseen=f"{switches}: the link itself, and whether it is damaged instead of crowded",
        unless=(Trait.LAST_HOP,),
    )


def _open_subject(inputs: DetectorInput, collision: Cause, senders: Rows) -> str:
    """The subject of the open finding about some of the same senders; empty without one."""
    mine = set(senders.tolist())
    for finding in inputs.open_of(collision):
        if mine & set(finding.rows):
            return finding.subject
    return ""


def _reporting_switches(inputs: DetectorInput) -> set[int]:
    """The switches, as places in the fabric's nodes, whose traffic counters are current."""
    structure = inputs.structure
    if not structure.is_switch.any():
        return set()
    fresh = np.isfinite(inputs.window("tx_bps")[:, -_SILENT_TICKS:]).any(axis=1)
    return set(structure.node[structure.is_switch & fresh].tolist())


def _blamed_switches(inputs: DetectorInput) -> set[int]:
    """The switches of open findings about a link or group. One that falls silent stays blamed."""
    structure = inputs.structure
    rows = [each.rows[0] for each in inputs.open_with(Trait.FULL_LINK_OF_GROUP, Trait.FULL_GROUP)]
    return {int(structure.node[row]) for row in rows if structure.is_switch[row]}


def _is_below(inputs: DetectorInput, switches: set[int]) -> Mask:
    """[ports]: whether a port is known to be cabled to one of some switches."""
    structure = inputs.structure
    if not switches:
        return np.zeros(len(structure.peer), np.bool_)
    names = {structure.fabric.nodes[node].name for node in switches}
    ends = np.append(structure.node, NONE)[structure.peer]
    below: Mask = (structure.peer != NONE) & np.isin(ends, sorted(switches))
    leaves = np.array([name in names for name in structure.leaves] + [False])
    below |= leaves[structure.leaf]
    return below


def _verdict(against: Sequence[Doubt]) -> str:
    """What the queue is, and what it may be instead."""
    for doubt in against:
        if doubt.instead:
            return f"an ECMP collision or {doubt.instead}, since {doubt.text}"
    return "most likely an ECMP collision"


def _paths(inputs: DetectorInput, queue: FabricQueue) -> str:
    """The subject where no cable is known."""
    rails = set(inputs.structure.rail[queue.senders].tolist())
    nodes = {inputs.structure.fabric.ports[row].node for row in queue.senders.tolist()}
    if len(nodes) == 1:
        return f"paths out of {nodes.pop()}"
    return f"paths of rail r{rails.pop()}" if len(rails) == 1 else "paths between hosts"


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
            mad = _MAD_TO_SIGMA * median(np.abs(peers - usual))
            lowest = min(lowest, float(below / max(mad, _LEAST_SPREAD * usual, 1e-6)))
    return lowest
