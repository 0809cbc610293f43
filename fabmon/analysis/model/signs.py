"""Signs of a queue: what each counter that exists says about one, as log-odds.

There is one rule. A level (events in proportion to traffic, or a share of time) is compared with
`rise` times what the quieter quarter of the busy ports of its kind has in this fabric now, at least
with what no healthy fabric has; the logarithm of their ratio, times a slope, is the sign. A counter
of switches that no port of the fabric moves says nothing, nor does one that is absent: that is not
calm. A NIC that counts CNPs and has none is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import NONE, Mask
from fabmon.analysis.median import quantile
from fabmon.analysis.model.thresholds import ModelThresholds
from fabmon.fabric.snapshot import Floats

_QUIET_SHARE, _MIN_PORTS = 0.25, 8
"""The quantile of the busy ports of a kind that is their usual level, and so many ports that have
one: two of four may well share a queue."""

SIGN_TICKS = 3
"""Ticks that a sign is of: counters that are read a moment apart differ in single ones."""


@dataclass(frozen=True, slots=True)
class Signs:
    """Log-odds of a queue of each port, all [ports]; NaN where no counter says anything.

    `own`: the port's own queue marks or drops. `sends`: it is slowed as a sender (CNPs handled,
    paused, without credits). `receives`: what arrives was marked. `waits`: it is paused or has no
    credits. `vanishes` [nodes]: packets enter the switch and do not leave it.
    """

    own: Floats
    sends: Floats
    receives: Floats
    waits: Floats
    vanishes: Floats


class Gauge:
    """Compares levels of the same kind of ports, over the last ticks."""

    def __init__(self, inputs: DetectorInput, t: ModelThresholds) -> None:
        self._inputs, self._t = inputs, t
        lines = inputs.snapshot.line_rate_bps
        self._line = np.where(np.isfinite(lines), lines, np.float32(np.inf))

    def per_gbit(
        self, column: str, bits: str, kind: Mask, floor: float, most: float = np.inf
    ) -> Floats:
        """[ports] the sign of events in proportion to traffic."""
        window = self._inputs.window(column)
        bps = self._inputs.filled(bits)[:, -SIGN_TICKS:]
        busy = kind & (bps.mean(axis=1) > self._t.busy * self._line)
        busy &= np.isfinite(window[:, -SIGN_TICKS:]).any(axis=1)
        sign: Floats = np.full(len(kind), np.nan, np.float32)
        is_nic = bool((kind & self._inputs.structure.is_rail).any())
        # A switch that counts nothing may count nowhere; a NIC that has the counter uses it.
        if not busy.any() or not (is_nic or self._inputs.total(column).any()):
            return sign
        events = np.fmax(window[busy, -SIGN_TICKS:], 0)
        level = np.nansum(events, axis=1) / (bps[busy].sum(axis=1) / np.float32(1e9))
        sign[busy] = self.log_odds(level, floor, most)
        return sign

    def log_odds(self, level: Floats, floor: float, most: float) -> Floats:
        """The sign of some levels of one kind; 0 between what is calm and what is raised."""
        t, raised = self._t, floor
        if len(level) >= _MIN_PORTS:
            # Where most ports show more than any healthy fabric has, most have a queue.
            raised = min(max(floor, t.rise * quantile(level, _QUIET_SHARE)), most)
        level = np.fmax(level, np.float32(1e-6))
        odds = np.fmax(np.log(level / raised), 0) + np.fmin(np.log(level / floor), 0)
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
            gauge.per_gbit(column, "tx_bps", between, floor, most),
            gauge.per_gbit(column, "tx_bps", structure.is_edge, floor, most),
        )
        for column, floor, most in (
            ("ecn", t.marks_per_gbit, t.cap * t.marks_per_gbit),
            ("tx_drops", t.drops_per_gbit, np.inf),  # TCP is used to losing packets.
        )
    )
    rail = structure.is_rail
    waits = _waiting(inputs, t, gauge)
    cnps = gauge.per_gbit("cnp", "tx_bps", rail, t.cnps_per_gbit, t.cap * t.cnps_per_gbit)
    marked = gauge.per_gbit("ecn", "rx_bps", rail, t.marks_per_gbit, t.cap * t.marks_per_gbit)
    answered = gauge.per_gbit("cnp_sent", "rx_bps", rail, t.cnps_per_gbit, t.cap * t.cnps_per_gbit)
    return Signs(
        own=np.fmax(marks, drops),
        sends=np.fmax(cnps, np.where(rail, waits, np.float32(np.nan))),
        receives=np.fmax(marked, answered),
        waits=waits,
        vanishes=_vanishing(inputs, t),
    )


def _waiting(inputs: DetectorInput, t: ModelThresholds, gauge: Gauge) -> Floats:
    """[ports] the sign of waiting: as a share of the time in which a port sends or waits."""
    paused, stalled = (inputs.window(each)[:, -SIGN_TICKS:] for each in ("pause_rx", "stall"))
    sign: Floats = np.full(len(paused), np.nan, np.float32)
    both = np.fmax(paused, stalled)
    known = np.isfinite(both).any(axis=1)
    if not known.any():
        return sign
    waits = np.nansum(both, axis=1) / np.float32(SIGN_TICKS)
    if not (waits > 0).any():
        return sign
    sent = inputs.sent[:, -SIGN_TICKS:].mean(axis=1)
    active = known & (waits + sent > t.busy)
    share = waits / np.fmax(waits + sent, np.float32(t.busy))
    has_credits = np.isfinite(stalled).any(axis=1)
    for kind in (inputs.structure.is_rail, ~inputs.structure.is_rail):
        chosen = active & kind
        if chosen.any():
            sign[chosen] = gauge.log_odds(share[chosen], t.waiting, t.cap * t.waiting)
    # Pause that does not come says nothing: DCQCN keeps queues short of it.
    sign[~has_credits & (sign < 0)] = np.nan
    return sign


def _vanishing(inputs: DetectorInput, t: ModelThresholds) -> Floats:
    """[nodes] log-odds that a switch drops much of what enters it, by the bytes of all its ports;
    0 where these are not all counted. What enters by one port and leaves by several does the
    opposite."""
    structure = inputs.structure
    nodes = len(structure.fabric.nodes)
    found: Floats = np.zeros(nodes, np.float32)
    if inputs.has_rdma_counters[structure.is_rail].any():
        return found  # Lossless: what is dropped is counted.
    own = structure.is_switch & (structure.node != NONE)
    node = structure.node[own]
    enters, leaves = (inputs.window(each)[own] for each in ("rx_bps", "tx_bps"))
    # Ticks that all ports of a switch have: the newest may not be there yet.
    missing = np.isnan(enters) | np.isnan(leaves)
    whole = np.array([np.bincount(node, weights=of, minlength=nodes) == 0 for of in missing.T])
    ticks = np.cumsum(whole[::-1], axis=0)[::-1]
    counts = whole & (ticks <= SIGN_TICKS)
    chosen = counts[:, node].T
    enters, leaves = (np.where(chosen, each, 0) for each in (enters, leaves))
    entered, left = (
        np.bincount(node, weights=each.sum(axis=1), minlength=nodes) for each in (enters, leaves)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(entered > 0, 1 - left / entered, 0)
        odds = t.slope * np.log(np.fmax(share, 1e-6) / t.vanished)
    enough = counts.sum(axis=0) >= 2
    found[:] = np.where(enough & (share > 0), np.clip(odds, 0, t.clip), 0)
    return found
