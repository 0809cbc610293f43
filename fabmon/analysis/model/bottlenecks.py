"""Bottlenecks: the candidates whose evidence has added up, with what is known of their flows.

Evidence accumulates by the sequential test of Page (1954): it never falls below 0, a link is a
bottleneck from `flags` on, and one no more below `ends`. The terms are weights, not measured
likelihoods: how often a link without a queue is flagged is what the score measures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.flow_control import CREDITS, PAUSE, uses_credits
from fabmon.analysis.evidence.null_model import effective_flows
from fabmon.analysis.fabric_structure import NONE, FabricStructure, Rows
from fabmon.analysis.model.candidates import Candidate, candidates
from fabmon.analysis.model.evidence import judged
from fabmon.analysis.model.shared_links import SharedLinks, shared_links
from fabmon.analysis.model.signs import Signs, host_signs, signs
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.snapshot import Floats

OWN_QUEUE = "marks or drops of the link's own queue"
VANISHES = "bytes that enter its switch and do not leave it"
CNPS_OR_MARKS = "CNPs or marks"


class Place(Enum):
    """What a bottleneck is."""

    LINK = "a link, while others of its group have room"
    GROUP = "all links of a group"
    LAST_HOP = "the link to a receiver"


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """A link that holds flows, or a group of which no link has room (then the fullest of it).

    `link` is the candidate of this tick. `lost` is 1 - achieved / possible of the flows on it, 0
    to 1: what they could have is limited by their NICs, and by an even share of the group. It is
    at most so much where it `is_upper_bound`: nothing shows that the flows want more. `named`
    [NICs] are known to share it, and bring all that it carries where they `are_all`; else at least
    `flows` of `link.sharers` do. `slowed_by` says how
    a queue was seen, empty where it was not. `lasted_ticks` are those since its evidence began,
    `peak_util` its highest utilisation since then.
    """

    place: Place
    link: Candidate
    lasted_ticks: int
    peak_util: float
    lost: float = 0.0
    is_upper_bound: bool = False
    named: Rows = field(default_factory=lambda: np.empty(0, np.intp))
    are_all: bool = False
    flows: int = 0
    slowed_by: str = ""

    @property
    def ticks(self) -> int:
        """Those of which its loads are means."""
        return min(self.lasted_ticks, len(self.link.util))

    @property
    def busy(self) -> float:
        """Its mean utilisation of the last ticks, since its evidence began."""
        return float(self.link.util[-self.ticks :].mean())

    @property
    def group_busy(self) -> float:
        """The mean of its group in that time; 0 of a last hop."""
        return float(self.link.group_util[-self.ticks :].mean())

    @property
    def row(self) -> int:
        """The port that sends into it; of a last hop the NIC that receives."""
        return self.link.row if self.place is not Place.LAST_HOP else self.link.receiver

    @property
    def group(self) -> SharedLinks:
        """The links beside it; not of a last hop."""
        assert self.link.group is not None
        return self.link.group

    @property
    def links(self) -> int:
        """Links of the group that are up."""
        return int(np.isfinite(self.link.level).sum())

    @property
    def imbalance(self) -> float:
        """1 - mean/max of the group, 0 to 1."""
        level = self.link.level
        return max(0.0, 1.0 - float(np.nanmean(level)) / float(np.nanmax(level)))

    @property
    def effective_flows(self) -> float:
        """The number of equal flows, hashed at random, that would be as uneven."""
        return effective_flows(self.link.level[np.isfinite(self.link.level)])


@dataclass(slots=True)
class _Sum:
    """The evidence of a link up to now, and since when it is above 0."""

    total: float = 0.0
    since_seq: int = 0
    peak_util: float = 0.0
    is_open: bool = False


class BottleneckModel:
    """Accumulates the evidence of every link, tick by tick."""

    def __init__(self, t: ModelThresholds) -> None:
        self.t = t
        self._structure: FabricStructure | None = None
        self._links: tuple[SharedLinks, ...] = ()
        self._ends: Rows = np.empty(0, np.intp)
        self._sums: dict[tuple[object, ...], _Sum] = {}

    def candidates(self, inputs: DetectorInput) -> tuple[Candidate, ...]:
        """The links that may hold NICs and what is believed of each; computed once a tick."""
        return inputs.once(self._step)[0]

    def bottlenecks(self, inputs: DetectorInput) -> tuple[Bottleneck, ...]:
        """The bottlenecks of a tick, those that lose most first; computed once."""
        return inputs.once(self._step)[1]

    def _step(self, inputs: DetectorInput) -> tuple[tuple[Candidate, ...], tuple[Bottleneck, ...]]:
        structure, t = inputs.structure, self.t
        if self._structure is None or self._structure.ports is not structure.ports:
            self._links = shared_links(structure)
            nics = np.flatnonzero(structure.is_rail)
            self._ends = np.unique(np.concatenate([nics, *(each.ends for each in self._links)]))
        self._structure = structure
        seen = signs(inputs, t)
        found = candidates(inputs, self._links, self._ends, seen, t)
        ids = structure.ids([each.row for each in found])
        before, self._sums = self._sums, {}
        all_of_them, open_ones = [], []
        for name, each in zip(ids, found, strict=True):
            each = judged(inputs, each, seen, t)
            key = _key(name, each)
            own = before.pop(key, None) or _Sum(since_seq=inputs.snapshot.seq)
            own.total = min(max(own.total + each.llr, 0.0), 2 * t.flags)
            own.is_open = own.total >= (t.ends if own.is_open else t.flags)
            own.peak_util = max(own.peak_util, float(each.util[-1]))
            each = replace(each, evidence=own.total)
            all_of_them.append(each)
            if own.total > 0:
                self._sums[key] = own
            if own.is_open and each.llr > -t.veto and len(each.sharers):
                open_ones.append((own, each))
        for key, own in before.items():
            own.total -= t.ends  # Without traffic nothing is learned.
            if own.total > 0:
                self._sums[key] = own
        bottlenecks = _of_groups(inputs, seen, open_ones, t)
        return tuple(all_of_them), tuple(sorted(bottlenecks, key=lambda each: -each.lost))


def _key(name: str, each: Candidate) -> tuple[object, ...]:
    """What the evidence of a link is kept by: it may be in several groups, and a last hop."""
    group = each.group
    return (name,) if group is None else (name, group.node, group.is_inward, len(group.rows))


def _of_groups(
    inputs: DetectorInput, seen: Signs, links: list[tuple[_Sum, Candidate]], t: ModelThresholds
) -> Iterator[Bottleneck]:
    """The bottlenecks; of a group that is full as a whole one. What NICs show of a queue is that of
    the full links on their path, else of one that is full for parts of seconds."""
    done: set[int] = set()
    explaining: list[Candidate] = []
    for own, each in sorted(links, key=lambda pair: -pair[1].busy):
        place = Place.LAST_HOP
        if each.group is not None:
            place = Place.GROUP if each.is_of_whole_group(t) else Place.LINK
        if place is Place.GROUP and id(each.group) in done:
            continue
        if _is_explained(inputs.structure, each, explaining, t):
            continue
        made = _bottleneck(inputs, seen, own, each, place, t)
        if made.lost >= t.apart:
            if place is Place.GROUP:
                done.add(id(each.group))
            if each.util.max() >= t.full_util:
                explaining.append(each)
            yield made


def _is_explained(
    structure: FabricStructure, each: Candidate, by: list[Candidate], t: ModelThresholds
) -> bool:
    """Whether full links hold most of the NICs of another one that is not full, or busier ones
    bring what it carries: in some seconds all of that may go over it."""
    is_full = each.util.max() >= t.full_util
    held = [full.sharers for full in by if each.is_inward == full.is_inward and not is_full]
    mine = np.isin(each.sharers, np.concatenate([*held, np.empty(0, np.intp)]))
    far = structure.peer[[full.row for full in by]]
    is_before = (far != NONE) & (structure.node[far] == structure.node[each.row])
    busiest = (1 - t.takes_part) * np.array([full.busy for full in by])
    loads = np.array([full.load_bps for full in by])
    brought = float(loads[is_before & (each.busy < busiest)].sum())
    return max(float(each.rates[mine].sum()), brought) >= t.accounts * each.load_bps


def _bottleneck(
    inputs: DetectorInput, seen: Signs, own: _Sum, each: Candidate, place: Place, t: ModelThresholds
) -> Bottleneck:
    sign = seen.of_ends(each.is_inward)
    named = _named(each, sign[each.sharers], sign[each.instead], t)
    limited = place is Place.LINK and each.may_limit
    could = float(each.group_util[each.full].mean()) if limited else 0.0
    lost = max(0.0, 1.0 - max(each.slowed_busy, could) / float(each.util[each.full].mean()))
    ticks = inputs.snapshot.seq - own.since_seq  # Clocks are set; ticks only count up.
    may_want_less = False
    if each.are_waiting and ticks >= t.ticks and not inputs.total("cnp").any():
        # Nothing else slows them: what they wait for is all that they are known to want.
        may_want_less = lost > float(host_signs(inputs, t).waiting[each.slowed].mean()) + t.apart
    total = float(each.rates.sum())
    wants = each.load_bps * (1 + t.apart)
    if each.vanishes and total > wants:
        # Senders that do not slow down show what they want; the rest of it is dropped.
        lost = 1.0 - each.load_bps / total
    slowed_by = _slowed_by(inputs, each, t)
    brought = np.cumsum(np.sort(each.rates)[::-1])
    flows = int(np.searchsorted(brought, t.accounts * each.load_bps)) + 1
    return Bottleneck(
        place=place,
        link=each,
        lost=lost,
        # The marks of a link do not say for how long it is full.
        is_upper_bound=may_want_less
        or not (each.of_ends > 0 or (slowed_by and each.util.max() >= t.full_util)),
        named=named,
        are_all=float(each.rates[np.isin(each.sharers, named)].sum()) >= t.accounts * each.load_bps,
        flows=max(2, flows),
        slowed_by=slowed_by,
        lasted_ticks=ticks + 1,
        peak_util=own.peak_util,
    )


def _named(each: Candidate, sign: Floats, instead: Floats, t: ModelThresholds) -> Rows:
    """The NICs that are known to share a link: all that may, else those that clearly show a queue,
    if they bring half of what it carries or more, and no more than all of it; all that may also if
    it would not be full without each; else none.

    None is known where another might be in its place: `sign` and `instead` are the signs of the
    NICs that may share it, and of those.
    """
    load, shows = each.load_bps, np.isfinite(sign) & (sign >= t.veto)
    for chosen in (np.ones_like(shows), shows):
        total, least = float(each.rates[chosen].sum()), each.rates[chosen].min(initial=np.inf)
        are_all = t.accounts * total <= load
        are_all |= bool(chosen.all()) and total - least <= t.accounts * load
        is_clear = not len(instead) or (
            bool(shows[chosen].all()) and np.fmax.reduce(instead) < sign[chosen].min(initial=np.inf)
        )
        if are_all and is_clear and total >= t.half * load and chosen.sum() > 1:
            return each.sharers[chosen]
    return each.sharers[:0]


def _slowed_by(inputs: DetectorInput, each: Candidate, t: ModelThresholds) -> str:
    """How a queue is seen, in words."""
    if each.of_queue > 0:
        return VANISHES if each.vanishes else OWN_QUEUE
    if each.of_waiting > max(each.of_ends, 0) or (each.of_ends > 0 and each.are_waiting):
        return CREDITS if uses_credits(inputs.structure.fabric.ports[each.row]) else PAUSE
    return CNPS_OR_MARKS if each.of_ends > 0 else ""
