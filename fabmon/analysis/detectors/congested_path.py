"""Senders are slowed by a queue between switches that are not watched.

Packets that cross such a queue are marked, their receivers send CNPs and their senders handle them;
without ECN the senders are paused or have no credits. Evidence adds up for each sender, as for the
links of the bottleneck model; where a receiver explains it (it is full, slower, pauses, or its PCIe
stalls) it does not. Which link it is, whether by hash, by too few links or by a slow one, hosts do
not show; nor does a receiver on InfiniBand that gives its switch no credits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import (
    WINDOW_TICKS,
    DetectorInput,
    has_values,
    total_of,
    without_nan,
)
from fabmon.analysis.evidence.flow_control import CREDITS, PAUSE
from fabmon.analysis.evidence.pause_graph import pause_graph
from fabmon.analysis.evidence.senders_place import senders_place
from fabmon.analysis.fabric_structure import NONE, FabricStructure, Mask, Rows
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.median import median
from fabmon.analysis.model.bottlenecks import BottleneckModel
from fabmon.analysis.model.signs import HostSigns, host_signs
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.tick import STALE_READS
from fabmon.fabric.wording import rounded_percent

CAUSE = Cause(
    name="congested_path",
    title="Congested path",
    meaning="senders are slowed between switches that are not watched: the link is not observable",
    severity=WARNING,
    rule=(
        "Evidence that a sender is slowed behind a switch that is not watched (CNPs, pause, missing"
        " credits, beside what most rails have) adds up as for an ECMP collision. CNPs count from"
        " model.several senders on, or from two with signs of twice model.veto; where most rails"
        " receive model.rise times model.cap times model.marks_per_gbit, all that have CNPs are"
        " slowed; one that reaches model.full_util in model.window seconds is not. A receiver"
        " explains marks if it is full (model.full_util), slower than its senders (model.nearly),"
        " pauses its switch, is behind a link that may hold its senders (the last one, or a watched"
        " one between switches), has PCIe stalls (model.some) or a flapping link: CNPs count"
        " only where receivers without these have model.half of all marks. Pause and missing"
        " credits do not count at all where one such receiver, not merely full or slower, is"
        " known, nor where full NICs and those that are not watched receive model.accounts of"
        " what these senders send, or slower ones explain as much of their waiting by the ratio"
        " of line rates. Its place is a leaf where all but model.some of the signs are behind it,"
        " else a host, a rail, or the paths between hosts."
    ),
    inputs=(
        "RDMA counters of the hosts, or pause; LLDP, a plan or neighbours, to know the leaf of each"
        " NIC"
    ),
    not_observable=(
        "The link, and the cause: a hash, too few links, a slow or damaged link and, on InfiniBand,"
        " a slow receiver look the same from hosts. Queues that slow all hosts equally with fewer"
        " marks"
    ),
    confidence=0.85,
    picture="paused_ports",
    advice=(
        "Watch the switches too (role=switch in the hosts file) to see which link it is, and"
        " whether by hash, by too few links or by a slow one."
    ),
    tables=("model",),
    traits=(Trait.NEEDS_TRAFFIC, Trait.MAKES_QUEUES, Trait.HAS_SENDERS),
)


class CongestedPaths:
    """Accumulates, for each sender behind unwatched switches, the evidence that it is slowed."""

    def __init__(self, model: BottleneckModel) -> None:
        self._model = model
        self._structure: FabricStructure | None = None
        self._sums: Floats = np.empty(0, np.float32)
        self._is_open: Mask = np.empty(0, np.bool_)
        self._down: Rows = np.empty(0, np.intp)
        self._subject = ""

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """At most one condition: the senders behind unwatched switches that are slowed."""
        structure, t = inputs.structure, self._model.t
        if self._structure is None or self._structure.ports is not structure.ports:
            self._sums = np.zeros(len(structure.peer), np.float32)
            self._is_open = np.zeros(len(structure.peer), np.bool_)
            self._down = np.full(len(structure.peer), -WINDOW_TICKS - 1, np.intp)
        self._structure = structure
        self._down[inputs.snapshot.up == 0] = inputs.snapshot.seq
        seen = host_signs(inputs, t)
        if not (seen.sends > 0).any() and not self._sums.any():
            return
        sends, receivers = self._unexplained(inputs, seen)
        step = np.clip(np.nan_to_num(sends, nan=-t.ends), -t.veto, t.clip)
        self._sums = np.clip(self._sums + step, 0, 2 * t.flags)
        self._is_open = self._sums >= np.where(self._is_open, t.ends, t.flags)
        senders = np.flatnonzero(self._is_open & structure.is_rail)
        if not len(senders):
            self._subject = ""
            return
        by_pause = bool((seen.waits[senders] > 0).mean() > 0.5)
        if by_pause or (len(senders) > 1 and len(receivers)):
            found = _condition(inputs, seen, senders, receivers, by_pause, self._subject, t)
            self._subject = found.subject
            yield found

    def _unexplained(self, inputs: DetectorInput, seen: HostSigns) -> tuple[Floats, Rows]:
        """[ports] the signs of senders that no receiver explains, NaN of those that send nothing or
        whose switch is watched; and the receivers with marks that are not explained."""
        t, nics, lines = self._model.t, inputs.structure.is_rail, inputs.snapshot.line_rate_bps
        sends = seen.sends.copy()
        # A NIC that sends at line rate is held by nobody, whatever its marks.
        at_line_rate = np.fmax.reduce(inputs.sent[:, -t.window :], axis=1) >= t.full_util
        sends[at_line_rate] = -t.veto
        sends[is_below_reporting_switches(inputs)] = np.nan
        slowed = sends > 0
        explained = self._last_hops(inputs)
        full = np.fmax.reduce(inputs.received[:, -t.window :], axis=1) >= t.full_util
        full &= nics
        waits = slowed & (seen.waits > 0)
        marked = slowed & ~waits
        slower = lines < t.nearly * median(lines[marked])
        marks, receive = without_nan(seen.marks), seen.receives > 0
        unexplained = receive & ~(explained | full | slower)
        least = t.half * max(float(marks[receive].sum()), 1e-9)
        if not marked.any() or float(marks[unexplained].sum()) < least:
            sends[marked] = -t.veto
            unexplained[:] = False
        if waits.any():
            if explained.any() or _may_wait_elsewhere(
                inputs, seen, waits, (full, full & at_line_rate), t
            ):
                sends[waits] = -t.veto
        # Fewer than many are background, unless two are clear.
        elif marked.sum() < t.several and (sends[marked] >= 2 * t.veto).sum() < 2:
            sends[marked] = -t.veto
        return sends, np.flatnonzero(unexplained)

    def _last_hops(self, inputs: DetectorInput) -> Mask:
        """[ports] the receivers that explain a queue before them: with stalled PCIe, that pause
        their switch, whose link comes and goes, or behind a link that may hold senders."""
        t = self._model.t
        with np.errstate(invalid="ignore"):
            bus = np.fmax.reduce(inputs.window("bus")[:, -t.window :], axis=1)
            found: Mask = (bus >= t.some) | pause_graph(inputs, t).pauses
        for each in self._model.candidates(inputs):
            if each.evidence > 0 or each.may_hold(t):
                found[each.receives] = True
        # What waits for a NIC whose link comes and goes waits for nothing else; one that stays down
        # receives nothing.
        found |= (inputs.snapshot.seq - self._down <= WINDOW_TICKS) & (inputs.total("rx_bps") > 0)
        return found & ~inputs.structure.is_switch


def _condition(
    inputs: DetectorInput,
    seen: HostSigns,
    senders: Rows,
    receivers: Rows,
    by_pause: bool,
    subject: str,
    t: ModelThresholds,
) -> Condition:
    structure = inputs.structure
    active = int(np.isfinite(seen.sends).sum())
    signs = np.fmax(without_nan(seen.cnps), without_nan(seen.waiting))
    marks = without_nan(seen.marks)
    place, where = senders_place(inputs, senders, signs, receivers, marks, 1 - t.some)
    others = np.flatnonzero(seen.sends <= 0)
    sent = inputs.mean_sent
    usual = median(sent[others]) if len(others) else float("nan")
    own = float(sent[senders].mean())
    lost = max(0.0, 1.0 - own / usual) if usual > 0 else 0.0
    waits, cnps = (float(without_nan(of[senders]).max()) for of in (seen.waiting, seen.cnps))
    if by_pause:
        lost = max(lost, waits)
    # Only the switch counts that a receiver gives it no credits.
    has_credits = by_pause and bool(np.isfinite(inputs.window("stall")[senders]).any())
    waiting = "without credits" if has_credits else "paused"
    how = f"{waiting} up to {rounded_percent(waits)} of the time with traffic"
    slow = ", by a slow link or by a slow receiver" if has_credits else " or by a slow link"
    are = "is" if len(senders) == 1 else "are"
    return CAUSE.condition(
        subject=subject or place,
        rows=senders.tolist(),
        text=(
            f"{len(senders)} of {active} senders ({structure.labels(senders, 3)}) {are}"
            f" {how if by_pause else 'slowed by CNPs'}, and no receiver explains it: a queue"
            f" {where}; whether by hash, by too few links{slow} is not observable from hosts"
        ),
        evidence=(
            Evidence("slowed senders", len(senders), f"of {active}"),
            Evidence("slowed by", ("CNPs", PAUSE, CREDITS)[by_pause + has_credits]),
            Evidence("CNPs per Gbit, at most", round(cnps, 1)),
            Evidence.percent(f"time with traffic {waiting}, at most", waits),
            Evidence("receivers with marks", len(receivers), "ports"),
        ),
        lost=lost,
        victims=structure.ids(receivers.tolist()),
        unseen="the switches: the link itself, and why it is too small",
        unless=(Trait.LAST_HOP, Trait.MAKES_QUEUES),
    )


def _may_wait_elsewhere(
    inputs: DetectorInput, seen: HostSigns, waits: Mask, full: tuple[Mask, Mask], t: ModelThresholds
) -> bool:
    """Whether full NICs, and others that are not watched, receive what those that wait send; or
    slower NICs so much that these wait for as long, as their line rate is faster.

    `full` are NICs that receive at line rate, and those of them that also send at line rate: these
    exchange it with those of other hosts, as in a ring. To slower ones no more is known to go than
    those that wait send.
    """
    nics, lines = inputs.structure.is_rail, inputs.snapshot.line_rate_bps
    sent, received = (total_of(inputs.filled(each)[:, -t.ticks :]) for each in ("tx_bps", "rx_bps"))
    own, node = float(sent[waits].sum()), inputs.structure.node
    get, give = (
        np.bincount(node[of], rates[of], minlength=len(inputs.structure.fabric.nodes))
        for of, rates in zip(full, (received, sent), strict=True)
    )
    taken = np.fmax(get - (give.sum() - give), 0).sum()
    taken += max(0.0, float(sent[nics].sum() - received[nics].sum()))
    # Of an unknown line rate no share is known, neither sent nor waited.
    known = waits & (lines > 0)
    fastest, share = lines[known].max(initial=0), np.fmin(seen.waiting[known], 1 - t.busy)
    slower = nics & (lines > 0) & (lines < t.nearly * fastest)
    longer = float((received[slower] * (fastest / lines[slower] - 1)).sum())
    longer *= min(1.0, own / max(float(received[slower].sum()), 1.0))
    waited = float((sent[known] * share / (1 - share)).sum())
    return bool(taken > t.accounts * own or longer > t.accounts * waited)


def is_below_reporting_switches(inputs: DetectorInput) -> Mask:
    """[ports]: whether a port is known to be cabled to a switch whose traffic counters are
    current."""
    structure, nodes = inputs.structure, inputs.structure.fabric.nodes
    fresh = has_values(inputs.window("tx_bps")[:, -math.ceil(STALE_READS) :])
    reporting = np.unique(structure.node[structure.is_switch & fresh])
    names = {nodes[place].name for place in reporting.tolist()}
    leaves = np.array([name in names for name in structure.leaves] + [False])
    # A cable that nothing names any more still leads to its port.
    far = np.append(structure.node, NONE)[structure.peer]
    below: Mask = leaves[structure.leaf] | np.isin(far, reporting)
    return below
