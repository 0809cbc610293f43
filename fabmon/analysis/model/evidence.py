"""The evidence of one tick for a candidate: what the signs and its load say, as log-odds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput, without_nan
from fabmon.analysis.fabric_structure import NONE
from fabmon.analysis.model.candidates import Candidate
from fabmon.analysis.model.signs import Signs
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.snapshot import Floats

ONE_NIC, ANOTHER_LINK = "one NIC accounts for it", "another link brings it"
"""Limits of the evidence of a link that nobody else shares."""
NO_BUSIER = "no busier than its NICs"


def judged(inputs: DetectorInput, each: Candidate, seen: Signs, t: ModelThresholds) -> Candidate:
    """A candidate with the evidence of its tick, as the terms that it is the sum of."""
    own, vanishes = _own_queue(inputs, each, seen, t)
    are_waiting = not each.is_inward and bool((seen.waits[each.sharers] > 0).any())
    waits_elsewhere = are_waiting and own <= 0 and not _is_waited_for(each, seen, t)
    ends = _of_ends(seen.of_ends(each.is_inward)[each.sharers], each, t)
    waits = 0.0
    if each.group and each.group.has_links_before and _may_be_waited_for(inputs, each, t):
        waits = _waiting_before(inputs, each.row, seen, t)
    behind = max(ends, waits) if max(ends, waits) > 0 else min(ends, waits)
    terms = list(_terms(each, own, behind, t))
    total = sum(value for _, value in terms)
    limits = tuple(_limits(each, own, behind, waits_elsewhere, t))
    if limits and total > -t.veto:
        terms.append((limits[0], -t.veto - total))
        total = -t.veto
    within = max(min(total, t.clip), -t.clip)
    # A tick with less traffic says less.
    active = min(1.0, float(each.util[-1]) / max(float(each.util.max()), 1e-9))
    terms.append(("limit of a tick", within - total))
    terms.append(("less traffic now", within * (active - 1)))
    return replace(
        each,
        of_queue=own,
        of_ends=ends,
        of_waiting=waits - float(without_nan(seen.waits[each.row])),
        vanishes=vanishes,
        are_waiting=are_waiting,
        terms=tuple((name, value) for name, value in terms if value),
        limits=limits,
        llr=within * active,
    )


def _own_queue(
    inputs: DetectorInput, each: Candidate, seen: Signs, t: ModelThresholds
) -> tuple[float, bool]:
    """The sign of a link's own queue, and whether it is that bytes vanish in its switch. The queue
    of a port that waits and is never full is due to what it waits for."""
    own = float(np.nan_to_num(seen.own[each.row]))
    if seen.waits[each.row] > 0 and each.util.max() < t.full_util:
        own = min(own, 0.0)
    if each.util[-1] >= t.full_util:
        vanishes = float(seen.vanishes[inputs.structure.node[each.row]])
        if vanishes > max(own, 0.0):
            return vanishes, True
    return own, False


def _terms(
    each: Candidate, own: float, behind: float, t: ModelThresholds
) -> Iterator[tuple[str, float]]:
    """What the load and the signs of a link say, each with its log-odds."""
    yield "base", t.base
    if each.receiver != NONE:
        yield "last hop", -t.of_place
    yield "full", t.of_place * float((each.util >= t.full_util).mean())
    if each.util.max() < t.full_util:
        yield "never full", -2 * t.of_place * (1 - float(each.util.max()) / t.full_util)
    if each.ratio > 0:
        yield "busier than its NICs", t.of_ratio * float(np.log(each.ratio))
    if each.is_of_whole_group(t):
        yield "whole group", t.of_place  # Chance fills one link of a group, not all.
    yield "own queue", own
    yield "NICs or ports before it", max(behind, -t.veto)


def _limits(
    each: Candidate, own: float, behind: float, waits_elsewhere: bool, t: ModelThresholds
) -> Iterator[str]:
    """What rules a link out: its evidence is then against it, by `veto` at least."""
    is_full, queues = bool(each.util.max() >= t.full_util), own >= t.veto
    if each.ratio < (1 + t.apart):
        yield NO_BUSIER
    if each.alone != NONE and not queues:
        yield ONE_NIC
    if each.takes_turns:
        yield "one NIC at a time"
    if each.brought_by != NONE and not queues:
        yield ANOTHER_LINK
    if each.as_busy < t.nearly:
        yield "another link is busier"
    if own <= -2 * t.veto:
        yield "its switch counts no queue"
    if behind <= -2 * t.veto:
        yield "its NICs are not slowed"
    if waits_elsewhere and not is_full:
        yield "it is not what they wait for"
    if not is_full and own <= 0 and behind <= 0:
        yield "carries what it is given"
    if float(each.rates.sum()) < t.accounts * each.shared_bps(t) or not each.is_known:
        yield "its senders are not known"


def _may_be_waited_for(inputs: DetectorInput, each: Candidate, t: ModelThresholds) -> bool:
    """Whether a link is full at times, or no other of its switch is as busy: what waits before the
    switch may wait for any of them."""
    node = inputs.structure.node
    others = np.flatnonzero(node == node[each.row])
    most = inputs.mean_sent[others[others != each.row]].max(initial=0)
    return bool(each.util.max() >= t.full_util or inputs.mean_sent[each.row] > most)


def _is_waited_for(each: Candidate, seen: Signs, t: ModelThresholds) -> bool:
    """Whether NICs wait for about as long as a link is busy with what others send."""
    waited = _mean(seen.waited[each.sharers], each.rates)
    return t.half * (each.busy - each.ends_busy) <= waited <= each.busy


def _of_ends(sign: Floats, each: Candidate, t: ModelThresholds) -> float:
    """The sign of the NICs that may share a link and show most of a queue, as many as account for
    its load, or for that of its group if this is as busy. One that is not known, as its counter is
    stuck at its most, may be slowed: 0."""
    if not len(sign):
        return 0.0
    sign = np.nan_to_num(sign)
    order = np.argsort(-sign, kind="stable")
    brought = np.cumsum(each.rates[order])
    count = max(2, int(np.searchsorted(brought, t.accounts * each.shared_bps(t))) + 1)
    return float(sign[order[:count]].mean())


def _waiting_before(inputs: DetectorInput, row: int, seen: Signs, t: ModelThresholds) -> float:
    """The sign of waiting of the ports that send into the switch before a link, by traffic."""
    structure = inputs.structure
    before = structure.peer[structure.node == structure.node[row]]
    before = before[(before != NONE) & (before != structure.peer[row])]
    sent = inputs.sent[before, -t.ticks :].mean(axis=1)
    return _mean(seen.waits[before], without_nan(sent * inputs.snapshot.line_rate_bps[before]))


def _mean(values: Floats, weight: Floats) -> float:
    """The weighted mean of those that are known; 0 where none is."""
    known = np.isfinite(values)
    total = float(weight[known].sum())
    return float((values[known] * weight[known]).sum() / total) if total > 0 else 0.0
