"""How the parallel links of a group are loaded while a job communicates.

Three causes are judged by this: ECMP collision, polarization and oversubscription. At one sample a
second a job's pauses dilute every number similarly, so links are compared over some seconds. That a
link is too small is decided not by its utilisation alone but by the queue in front of it: ECN
marks, CNPs, pause, or a link that is full from one second to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.evidence.attribution import Suspect, full_receivers, is_to_blame
from fabmon.analysis.evidence.detector_input import SIGNALS_PER_S, TICKS, DetectorInput
from fabmon.analysis.evidence.null_model import effective_flows, occupied_at_most
from fabmon.analysis.fabric_structure import NONE, LinkGroup, Mask, Rows
from fabmon.analysis.finding import Condition, Trait
from fabmon.analysis.thresholds import Share, Ticks
from fabmon.fabric.snapshot import Floats

LINK_UTIL = "link util"
"""Name of the evidence that has the utilisation of a finding's link, in %."""

_MAX_HOT_LINKS = 4
"""Links of an open finding about a whole group that count as its fullest: its first ones."""

_USED = 0.1
"""Share of the hottest link's load, 0 to 1, above which a link counts as used."""

_AS_HOT = 0.97
"""Links at this share of the hottest link's load, 0 to 1, are as hot as it is: packets of a few
kilobytes and clocks of the nodes make equal links differ by less than 3 %."""

_LEADS = 0.95
"""Share of the hottest link's load, 0 to 1, that a hot link must have in a single tick."""

_PAUSED_FURTHER_ON = 0.5
"""A link paused for this share of what its feeders are paused only passes the pause on."""

_ALL_TRAFFIC = 0.98
"""Share of a group's traffic, 0 to 1, that its senders must account for: the rest is what counters
of two switches, read at different instants, disagree by."""

_ONE_FLOW_FILLS = 0.9
"""One sender with this share of the hottest link's traffic, 0 to 1, fills it alone."""

_CHANCE = 0.0001
"""Probability, 0 to 1, below which random hashing does not explain how few links are used: one
false finding in 10,000 phases of a healthy job."""

_MIN_FLOWS, _MIN_LINKS = 6, 4
"""Flows and links below which random hashing often uses half of the links only."""

_MOST_TRAFFIC = 0.97
"""Share of the traffic, 0 to 1, that the used links must carry: smaller flows blur the count."""


class EcmpGroupThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [ecmp_groups]; shares are of line rate, of time and of bandwidth."""

    hot_util: Share
    hot_ticks: Ticks
    of_ticks: Ticks
    full_util: Share
    full_ticks: Ticks
    used_util: Share
    held: Share
    lost_min: Share


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one group that has a hot link.

    `level` is [members]: mean utilisation over the ticks that count, NaN of links that are down.
    `hot` [members] are too small for what they are given, in `hot_ticks` of the ticks. `queue` says
    how the queue was seen: `marks`, `pause`, or empty where it is not observable and utilisation
    decides. `streams` is the least number of flows that the group can carry now, computed from what
    its senders send; None when no sender is watched. `is_lone`: one flow alone fills the hottest
    link. `is_full`: the whole group was full in some tick. `was_full`: a hot link was, often
    enough. `tops` is [TICKS]: utilisation of the hottest link in the ticks that count, else 0.
    `slowed` are the NICs behind the group by whose marks the queue was seen; None without marks.
    """

    group: LinkGroup
    level: Floats
    hot: Mask
    hot_ticks: NDArray[np.intp]
    queue: str
    streams: int | None
    is_lone: bool
    is_full: bool
    was_full: bool
    tops: Floats
    slowed: Rows | None

    @property
    def links(self) -> int:
        """Members that are up."""
        return int(np.isfinite(self.level).sum())

    @property
    def mean(self) -> float:
        """Mean utilisation of the members."""
        return float(np.nanmean(self.level))

    @property
    def top(self) -> float:
        """Utilisation of the hottest member."""
        return float(np.nanmax(self.level))

    @property
    def lost(self) -> float:
        """1 - mean/max: the share that a synchronous collective loses to the hottest link."""
        return 1.0 - self.mean / self.top

    @property
    def used(self) -> int:
        """Members that carry a notable part of the traffic."""
        return int((self.level > _USED * self.top).sum())

    @property
    def effective_flows(self) -> float:
        """The number of equal flows, hashed at random, that would be as uneven."""
        return effective_flows(self.level[np.isfinite(self.level)])

    @property
    def suspect(self) -> Suspect:
        """What attribution needs of it."""
        return Suspect(self.tops, self.group.is_inward, self.group.hosts, self.slowed)

    def is_polarized(self, inputs: DetectorInput) -> bool:
        """Whether random hashing does not explain how few links are used.

        InfiniBand does not hash: its forwarding tables may send many flows over few links.
        """
        flows = self.streams
        if self.group.is_inward or flows is None or flows < _MIN_FLOWS or self.links < _MIN_LINKS:
            return False
        level = np.nan_to_num(self.level)
        share = float(level[level > _USED * self.top].sum() / level.sum())
        port = inputs.structure.fabric.ports[int(self.group.rows[0])]
        if 2 * self.used > self.links or share < _MOST_TRAFFIC or port.kind == "infiniband":
            return False
        return occupied_at_most(self.used, flows, self.links) < _CHANCE


def group_loads(inputs: DetectorInput, thresholds: EcmpGroupThresholds) -> tuple[Load, ...]:
    """The groups that have a queue, or a hot link where queues are not observable.

    Computed once a tick. A group whose link is only less full than another's is left out: a link
    that is not full is blamed for slowed hosts only where no fuller suspect explains them.
    """
    return inputs.once(_group_loads, thresholds)


def _group_loads(inputs: DetectorInput, thresholds: EcmpGroupThresholds) -> tuple[Load, ...]:
    meter = _GroupMeter(inputs, thresholds)
    found = list(meter.loads())
    weak = [each for each in found if each.queue and not each.was_full and not meter.is_root(each)]
    if not weak:
        return tuple(found)
    suspects = [*(each.suspect for each in found if each.queue), *meter.open_suspects()]
    cleared = {
        id(each)
        for each in weak
        if not is_to_blame(inputs, each.suspect, suspects, thresholds.hot_util)
    }
    return tuple(each for each in found if id(each) not in cleared)


class _GroupMeter:
    """Measures the groups of one tick."""

    def __init__(self, inputs: DetectorInput, t: EcmpGroupThresholds) -> None:
        self._inputs = inputs
        self._t = t
        self._util = inputs.util("tx")

    def loads(self) -> Iterator[Load]:
        """The load of each group with a hot link."""
        recent = self._inputs.sent[:, -self._t.of_ticks :]
        peak = recent.max(axis=1)
        for group in self._inputs.structure.groups:
            if peak[group.rows].max() < self._t.used_util or self._is_calm(group):
                continue
            load = self._load(group)
            if load is not None:
                yield load

    def is_root(self, load: Load) -> bool:
        """Whether a leaf pauses its hosts and no spine pauses the leaf: the queue is the leaf's."""
        if load.queue != "pause" or load.group.is_inward:
            return False
        _, passes_on = self._pause(load.group)
        return not passes_on[:, load.tops > 0].any()

    def open_suspects(self) -> Iterator[Suspect]:
        """The fullest links of findings that are open already, and degraded links."""
        inputs = self._inputs
        fullest: dict[int, Condition] = {}
        for each in inputs.open_with(Trait.FULL_LINK_OF_GROUP, Trait.FULL_GROUP):
            is_group = Trait.FULL_GROUP in inputs.traits(each)
            fullest |= dict.fromkeys(each.rows[: _MAX_HOT_LINKS if is_group else 1], each)
        slow = {row for each in inputs.open_with(Trait.FULL_LINK) for row in each.rows[:2]}
        for group in inputs.structure.groups if fullest or slow else ():
            rows = group.rows.tolist()
            own = [row for row in rows if row in fullest]
            if not slow.isdisjoint(rows):
                yield Suspect(np.ones(TICKS, np.float32), group.is_inward, group.hosts, None)
            elif own:
                # While its counters are missing a link counts as full as it was reported last.
                util = self._util[own]
                last = max(_last_util(fullest[row]) for row in own)
                tops = np.where(np.isnan(util).all(axis=0), last, np.nan_to_num(util).max(axis=0))
                yield Suspect(tops, group.is_inward, group.hosts, None)

    def _is_calm(self, group: LinkGroup) -> bool:
        """Whether queues are observable, and slowed nobody in the last ticks."""
        slowed, counted = self._slowed_ports
        if not len(group.hosts) or not counted[group.hosts].any():
            return False
        return not (slowed.any() if group.is_inward else slowed[group.hosts].any())

    @cached_property
    def _slowed_ports(self) -> tuple[Mask, Mask]:
        """[ports]: which saw marks or were slowed in the last ticks, and which count such."""
        inputs, late = self._inputs, self._t.of_ticks
        slowed = inputs.slow_signals[:, -late:] | inputs.marked[:, -late:]
        counted = np.zeros(len(slowed), np.bool_)
        for column in ("cnp", "ecn", "pause_rx", "stall"):
            counted |= np.isfinite(inputs.window(column)[:, -1])
        return np.any(slowed, axis=1), counted

    def _load(self, group: LinkGroup) -> Load | None:
        t, rows = self._t, group.rows
        own = self._util[rows]
        up: Mask = np.any(np.isfinite(own), axis=1)
        if up.sum() < 2:
            return None
        known = np.nan_to_num(own)
        top: Floats = known.max(axis=0)
        kind, queued, passes_on = self._queue(group)
        if kind:
            counts = _last(queued & (top >= t.used_util), t.of_ticks)
            if not counts[-t.of_ticks :].any():
                return None
            # Pause spreads where marks do not: its root gets one more second to show itself.
            more = 1 if kind == "pause" else 0
            leads = counts & (known >= _LEADS * top) & ~passes_on
            hot_ticks = leads.sum(axis=1)
            full_ticks = (counts & (known >= t.full_util) & ~passes_on).sum(axis=1)
            level = _level(own, up, counts)
            with np.errstate(invalid="ignore", divide="ignore"):
                as_hot = level >= _AS_HOT * np.nanmax(level)
                leaves_room = 1.0 - np.nanmean(level) / level >= t.lost_min
            full = full_ticks >= t.full_ticks + more
            was_full = bool((as_hot & full).any())
            always = (hot_ticks == counts.sum()) & (hot_ticks >= t.hot_ticks + more)
            # Beside a link that was full, one that was not is only the second fullest.
            hot = full & (as_hot | leaves_room) if was_full else as_hot & always
        else:
            late = np.arange(TICKS) >= TICKS - t.of_ticks
            hot_ticks = (late & (known >= t.hot_util)).sum(axis=1)
            hot = hot_ticks >= t.hot_ticks
            was_full = True
            counts = late & (top >= t.hot_util)
            level = _level(own, up, counts)
        if not hot.any():
            return None
        streams, is_lone = self._streams(group, counts)
        return Load(
            group=group,
            level=level,
            hot=hot,
            hot_ticks=hot_ticks,
            queue=kind,
            streams=streams,
            is_lone=is_lone,
            is_full=bool((np.nan_to_num(own[up][:, counts]).mean(axis=0) >= t.hot_util).any()),
            was_full=was_full,
            tops=np.where(counts, known[hot].max(axis=0), 0),
            slowed=self._slowed_nics(group, counts) if kind == "marks" else None,
        )

    def _slowed_nics(self, group: LinkGroup, counts: Mask) -> Rows:
        """The NICs behind a group by whose marks its queue was seen, often enough."""
        hosts = group.hosts
        if group.is_inward:
            hosts = hosts[~full_receivers(self._inputs).full[hosts]]
            marked = self._inputs.marked[hosts]
        else:
            marked = self._inputs.filled("cnp")[hosts] > SIGNALS_PER_S
        often: Mask = (marked & counts).sum(axis=1) >= self._t.hot_ticks
        return hosts[often]

    def _queue(self, group: LinkGroup) -> tuple[str, Mask, Mask]:
        """How a queue in front of the group was seen (`marks`, `pause` or empty); in which [ticks];
        and which [members, ticks] are paused themselves, so that the queue is further on.
        """
        inputs, late = self._inputs, self._t.of_ticks
        hosts = group.hosts
        never = np.zeros(TICKS, np.bool_)
        no_member = np.zeros((len(group.rows), 1), np.bool_)
        if not len(hosts):
            return "", never, no_member
        column = "ecn" if group.is_inward else "cnp"
        counted = np.isfinite(inputs.window(column)[hosts, -1]).any()
        receivers = full_receivers(inputs)
        if not counted or not receivers.marks[-late:].any():
            # ECN may be off, or the queue too short for it.
            paused = inputs.window("pause_rx")[hosts, -1], inputs.window("stall")[hosts, -1]
            if not counted and not np.isfinite(paused).any():
                return "", never, no_member
            return "pause", *self._pause(group)
        if group.is_inward:
            others = hosts[~receivers.full[hosts]]
            marked: Mask = np.any(inputs.marked[others], axis=0)
        else:
            slowed = inputs.filled("cnp")[hosts] > SIGNALS_PER_S
            marked = slowed.any(axis=0) & ~receivers.explain
        return "marks", marked, no_member

    def _pause(self, group: LinkGroup) -> tuple[Mask, Mask]:
        """[ticks]: whether the ports that feed the group are paused; [members, ticks]: whether the
        members are, so that they only pass the pause on."""
        inputs = self._inputs
        peer = inputs.structure.peer
        if group.is_inward:
            nodes = inputs.structure.node[group.rows]
            others = np.isin(inputs.structure.node, nodes)
            others[group.rows] = False
            feeders = peer[others]
            feeders = feeders[feeders != NONE]
        else:
            feeders = group.hosts
        share = np.nan_to_num(np.fmax(inputs.window("pause_rx"), inputs.window("stall")))
        before = share[feeders].max(axis=0, initial=0.0)
        paused: Mask = before > self._t.held
        return paused, share[group.rows] > _PAUSED_FURTHER_ON * before

    def _streams(self, group: LinkGroup, counts: Mask) -> tuple[int | None, bool]:
        """The least number of flows in the group, and whether one alone fills its hottest link."""
        if not len(group.edges):
            return None, False
        inputs = self._inputs
        column = "tx_bps" if group.is_inward else "rx_bps"
        sent = np.nan_to_num(inputs.window(column)[group.edges][:, counts]).sum(axis=1)
        carried = np.nan_to_num(inputs.window("tx_bps")[group.rows][:, counts]).sum(axis=1)
        biggest = float(sent.max())
        if biggest <= 0:
            return None, False
        streams = _fewest(sent, _ALL_TRAFFIC * float(carried.sum()))
        is_lone = streams <= 1 and biggest >= _ONE_FLOW_FILLS * carried.max()
        return max(1, streams), bool(is_lone)


def _fewest(senders: Floats, carried: float) -> int:
    """The least number of senders, the biggest first, that could have sent so much."""
    return int(np.searchsorted(np.cumsum(np.sort(senders)[::-1]), carried)) + 1


def _level(own: Floats, up: Mask, counts: Mask) -> Floats:
    """[members]: means over the ticks that count; NaN of links that are down or have no data."""
    known = np.isfinite(own) & counts & up[:, None]
    with np.errstate(invalid="ignore"):
        level: Floats = np.where(known, own, 0).sum(axis=1) / known.sum(axis=1)
    return level


def _last_util(condition: Condition) -> float:
    """Utilisation of a finding's link when it was last updated; 1 where the finding has none."""
    util = (each.value for each in condition.evidence if each.name == LINK_UTIL)
    return next((value / 100 for value in util if not isinstance(value, str)), 1.0)


def _last(counts: Mask, most: int) -> Mask:
    """The last so many of the ticks that count."""
    after = np.cumsum(counts[::-1])[::-1]
    last: Mask = counts & (after <= most)
    return last
