"""Candidates: the links that may hold flows, how busy each is, and the NICs that may share it.

A synchronous exchange takes as long as its busiest link. So the link that holds flows is the one on
their path that is busy for most of the time, and busier than the NICs that send over it: `ratio`
times as busy. By as much as it is busier than these, and than its group on average, the exchange
would be faster without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput, without_nan
from fabmon.analysis.fabric_structure import NONE, FabricStructure, Mask, Rows
from fabmon.analysis.model.crossing import Crossing, crossing
from fabmon.analysis.model.shared_links import SharedLinks
from fabmon.analysis.model.signs import Signs
from fabmon.analysis.model.thresholds import ModelThresholds
from fabmon.fabric.snapshot import Floats

_MAX_RECEIVERS = 32
"""Last hops that are looked at in a tick, the busiest first: it bounds the time that it takes."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A link at one tick.

    `row` is the port that sends into it; of a last hop whose switch is not watched, the NIC.
    `group` are the links beside it, None of a last hop (`receiver`, else NONE). `util` [ticks] is
    its utilisation, `busy` the mean; `level` [links of the group] is that of all of them, NaN of
    those that are down. `sharers` [NICs] may share it, `rates` [NICs] is what they send (into a
    switch: receive), bits/s; `ends_busy` is their utilisation. `instead` [NICs] are taken to be on
    another link alone, and might be in the place of a sharer, as fast as they are. `alone` is the
    NIC that accounts for the link, else NONE; `brought_by` a link into its switch that carries as
    much, else NONE. `takes_turns`: in each tick one NIC sends nearly all of it, or it holds no two.
    `is_known`: all that it carries may come from watched NICs. `as_busy` is how busy it is beside
    the busiest link that NICs as busy share, 0 to 1. `of_queue`, `of_ends` and `of_waiting` are the
    signs of its own queue, of its NICs, and of the ports before it less that of itself; `terms` are
    the parts of `llr`, the evidence of the tick; `evidence` is their sum over time.
    """

    row: int
    group: SharedLinks | None
    receiver: int
    util: Floats
    load_bps: float
    level: Floats
    sharers: Rows
    rates: Floats
    ends_busy: float
    alone: int
    is_known: bool = True
    takes_turns: bool = False
    instead: Rows = field(default_factory=lambda: np.empty(0, np.intp))
    brought_by: int = NONE
    of_queue: float = 0.0
    of_ends: float = 0.0
    of_waiting: float = 0.0
    vanishes: bool = False
    are_waiting: bool = False
    as_busy: float = 1.0
    terms: tuple[tuple[str, float], ...] = ()
    llr: float = 0.0
    evidence: float = 0.0

    @property
    def busy(self) -> float:
        """Its mean utilisation, 0 to 1."""
        return float(self.util.mean())

    @property
    def ratio(self) -> float:
        """How many times as busy as the NICs that share it; 0 where these are not known."""
        return self.busy / self.ends_busy if self.ends_busy > 0 else 0.0

    @property
    def others_busy(self) -> float:
        """Mean utilisation of the other links of its group that are up; 0 without any."""
        up = self.level[np.isfinite(self.level)]
        return float((up.sum() - self.busy) / (len(up) - 1)) if len(up) > 1 else 0.0

    @property
    def group_busy(self) -> float:
        """Mean utilisation of its group."""
        up = self.level[np.isfinite(self.level)]
        return float(up.mean()) if len(up) else 0.0


@dataclass(frozen=True, slots=True)
class _Ends:
    """Where flows begin or end: NICs, or ports of a switch towards hosts that are not watched.

    `rate` [ends, ticks] is what they send (or receive), bits/s, `line` [ends] the most that they
    could, `sign` [ends] what they show of a queue.
    """

    rows: Rows
    rate: Floats
    line: Floats
    sign: Floats

    def of(self, rows: Rows, place: Rows) -> _Ends:
        """Those with some rows; `place` [ports] is where each is."""
        at = place[rows]
        return _Ends(rows, self.rate[at], self.line[at], self.sign[at])


def candidates(
    inputs: DetectorInput, links: Sequence[SharedLinks], seen: Signs, t: ModelThresholds
) -> list[Candidate]:
    """The candidates of a tick."""
    structure = inputs.structure
    rail = np.flatnonzero(structure.is_rail)
    rows = np.unique(np.concatenate([rail, *(group.ends for group in links)]))
    place = np.full(len(structure.peer), NONE, np.intp)
    place[rows] = np.arange(len(rows))
    is_nic = structure.is_rail[rows][:, None]
    away, here = (without_nan(of(rows, t.window)) for of in (inputs.leaving, inputs.entering))
    sent, received = np.where(is_nic, away, here), np.where(is_nic, here, away)
    line = _could_send(inputs, rows, sent, received, seen, t)
    sending = _Ends(rows, sent, line, seen.sends[rows])
    receiving = _Ends(rows, received, line, seen.receives[rows])
    found: list[Candidate] = []
    for group in links:
        ends = (receiving if group.is_inward else sending).of(group.ends, place)
        found += _of_group(inputs, group, ends, t)
    found += _last_hops(inputs, receiving.of(rail, place), sending.of(rail, place), t)
    return _compared(_brought(structure, found, t), t)


def _could_send(
    inputs: DetectorInput,
    rows: Rows,
    sent: Floats,
    received: Floats,
    seen: Signs,
    t: ModelThresholds,
) -> Floats:
    """[rows] bits/s that ends could send: their line rates, or those of slower ones that are full
    and that they may wait for, as they are no faster and show no queue."""
    line = without_nan(inputs.snapshot.line_rate_bps[rows])
    speeds = np.unique(line[line > 0])
    full = np.fmax(sent, received).max(axis=1, initial=0) >= t.full_util * line
    for slower in speeds[:-1][::-1]:
        if full[line == slower].any():
            is_no_faster = sent.max(axis=1) <= slower * (1 + t.same)
            is_no_faster &= ~(seen.sends[rows] > 0)
            line = np.where(is_no_faster, np.fmin(line, slower), line)
    return line


def _of_group(
    inputs: DetectorInput, group: SharedLinks, ends: _Ends, t: ModelThresholds
) -> Iterator[Candidate]:
    """The links of a group that carry traffic."""
    load = without_nan(inputs.leaving(group.rows, t.window))
    # NONE is the last one.
    lines = np.append(inputs.snapshot.line_rate_bps, np.float32(np.nan))
    line = np.fmax(lines[group.rows], lines[inputs.structure.peer[group.rows]])
    up = (inputs.snapshot.up[group.rows] != 0) & (line > 0)
    util = np.where(up[:, None], load / np.where(up, line, 1)[:, None], 0).astype(np.float32)
    busy = util.mean(axis=1)
    loaded = np.flatnonzero(busy >= t.loaded)
    if not len(loaded) or not len(ends.rows):
        return
    level = np.where(up, busy, np.float32(np.nan))
    ends = _crossing_ends(ends, load, t)
    matched = crossing(load, ends.rate, ends.line, ends.sign, t)
    for member in loaded.tolist():
        row = int(group.rows[member])
        may = _known_to_cross(inputs, row, group, ends, load[member], t)
        shared = _sharers(ends, load[member], matched, member, may, t)
        yield replace(shared, row=row, group=group, util=util[member], level=level)


def _crossing_ends(ends: _Ends, load: Floats, t: ModelThresholds) -> _Ends:
    """Those whose traffic may cross a group: where those that show a queue account for all of it,
    the others send to each other."""
    shows = ends.sign > 0
    if float(ends.rate[shows].sum()) < t.accounts * float(load.sum()):
        return ends
    return _Ends(ends.rows[shows], ends.rate[shows], ends.line[shows], ends.sign[shows])


def _last_hops(
    inputs: DetectorInput, receivers: _Ends, senders: _Ends, t: ModelThresholds
) -> Iterator[Candidate]:
    """The links to the NICs that receive most."""
    structure = inputs.structure
    line = without_nan(inputs.snapshot.line_rate_bps[receivers.rows])
    util = (receivers.rate / np.fmax(line, 1)[:, None]).astype(np.float32)
    busy = util.mean(axis=1)
    most = np.argsort(-busy, kind="stable")[:_MAX_RECEIVERS]
    most = most[busy[most] >= t.loaded]
    if not len(most):
        return
    load = receivers.rate[most]
    matched = crossing(load, senders.rate, senders.line, senders.sign, t)
    # What enters the NICs and left none of them comes from elsewhere: storage, the frontend.
    from_elsewhere = float(receivers.rate.sum() - senders.rate.sum()) / t.window
    for place, nic in enumerate(most.tolist()):
        row = int(receivers.rows[nic])
        edge = int(structure.peer[row])
        may = structure.node[senders.rows] != structure.node[row]
        yield replace(
            _sharers(senders, load[place], matched, place, may, t),
            row=edge if edge != NONE else row,
            receiver=row,
            util=util[nic],
            is_known=from_elsewhere <= t.alone * float(load[place].mean()),
        )


def _known_to_cross(
    inputs: DetectorInput,
    row: int,
    group: SharedLinks,
    ends: _Ends,
    load: Floats,
    t: ModelThresholds,
) -> Mask:
    """[ends]: those whose traffic forwarding tables send over a link, where these account for it;
    else all."""
    known = inputs.snapshot.connections.known_on_link(row)
    if known is not None:
        crosses = np.isin(ends.rows, known.dst if group.is_inward else known.src)
        if float(ends.rate[crosses].sum()) >= t.accounts * float(load.sum()):
            return crosses
    return np.ones(len(ends.rows), np.bool_)


def _sharers(
    ends: _Ends, load: Floats, matched: Crossing, place: int, may: Mask, t: ModelThresholds
) -> Candidate:
    """A link with what is known of the ends that may share it, as a candidate without a place.

    It holds those that send half as much as the fastest or more; the others have less to send.
    """
    mean, of_nic = float(load.mean()), ends.rate.mean(axis=1)
    is_free = matched.free & (matched.left <= mean)
    if float(of_nic[may & is_free].sum()) < t.accounts * mean and not may.all():
        is_free = of_nic <= mean  # What is known decides.
    shares = may & is_free
    rates = np.fmin(matched.left, of_nic)[shares]
    held = rates >= t.held * rates.max(initial=0)
    alone = int(ends.rows[matched.alone[place]]) if matched.alone[place] >= 0 else NONE
    largest = ends.rate[shares].max(axis=0, initial=0)
    takes_turns = bool(np.fmax(load - largest, 0).sum() <= t.alone * load.sum())
    elsewhere = np.unique(matched.alone[matched.alone >= 0])
    similar = np.abs(of_nic[elsewhere][:, None] - rates[None]) <= t.alone * rates[None]
    return Candidate(
        row=NONE,
        group=None,
        receiver=NONE,
        util=load,
        load_bps=mean,
        level=np.empty(0, np.float32),
        sharers=ends.rows[shares],
        rates=rates,
        ends_busy=_busy(rates[held], of_nic[shares][held], ends.line[shares][held]),
        alone=alone,
        takes_turns=takes_turns or int(held.sum()) < 2,
        instead=ends.rows[elsewhere[similar.any(axis=1)]],
    )


def _brought(
    structure: FabricStructure, found: list[Candidate], t: ModelThresholds
) -> list[Candidate]:
    """The candidates, each with the link before it that brings what it carries."""
    into: dict[int, list[Candidate]] = {}
    for each in found:
        if each.group is not None and structure.peer[each.row] != NONE:
            into.setdefault(int(structure.node[structure.peer[each.row]]), []).append(each)
    result = []
    for each in found:
        group = each.group
        # What goes down does not go up again.
        goes_up = group is not None and not group.is_inward
        if group is None or (goes_up and group.is_leaf):
            result.append(each)
            continue
        for before in into.get(int(structure.node[each.row]), ()):
            if goes_up and before.group is not None and before.group.is_inward:
                continue
            apart = float(np.abs(before.util - each.util).mean())
            if apart <= t.same * each.busy and before.row != structure.peer[each.row]:
                each = replace(each, brought_by=before.row)
        result.append(each)
    return result


def _busy(weight: Floats, rate: Floats, line: Floats) -> float:
    """The utilisation of NICs, weighted by what they may send over a link."""
    total = float(weight.sum())
    return float((weight * rate / np.fmax(line, 1.0)).sum() / total) if total > 0 else 0.0


def _compared(found: list[Candidate], t: ModelThresholds) -> list[Candidate]:
    """The candidates, each with how busy it is beside the busiest that NICs as busy share."""
    shared = [each for each in found if each.alone == NONE and each.ends_busy > 0]
    ends = np.array([each.ends_busy for each in shared])
    busy = np.array([each.busy for each in shared])
    result = []
    for each in found:
        if each.ends_busy > 0 and len(shared):
            near = np.abs(np.log(ends / each.ends_busy)) < t.alike
            most = float(busy[near].max(initial=each.busy))
            each = replace(each, as_busy=each.busy / max(most, 1e-9))
        result.append(each)
    return result
