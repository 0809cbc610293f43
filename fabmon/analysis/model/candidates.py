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
"""Last hops that are looked at in a tick: it bounds the time that this takes."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A link at one tick.

    `row` is the port that sends into it; of a last hop whose switch is not watched, the NIC.
    `group` are the links beside it, None of a last hop (`receiver`, else NONE). `util` [ticks] is
    its utilisation, `busy` the mean; `level` [links of the group] is that of all of them, NaN of
    those that are down, `group_busy` their mean, and `others_busy` that of the others. `sharers`
    [NICs] may share it, `rates` [NICs] is what they send (into a switch: receive), bits/s;
    `ends_busy` is their utilisation. `instead` [NICs] are taken to be on another link alone, and
    might be in the place of a sharer, as fast as they are. `alone` is the NIC that accounts for the
    link, else NONE; `brought_by` a link into its switch that carries as much, else NONE.
    `takes_turns`: in each tick one NIC sends nearly all of it, or it holds no two. `is_known`: all
    that it carries may come from watched NICs. `as_busy` is how busy it is beside the busiest link
    that NICs as busy share, 0 to 1. `of_queue`, `of_ends` and `of_waiting` are the signs of its own
    queue, of its NICs, and of the ports before it less that of itself; `terms` are the parts of
    `llr`, the evidence of the tick, `limits` what rules the link out or leaves it open; `evidence`
    is the sum over time.
    """

    row: int
    group: SharedLinks | None
    receiver: int
    util: Floats
    busy: float
    load_bps: float
    level: Floats
    sharers: Rows
    rates: Floats
    ends_busy: float
    alone: int
    group_busy: float = 0.0
    others_busy: float = 0.0
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
    limits: tuple[str, ...] = ()
    llr: float = 0.0
    evidence: float = 0.0

    @property
    def ratio(self) -> float:
        """How many times as busy as the NICs that share it; 0 where these are not known."""
        return self.busy / self.ends_busy if self.ends_busy > 0 else 0.0


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
    """The candidates of a tick: of the groups whose links may hold some of their ends."""
    structure = inputs.structure
    rail = np.flatnonzero(structure.is_rail)
    rows = np.unique(np.concatenate([rail, *(group.ends for group in links)]))
    place = np.full(len(structure.peer), NONE, np.intp)
    place[rows] = np.arange(len(rows))
    sent, received = sent_and_received(inputs, rows, t.window)
    line = _could_send(inputs, rows, sent, received, seen, t)
    sending = _Ends(rows, sent, line, seen.sends[rows])
    receiving = _Ends(rows, received, line, seen.receives[rows])
    found: list[Candidate] = []
    loads = _Loads(inputs, links, t)
    waiting = bool((seen.waits > 0).any())
    for number, group in enumerate(links):
        ends = (receiving if group.is_inward else sending).of(group.ends, place)
        if loads.may_hold(number, ends, waiting or bool((seen.own[group.rows] > 0).any()), t):
            found += _of_group(inputs, group, ends, *loads.of(number), t)
    found += _last_hops(inputs, receiving.of(rail, place), sending.of(rail, place), t)
    return _compared(_brought(structure, found, t), t)


def sent_and_received(inputs: DetectorInput, rows: Rows, ticks: int) -> tuple[Floats, Floats]:
    """[rows, ticks] bits/s that hosts send and receive at some ends, 0 where not known: what leaves
    a NIC enters the port of the switch towards it."""
    is_nic = inputs.structure.is_rail[rows][:, None]
    away, here = (without_nan(of(rows, ticks)) for of in (inputs.leaving, inputs.entering))
    return np.where(is_nic, away, here), np.where(is_nic, here, away)


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


class _Loads:
    """The loads of the links of all groups over the window."""

    def __init__(
        self, inputs: DetectorInput, links: Sequence[SharedLinks], t: ModelThresholds
    ) -> None:
        rows = np.concatenate([*(group.rows for group in links), np.empty(0, np.intp)])
        self._ends = np.cumsum([0, *(len(group.rows) for group in links)])
        self._load = without_nan(inputs.leaving(rows, t.window))
        # NONE is the last one.
        lines = np.append(inputs.snapshot.line_rate_bps, np.float32(np.nan))
        line = np.fmax(lines[rows], lines[inputs.structure.peer[rows]])
        self._up: Mask = (inputs.snapshot.up[rows] != 0) & (line > 0)
        util = self._load / np.where(self._up, line, np.float32(1))[:, None]
        self._util = np.where(self._up[:, None], util, np.float32(0))
        self._busy = self._util.mean(axis=1)
        self._peak = self._util.max(axis=1, initial=0)

    def may_hold(self, number: int, ends: _Ends, queues: bool, t: ModelThresholds) -> bool:
        """Whether some link of a group may hold its ends: it is busier than some of them, and full
        at times, or a queue is seen (`queues`: elsewhere than at the ends)."""
        own = slice(self._ends[number], self._ends[number + 1])
        busy = self._busy[own].max(initial=0)
        if not len(ends.rows) or busy < t.loaded:
            return False
        shows = queues or bool((ends.sign > 0).any())
        if not shows and self._peak[own].max(initial=0) < t.full_util:
            return False
        of_ends = ends.rate.mean(axis=1) / np.fmax(ends.line, 1)
        part = of_ends[of_ends > t.takes_part * of_ends.max()]
        return bool(busy >= t.shared * part.min(initial=np.inf))

    def of(self, number: int) -> tuple[Floats, Floats, Floats]:
        """[links, ticks] the loads of a group, bits/s, and utilisations, 0 of a link that is down;
        [links] their means, NaN of those."""
        own = slice(self._ends[number], self._ends[number + 1])
        level = np.where(self._up[own], self._busy[own], np.float32(np.nan))
        return self._load[own], self._util[own], level


def _of_group(
    inputs: DetectorInput,
    group: SharedLinks,
    ends: _Ends,
    load: Floats,
    util: Floats,
    level: Floats,
    t: ModelThresholds,
) -> Iterator[Candidate]:
    """The links of a group that carry traffic."""
    ends = _crossing_ends(ends, load, t)
    matched = crossing(load, ends.rate, ends.line, ends.sign, t)
    up = level[np.isfinite(level)]
    for member in np.flatnonzero(level >= t.loaded).tolist():
        row, busy = int(group.rows[member]), float(level[member])
        known = _known_to_cross(inputs, row, group, ends, load[member], t)
        yield replace(
            _sharers(ends, load[member], matched, member, t, known),
            row=row,
            group=group,
            util=util[member],
            busy=busy,
            level=level,
            group_busy=float(up.mean()),
            others_busy=float((up.sum() - busy) / (len(up) - 1)) if len(up) > 1 else 0.0,
        )


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
    """The links to the NICs that receive most, those with marks first."""
    structure = inputs.structure
    line = without_nan(inputs.snapshot.line_rate_bps[receivers.rows])
    util = (receivers.rate / np.fmax(line, 1)[:, None]).astype(np.float32)
    busy = util.mean(axis=1)
    is_marked = receivers.sign > 0
    most = np.lexsort((-busy, ~is_marked))[:_MAX_RECEIVERS]
    most = most[busy[most] >= t.loaded]
    may_hold = (util[most].max(axis=1, initial=0) >= t.full_util) | is_marked[most]
    if not len(most) or not (may_hold.any() or (senders.sign > 0).any()):
        return
    load = receivers.rate[most]
    matched = crossing(load, senders.rate, senders.line, senders.sign, t)
    # What enters the NICs and left none of them comes from elsewhere: storage, the frontend.
    from_elsewhere = float(receivers.rate.sum() - senders.rate.sum()) / t.window
    for place, nic in enumerate(most.tolist()):
        row = int(receivers.rows[nic])
        edge = int(structure.peer[row])
        known = _with_connections(inputs, row, senders, load[place], t)
        yield replace(
            _sharers(senders, load[place], matched, place, t, known, but=row),
            row=edge if edge != NONE else row,
            receiver=row,
            util=util[nic],
            busy=float(busy[nic]),
            is_known=from_elsewhere <= t.alone * float(load[place].mean()),
        )


def _known_to_cross(
    inputs: DetectorInput,
    row: int,
    group: SharedLinks,
    ends: _Ends,
    load: Floats,
    t: ModelThresholds,
) -> Mask | None:
    """[ends]: those whose traffic forwarding tables send over a link, where these account for it;
    else None."""
    known = inputs.snapshot.connections.known_on_link(row)
    if known is None:
        return None
    crosses = np.isin(ends.rows, known.dst if group.is_inward else known.src)
    brought = float(ends.rate[crosses].sum())
    return crosses if brought >= t.accounts * float(load.sum()) else None


def _with_connections(
    inputs: DetectorInput, row: int, senders: _Ends, load: Floats, t: ModelThresholds
) -> Mask | None:
    """[senders]: those with queue pairs to a receiver's, where all of these are known and account
    for what it gets; else None."""
    table = inputs.snapshot.connections.flows_if_quick
    node = inputs.structure.fabric.ports[row].node
    if not table or table.left_out or node not in table.reporting:
        return None
    own = table.src == row
    # A far end without a candidate is not watched, thus none of these.
    if not own.any() or ((table.dst[own] == NONE) & (table.candidates[own] > 0)).any():
        return None
    connected = np.isin(senders.rows, table.dst[own])
    brought = float(senders.rate[connected].sum())
    return connected if brought >= t.accounts * float(load.sum()) else None


def _sharers(
    ends: _Ends,
    load: Floats,
    matched: Crossing,
    place: int,
    t: ModelThresholds,
    known: Mask | None = None,
    but: int = NONE,
) -> Candidate:
    """A link with what is known of the ends that may share it, as a candidate without a place:
    those that are `known` to; else those that are on no link alone, except the row `but`.

    It holds those that send half as much as the fastest or more; the others have less to send.
    """
    mean, of_nic = float(load.mean()), ends.rate.mean(axis=1)
    alone, rates = int(matched.alone[place]), np.fmin(matched.left, of_nic)
    shares = matched.free & (matched.left <= mean) & (ends.rows != but)
    elsewhere = np.unique(matched.alone[matched.alone >= 0])
    if known is not None and known.sum() > 1:
        shares, rates, alone, elsewhere = known, of_nic, NONE, elsewhere[:0]
    rates = rates[shares]
    held = rates >= t.held * rates.max(initial=0)
    largest = ends.rate[shares].max(axis=0, initial=0)
    takes_turns = bool(np.fmax(load - largest, 0).sum() <= t.alone * load.sum())
    similar = np.abs(of_nic[elsewhere][:, None] - rates[None]) <= t.alone * rates[None]
    return Candidate(
        row=NONE,
        group=None,
        receiver=NONE,
        util=load,
        busy=0.0,
        load_bps=mean,
        level=np.empty(0, np.float32),
        sharers=ends.rows[shares],
        rates=rates,
        ends_busy=_busy(rates[held], of_nic[shares][held], ends.line[shares][held]),
        alone=int(ends.rows[alone]) if alone >= 0 else NONE,
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
            near = np.abs(np.log(ends / each.ends_busy)) < t.similar
            most = float(busy[near].max(initial=each.busy))
            each = replace(each, as_busy=each.busy / max(most, 1e-9))
        result.append(each)
    return result
