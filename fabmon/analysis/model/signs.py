"""Signs of a queue: what each counter that exists says about one, as log-odds.

There is one rule. A level (events in proportion to traffic, or a share of time) is compared with
`rise` times the median of the busy ports of its kind in this fabric now, of own queues with less
where these hardly differ, at least with what no healthy fabric has; the logarithm of their ratio,
times a slope, is the sign. A counter of switches that no port of the fabric moves says nothing, nor
does one that is absent: that is not calm. A NIC that counts CNPs and has none is, but where ports
are paused and no NIC has any: without DCQCN.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput, total_of, without_nan
from fabmon.analysis.evidence.flow_control import time_waited
from fabmon.analysis.evidence.usual_level import usual_level
from fabmon.analysis.fabric_structure import NONE, Mask
from fabmon.analysis.median import median
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.snapshot import Floats


@dataclass(frozen=True, slots=True)
class Signs:
    """Log-odds of a queue of each port, all [ports]; NaN where no counter says anything.

    `own`: the port's own queue marks or drops. `sends`: it is slowed as a sender (CNPs handled,
    paused, without credits). `receives`: what arrives was marked. `waits`: it is paused or has no
    credits, `waited` for what share of time. `vanishes` [nodes]: packets enter the switch and do
    not leave it.
    """

    own: Floats
    sends: Floats
    receives: Floats
    waits: Floats
    waited: Floats
    vanishes: Floats

    def of_ends(self, is_inward: bool) -> Floats:
        """Those of the NICs below a link into their switch, or out of it."""
        return self.receives if is_inward else self.sends


class Gauge:
    """Compares levels of the same kind of ports, over the last ticks."""

    def __init__(self, inputs: DetectorInput, t: ModelThresholds) -> None:
        self._inputs, self._t = inputs, t
        lines = inputs.snapshot.line_rate_bps
        line = np.where(np.isfinite(lines), lines, np.float32(np.inf))
        self._bits: dict[str, Floats] = {}
        self._busy: dict[str, Mask] = {}
        for column in ("tx_bps", "rx_bps"):
            bits = total_of(inputs.filled(column)[:, -t.ticks :])
            self._bits[column] = bits
            self._busy[column] = bits > t.busy * t.ticks * line

    def per_gbit(
        self, column: str, bits: str, kind: Mask, floor: float, most: float, is_own: bool = False
    ) -> Floats:
        """[ports] the sign of events in proportion to traffic."""
        return self.signs(self.levels(column, bits, kind), floor, most, is_own)

    def levels(self, column: str, bits: str, kind: Mask) -> Floats:
        """[ports] events per gigabit of busy ports of a kind; NaN of others."""
        inputs = self._inputs
        level: Floats = np.full(len(kind), np.nan, np.float32)
        rows = np.flatnonzero(kind & self._busy[bits])
        is_nic = len(rows) and bool(inputs.structure.is_rail[rows[0]])
        # A switch that counts nothing may count nowhere; a NIC that has the counter uses it.
        if not len(rows) or not (is_nic or inputs.total(column).any()):
            return level
        window = inputs.window(column)[rows, -self._t.ticks :]
        known = np.isfinite(window).any(axis=1)
        events = without_nan(window[known]).sum(axis=1)
        rows = rows[known]
        level[rows] = events / (self._bits[bits][rows] / np.float32(1e9))
        return level

    def signs(self, level: Floats, floor: float, most: float, is_own: bool = False) -> Floats:
        """The signs of levels of one kind, 0 between what is calm and what is raised; NaN where
        there is none. `is_own`: of a port's own queue, where ports differ less than NICs do."""
        t, raised = self._t, floor
        known = level[np.isfinite(level)]
        usual = usual_level(known)
        if usual is not None:
            # How far ports without a queue are apart, those of the lower half show.
            apart = max(1 + t.apart, usual / max(median(known[known <= usual]), 1e-6))
            above = min(t.rise, apart**t.rise) if is_own and usual > floor else t.rise
            # Where most ports show more than any healthy fabric has, most have a queue.
            raised = min(max(floor, above * usual), most)
        level = np.maximum(level, np.float32(1e-6))
        odds = np.maximum(np.log(level / raised), 0) + np.minimum(np.log(level / floor), 0)
        sign: Floats = np.clip(t.slope * odds, -t.clip, t.clip).astype(np.float32)
        return sign


def signs(inputs: DetectorInput, t: ModelThresholds) -> Signs:
    """The signs of a tick, computed once."""
    return inputs.once(_signs, t)


def _signs(inputs: DetectorInput, t: ModelThresholds) -> Signs:
    structure = inputs.structure
    gauge = Gauge(inputs, t)
    between = structure.is_switch & ~structure.is_edge
    marks, drops = (
        np.fmax(
            gauge.per_gbit(column, "tx_bps", between, floor, most, is_own=True),
            gauge.per_gbit(column, "tx_bps", structure.is_edge, floor, most, is_own=True),
        )
        for column, floor, most in (
            ("ecn", t.marks_per_gbit, t.cap * t.marks_per_gbit),
            ("tx_drops", t.rare_per_gbit, np.inf),  # TCP is used to losing packets.
        )
    )
    rail = structure.is_rail
    waited = time_waited(inputs, t.ticks)
    waits = _waiting(inputs, waited, t, gauge)
    cnps = gauge.per_gbit("cnp", "tx_bps", rail, t.rare_per_gbit, t.cap * t.rare_per_gbit)
    marked = gauge.per_gbit("ecn", "rx_bps", rail, t.marks_per_gbit, t.cap * t.marks_per_gbit)
    answered = gauge.per_gbit("cnp_sent", "rx_bps", rail, t.rare_per_gbit, t.cap * t.rare_per_gbit)
    if (waits > 0).any() and not inputs.total("cnp").any():
        # Pause without a single CNP: DCQCN is not used, so none is not calm.
        marks, cnps, marked, answered = (
            np.where(of > 0, of, np.nan) for of in (marks, cnps, marked, answered)
        )
    return Signs(
        own=np.fmax(marks, drops),
        sends=np.fmax(cnps, np.where(rail, waits, np.float32(np.nan))),
        receives=np.fmax(marked, answered),
        waits=waits,
        waited=waited,
        vanishes=_vanishing(inputs, t),
    )


@dataclass(frozen=True, slots=True)
class HostSigns:
    """What NICs alone show of a queue, beside the usual level of all of them, [ports].

    `sends`, `receives` and `waits` are as in `Signs`, NaN where a port is idle or counts nothing;
    `cnps` handled and `marks` received are per gigabit, `waiting` is the share of the time in which
    a NIC sends or waits, 0 to 1.
    """

    sends: Floats
    receives: Floats
    waits: Floats
    cnps: Floats
    marks: Floats
    waiting: Floats


def host_signs(inputs: DetectorInput, t: ModelThresholds) -> HostSigns:
    """Those of a tick, computed once. However many all NICs have, only more than most is a sign;
    but where most get more marks than any background has, all are slowed."""
    return inputs.once(_host_signs, t)


def _host_signs(inputs: DetectorInput, t: ModelThresholds) -> HostSigns:
    rail, gauge = inputs.structure.is_rail, Gauge(inputs, t)
    marks, answers = (gauge.levels(column, "rx_bps", rail) for column in ("ecn", "cnp_sent"))
    cnps = gauge.levels("cnp", "tx_bps", rail)
    known = marks[np.isfinite(marks)]
    are_all = len(known) >= t.several and median(known) >= t.rise * t.cap * t.marks_per_gbit
    most = (t.rare_per_gbit, t.marks_per_gbit) if are_all else (np.inf, np.inf)
    seen = signs(inputs, t)
    waits = np.where(rail, seen.waits, np.float32(np.nan))
    sent = inputs.sent[:, -t.ticks :].mean(axis=1)
    waiting = seen.waited / np.fmax(seen.waited + sent, np.float32(t.busy))
    return HostSigns(
        sends=np.fmax(gauge.signs(cnps, t.rare_per_gbit, most[0]), waits),
        receives=np.fmax(
            gauge.signs(marks, t.marks_per_gbit, most[1]),
            gauge.signs(answers, t.rare_per_gbit, most[0]),
        ),
        waits=waits,
        cnps=cnps,
        marks=np.fmax(marks, answers),
        waiting=waiting,
    )


def _waiting(inputs: DetectorInput, waited: Floats, t: ModelThresholds, gauge: Gauge) -> Floats:
    """[ports] the sign of waiting: as a share of the time in which a port sends or waits."""
    sign: Floats = np.full(len(waited), np.nan, np.float32)
    waits = without_nan(waited)
    if not (waits > 0).any():
        return sign  # A counter that nobody moves may not be supported.
    has_credits = np.isfinite(inputs.window("stall")[:, -t.ticks :]).any(axis=1)
    sent = inputs.sent[:, -t.ticks :].mean(axis=1)
    active = np.isfinite(waited) & (waits + sent > t.busy)
    share = waits / np.fmax(waits + sent, np.float32(t.busy))
    for kind in (inputs.structure.is_rail, ~inputs.structure.is_rail):
        of_kind = np.where(active & kind, share, np.float32(np.nan))
        sign = np.fmax(sign, gauge.signs(of_kind, t.waiting, t.cap * t.waiting))
    sign[(sign > 0) & (waits < t.busy)] = 0
    # Pause that does not come says nothing: DCQCN keeps queues short of it.
    sign[~has_credits & (sign < 0)] = np.nan
    return sign


def _vanishing(inputs: DetectorInput, t: ModelThresholds) -> Floats:
    """[nodes] log-odds that a switch drops much of what enters it, by the bytes of all its ports;
    0 where these are not all counted. What enters by one port and leaves by several does the
    opposite."""
    structure = inputs.structure
    nodes = len(structure.fabric.nodes)
    if inputs.has_rdma_counters[structure.is_rail].any():
        return np.zeros(nodes, np.float32)  # Lossless: what is dropped is counted.
    own = structure.is_switch & (structure.node != NONE)
    node = structure.node[own]
    enters, leaves = (inputs.window(each)[own, -t.ticks :] for each in ("rx_bps", "tx_bps"))
    # Ticks that all ports of a switch have: the newest may not be there yet.
    missing = np.isnan(enters) | np.isnan(leaves)
    whole = np.array([np.bincount(node, weights=of, minlength=nodes) == 0 for of in missing.T])
    chosen = whole[:, node].T
    enters, leaves = (np.where(chosen, each, 0) for each in (enters, leaves))
    entered, left = (
        np.bincount(node, weights=each.sum(axis=1), minlength=nodes) for each in (enters, leaves)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(entered > 0, 1 - left / entered, 0)
        odds = t.slope * np.log(np.fmax(share, 1e-6) / t.takes_part)
    enough = whole.sum(axis=0) >= 2
    return np.where(enough & (share > 0), np.clip(odds, 0, t.clip), 0).astype(np.float32)
