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
from fabmon.analysis.model.ends import (
    Crossing,
    Ends,
    could_send,
    crossing,
    sent_and_received,
    take_part,
)
from fabmon.analysis.model.loads import Loads
from fabmon.analysis.model.shared_links import SharedLinks
from fabmon.analysis.model.signs import Signs
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.snapshot import Floats

_MAX_RECEIVERS = 32
"""Last hops that are looked at in a tick: it bounds the time that this takes."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A link at one tick.

    `row` is the port that sends into it; of a last hop whose switch is not watched, the NIC.
    `group` are the links beside it, None of a last hop (`receiver`, else NONE). `util` [ticks] is
    its utilisation; `level` [links of the group] is the mean one of all of them, NaN of those that
    are down, `group_util` [ticks] their mean.
    `sharers` [NICs] may share it, `rates` [NICs] is what they send (into a switch: receive),
    bits/s; `ends_busy` is their utilisation. `full` [ticks] are those in which the link is full,
    all where it never is; `slowed` [NICs] those that it slows, and `slowed_busy` their utilisation
    in these ticks. `may_limit`: the NICs of its group could send more than that can carry.
    `instead` [NICs] are taken to be on another link alone, and might be in the place of a sharer,
    as fast as they are. `alone` is the NIC that accounts for the link, else NONE; `brought_by` a
    link into its switch that carries as much, else NONE. `takes_turns`: in each tick one NIC sends
    nearly all of it, or it holds no two. `is_known`: all that it carries may come from watched
    NICs. `as_busy` is how busy it is beside the busiest link that NICs as busy share, 0 to 1.
    `of_queue`, `of_ends` and `of_waiting` are the signs of its own queue, of its NICs, and of the
    ports before it less that of itself; `terms` are the parts of `llr`, the evidence of the tick,
    `limits` what rules the link out or leaves it open; `evidence` is the sum over time.
    """

    util: Floats
    load_bps: float
    sharers: Rows
    rates: Floats
    ends_busy: float
    alone: int
    full: Mask
    slowed: Rows
    slowed_busy: float
    row: int = NONE
    group: SharedLinks | None = None
    receiver: int = NONE
    level: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    may_limit: bool = False
    group_util: Floats = field(default_factory=lambda: np.zeros(1, np.float32))
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
    def is_inward(self) -> bool:
        """Whether it leads into a switch from the tier above."""
        return self.group is not None and self.group.is_inward

    @property
    def busy(self) -> float:
        """Its mean utilisation."""
        return float(self.util.mean())

    @property
    def others_busy(self) -> float:
        """The mean utilisation of the other links of its group; 0 of a last hop."""
        up = self.level[np.isfinite(self.level)]
        return (float(up.sum()) - self.busy) / (len(up) - 1) if len(up) > 1 else 0.0

    @property
    def receives(self) -> Rows:
        """The NICs that receive what it carries, where these are those that share it."""
        if self.group is None:
            return np.array([self.receiver], np.intp)
        return self.sharers if self.is_inward else self.sharers[:0]

    def may_hold(self, t: ModelThresholds) -> bool:
        """Whether several NICs share it, and it is busier than they are."""
        return self.alone == NONE and not self.takes_turns and self.ratio >= (1 + t.apart)

    def is_of_whole_group(self, t: ModelThresholds) -> bool:
        """Whether the other links of its group are as busy."""
        return self.group is not None and self.others_busy >= t.nearly * self.busy

    def shared_bps(self, t: ModelThresholds) -> float:
        """What the NICs that share it bring, bits/s: its load, or that of its group if this is as
        busy."""
        links = int(np.isfinite(self.level).sum()) if self.is_of_whole_group(t) else 1
        return links * self.load_bps

    @property
    def ratio(self) -> float:
        """How many times as busy as the NICs that share it; 0 where these are not known."""
        return self.busy / self.ends_busy if self.ends_busy > 0 else 0.0


def candidates(
    inputs: DetectorInput, links: Sequence[SharedLinks], ends: Rows, seen: Signs, t: ModelThresholds
) -> list[Candidate]:
    """The candidates of a tick, of the groups whose links may hold some of their ends; `ends` are
    those of all groups, and all NICs."""
    structure = inputs.structure
    place = np.full(len(structure.peer), NONE, np.intp)
    place[ends] = np.arange(len(ends))
    sent, received = sent_and_received(inputs, ends, t.window)
    line = could_send(inputs, ends, sent, received, seen, t)
    sending = Ends(ends, sent, line, seen.sends[ends])
    receiving = Ends(ends, received, line, seen.receives[ends])
    found: list[Candidate] = []
    loads = Loads(inputs, links, seen, t)
    for number, group in enumerate(links):
        if loads.is_busy(number):
            own = (receiving if group.is_inward else sending).of(group.ends, place)
            if loads.may_hold(number, own):
                found += _of_group(inputs, group, own, loads, number, t)
    rail = np.flatnonzero(structure.is_rail)
    found += _last_hops(inputs, receiving.of(rail, place), sending.of(rail, place), seen, t)
    return _compared(structure, found, t)


def _of_group(
    inputs: DetectorInput,
    group: SharedLinks,
    ends: Ends,
    loads: Loads,
    number: int,
    t: ModelThresholds,
) -> Iterator[Candidate]:
    """The links of a group that carry traffic: those that show a queue, and the busiest ones that
    no NIC accounts for."""
    load, util, level, shows = loads.of(number)
    ends = _crossing_ends(ends, load, t)
    matched = crossing(load, ends.rate, ends.line, ends.sign, t)
    up = level[np.isfinite(level)]
    could = float(ends.line[take_part(ends.rate.mean(axis=1), t)].sum())
    shared = matched.alone == NONE
    least = max(t.some, t.nearly * float(np.fmax.reduce(level, where=shared, initial=0)))
    for member in np.flatnonzero(shows | (shared & (level >= least))).tolist():
        row = int(group.rows[member])
        known = _known_to_cross(inputs, row, group, ends)
        yield replace(
            _sharers(ends, load[member], matched, member, util[member] >= t.full_util, t, known),
            row=row,
            group=group,
            util=util[member],
            level=level,
            group_util=util[np.isfinite(level)].mean(axis=0),
            may_limit=could * float(level[member])
            > (1 + t.apart) * float(load[member].mean()) * len(up),
            brought_by=loads.brings(inputs, row, util[member], goes_up=not group.is_inward)
            if group.has_links_before
            else NONE,
        )


def _crossing_ends(ends: Ends, load: Floats, t: ModelThresholds) -> Ends:
    """Those whose traffic may cross a group: where those that show a queue account for all of it,
    the others send to each other."""
    shows = ends.sign > 0
    if float(ends.rate[shows].sum()) < t.accounts * float(load.sum()):
        return ends
    return ends.those(shows)


def _last_hops(
    inputs: DetectorInput, receivers: Ends, senders: Ends, seen: Signs, t: ModelThresholds
) -> Iterator[Candidate]:
    """The links to the NICs that receive most, those with marks or drops first."""
    structure = inputs.structure
    line = inputs.snapshot.line_rate_bps[receivers.rows]
    line = np.where(line > 0, line, np.float32(np.inf))  # That of a lost host is not known.
    util = (receivers.rate / line[:, None]).astype(np.float32)
    sending = senders.rate / line[:, None]
    busy, sends = util.mean(axis=1), sending.mean(axis=1)
    edges = structure.peer[receivers.rows]
    drops = np.append(seen.own, np.float32(np.nan))[edges]
    shows = (receivers.sign > 0) | (drops > 0)
    # Nobody is relieved by a receiver that takes as long to send.
    may_hold = (busy >= t.some) & (busy >= (1 + t.apart) * sends)
    may_hold &= shows | (util.max(axis=1, initial=0) >= t.full_util) | (senders.sign > 0).any()
    if not may_hold.any():
        return
    most = np.lexsort((-busy, ~shows, ~may_hold))[:_MAX_RECEIVERS]
    most = most[may_hold[most]]
    load = receivers.rate[most]
    # What enters the NICs, or those of its rail, and left none of them comes from elsewhere:
    # storage, the frontend. Hosts alone do not show who sends what where most of it leaves them.
    gained, rail = (receivers.rate - senders.rate).mean(axis=1), structure.rail[receivers.rows]
    from_elsewhere = np.fmin(np.bincount(rail, gained)[rail], gained.sum())
    if (edges[most] == NONE).all() and receivers.rate.sum() < t.half * senders.rate.sum():
        from_elsewhere[:] = np.inf
    leaves = np.append(structure.node, NONE)[edges[most]]
    may_reach = {leaf: _may_reach(inputs, leaf, senders, t) for leaf in set(leaves.tolist())}
    # Nor is a sender relieved that takes as long to receive, unless one of the two shows a queue.
    longer = np.fmax(busy / np.fmax(sends, np.float32(t.nothing)), np.float32(1))
    longer[senders.sign > 0] = 1
    in_step = replace(senders, line=senders.line / longer)
    # NICs that send as much as they receive exchange it with each other.
    others = np.abs(busy - sends) > t.apart * np.fmax(busy, sends)
    if float(senders.rate[others].sum()) >= t.accounts * float(load.sum()):
        senders, in_step = senders.those(others), in_step.those(others)
    matched = crossing(load, senders.rate, senders.line, senders.sign, t)
    for place, nic in enumerate(most.tolist()):
        row, edge = int(receivers.rows[nic]), int(edges[nic])
        known = _with_connections(inputs, row, senders)
        ends = senders if shows[nic] else in_step
        found = _sharers(
            ends, load[place], matched, place, util[nic] >= t.full_util, t, known, but=row
        )
        yield replace(
            found,
            row=edge if edge != NONE else row,
            receiver=row,
            util=util[nic],
            ends_busy=max(found.ends_busy, float(sends[nic])) if found.ends_busy > 0 else 0.0,
            slowed_busy=max(found.slowed_busy, float(sending[nic, found.full].mean())),
            is_known=float(from_elsewhere[nic]) <= t.apart * float(load[place].mean())
            and may_reach[int(leaves[place])] >= t.accounts * float(load[place].mean()),
        )


def _may_reach(inputs: DetectorInput, leaf: int, senders: Ends, t: ModelThresholds) -> float:
    """What NICs send that may arrive at a leaf, bits/s: what leaves it does not come back."""
    structure = inputs.structure
    sent = senders.rate.mean(axis=1)
    uplinks = np.flatnonzero((structure.node == leaf) & structure.is_uplink)
    if leaf == NONE or not len(uplinks):
        return float(sent.sum())
    below = np.append(structure.node, NONE)[structure.peer[senders.rows]] == leaf
    own, away = float(sent[below].sum()), without_nan(inputs.leaving(uplinks, t.window))
    return float(sent[~below].sum()) + max(own - float(away.mean(axis=1).sum()), 0.0)


def _known_to_cross(inputs: DetectorInput, row: int, group: SharedLinks, ends: Ends) -> Mask | None:
    """[ends]: those whose traffic forwarding tables send over a link; None where not known."""
    known = inputs.snapshot.connections.known_on_link(row)
    if known is None:
        return None
    return np.isin(ends.rows, known.dst if group.is_inward else known.src)


def _with_connections(inputs: DetectorInput, row: int, senders: Ends) -> Mask | None:
    """[senders]: those with queue pairs to a receiver's, where all are known; else None."""
    table = inputs.snapshot.connections.flows_if_quick
    node = inputs.structure.fabric.ports[row].node
    if not table or table.left_out or node not in table.reporting:
        return None
    own = table.src == row
    # A far end without a candidate is not watched, thus none of these.
    if ((table.dst[own] == NONE) & (table.candidates[own] > 0)).any():
        return None
    return np.isin(senders.rows, table.dst[own])


def _sharers(
    ends: Ends,
    load: Floats,
    matched: Crossing,
    place: int,
    full: Mask,
    t: ModelThresholds,
    known: Mask | None = None,
    but: int = NONE,
) -> Candidate:
    """A link with what is known of the ends that may share it, as a candidate without a place:
    those that are `known` to, if they account for it; else those that are on no link alone, except
    the row `but`.

    It holds those that send half as much as the fastest or more; the others have less to send.
    """
    mean, of_nic = float(load.mean()), ends.rate.mean(axis=1)
    alone, rates = int(matched.alone[place]), matched.left
    shares = matched.free & (matched.left <= mean) & (ends.rows != but)
    elsewhere = np.unique(matched.alone[matched.alone >= 0])
    if known is not None and float(of_nic[known].sum()) >= t.accounts * mean:
        shares, rates, alone, elsewhere = known, of_nic, NONE, elsewhere[:0]
    elif alone == NONE and full.any():
        if matched.are_all and float(rates[shares].sum()) < t.accounts * mean:
            # Too few are left: NICs that are as fast as the other links matched by chance.
            shares, rates = take_part(of_nic, t), of_nic
            elsewhere = elsewhere[:0]
        # A NIC that sends at line rate while the link is full is held by nobody.
        slowed = shares & (ends.rate[:, full].mean(axis=1) < t.full_util * ends.line)
        # Others that began once it was full do not make it so.
        at_once = float(np.fmin(ends.rate[slowed].sum(axis=0), load).mean())
        if min(float(rates[slowed].sum()), at_once) >= t.accounts * mean:
            shares = slowed
    rates = rates[shares]
    held = _held(rates, mean, t)
    largest = ends.rate[shares].max(axis=0, initial=0)
    takes_turns = bool(np.fmax(load - largest, 0).sum() <= t.apart * load.sum())
    # Those that show a queue are who it slows, if they account for it.
    slowed = held & (ends.sign[shares] > 0)
    if float(rates[slowed].sum()) < t.accounts * mean:
        slowed = held
    full = full if full.any() else np.ones_like(full)
    while_full = ends.rate[shares][:, full].mean(axis=1)
    # They bring what it carries, whenever each node was read.
    while_full *= max(1.0, float(load[full].mean()) / max(float(while_full[slowed].sum()), 1.0))
    similar = np.abs(of_nic[elsewhere][:, None] - rates[None]) <= t.apart * rates[None]
    return Candidate(
        util=load,
        load_bps=mean,
        sharers=ends.rows[shares],
        rates=rates,
        ends_busy=_busy(rates[held], of_nic[shares][held], ends.line[shares][held]),
        alone=int(ends.rows[alone]) if alone >= 0 else NONE,
        full=full,
        slowed=ends.rows[shares][slowed],
        slowed_busy=_busy(rates[slowed], while_full[slowed], ends.line[shares][slowed]),
        takes_turns=takes_turns or int(held.sum()) < 2,
        instead=ends.rows[elsewhere[similar.any(axis=1)]],
    )


def _held(rates: Floats, load: float, t: ModelThresholds) -> Mask:
    """[NICs] those that a link holds: they send half as much as the fastest or more, if these bring
    half of what it carries, bits/s; else all."""
    held: Mask = rates >= t.half * rates.max(initial=0)
    return held if rates[held].sum() >= t.half * load else rates > 0


def _busy(weight: Floats, rate: Floats, line: Floats) -> float:
    """The utilisation of NICs, weighted by what they may send over a link."""
    total = float(weight.sum())
    return float((weight * rate / np.fmax(line, 1.0)).sum() / total) if total > 0 else 0.0


def _compared(
    structure: FabricStructure, found: list[Candidate], t: ModelThresholds
) -> list[Candidate]:
    """The candidates, each with how busy it is beside the busiest that NICs as busy share; and one
    with room in all ticks with a full one before it that several NICs share and that carries as
    much: it may be that one that holds them."""
    shared = [each for each in found if each.alone == NONE and each.ends_busy > 0]
    ends = np.array([each.ends_busy for each in shared])
    busy = np.array([each.busy for each in shared])
    full = [each for each in shared if each.group and each.util.max() >= t.full_util]
    loads = np.array([each.load_bps for each in full])
    far = structure.peer[[each.row for each in full]]
    far_node = np.where(far != NONE, structure.node[far], NONE)
    comes_down = np.array([each.is_inward for each in full], np.bool_)
    result = []
    for each in found:
        if each.ends_busy > 0 and len(shared):
            near = np.abs(np.log(ends / each.ends_busy)) < t.apart
            most = float(busy[near].max(initial=0))
            each = replace(each, as_busy=each.busy / most) if most > each.busy else each
        if each.brought_by == NONE and each.group and each.util.max() < t.nearly:
            brings = (far_node == structure.node[each.row]) & (far != each.row)
            brings &= loads >= t.accounts * each.load_bps
            if not each.is_inward:  # What goes down does not go up again.
                brings &= ~comes_down
            if brings.any():
                each = replace(each, brought_by=full[int(np.flatnonzero(brings)[0])].row)
        result.append(each)
    return result
