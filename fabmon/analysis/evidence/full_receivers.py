"""Receivers that are full and that several senders share, for none has them for itself.

A receiver that is as full as one NIC sends is that NIC's. Where as many NICs of a rail send at line
rate as receive, these are pairs. Else those that send as much as they receive are hosts of rings
and have a sender each; of the others each gets the sender whose traffic is closest to its own,
first those that least show a queue, if there are more such senders than hosts of rings that receive
as much; what is left has several senders.
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
    has_values,
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

SENDS = 0.02
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
    nobody = SendingNics(
        np.empty(0, np.intp), np.empty((0, WINDOW_TICKS), np.float32), np.empty(0, np.bool_)
    )
    most, rail = without_nan(np.fmax.reduce(inputs.received, axis=1)), structure.is_rail
    may = rail & (most >= t.marked_util)
    if not may.any():
        return [], nobody
    signals = queue_signals(inputs, queue)
    least = np.where(inputs.has_rdma_counters, t.full_util, t.full_util_tcp)
    least[signals.marked & (signals.marks >= _MANY * queue.marks_per_gbit)] = t.marked_util
    least[_filled_by_bursts(inputs, signals, np.flatnonzero(may), t.marked_util)] = t.marked_util
    # Receivers that one sender fills are looked at as well: its traffic is not another's.
    claims = np.fmin(least, SLOWED_BELOW)
    full = rail & (most >= least) & ~pause_graph(inputs).pauses
    if not full.any():
        return [], nobody
    unmatched = _unmatched_rails(inputs, claims)
    unmatched[structure.rail[full & signals.marked]] = True
    rows = np.flatnonzero(rail & (most >= claims) & unmatched[structure.rail])
    exchanges = _exchanges(inputs, rows, claims[rows])
    in_rings, rows = rows[exchanges], rows[~exchanges]
    if not full[rows].any():
        return [], nobody
    rows = rows[np.lexsort((-signals.marks[rows], ~full[rows]))[:_MAX_RECEIVERS]]
    nics = np.flatnonzero(rail & (inputs.peak_sent > SENDS))
    sent = inputs.leaving(nics, WINDOW_TICKS)
    np.fmax(sent, np.float32(0), out=sent)
    of_rings = without_nan(inputs.entering(in_rings, WINDOW_TICKS))
    received, answered = (
        without_nan(of(rows, WINDOW_TICKS)) for of in (inputs.entering, inputs.leaving)
    )
    known = [_connected(inputs, row, nics) for row in rows.tolist()]
    candidates: list[Rows] = []
    apart = np.full(len(rows), np.inf)
    for place, row in enumerate(rows.tolist()):
        ticks = last_ticks(received[place] >= claims[row] * lines[row])
        may = unmatched[structure.rail[nics]] & (structure.node[nics] != structure.node[row])
        if signals.marked[row]:
            may &= signals.slowed[nics]  # Marks slow a sender, and none here sends at line rate.
        connected = known[place]
        if connected is not None:
            brought = sent[connected][:, ticks].sum()
            if brought < ACCOUNTED * received[place, ticks].sum():
                known[place] = None  # There is other traffic than that of queue pairs.
            else:
                may &= connected
        senders, differ = closest_senders(sent, received[place], ticks, may)
        if len(senders):
            apart[place] = differ[0]
            hosts = np.ones(len(of_rings), np.bool_)
            have_one, _ = closest_senders(of_rings, received[place], ticks, hosts)
            senders = senders if len(senders) > len(have_one) else senders[:0]
        candidates.append(senders)
    free = np.ones(len(nics), np.bool_)
    several = []
    for place in np.lexsort((apart, signals.marks[rows])).tolist():
        senders = candidates[place][free[candidates[place]]]
        if len(senders):
            free[senders[0]] = False
            continue
        row, gets = int(rows[place]), received[place]
        is_full = gets >= least[row] * lines[row]
        ticks = last_ticks(is_full)
        # Also longer ago than the rates of the last ticks tell.
        is_answered = answered[place, ticks].sum() >= _EXCHANGES * gets[ticks].sum()
        if full[row] and is_full.sum() >= t.full_ticks and not is_answered:
            is_pinned = bool(is_full[-TICKS:].all())
            several.append(Receiver(row, ticks, gets[ticks], is_pinned, known[place]))
    return several, SendingNics(nics, sent, free)


def _filled_by_bursts(
    inputs: DetectorInput, signals: QueueSignals, rows: Rows, least_util: float
) -> Rows:
    """Those of some receivers that have peaks together with which slowed senders wait for credits
    or are paused. Bursts of a second fill no whole seconds; where marks are counted, these show
    them."""
    received = without_nan(rows_of(inputs.received, rows))
    has_peaks = count_ticks(received >= np.float32(least_util)) >= _PEAKS
    has_peaks &= ~has_values(rows_of(inputs.window("ecn"), rows))
    rows, received = rows[has_peaks], received[has_peaks]
    senders = np.flatnonzero(signals.slowed)
    if not len(rows) or not len(senders):
        return rows[:0]
    lines = without_nan(inputs.snapshot.line_rate_bps[senders])
    waits = np.fmax(*(rows_of(inputs.filled(each), senders) for each in ("pause_rx", "stall")))
    waited = (waits * lines[:, None]).sum(axis=0)
    apart = received - received.mean(axis=1, keepdims=True)
    waited -= waited.mean()
    scale = np.sqrt((apart**2).sum(axis=1) * (waited**2).sum())
    together: Mask = (apart * waited).sum(axis=1) >= _TOGETHER * np.fmax(scale, _LEAST)
    found: Rows = rows[together]
    return found


def _exchanges(inputs: DetectorInput, rows: Rows, claims: Floats) -> Mask:
    """[rows]: whether ports send about as much as they receive while they receive a share of line
    rate `claims` [rows] or more."""
    received, sent = (rows_of(of, rows) for of in (inputs.received_filled, inputs.sent))
    is_full = received >= claims.astype(np.float32)[:, None]
    sends, gets = ((each * is_full).sum(axis=1) for each in (sent, received))
    found: Mask = sends >= np.float32(_EXCHANGES) * gets
    return found


def _unmatched_rails(inputs: DetectorInput, claims: Floats) -> Mask:
    """[rails + 1]: rails on which more receivers are full than senders send at line rate, in half
    of the ticks in which any receiver is. The last one is for ports that are no rail."""
    rail, rows = inputs.structure.rail, np.flatnonzero(inputs.structure.is_rail)
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
