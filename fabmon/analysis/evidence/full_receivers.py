"""Receivers that are full and that several senders share, for none has them for itself.

A receiver that is as full as one NIC sends is that NIC's. NICs that send as much as they receive
are hosts of rings, and each other's. Where as many other NICs send at line rate as receive, these
are pairs. Else each receiver gets the sender whose traffic is closest to its own, first those that
least show a queue; what is left has several senders.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from fabmon.analysis.evidence.detector_input import (
    TICKS,
    WINDOW_TICKS,
    DetectorInput,
    count_ticks,
    rows_of,
    without_nan,
)
from fabmon.analysis.evidence.pause_graph import pause_graph
from fabmon.analysis.evidence.queue_signals import QueueSignals, QueueThresholds, queue_signals
from fabmon.analysis.evidence.sharing import (
    ACCOUNTED,
    SLOWED_BELOW,
    closest_senders,
    last_ticks,
)
from fabmon.analysis.fabric_structure import NONE, Mask, Rows
from fabmon.analysis.thresholds import Share, Ticks
from fabmon.fabric.snapshot import Floats

_MAX_RECEIVERS = 32
"""Receivers judged in a tick, those with most marks first: it bounds the time that a tick takes."""

_MANY = 30.0
"""Marks at a receiver, as a multiple of those that are more than background, from which on it need
not be full for whole seconds: bursts that are shorter fill none."""

_TOGETHER, _PEAKS = 0.9, 2
"""Correlation of what slowed senders wait with what a receiver gets, from which on their wait is
for it, and the least peaks that it has in the last ticks."""

_LEAST = np.finfo(np.float32).tiny
"""What a sum of squares is at least for a correlation to be defined."""

_EXCHANGES = 0.85
"""What a receiver sends over what it receives while it is full, from which on it is part of a ring,
or the slowest host of an all-to-all, which the others wait for at the end of a step: that is no
incast."""

_SENDS = 0.02
"""Share of line rate, 0 to 1, above which a NIC counts as a sender."""


class IncastThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [incast]: shares of line rate and of bandwidth, and ticks."""

    full_util: Share
    full_util_tcp: Share
    marked_util: Share
    full_ticks: Ticks
    lost_min: Share


@dataclass(frozen=True, slots=True)
class Receiver:
    """A NIC that was full in some `ticks` [WINDOW_TICKS]; `bps` [those ticks] is what it gets.

    `is_pinned` says that it was full in all of the last ticks. `connected` [NICs that send] have
    connections to its host; None where that is not known.
    """

    row: int
    ticks: Mask
    bps: Floats
    is_pinned: bool
    connected: Mask | None


@dataclass(frozen=True, slots=True)
class SendingNics:
    """NICs that send: what they `sent`, bits/s [NICs, WINDOW_TICKS], and whether they `are_free`
    [NICs]: no receiver has them as its only sender."""

    rows: Rows
    sent: Floats
    are_free: Mask


def shared_receivers(
    inputs: DetectorInput, t: IncastThresholds, queue: QueueThresholds
) -> tuple[list[Receiver], SendingNics]:
    """The full receivers that no sender has for itself, and the NICs that may send to them."""
    structure, lines = inputs.structure, inputs.snapshot.line_rate_bps
    signals, rail = queue_signals(inputs, queue), structure.is_rail
    least = np.where(inputs.has_rdma_counters, t.full_util, t.full_util_tcp)
    least[signals.marked & (signals.marks >= _MANY * queue.marks_per_gbit)] = t.marked_util
    least[_filled_by_bursts(inputs, signals, t.marked_util)] = t.marked_util
    # Receivers that one sender fills are looked at as well: its traffic is not another's.
    claims = np.fmin(least, SLOWED_BELOW)
    most = without_nan(np.fmax.reduce(inputs.received, axis=1))
    full = rail & (most >= least) & ~pause_graph(inputs).pauses
    nobody = SendingNics(
        np.empty(0, np.intp), np.empty((0, WINDOW_TICKS), np.float32), np.empty(0, np.bool_)
    )
    if not full.any():
        return [], nobody
    exchanges = _exchanges(inputs, claims)
    unmatched = _unmatched_rails(inputs, claims, ~exchanges)
    unmatched[structure.rail[full & signals.marked]] = True
    rows = np.flatnonzero(rail & ~exchanges & (most >= claims) & unmatched[structure.rail])
    if not full[rows].any():
        return [], nobody
    rows = rows[np.lexsort((-signals.marks[rows], ~full[rows]))[:_MAX_RECEIVERS]]
    received = without_nan(inputs.entering(rows, WINDOW_TICKS))
    nics = np.flatnonzero(rail & (inputs.peak_sent > _SENDS))
    sent = inputs.leaving(nics, WINDOW_TICKS)
    np.fmax(sent, np.float32(0), out=sent)
    connected, closest = [], []
    for row, gets in zip(rows.tolist(), received, strict=True):
        ticks = last_ticks(gets >= claims[row] * lines[row])
        known = _connected(inputs, row, nics)
        if known is not None and sent[known][:, ticks].sum() < ACCOUNTED * gets[ticks].sum():
            known = None  # There is other traffic than that of queue pairs.
        may = unmatched[structure.rail[nics]] & ~exchanges[nics]
        may &= structure.node[nics] != structure.node[row]
        if signals.marked[row]:
            may &= signals.slowed[nics]  # Marks slow a sender, and none here sends at line rate.
        connected.append(known)
        closest.append(closest_senders(sent, gets, ticks, may if known is None else may & known))
    free = np.ones(len(nics), np.bool_)
    several = []
    nearest = np.array([apart[0] if len(apart) else np.inf for _, apart in closest])
    for place in np.lexsort((nearest, signals.marks[rows])).tolist():
        senders, _ = closest[place]
        senders = senders[free[senders]]
        if len(senders):
            free[senders[0]] = False
            continue
        row, gets = int(rows[place]), received[place]
        is_full = gets >= least[row] * lines[row]
        ticks = last_ticks(is_full)
        is_pinned = bool(is_full[-TICKS:].all())
        if full[row] and is_full.sum() >= t.full_ticks:
            several.append(Receiver(row, ticks, gets[ticks], is_pinned, connected[place]))
    return several, SendingNics(nics, sent, free)


def _filled_by_bursts(inputs: DetectorInput, signals: QueueSignals, least_util: float) -> Mask:
    """[ports]: receivers with peaks together with which slowed senders wait for credits or are
    paused. Bursts of a second fill none of the seconds that are counted, wherever marks are not."""
    found: Mask = np.zeros(len(signals.slowed), np.bool_)
    peaks = inputs.received_filled >= np.float32(least_util)
    rows = np.flatnonzero(inputs.structure.is_rail & (count_ticks(peaks) >= _PEAKS))
    senders = np.flatnonzero(signals.slowed)
    if not len(rows) or not len(senders):
        return found
    lines = without_nan(inputs.snapshot.line_rate_bps[senders])
    waits = np.fmax(*(rows_of(inputs.filled(each), senders) for each in ("pause_rx", "stall")))
    waited = (waits * lines[:, None]).sum(axis=0)
    received = rows_of(inputs.received_filled, rows)
    apart = received - received.mean(axis=1, keepdims=True)
    waited -= waited.mean()
    scale = np.sqrt((apart**2).sum(axis=1) * (waited**2).sum())
    found[rows] = (apart * waited).sum(axis=1) >= _TOGETHER * np.fmax(scale, _LEAST)
    return found


def _exchanges(inputs: DetectorInput, claims: Floats) -> Mask:
    """[ports]: rails that send about as much as they receive while they receive a share of line
    rate `claims` [ports] or more."""
    rows = np.flatnonzero(inputs.structure.is_rail)
    received = inputs.received_filled.T[:, rows]
    is_full = received >= claims[rows].astype(np.float32)
    sends, gets = ((each * is_full).sum(axis=0) for each in (inputs.sent.T[:, rows], received))
    found: Mask = np.zeros(len(claims), np.bool_)
    found[rows] = (gets > 0) & (sends >= np.float32(_EXCHANGES) * gets)
    return found


def _unmatched_rails(inputs: DetectorInput, claims: Floats, counts: Mask) -> Mask:
    """[rails + 1]: rails on which more receivers are full than senders send at line rate, in half
    of the ticks in which any receiver is; of the ports that count [ports]. The last one is for
    ports that are no rail."""
    rail, rows = inputs.structure.rail, np.flatnonzero(inputs.structure.is_rail & counts)
    rails = int(rail.max(initial=0)) + 2
    receivers, senders = (
        np.stack([np.bincount(rail[rows[holds]], minlength=rails) for holds in by_tick])
        for by_tick in (
            inputs.received_filled.T[:, rows] >= claims[rows].astype(np.float32),
            inputs.sent.T[:, rows] >= np.float32(SLOWED_BELOW),
        )
    )
    any_full = receivers.any(axis=0)
    unmatched: Mask = 2 * (receivers > senders).sum(axis=0) >= (receivers > 0).sum(axis=0)
    return unmatched & any_full


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
