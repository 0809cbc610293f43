"""Signs of a queue at every rail, in proportion to what it sent or received.

A few marks are part of every healthy fabric: each burst begins with some, and a loaded NIC has
tens to hundreds a second. So marks and CNPs are counted per gigabit, pause as a share of time, and
each is compared with what the quieter quarter of the busy rails has at the same moment.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput, total_of
from fabmon.analysis.fabric_structure import Mask
from fabmon.analysis.median import quantile
from fabmon.analysis.thresholds import Share
from fabmon.fabric.snapshot import Floats

BUSY_UTIL = 0.03
"""Mean share of line rate, 0 to 1, from which on a rail is busy: too little is
sent below it to count events per gigabit."""

_QUIET_SHARE = 0.25
"""The quantile of the busy rails that is their usual level: most rails have no queue."""

_MIN_RAILS = 8
"""Busy rails below which there is no usual level: two of four may well share the queue."""

_OF_FEW = 5.0
"""Without a usual level, the minimum is so many times higher."""

_ALWAYS = 0.3
"""A rail that waits for this share of the time is slowed, however many others are."""

ORDINARY = 0.06
"""Share of all time, 0 to 1, without credits or paused, up to which a port is not slowed: one that
sends little may wait for as much of the time with traffic as a queue makes."""


class QueueThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [queue]: events per gigabit (10^9 bits), a share of time, and a ratio."""

    cnps_per_gbit: float
    marks_per_gbit: float
    drops_per_gbit: float
    waiting: Share
    rise: float


@dataclass(frozen=True, slots=True)
class QueueSignals:
    """Of each port over the last ten ticks, all [ports]; CNPs and marks are 0 for ports that are
    no busy rail.

    `cnps` are CNPs handled per gigabit sent, `marks` ECN marks received (or CNPs sent, where marks
    are not counted) per gigabit received, `waiting` is the share of the time with traffic, 0 to 1,
    in which a port was paused or had no credits: 1 - rate / line rate of a sender that they slow.
    `of_all_time` is the same as a share of all time, 0 to 1.
    `sends` are the rails that send enough to be judged, `slowed` those whose CNPs or waiting are
    raised as senders, `marked` those whose marks are raised as receivers.
    """

    cnps: Floats
    marks: Floats
    waiting: Floats
    of_all_time: Floats
    sends: Mask
    slowed: Mask
    marked: Mask


def queue_signals(inputs: DetectorInput, t: QueueThresholds) -> QueueSignals:
    """The signals of a tick, computed once."""
    return inputs.once(_queue_signals, t)


def _queue_signals(inputs: DetectorInput, t: QueueThresholds) -> QueueSignals:
    rail = inputs.structure.is_rail
    sent, received = inputs.total("tx_bps"), inputs.total("rx_bps")
    lines = inputs.snapshot.line_rate_bps
    line = np.where(np.isnan(lines), np.float32(np.inf), lines)
    sends = rail & (sent / TICKS > BUSY_UTIL * line)
    receives = rail & (received / TICKS > BUSY_UTIL * line)
    waits = total_of(inputs.window("pause_rx"), inputs.window("stall")) / np.float32(TICKS)
    # What a port sends takes this share of the time; it waits for the rest of an exchange.
    waiting = waits / np.fmax(waits + inputs.mean_sent, np.float32(BUSY_UTIL))
    cnps = per_gbit(inputs.total("cnp"), sent, sends)
    marks = per_gbit(inputs.total("ecn"), received, receives)
    acked = per_gbit(inputs.total("cnp_sent"), received, receives)
    slowed = _raised(cnps, sends, t.cnps_per_gbit, t.rise)
    waits_much = rail & (waiting > t.waiting)
    by_waiting = _raised(waiting, sends | waits_much, t.waiting, t.rise)
    slowed |= (by_waiting | (rail & (waiting >= _ALWAYS))) & (waits >= ORDINARY)
    marked = _raised(marks, receives, t.marks_per_gbit, t.rise)
    marked |= _raised(acked, receives, t.cnps_per_gbit, t.rise)
    return QueueSignals(cnps, np.fmax(marks, acked), waiting, waits, sends, slowed, marked)


def per_gbit(events: Floats, bps: Floats, counts: Mask) -> Floats:
    """[ports]: events per gigabit, from the totals of both over the same ticks; 0 for ports that do
    not count."""
    gbit = bps / np.float32(1e9)
    share: Floats = np.where(counts, events / np.fmax(gbit, np.float32(1e-6)), 0)
    return share.astype(np.float32, copy=False)


def _raised(level: Floats, counts: Mask, least: float, rise: float) -> Mask:
    """[ports]: whether a level is above a minimum and above `rise` times the usual one."""
    raised: Mask = counts & (level >= raised_from(level[counts], least, rise))
    return raised


def raised_from(levels: Floats, least: float, rise: float) -> float:
    """The level from which on one of some ports' levels is raised: a minimum, higher where there
    are too few ports, and `rise` times the usual one."""
    usual = usual_level(levels)
    return _OF_FEW * least if usual is None else max(least, rise * usual)


def usual_level(levels: Floats) -> float | None:
    """What the quieter quarter of some ports has at most; None of too few ports."""
    if len(levels) < _MIN_RAILS:
        return None
    return quantile(levels, _QUIET_SHARE)
