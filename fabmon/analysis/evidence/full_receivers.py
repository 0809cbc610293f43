"""Receivers that are full and that several senders share, for none has them for itself.

A receiver that is as full as one NIC sends is that NIC's. Where as many NICs of a rail send at line
rate as receive, these are pairs, but for receivers that none of them fills. Else those that send as
much as they receive are hosts of rings and have a sender each; of the others each gets the sender
whose traffic is closest to its own, first those that least show a queue, if there are more such
senders than hosts of rings that receive as much; what is left has several senders.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from fabmon.analysis.evidence.link_queues import drops_before_hosts
from fabmon.analysis.evidence.pause_graph import pause_graph
from fabmon.analysis.evidence.queue_signals import QueueSignals, QueueThresholds, queue_signals
from fabmon.analysis.evidence.sharing import (
    ACCOUNTED,
    SLOWED_BELOW,
    closest_senders,
    last_ticks,
    with_neighbours,
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

_AS_MUCH, _MEANWHILE = 0.9, 0.4
"""What a receiver sends over what it receives, in all and while it is full, from which on it is
part of a ring or an all-to-all as well: something slows what it sends."""

_GETS_MORE, _OTHER, _AT_TIMES = 1.03, 0.15, 0.1
"""A receiver has more than one sender if it gets more than this many times what the NIC sends that
may fill it: the two are not read at once. A NIC that sends more than this share of line rate beyond
what a receiver gets (TCP sends some again), for more than this share of the ticks, sends elsewhere.
"""

_MORE_RECEIVE, _MORE_SEND, _PAIRS = 1, -1, 0
"""How the full receivers of a rail compare with the NICs of it that send at line rate: a surplus of
senders may send to another rail."""

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

    `is_pinned` says that it was full in all of the last ticks, in half of them over TCP, which
    slows down for a while when packets are dropped. `connected` [NICs that send] have connections
    to its host; None where that is not known.
    """

    row: int
    ticks: Mask
    bps: Floats
    is_pinned: bool
    connected: Mask | None


@dataclass(frozen=True, slots=True)
class SendingNics:
    """NICs that send: what they `sent`, bits/s [NICs, ticks] of as many of the last ticks as are
    compared, and whether they `are_free` [NICs]: no receiver has them as its only sender.
    `may_claim` [NICs] are those that may be the only sender of a receiver that is looked at."""

    rows: Rows
    sent: Floats
    are_free: Mask
    may_claim: Mask


_NOBODY = SendingNics(
    np.empty(0, np.intp),
    np.empty((0, WINDOW_TICKS), np.float32),
    np.empty(0, np.bool_),
    np.empty(0, np.bool_),
)


def shared_receivers(
    inputs: DetectorInput, t: IncastThresholds, queue: QueueThresholds
) -> tuple[list[Receiver], SendingNics]:
    """The full receivers that no sender has for itself, and the NICs that may send to them."""
    rail, signals = inputs.structure.rail, queue_signals(inputs, queue)
    most = without_nan(np.fmax.reduce(inputs.received, axis=1))
    full, least = _full_receivers(inputs, t, queue, most)
    nics = _NOBODY
    if not full.any():
        return [], nics
    # Receivers that one sender fills are looked at as well: its traffic is not another's.
    claims = np.fmin(least, SLOWED_BELOW)
    may_be_full = np.flatnonzero(inputs.structure.is_rail & (most >= claims))
    balance = _balance(inputs, may_be_full, claims)
    balance[rail[full & signals.marked]] = _MORE_RECEIVE
    is_paired = full[may_be_full] & (balance[rail[may_be_full]] == _PAIRS)
    rows = may_be_full[balance[rail[may_be_full]] == _MORE_RECEIVE]
    rows = np.append(rows, _without_pair(inputs, may_be_full[is_paired], claims))
    exchanges = _exchanges(inputs, rows, claims[rows])
    in_rings, rows = rows[exchanges], rows[~exchanges]
    if not full[rows].any():
        return [], nics
    rows = rows[np.lexsort((-signals.marks[rows], ~full[rows]))[:_MAX_RECEIVERS]]
    received, of_rings = (
        without_nan(inputs.entering(each, WINDOW_TICKS)) for each in (rows, in_rings)
    )
    fills, claimed_in = (
        [last_ticks(gets >= each) for gets, each in zip(received, of_line, strict=True)]
        for of_line in (of[rows] * inputs.snapshot.line_rate_bps[rows] for of in (least, claims))
    )
    compared = _ticks_since(fills, claimed_in)
    nics = _sending_nics(inputs, balance, compared)
    last = slice(-compared, None)
    claimed = [
        _claimed(inputs, signals, row, gets[last], ticks[last], nics, of_rings[:, last])
        for row, gets, ticks in zip(rows.tolist(), received, claimed_in, strict=True)
    ]
    several = []
    # Those that least show a queue choose first.
    closest = np.array([each.differ[0] if len(each.differ) else np.inf for each in claimed])
    for place in np.lexsort((closest, signals.marks[rows])).tolist():
        row, own = int(rows[place]), claimed[place]
        senders = own.senders[nics.are_free[own.senders]]
        if len(senders):
            nics.are_free[senders[0]] = False
        elif full[row]:
            several.append(_receiver(inputs, t, row, least[row], received[place], own.connected))
    return [each for each in several if each is not None], nics


def _full_receivers(
    inputs: DetectorInput, t: IncastThresholds, queue: QueueThresholds, most: Floats
) -> tuple[Mask, Floats]:
    """[ports] each: whether a rail was full in some of the last ticks, in which it received at
    `most` a share of line rate, and the share from which on it is full."""
    rail, signals = inputs.structure.is_rail, queue_signals(inputs, queue)
    least = np.where(inputs.has_rdma_counters, t.full_util, t.full_util_tcp)
    may_be = rail & (most >= t.marked_util)
    if not may_be.any():
        return may_be, least
    least[signals.marked & (signals.marks >= _MANY * queue.marks_per_gbit)] = t.marked_util
    bursts = _filled_by_bursts(inputs, signals, np.flatnonzero(may_be), t.marked_util)
    least[bursts] = t.marked_util
    least[drops_before_hosts(inputs, queue)] = t.marked_util
    return rail & (most >= least) & ~pause_graph(inputs).pauses, least


def _ticks_since(fills: Sequence[Mask], claimed_in: Sequence[Mask]) -> int:
    """How many of the last ticks hold all those [WINDOW_TICKS] in which receivers are full, and
    those beside the ones in which they may have one sender."""
    first = WINDOW_TICKS - 1
    for is_full, is_claimed in zip(fills, claimed_in, strict=True):
        first = min(first, int(np.argmax(is_full)) if is_full.any() else first)
        first = min(first, int(np.argmax(is_claimed)) - 1 if is_claimed.any() else first)
    return WINDOW_TICKS - max(first, 0)


def _sending_nics(inputs: DetectorInput, balance: Rows, ticks: int) -> SendingNics:
    """The NICs that send, each free, but for those of rails all of whose senders have receivers."""
    structure = inputs.structure
    rows = np.flatnonzero(structure.is_rail & (inputs.peak_sent > SENDS))
    sent = inputs.leaving(rows, ticks)
    np.fmax(sent, np.float32(0), out=sent)
    may_claim = balance[structure.rail[rows]] != _PAIRS
    return SendingNics(rows, sent, np.ones(len(rows), np.bool_), may_claim)


def _without_pair(inputs: DetectorInput, rows: Rows, claims: Floats) -> Rows:
    """Those of some receivers that no NIC at its line rate fills while they are full, from a share
    of line rate `claims` [ports] on, and more NICs of their rail receive nearly at line rate than
    send at it.

    They get more than each of those that hardly ever send more than they get. These may take turns.
    The ticks beside those in which they are full count as well: not all are read at once.
    """
    if not len(rows):
        return rows
    structure, lines = inputs.structure, inputs.snapshot.line_rate_bps
    nics = np.flatnonzero(structure.is_rail & (inputs.peak_sent >= SLOWED_BELOW))
    sent = without_nan(inputs.leaving(nics, WINDOW_TICKS))
    found = []
    for row, gets in zip(rows.tolist(), inputs.entering(rows, WINDOW_TICKS), strict=True):
        gets = without_nan(gets)
        ticks = last_ticks(gets >= claims[row] * lines[row])
        goes_elsewhere = (sent > gets + _OTHER * lines[row]).mean(axis=1) > _AT_TIMES
        near = with_neighbours(ticks)
        alone = sent[~goes_elsewhere][:, near].max(axis=0, initial=0)
        is_filled = alone.sum() * _GETS_MORE >= gets[near].sum()
        rail = structure.rails[structure.rail[row]]
        line = lines[rail][:, None]
        received, given = (
            without_nan(of(rail, WINDOW_TICKS)[:, ticks] / line)
            for of in (inputs.entering, inputs.leaving)
        )
        receive = (received >= SLOWED_BELOW - _OTHER).sum(axis=0)
        more_receive = receive > (given >= SLOWED_BELOW).sum(axis=0)
        found.append(not is_filled and 2 * more_receive.sum() > ticks.sum())
    return rows[np.array(found, np.bool_)]


@dataclass(frozen=True, slots=True)
class _Claimed:
    """Places of the NICs that may fill a receiver alone, the closest first, and by what share each
    differs from it; and `connected` as of Receiver."""

    senders: Rows
    differ: Floats
    connected: Mask | None


def _claimed(
    inputs: DetectorInput,
    signals: QueueSignals,
    row: int,
    received: Floats,
    ticks: Mask,
    nics: SendingNics,
    of_rings: Floats,
) -> _Claimed:
    """The NICs that may fill a receiver alone that gets `received` bits/s [ticks], judged in some
    `ticks`; none where hosts of rings, which have a sender each and receive `of_rings` bits/s
    [hosts, ticks], account for all that are as fast."""
    structure = inputs.structure
    may = nics.may_claim & (structure.node[nics.rows] != structure.node[row])
    if signals.marked[row]:
        may &= signals.slowed[nics.rows]  # Marks slow a sender, and none here sends at line rate.
    connected = _connected(inputs, row, nics.rows)
    if connected is not None:
        if nics.sent[connected][:, ticks].sum() < ACCOUNTED * received[ticks].sum():
            connected = None  # There is other traffic than that of queue pairs.
        else:
            may &= connected
    senders, differ = closest_senders(nics.sent, received, ticks, may)
    everywhere = np.ones(len(of_rings), np.bool_)
    have_one, _ = closest_senders(of_rings, received, ticks, everywhere)
    if len(senders) <= len(have_one):
        senders = senders[:0]
    return _Claimed(senders, differ, connected)


def _receiver(
    inputs: DetectorInput,
    t: IncastThresholds,
    row: int,
    least_util: float,
    gets: Floats,
    connected: Mask | None,
) -> Receiver | None:
    """A receiver that gets so many bits/s [WINDOW_TICKS], with the ticks in which it was full; None
    where these are too few, or it sends as much as it receives in them."""
    answers = without_nan(inputs.leaving(np.array([row]), WINDOW_TICKS)[0])
    is_full = gets >= least_util * inputs.snapshot.line_rate_bps[row]
    ticks = last_ticks(is_full)
    # Also longer ago than the rates of the last ticks tell.
    meanwhile = float(answers[ticks].sum() / max(1.0, float(gets[ticks].sum())))
    answers_all = answers.sum() >= _AS_MUCH * gets.sum() and meanwhile >= _MEANWHILE
    if is_full.sum() < t.full_ticks or meanwhile >= _EXCHANGES or answers_all:
        return None
    least_ticks = TICKS if inputs.has_rdma_counters[row] else TICKS // 2
    is_pinned = int(is_full[-TICKS:].sum()) >= least_ticks
    return Receiver(row, ticks, gets[ticks], is_pinned, connected)


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


def _balance(inputs: DetectorInput, may_be_full: Rows, claims: Floats) -> Rows:
    """[rails + 1]: whether on a rail more receivers are full than senders send at line rate, fewer,
    or as many, in half of the ticks in which any receiver is. The last one is for ports that are no
    rail. A receiver is full from a share of line rate `claims` [ports] on; the others than
    `may_be_full` are in no tick."""
    structure = inputs.structure
    rail = structure.rail
    sends = structure.is_rail & (inputs.peak_sent >= SLOWED_BELOW)
    balance = np.full(max(structure.rails, default=0) + 2, _PAIRS)
    balance[rail[sends]] = _MORE_SEND
    for each in np.unique(rail[may_be_full]).tolist():
        rows = structure.rails[each]
        gets, sent = (rows_of(of, rows).T for of in (inputs.received_filled, inputs.sent))
        receivers = (gets >= claims[rows].astype(np.float32)).sum(axis=1)
        senders = (sent >= np.float32(SLOWED_BELOW)).sum(axis=1)
        any_full = (receivers > 0).sum()
        if any_full > 0 and 2 * (receivers > senders).sum() >= any_full:
            balance[each] = _MORE_RECEIVE
        elif not (senders > receivers).any():
            balance[each] = _PAIRS
    return balance


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
