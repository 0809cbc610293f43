"""Many senders, one receiver: the last hop to a host is full, and several senders share it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from fabmon.analysis.evidence.detector_input import (
    WINDOW_TICKS,
    DetectorInput,
    rows_of,
    without_nan,
)
from fabmon.analysis.evidence.pause_graph import pause_graph
from fabmon.analysis.evidence.queue_signals import QueueThresholds, queue_signals
from fabmon.analysis.evidence.sharing import (
    ACCOUNTED,
    SLOWED_BELOW,
    last_ticks,
    only_sender,
    sharing,
)
from fabmon.analysis.fabric_structure import NONE, Mask, Rows
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.thresholds import Share, Ticks
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

_MAX_RECEIVERS = 32
"""Receivers judged in a tick, those with most marks first: it bounds the time that a tick takes."""

_MANY = 30.0
"""Marks at a receiver, as a multiple of those that are more than background, from which on it need
not be full for whole seconds: bursts that are shorter fill none."""

_EXCHANGES = 0.85
"""What a receiver sends over what it receives, from which on it is the slowest host of an
all-to-all, which the others wait for at the end of a step: that is no incast."""

_DROPPED = 0.05
"""Share of what a receiver gets, and of what all NICs send, 0 to 1, above which what none receives
was dropped: clocks and counters differ by less."""

_SENDS = 0.02
"""Share of line rate, 0 to 1, above which a NIC counts as a sender."""

_BALANCE = 0.95
"""Share of what full receivers receive, 0 to 1, that senders at line rate must send for each of
these receivers to have a sender of its own."""

_CONFIDENCE, _SEEN, _MARKED = 0.8, 0.08, 0.08
"""Confidence, 0 to 1, and what a queue at the senders adds, and marks at the receiver or pause
before it."""


class IncastThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [incast]: shares of line rate and of bandwidth, and ticks."""

    full_util: Share
    full_util_tcp: Share
    marked_util: Share
    full_ticks: Ticks
    lost_min: Share


@dataclass(frozen=True, slots=True)
class _Receiver:
    """A NIC that was full in some `ticks` [WINDOW_TICKS]; `bps` [those ticks] is what it gets.
    `connected` [NICs that send] have connections to its host; None where that is not known."""

    row: int
    ticks: Mask
    bps: Floats
    connected: Mask | None


@dataclass(frozen=True, slots=True)
class _Nics:
    """NICs that send: what they `sent`, bits/s [NICs, WINDOW_TICKS], and whether they `are_free`
    [NICs]: no receiver has them as its only sender."""

    rows: Rows
    sent: Floats
    are_free: Mask


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
    """One condition for each full receiver that several slowed senders share.

    A receiver that is as full as one NIC sends is that NIC's: of receivers that could have the same
    sender, those with fewer marks have it.
    """
    structure, lines = inputs.structure, inputs.snapshot.line_rate_bps
    signals, rail = queue_signals(inputs, queue), structure.is_rail
    least = np.where(inputs.has_rdma_counters, t.full_util, t.full_util_tcp)
    least[signals.marked & (signals.marks >= _MANY * queue.marks_per_gbit)] = t.marked_util
    # Receivers that one sender fills are looked at as well: its traffic is not another's.
    claims = np.fmin(least, SLOWED_BELOW)
    most = without_nan(np.fmax.reduce(inputs.received, axis=1))
    full = rail & (most >= least) & ~pause_graph(inputs).pauses
    rows = np.flatnonzero(rail & (most >= claims))
    if not full.any() or _is_balanced(inputs, rows, claims[rows]):
        return
    rows = rows[np.lexsort((-signals.marks[rows], ~full[rows]))[:_MAX_RECEIVERS]]
    received = without_nan(inputs.entering(rows, WINDOW_TICKS))
    nics = np.flatnonzero(rail & (inputs.peak_sent > _SENDS))
    sent = inputs.leaving(nics, WINDOW_TICKS)
    np.fmax(sent, np.float32(0), out=sent)
    free = np.ones(len(nics), np.bool_)
    several = []
    for place in np.argsort(signals.marks[rows], kind="stable").tolist():
        row, gets = int(rows[place]), received[place]
        ticks = last_ticks(gets >= claims[row] * lines[row])
        others = free & (structure.node[nics] != structure.node[row])
        connected = _connected(inputs, row, nics)
        if connected is not None and not _explains(sent[connected], gets, ticks):
            connected = None  # There is other traffic than that of queue pairs.
        if connected is not None:
            others &= connected
        sender = only_sender(sent, gets, ticks, others)
        if sender is not None:
            free[sender] = False
            continue
        ticks = gets >= least[row] * lines[row]
        each = _Receiver(row, last_ticks(ticks), gets[last_ticks(ticks)], connected)
        if full[row] and ticks.sum() >= t.full_ticks and not _exchanges(inputs, each):
            several.append(each)
    for each in several:
        found = _shared_by(inputs, queue, each, _Nics(nics, sent, free), len(several))
        if (
            found is not None
            and found.lost >= t.lost_min
            and not _is_calm(inputs, queue, each, found.slowed)
        ):
            yield _condition(inputs, queue, each, found)


def _connected(inputs: DetectorInput, row: int, nics: Rows) -> Mask | None:
    """[nics]: whether NICs have queue pairs to a receiver's; None where these are not all known."""
    table = inputs.snapshot.connections.flows_if_quick
    if (
        not table
        or table.left_out
        or inputs.structure.fabric.ports[row].node not in table.reporting
    ):
        return None
    own = table.src == row
    # A far end without a candidate is not watched, thus none of these.
    if not own.any() or ((table.dst[own] == NONE) & (table.candidates[own] > 0)).any():
        return None
    connected: Mask = np.isin(nics, table.dst[own])
    return connected


def _explains(sent: Floats, gets: Floats, ticks: Mask) -> bool:
    """Whether senders [NICs, WINDOW_TICKS] account for what a receiver gets in some ticks."""
    return bool(sent[:, ticks].sum() >= ACCOUNTED * gets[ticks].sum())


def _exchanges(inputs: DetectorInput, receiver: _Receiver) -> bool:
    """Whether a receiver sends about as much as it gets."""
    row = np.array([receiver.row])
    sent = np.nan_to_num(inputs.leaving(row, WINDOW_TICKS)[0, receiver.ticks])
    return bool(sent.sum() >= _EXCHANGES * receiver.bps.sum())


def _is_balanced(inputs: DetectorInput, receivers: Rows, claims: Floats) -> bool:
    """Whether senders at line rate account for what receivers get from their share of line rate
    `claims` [receivers] on, in most ticks in which any does."""
    lines = without_nan(inputs.snapshot.line_rate_bps)[:, None]
    received = without_nan(rows_of(inputs.received, receivers))
    busy = received >= claims[:, None]
    senders = np.flatnonzero(inputs.structure.is_rail & (inputs.peak_sent >= SLOWED_BELOW))
    sent = without_nan(rows_of(inputs.util("tx"), senders))
    sends = np.where(sent >= SLOWED_BELOW, sent * lines[senders], 0).sum(axis=0)
    gets = np.where(busy, received * lines[receivers], 0).sum(axis=0)
    ticks = busy.any(axis=0)
    balanced: Mask = sends[ticks] >= _BALANCE * gets[ticks]
    return bool(balanced.mean() > 0.5) if len(balanced) else True


def _shared_by(
    inputs: DetectorInput, queue: QueueThresholds, receiver: _Receiver, may: _Nics, receivers: int
) -> _Senders | None:
    """The slowed NICs that share one of so many full receivers; None where they do not explain what
    it gets."""
    nics, node = may.rows, inputs.structure.node
    lines = np.nan_to_num(inputs.snapshot.line_rate_bps[nics])
    in_full = may.sent[:, receiver.ticks]
    rate = in_full.mean(axis=1)
    slowed = may.are_free & (rate > _SENDS * lines) & (rate < SLOWED_BELOW * lines)
    slowed &= node[nics] != node[receiver.row]
    if receiver.connected is not None:
        slowed &= receiver.connected
    if rate[slowed].sum() < ACCOUNTED * receiver.bps.mean():
        return None
    dropped = _dropped_bps(inputs, receiver)
    load = receiver.bps + dropped
    if receiver.connected is not None and rate[slowed].sum() <= load.mean() / ACCOUNTED:
        receivers = 1  # All that they send comes here; else some connections are idle.
    signals = queue_signals(inputs, queue)
    signs = [np.where(signals.slowed, of, 0)[nics] for of in (signals.cnps, signals.waiting)]
    sharers = sharing(in_full, slowed, load, signs, receivers)
    share = sharers.slowed
    if share.sum() < 2:
        return None
    achieved = max(float(rate[share].sum() - dropped.mean()), 0.0)
    lost = 1.0 - achieved / float(lines[share].sum())
    return _Senders(nics[share], nics[sharers.named], lost)


def _dropped_bps(inputs: DetectorInput, receiver: _Receiver) -> Floats:
    """[ticks in which a receiver is full]: bits/s that NICs send and none receives, where that is
    more than counters differ by. Senders that do not slow down (UDP) lose them; RDMA loses none."""
    if inputs.has_rdma_counters[receiver.row]:
        return np.zeros_like(receiver.bps)
    sent, received = (each[receiver.ticks] for each in inputs.once(_sent_and_received))
    dropped: Floats = np.fmax(sent - received, 0)
    is_lost = dropped.mean() > _DROPPED * max(receiver.bps.mean(), sent.mean())
    return dropped if is_lost else np.zeros_like(dropped)


def _sent_and_received(inputs: DetectorInput) -> tuple[Floats, Floats]:
    """[WINDOW_TICKS] each: bits/s that all rails send, and receive."""
    rails = np.flatnonzero(inputs.structure.is_rail)
    sent, received = (
        np.ascontiguousarray(without_nan(of(rails, WINDOW_TICKS))).sum(axis=0)
        for of in (inputs.leaving, inputs.entering)
    )
    return sent, received


def _is_calm(
    inputs: DetectorInput, queue: QueueThresholds, receiver: _Receiver, senders: Rows
) -> bool:
    """Whether RDMA counters show no queue before a receiver: no marks, no pause, and senders that
    neither handle CNPs nor wait. TCP has no such counters."""
    row, signals = receiver.row, queue_signals(inputs, queue)
    if not inputs.has_rdma_counters[row] or signals.marked[row] or _queues(inputs, row):
        return False
    waits = signals.waiting[senders] >= queue.waiting
    return not (signals.slowed[senders] | waits).any()


def _queues(inputs: DetectorInput, row: int) -> bool:
    """Whether the switch before a receiver pauses others, and is not paused itself."""
    edge = int(inputs.structure.peer[row])
    return edge != NONE and int(inputs.structure.node[edge]) in pause_graph(inputs).roots


def _condition(
    inputs: DetectorInput,
    queue: QueueThresholds,
    receiver: _Receiver,
    senders: _Senders,
) -> Condition:
    structure, row = inputs.structure, receiver.row
    ports = structure.fabric.ports
    edge = int(structure.peer[row])
    graph, signals = pause_graph(inputs), queue_signals(inputs, queue)
    queues = _queues(inputs, row)
    waiting = graph.victims(int(structure.node[edge])) if queues else []
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
        victims=tuple(dict.fromkeys(structure.ids(waiting))),
        unseen="; ".join(filter(None, unseen)),
        unless=(Trait.FULL_GROUP,),
    )
