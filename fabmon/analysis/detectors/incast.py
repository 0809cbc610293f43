"""Many senders, one receiver: the last hop to a host is full, and several senders share it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import (
    TICKS,
    WINDOW_TICKS,
    DetectorInput,
    has_values,
    without_nan,
)
from fabmon.analysis.evidence.flow_control import uses_credits
from fabmon.analysis.evidence.full_receivers import (
    SENDS,
    IncastThresholds,
    Receiver,
    SendingNics,
    shared_receivers,
)
from fabmon.analysis.evidence.link_queues import drops_before_hosts
from fabmon.analysis.evidence.pause_graph import pause_graph
from fabmon.analysis.evidence.queue_signals import QueueThresholds, queue_signals
from fabmon.analysis.evidence.sharing import (
    ACCOUNTED,
    SLOWED_BELOW,
    sharing,
)
from fabmon.analysis.fabric_structure import NONE, Mask, Rows
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import rounded_percent

CAUSE = Cause(
    name="incast",
    title="Incast",
    meaning="many senders, one receiver: the last hop to a host is full, and its senders share it",
    severity=WARNING,
    picture="receiver",
    advice=(
        "Find what the job gathers there (all-to-all, parameter server, checkpoint); spread the"
        " receivers over rails, or stagger the senders (NCCL_P2P_NET_CHUNKSIZE, fewer channels)."
    ),
    tables=("incast", "queue"),
    traits=(
        Trait.NEEDS_TRAFFIC,
        Trait.LAST_HOP,
        Trait.MAKES_QUEUES,
        Trait.ONE_RAIL,
        Trait.HAS_SENDERS,
    ),
)

_DROPPED = 0.05
"""Share of what a receiver gets, 0 to 1, by which clocks and counters differ."""

_FILLS = 0.5
"""Share of what a receiver gets, 0 to 1, that fills it: it would not be full without."""

_RESENT = 0.1
"""Share of what TCP sends, 0 to 1, up to which it may be sent again."""

_MANY_CNPS = 10.0
"""CNPs of a sender, as a multiple of those that are more than background, from which on it is
slowed even if all others handle as many."""

_QUEUES_BEFORE = (Trait.FULL_GROUP, Trait.FULL_LINK_OF_GROUP, Trait.OF_LINK)
"""What marks the traffic of a receiver as well, where that fills no whole seconds."""

_CONFIDENCE, _SEEN, _MARKED = 0.8, 0.08, 0.08
"""Confidence, 0 to 1, and what a queue at the senders adds, and marks at the receiver or pause
before it."""


@dataclass(frozen=True, slots=True)
class _Senders:
    """The NICs that share a receiver: those that are `slowed`, and those `named` that are known to
    send to it, for others may only wait for them. `lost` is their share of bandwidth, 0 to 1."""

    slowed: Rows
    named: Rows
    lost: float


def incasts(
    inputs: DetectorInput, t: IncastThresholds, queue: QueueThresholds
) -> Iterator[Condition]:
    """One condition for each full receiver that several slowed senders share."""
    receivers, nics = shared_receivers(inputs, t, queue)
    explained: Rows = np.empty(0, np.intp)
    for each in sorted(receivers, key=lambda each: -int(each.ticks.sum())):
        found = _shared_by(inputs, queue, each, nics, len(receivers))
        if found is None or found.lost < t.lost_min:
            continue
        # Senders that wait for a receiver which is full for longer are no sign of another's queue.
        if not _is_calm(inputs, t, queue, each, np.setdiff1d(found.slowed, explained)):
            explained = np.union1d(explained, found.slowed)
            yield _condition(inputs, queue, each, found)


def _shared_by(
    inputs: DetectorInput,
    queue: QueueThresholds,
    receiver: Receiver,
    may: SendingNics,
    receivers: int,
) -> _Senders | None:
    """The slowed NICs that share one of so many full receivers; None where they do not explain what
    it gets."""
    nics, node = may.rows, inputs.structure.node
    lines = np.nan_to_num(inputs.snapshot.line_rate_bps[nics])
    in_full = may.sent[:, receiver.ticks[-may.sent.shape[1] :]]
    rate = in_full.mean(axis=1)
    signals = queue_signals(inputs, queue)
    sends = may.are_free & (rate > SENDS * lines) & (node[nics] != node[receiver.row])
    if receiver.connected is not None:
        sends &= receiver.connected
    slowed = sends & (rate < SLOWED_BELOW * lines)
    # Where marks show the queue, some of the senders may have other traffic at line rate.
    all_of_it = sends if signals.marked[receiver.row] else slowed
    if rate[all_of_it].sum() < ACCOUNTED * receiver.bps.mean():
        return None
    dropped = _dropped_bps(inputs, receiver)
    load = receiver.bps + dropped
    if receiver.connected is not None and rate[slowed].sum() <= load.mean() / ACCOUNTED:
        receivers = 1  # All that they send comes here; else some connections are idle.
    slows = signals.slowed[nics]
    signs = [np.where(slows, of[nics], 0) for of in (signals.cnps, signals.waiting)]
    sharers = sharing(in_full, slowed, load, signs, receivers)
    share, named = sharers.slowed, sharers.named
    if receiver.connected is None and rate[named].sum() > load.mean() / ACCOUNTED:
        named = np.zeros_like(named)  # Some of them only wait for the others.
    is_seen = sharers.named.any() or signals.marked[receiver.row]
    if not is_seen and _has_unknown_senders(inputs, receiver, float(dropped.mean())):
        return None
    if share.sum() >= 2:
        achieved = max(float(rate[share].sum() - dropped.mean()), 0.0)
        lost = 1.0 - achieved / float(lines[share].sum())
        return _Senders(nics[share], nics[named], lost)
    if not receiver.is_pinned or not slowed.any():
        return None
    # More send than come here: whichever do, they lose at least what the fastest of them loses.
    return _Senders(nics[slowed], nics[:0], 1.0 - float((rate[slowed] / lines[slowed]).max()))


def _has_unknown_senders(inputs: DetectorInput, receiver: Receiver, dropped_bps: float) -> bool:
    """Whether NICs that are not watched, as those of storage, may be the ones that fill a receiver:
    all NICs received more than they sent in the last ticks, or they sent so much elsewhere that as
    much as half of what the receiver gets may have come from there. TCP sends again what was
    dropped."""
    rail, received = inputs.structure.is_rail, inputs.total("rx_bps")
    sent = float(inputs.total("tx_bps")[rail].sum())
    more = float(received[rail].sum()) - sent
    resent = 0.0 if inputs.has_rdma_counters[receiver.row] else _RESENT * sent
    got = float(received[receiver.row])
    elsewhere = -more - resent - TICKS * dropped_bps
    return more > _DROPPED * got or elsewhere > _FILLS * got


def _dropped_bps(inputs: DetectorInput, receiver: Receiver) -> Floats:
    """[ticks in which a receiver is full]: bits/s that enter the switch before it and do not leave
    it, where that is more than counters differ by. Senders that do not slow down (UDP) lose them;
    RDMA loses none."""
    structure = inputs.structure
    edge = int(structure.peer[receiver.row])
    if edge == NONE or inputs.has_rdma_counters[receiver.row]:
        return np.zeros_like(receiver.bps)
    own = np.flatnonzero(structure.node == structure.node[edge])
    if not np.isfinite(inputs.window("tx_bps")[own, -1]).any():
        return np.zeros_like(receiver.bps)  # What its far ends count is not all of it.
    enters, leaves = (
        without_nan(of(own, WINDOW_TICKS)[:, receiver.ticks]).sum(axis=0)
        for of in (inputs.entering, inputs.leaving)
    )
    dropped: Floats = np.fmax(enters - leaves, 0)
    is_lost = dropped.mean() > _DROPPED * receiver.bps.mean()
    return dropped if is_lost else np.zeros_like(dropped)


def _is_calm(
    inputs: DetectorInput,
    t: IncastThresholds,
    queue: QueueThresholds,
    receiver: Receiver,
    senders: Rows,
) -> bool:
    """Whether RDMA counters show no queue before a receiver: no marks, no pause, and senders that
    neither handle CNPs nor wait. Where its switch is watched, and has no credits, one that fills no
    whole seconds must be marked, and its senders handle CNPs, or its switch pause others. TCP has
    no such counters; on InfiniBand senders that wait for a last hop which is always full may wait
    as little as others."""
    row, signals = receiver.row, queue_signals(inputs, queue)
    if not inputs.has_rdma_counters[row] or _queues(inputs, row):
        return False
    has_credits = uses_credits(inputs.structure.fabric.ports[row])
    is_short = receiver.bps.mean() < t.full_util * inputs.snapshot.line_rate_bps[row]
    counts_marks = bool(np.isfinite(inputs.window("ecn")[row]).any())
    if is_short and not has_credits and (counts_marks or inputs.structure.peer[row] != NONE):
        counts_cnps = bool(has_values(inputs.window("cnp")[senders]).any())
        many: Mask = signals.cnps[senders] >= _MANY_CNPS * queue.cnps_per_gbit
        handles_cnps = bool((signals.slowed[senders] | many).any())
        return not signals.marked[row] or (counts_cnps and not handles_cnps)
    if signals.marked[row] or (receiver.is_pinned and has_credits):
        return False
    waits = signals.waiting[senders] >= queue.waiting
    if counts_marks:
        return not waits.any()  # What CNPs slow its senders are not of this receiver.
    return not (signals.slowed[senders] | waits).any()


def _queues(inputs: DetectorInput, row: int) -> bool:
    """Whether the switch before a receiver pauses others, and is not paused itself."""
    edge = int(inputs.structure.peer[row])
    return edge != NONE and int(inputs.structure.node[edge]) in pause_graph(inputs).roots


def _drops(inputs: DetectorInput, queue: QueueThresholds, row: int) -> Iterator[Evidence]:
    """What the switch before a receiver drops, where it shows the queue."""
    if drops_before_hosts(inputs, queue)[row]:
        edge = int(inputs.structure.peer[row])
        gbit = float(inputs.total("tx_bps")[edge]) / 1e9
        yield Evidence("drops per Gbit", round(float(inputs.total("tx_drops")[edge]) / gbit, 1))


def _condition(
    inputs: DetectorInput,
    queue: QueueThresholds,
    receiver: Receiver,
    senders: _Senders,
) -> Condition:
    structure, row = inputs.structure, receiver.row
    ports = structure.fabric.ports
    edge = int(structure.peer[row])
    graph, signals = pause_graph(inputs), queue_signals(inputs, queue)
    queues = _queues(inputs, row)
    waiting = graph.victims(int(structure.node[edge])) if queues else []
    waiting = [each for each in waiting if each != row]
    rows = [row] if edge == NONE else [edge, row]
    level = float(receiver.bps.mean() / inputs.snapshot.line_rate_bps[row])
    is_marked, lost, named = bool(signals.marked[row]), senders.lost, senders.named
    names = f"{len(named)} senders or more ({structure.labels(named, 3)})"
    if not len(named):
        names = "senders that cannot be distinguished from ports that wait for them"
    unseen = ["" if edge != NONE else "the switch in front of it"]
    unseen.append("" if len(named) else "who sends to it")
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=ports[row].id,
        rows=(*rows, *(each for each in waiting if each not in rows)),
        text=(
            f"{structure.label(row)} receives at {rounded_percent(level)} of line rate from"
            f" {names}, which lose {rounded_percent(lost)}"
        ),
        evidence=(
            Evidence("received", round(level * 100, 1), "%"),
            Evidence("slowed senders", len(senders.slowed), "ports"),
            Evidence("lost bandwidth", round(lost * 100, 1), "%"),
            Evidence("marks per Gbit", round(float(signals.marks[row]), 1)),
            *_drops(inputs, queue, row),
            Evidence("ports that wait for it", len(waiting), "ports"),
        ),
        advice=CAUSE.advice,
        confidence=round(
            _CONFIDENCE
            + (_SEEN if signals.slowed[senders.slowed].any() else 0)
            + (_MARKED if is_marked or queues else 0),
            2,
        ),
        lost=round(lost, 3),
        victims=tuple(dict.fromkeys(structure.ids([*named.tolist(), *waiting]))),
        unseen="; ".join(filter(None, unseen)),
        unless=(Trait.FULL_GROUP,) if level >= SLOWED_BELOW else _QUEUES_BEFORE,
    )
