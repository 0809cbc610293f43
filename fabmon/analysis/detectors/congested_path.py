"""Senders are slowed by a queue between switches that are not watched.

Packets that cross such a queue are marked, their receivers send CNPs and their senders handle them;
without ECN the senders are paused or have no credits. Where the receivers are not full, are as fast
as the senders, do not pause their switch and their PCIe does not stall, the queue is not at the
last hop. Whether flows were hashed onto one link, there are too few links, or one of them is slow
cannot be distinguished from hosts, and is not guessed. Nor can a receiver on InfiniBand that gives
its switch no credits: only the switch counts it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from fabmon.analysis.evidence.detector_input import (
    TICKS,
    DetectorInput,
    count_ticks,
    has_values,
    total_of,
    without_nan,
)
from fabmon.analysis.evidence.flow_control import CREDITS, PAUSE
from fabmon.analysis.evidence.pause_graph import pause_graph
from fabmon.analysis.evidence.queue_signals import (
    BUSY_UTIL,
    ORDINARY,
    QueueSignals,
    QueueThresholds,
    queue_signals,
)
from fabmon.analysis.evidence.senders_place import MAX_VICTIMS, open_subject, senders_place
from fabmon.analysis.fabric_structure import NONE, Mask, Rows
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.median import median
from fabmon.analysis.thresholds import Share, Ticks
from fabmon.fabric.wording import rounded_percent

CAUSE = Cause(
    name="congested_path",
    title="Congested path",
    meaning="senders are slowed between switches that are not watched: the link is not observable",
    severity=WARNING,
    picture="paused_ports",
    advice=(
        "Watch the switches too (role=switch in the hosts file) to see which link it is, and"
        " whether by hash, by too few links or by a slow one."
    ),
    tables=("congested_path", "queue"),
    traits=(Trait.NEEDS_TRAFFIC, Trait.MAKES_QUEUES, Trait.HAS_SENDERS),
)

_SILENT_TICKS = 3
"""Ticks without traffic counters after which a switch counts as not watched."""

_LAST_HOP = 0.5
"""Share of the marks, 0 to 1, at receivers that explain them from which on there is no other
queue to look for."""

_MOST = 0.6
"""Share of what a sender sent, 0 to 1, during which it was slowed."""

_CLEARLY = 4.0
"""How many times `cnps_per_gbit` `min_senders` must have, and `rise` times the median of all that
send: where 5 % of all packets are marked, background differs by nearly that much between NICs."""

_SLOWER = 0.9
"""Share of the senders' line rate, 0 to 1, below which that of a receiver explains its marks: each
burst of a faster sender fills the last hop, too short to be seen as full."""

_FAR_ABOVE = 5.0
"""How many times the median of all senders one waits for credits that something holds up: where 5 %
of the time is background, single NICs wait three times as much as most."""

_STILL = 0.8
"""A sender of an open finding still waits at this share of what opens one, 0 to 1."""

_TO_OTHERS = 0.5
"""Share of what a sender sends, 0 to 1, that may leave the watched NICs: clocks differ."""

_BY_MARKS, _BY_PAUSE = 0.92, 0.9
"""Confidence, 0 to 1."""


class CongestedPathThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [congested_path]: CNPs, ticks, and shares of line rate and of time."""

    cnps_per_gbit: float
    marks_per_gbit: float
    ticks: Ticks
    of_ticks: Ticks
    full_util: Share
    paused: Share
    waiting: Share
    stalled: Share
    min_senders: int


def congested_paths(
    inputs: DetectorInput, t: CongestedPathThresholds, queue: QueueThresholds
) -> Iterator[Condition]:
    """At most one condition: the senders behind unwatched switches that are slowed."""
    structure = inputs.structure
    signals = queue_signals(inputs, queue)
    slowed, marked, everywhere = signals.slowed, signals.marked, _are_most_marked(signals, t)
    if everywhere:
        slowed, marked = signals.sends, signals.marks >= t.marks_per_gbit
    if not slowed.any() and not inputs.open_of(CAUSE):
        return
    known = _reporting_switches(inputs) | _switches_with_findings(inputs)
    if np.isnan(inputs.window("tx_bps")[structure.is_rail, 0]).all():
        return  # Every burst begins with marks: the first seconds are no evidence.
    unwatched = structure.is_rail & ~_is_below(inputs, known)
    if not unwatched.any():
        return
    # Without credits for some of the time is how InfiniBand works; PFC pause is not.
    # Of all time, idle seconds too: receivers that are full for moments slow senders as well.
    senders = np.flatnonzero(slowed & unwatched)
    paused = np.zeros(len(slowed), np.bool_)
    for column, least in (("pause_rx", t.paused), ("stall", t.waiting)):
        paused[senders] |= total_of(inputs.series(column, senders, TICKS)) / TICKS >= least
    senders = senders[(signals.cnps[senders] >= t.cnps_per_gbit) | paused[senders]]
    senders = senders[_lasting(inputs, t, senders)]
    usual = median(signals.cnps[signals.sends]) if signals.sends.any() else 0.0
    clearly = signals.cnps >= max(_CLEARLY * t.cnps_per_gbit, queue.rise * usual)
    # Few wait for a receiver that is full in bursts, too, as do all: it is looked for in all ticks.
    of_ticks = TICKS if everywhere else t.of_ticks
    if (paused | clearly | everywhere)[senders].sum() < t.min_senders:
        of_ticks = TICKS
        paused = _held_up(inputs, t, queue) & unwatched
        senders = np.flatnonzero(paused)
        if not len(senders):
            return
    by_pause = bool(paused[senders].mean() > 0.5)
    explained = _last_hop(inputs, t, of_ticks)
    if by_pause:
        if explained.any():
            return
        receivers = np.empty(0, np.intp)
    else:
        lines = inputs.snapshot.line_rate_bps
        explained |= lines < _SLOWER * median(lines[senders])
        total = float(signals.marks[marked].sum())
        if total <= 0 or float(signals.marks[marked & explained].sum()) > _LAST_HOP * total:
            return
        receivers = np.flatnonzero(marked & ~explained)
    yield _condition(inputs, signals, senders, receivers, by_pause)


def _are_most_marked(signals: QueueSignals, t: CongestedPathThresholds) -> bool:
    """Whether so many of the packets that most receivers get are marked that it is no background:
    the usual level, which marks are compared with elsewhere, is that of a queue."""
    levels = signals.marks[signals.marks > 0]
    return len(levels) >= t.min_senders and median(levels) >= t.marks_per_gbit


def _lasting(inputs: DetectorInput, t: CongestedPathThresholds, rows: Rows) -> Mask:
    """[rows]: whether a sender handled CNPs, or waited, while it sent most of what it sent: the end
    of an exchange that a late host draws out has little traffic."""
    sent, cnp, pause, stall = (
        without_nan(inputs.series(column, rows, TICKS))
        for column in ("tx_bps", "cnp", "pause_rx", "stall")
    )
    slowed = (pause >= t.paused) | (stall >= t.waiting)
    slowed |= (sent > 0) & (cnp >= t.cnps_per_gbit * sent / np.float32(1e9))
    most = np.where(slowed, sent, 0).sum(axis=1) >= _MOST * sent.sum(axis=1)
    seen: Mask = most & (slowed[:, -t.of_ticks :].sum(axis=1) >= t.ticks)
    return seen


def _held_up(inputs: DetectorInput, t: CongestedPathThresholds, queue: QueueThresholds) -> Mask:
    """[ports]: whether a sender waits for credits far more than most senders, however few do.

    None where its receiver may explain it: some NIC is slower than it, or what it sends may go to
    one that is not watched.
    """
    signals = queue_signals(inputs, queue)
    held_up = np.zeros(len(signals.sends), np.bool_)
    if not signals.sends.any():
        return held_up
    usual = median(signals.waiting[signals.sends])
    least = np.full(len(held_up), max(queue.waiting, _FAR_ABOVE * usual), np.float32)
    for finding in inputs.open_of(CAUSE):
        least[list(finding.rows)] *= _STILL
    may_be = signals.sends & (signals.waiting >= least)
    may_be &= inputs.total("stall") / TICKS >= ORDINARY
    if not may_be.any():
        return held_up
    has_credits = np.isfinite(inputs.window("stall")).any(axis=1)
    nics = has_credits & ~inputs.structure.is_switch
    lines = without_nan(inputs.snapshot.line_rate_bps)
    may_be &= lines * _SLOWER <= lines[nics & (lines > 0)].min(initial=np.inf)
    sent, received = inputs.total("tx_bps"), inputs.total("rx_bps")
    leaves = float(sent[nics].sum() - received[nics].sum())
    may_be &= leaves <= _TO_OTHERS * sent
    rows = np.flatnonzero(may_be)
    stall = inputs.filled("stall")[rows]
    waits = stall >= least[rows, None] * np.fmax(stall + inputs.sent[rows], np.float32(BUSY_UTIL))
    held_up[rows] = waits[:, -t.of_ticks :].sum(axis=1) >= t.ticks
    return held_up


def _last_hop(inputs: DetectorInput, t: CongestedPathThresholds, of_ticks: int) -> Mask:
    """[ports]: whether a receiver, or the link to it, explains a queue before it, by what it had in
    the last `of_ticks`. NICs for storage are receivers, too."""
    late = slice(TICKS - of_ticks, TICKS)
    with np.errstate(invalid="ignore"):
        full = count_ticks(inputs.received[:, late] >= t.full_util) >= max(t.ticks - 1, 1)
        stalls = np.fmax.reduce(inputs.window("bus")[:, late], axis=1) >= t.stalled
    found: Mask = full | stalls | pause_graph(inputs).pauses
    # What waits for a NIC whose link comes and goes waits for nothing else; one that stays down
    # receives nothing.
    for finding in inputs.open_with(Trait.STOPS_PAUSE_FRAMES):
        rows = np.array(finding.rows[:2], np.intp)
        found[rows] |= inputs.total("rx_bps")[rows] > 0
    return found & ~inputs.structure.is_switch


def _condition(
    inputs: DetectorInput, signals: QueueSignals, senders: Rows, receivers: Rows, by_pause: bool
) -> Condition:
    structure = inputs.structure
    active = int((signals.sends | signals.slowed).sum())
    signs = np.fmax(signals.cnps, signals.waiting)
    subject, where = senders_place(inputs, senders, signs, receivers, signals.marks)
    others = np.flatnonzero(signals.sends & ~signals.slowed)
    sent = inputs.mean_sent
    usual = median(sent[others]) if len(others) else float("nan")
    own = float(sent[senders].mean())
    lost = max(0.0, 1.0 - own / usual) if usual > 0 else 0.0
    waits = float(signals.waiting[senders].max())
    if by_pause:
        lost = max(lost, waits)
    # Only the switch counts that a receiver gives it no credits.
    has_credits = by_pause and bool(np.isfinite(inputs.window("stall")[senders]).any())
    waiting = "without credits" if has_credits else "paused"
    how = (
        f"{waiting} up to {rounded_percent(waits)} of the time with traffic"
        if by_pause
        else "slowed by CNPs"
    )
    by_what = "by hash, by too few links" + (
        ", by a slow link or by a slow receiver" if has_credits else " or by a slow link"
    )
    slowed_by = "CNPs" if not by_pause else CREDITS if has_credits else PAUSE
    are = "is" if len(senders) == 1 else "are"
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=open_subject(inputs, CAUSE, senders) or subject,
        rows=tuple(senders.tolist()),
        text=(
            f"{len(senders)} of {active} senders ({structure.labels(senders, 3)}) {are} {how}, and"
            f" no receiver explains it: a queue {where}; whether {by_what} is not observable"
            " from hosts"
        ),
        evidence=(
            Evidence("slowed senders", len(senders), f"of {active}"),
            Evidence("slowed by", slowed_by),
            Evidence("CNPs per Gbit, at most", round(float(signals.cnps[senders].max()), 1)),
            Evidence(f"time with traffic {waiting}, at most", round(waits * 100, 1), "%"),
            Evidence("receivers with marks", len(receivers), "ports"),
        ),
        advice=CAUSE.advice,
        confidence=_BY_PAUSE if by_pause else _BY_MARKS,
        lost=round(lost, 3),
        victims=tuple(structure.fabric.ports[row].id for row in receivers[:MAX_VICTIMS].tolist()),
        unseen="the switches: the link itself, and why it is too small",
        unless=(Trait.LAST_HOP, Trait.MAKES_QUEUES),
    )


def _reporting_switches(inputs: DetectorInput) -> set[int]:
    """The switches, as places in the fabric's nodes, whose traffic counters are current."""
    structure = inputs.structure
    if not structure.is_switch.any():
        return set()
    fresh = has_values(inputs.window("tx_bps")[:, -_SILENT_TICKS:])
    ports_of_node = np.bincount(structure.node[structure.is_switch & fresh])
    return set(np.flatnonzero(ports_of_node).tolist())


def _switches_with_findings(inputs: DetectorInput) -> set[int]:
    """The switches of open findings about a link or group: one that falls silent keeps them."""
    structure = inputs.structure
    rows = [each.rows[0] for each in inputs.open_with(Trait.FULL_LINK_OF_GROUP, Trait.FULL_GROUP)]
    return {int(structure.node[row]) for row in rows if structure.is_switch[row]}


def _is_below(inputs: DetectorInput, switches: set[int]) -> Mask:
    """[ports]: whether a port is known to be cabled to one of some switches."""
    structure = inputs.structure
    if not switches:
        return np.zeros(len(structure.peer), np.bool_)
    names = {structure.fabric.nodes[node].name for node in switches}
    is_one = np.zeros(len(structure.fabric.nodes) + 1, np.bool_)
    is_one[list(switches)] = True
    below: Mask = is_one[np.append(structure.node, NONE)[structure.peer]]
    below &= structure.peer != NONE
    leaves = np.array([name in names for name in structure.leaves] + [False])
    below |= leaves[structure.leaf]
    return below
