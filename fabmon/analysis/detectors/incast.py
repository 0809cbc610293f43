"""Many senders, one receiver: the last hop to a host is full and the switch before it queues."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.pause_graph import pause_graph
from fabmon.analysis.fabric_structure import NONE
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.thresholds import Share, Ticks
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import rounded_percent

CAUSE = Cause(
    name="incast",
    title="Incast",
    meaning="many senders, one receiver: the last hop to a host is full and its switch queues",
    severity=WARNING,
    picture="receiver",
    advice=(
        "Find what the job gathers there (all-to-all, parameter server, checkpoint); spread the"
        " receivers over rails, or stagger the senders (NCCL_P2P_NET_CHUNKSIZE, fewer channels)."
    ),
    tables=("incast",),
    traits=(
        Trait.NEEDS_TRAFFIC,
        Trait.LAST_HOP,
        Trait.MAKES_QUEUES,
        Trait.MAKES_PAUSE,
        Trait.ONE_RAIL,
        Trait.HAS_SENDERS,
    ),
)

_OF_TICKS, _TICKS = 5, 3
"""Marks, or CNPs sent, count when seen in so many of the last so many ticks."""

_USUAL_PERCENT = 90
"""Without marks, a receiver must stand out from this percentile of the other rails."""

_LEVEL_TICKS = 3
"""Ticks over which levels are averaged."""

_CONFIDENCE = (0.7, 0.85, 0.9)
"""Confidence, 0 to 1, with none, one or both of: marks, and a switch that pauses others."""

_SENDS = 0.05
"""Share of line rate, 0 to 1, above which a NIC counts as a sender."""

_OWN_RATE = 0.8
"""Share of line rate, 0 to 1, from which on a sender is not slowed by the receiver."""


class IncastThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [incast]; shares are 0 to 1 of line rate, marks and CNPs are packets per second."""

    hot_util: Share
    hot_ticks: Ticks
    of_ticks: Ticks
    marks_per_s: float
    cnps_per_s: float
    others_below: Share


def incasts(inputs: DetectorInput, t: IncastThresholds) -> Iterator[Condition]:
    """One condition for each rail that is full while more is sent to it."""
    structure = inputs.structure
    util = inputs.received
    with np.errstate(invalid="ignore"):
        hot_ticks = (util[:, -t.of_ticks :] >= t.hot_util).sum(axis=1)
    hot = np.flatnonzero(structure.is_rail & (hot_ticks >= t.hot_ticks)).tolist()
    if not hot:
        return
    marked = inputs.often("ecn", t.marks_per_s, _OF_TICKS, _TICKS)
    marked |= inputs.often("cnp_sent", t.cnps_per_s, _OF_TICKS, _TICKS)
    usual_at_least = _usual_at_least(inputs, util)
    level = np.nanmean(np.ascontiguousarray(util[hot, -_LEVEL_TICKS:]), axis=1)
    may = (level >= t.hot_util) & (usual_at_least < t.others_below * level)
    for row, own, may_stand_out in zip(hot, level.tolist(), may.tolist(), strict=True):
        if pause_graph(inputs).pauses[row]:
            continue  # a slow receiver
        is_marked, queues = bool(marked[row]), _switch_pauses(inputs, row)
        if is_marked or queues or (may_stand_out and _stands_out(inputs, t, util, row, own)):
            senders, are_slowed = _senders(inputs, row)
            if senders >= 2:
                confidence = _CONFIDENCE[is_marked + queues]
                yield _condition(inputs, row, own, senders, are_slowed, queues, confidence)


def _switch_pauses(inputs: DetectorInput, row: int) -> bool:
    """Whether the switch of the last hop pauses others and is not paused itself."""
    edge = int(inputs.structure.peer[row])
    return edge != NONE and int(inputs.structure.node[edge]) in pause_graph(inputs).roots


def _senders(inputs: DetectorInput, row: int) -> tuple[int, bool]:
    """The number of other hosts' rails that are slowed, and True; where fewer than two are, the
    number of those that send below their line rate, and False."""
    structure = inputs.structure
    others = structure.is_rail & (structure.node != structure.node[row])
    count = int(np.count_nonzero(inputs.slowed & others))
    if count >= 2:
        return count, True
    sent = inputs.sent[:, -_LEVEL_TICKS:].mean(axis=1)
    return int((others & (sent > _SENDS) & (sent < _OWN_RATE)).sum()), False


def _stands_out(
    inputs: DetectorInput, t: IncastThresholds, util: Floats, row: int, own: float
) -> bool:
    """Whether a rail receives far more than most rails of other hosts."""
    structure = inputs.structure
    is_other = structure.is_rail & (structure.node != structure.node[row])
    others = util[is_other][:, -_LEVEL_TICKS:]
    known = others[np.isfinite(others)]
    if not len(known):
        return False
    return float(np.percentile(known, _USUAL_PERCENT)) < t.others_below * own


def _condition(
    inputs: DetectorInput,
    row: int,
    level: float,
    senders: int,
    are_slowed: bool,
    queues: bool,
    confidence: float,
) -> Condition:
    structure, snapshot = inputs.structure, inputs.snapshot
    ports = structure.fabric.ports
    edge = int(structure.peer[row])
    waiting = pause_graph(inputs).victims(int(structure.node[edge])) if queues else []
    rows = [row] if edge == NONE else [edge, row]
    signals = {
        "ECN-marked packets": float(snapshot.column("ecn")[row]),
        "CNPs sent": float(snapshot.column("cnp_sent")[row]),
    }
    slowed = "are slowed by it" if are_slowed else "at most send to it"
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=ports[row].id,
        rows=(*rows, *(each for each in waiting if each not in rows)),
        text=(
            f"{structure.label(row)} receives at {rounded_percent(level)} of line rate and is sent"
            f" more than that: {senders} senders {slowed}"
        ),
        evidence=(
            Evidence("received", round(level * 100, 1), "%"),
            Evidence("slowed senders" if are_slowed else "senders at most", senders, "ports"),
            *(
                Evidence(name, round(value), "/s")
                for name, value in signals.items()
                if np.isfinite(value) and value > 0
            ),
            Evidence("ports that wait for it", len(waiting), "ports"),
        ),
        advice=CAUSE.advice,
        confidence=confidence,
        lost=round(1 - 1 / max(senders, 1), 3) if senders > 1 else 0.0,
        victims=tuple(dict.fromkeys(ports[each].id for each in waiting)),
        unseen="" if edge != NONE else "the switch in front of it",
    )


def _usual_at_least(inputs: DetectorInput, util: Floats) -> float:
    """A lower bound of `_USUAL_PERCENT` of what rails receive, whichever node is left out.

    Computed once: that percentile of the others of each hot rail takes a second for a thousand
    hosts. Leaving values out only moves the remaining ones up in their order.
    """
    structure = inputs.structure
    rails = util[structure.is_rail, -_LEVEL_TICKS:]
    known = np.sort(rails[np.isfinite(rails)])
    of_a_node = rails.shape[1] * int(np.bincount(structure.node[structure.is_rail]).max(initial=0))
    place = int(_USUAL_PERCENT / 100 * (len(known) - of_a_node - 1))
    return float(known[place]) if place >= 0 and len(known) else float("-inf")
