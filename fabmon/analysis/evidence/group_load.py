"""How parallel links are loaded while a job communicates: what three findings judge by.

At one sample a second a job's pauses dilute every number alike, so links are compared over some
seconds, and what says that one of them is too small is not its utilisation alone but the queue in
front of it: ECN marks, CNPs, pause, or a link that is full from one second to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.evidence.attribution import Suspect, full_receivers, is_to_blame
from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput
from fabmon.analysis.evidence.null_model import effective_flows
from fabmon.analysis.fabric_structure import NONE, LinkGroup, Mask, Rows
from fabmon.analysis.finding import Condition
from fabmon.analysis.thresholds import EcmpGroups
from fabmon.fabric.snapshot import Floats

LEVEL = "link util"
"""What the evidence of a finding calls bits per second over line rate of its link, in %."""
_CROWDED = ("ecmp_collision:", "polarization:", "oversubscription:")
_DEGRADED = "degraded_link:"
"""Such a link is as full as it can be, whatever share of its line rate it carries."""
_MOST_HOT = 4
"""So many of the hottest links of a finding about a group are looked at."""
_CARRIES = 0.1
"""Share of the hottest link's load above which a link counts as used."""
_ALIKE = 0.97
"""Links at this share of the hottest are as hot as it is."""
_LEADS = 0.95
"""Share of the hottest link's load, tick by tick, that a hot link must have."""


@dataclass(frozen=True, slots=True)
class Load:
    """One group. `level` is [members]: mean utilisation over the ticks that count, NaN of the dead.

    `hot` are the members that are too small for what they are given, `hot_ticks` how often. `queue`
    says what tells of it: `marks`, `pause`, or empty for nothing but the utilisation, where neither
    can be seen. `streams` is the least number of flows that the group can carry now, from what its
    senders send; None when no sender is seen. `is_lone` says that one flow alone fills the
    hottest link, `is_full` that the whole group was full in some second, `was_full` that a hot link
    was, often enough. `tops` is [TICKS]: utilisation of the hottest link where it counts, else 0.
    `slowed` are the NICs whose packets were marked, of those behind the group, by which the queue
    was seen; None where it was not seen by marks.
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
        """Members that are alive."""
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
        """1 - mean/max: what a synchronous collective loses to the hottest link."""
        return 1.0 - self.mean / self.top

    @property
    def used(self) -> int:
        """Members that carry anything to speak of."""
        return int((self.level > _CARRIES * self.top).sum())

    @property
    def share_of_used(self) -> float:
        """Share of the traffic that they carry."""
        level = np.nan_to_num(self.level)
        return float(level[level > _CARRIES * self.top].sum() / level.sum())

    @property
    def effective_flows(self) -> float:
        """How many equal flows would be as uneven as this."""
        return effective_flows(self.level[np.isfinite(self.level)])


class Loads:
    """The groups that have a queue, or a hot link where queues cannot be seen."""

    def __init__(self, inputs: DetectorInput, t: EcmpGroups) -> None:
        self._inputs = inputs
        self._t = t
        self.util = inputs.util("tx")

    @cached_property
    def all(self) -> tuple[Load, ...]:
        """Those with a hot member; none that is only less full than another's.

        A link that is not full itself is blamed for what slows hosts only if no suspect that was
        fuller while it did explains it.
        """
        found = list(self._candidates())
        weak = [
            load for load in found if load.queue and not load.was_full and not self._is_root(load)
        ]
        if not weak:
            return tuple(found)
        suspects = [*(_suspect(load) for load in found if load.queue), *self._standing()]
        full = self._t.hot_util
        spared = {
            id(load)
            for load in weak
            if not is_to_blame(self._inputs, _suspect(load), suspects, full)
        }
        return tuple(load for load in found if id(load) not in spared)

    def _is_root(self, load: Load) -> bool:
        """Whether a leaf holds its hosts and is not held by any spine: the queue is its own."""
        if load.queue != "pause" or load.group.is_inward:
            return False
        _, passes_on = self._held(load.group)
        return not passes_on[:, load.tops > 0].any()

    def _standing(self) -> Iterator[Suspect]:
        """The fullest links of those that are told of already."""
        standing = self._inputs.standing.items()
        told = {
            row: each
            for key, each in standing
            if key.startswith(_CROWDED)
            for row in each.rows[: _MOST_HOT if _is_group(each) else 1]
        }
        slow = {row for key, each in standing if key.startswith(_DEGRADED) for row in each.rows[:2]}
        for group in self._inputs.structure.groups if told or slow else ():
            rows = group.rows.tolist()
            own = [row for row in rows if row in told]
            if not slow.isdisjoint(rows):
                yield Suspect(np.ones(TICKS, np.float32), group.is_inward, group.hosts, None)
            elif own:
                # A link that is not seen for a while is as full as it was: nobody else is to blame.
                seen = self.util[own]
                last = max(_last_level(told[row]) for row in own)
                tops = np.where(np.isnan(seen).all(axis=0), last, np.nan_to_num(seen).max(axis=0))
                yield Suspect(tops, group.is_inward, group.hosts, None)

    def _candidates(self) -> Iterator[Load]:
        recent = self._inputs.sent[:, -self._t.of_ticks :]
        peak = recent.max(axis=1)
        for group in self._inputs.structure.groups:
            if peak[group.rows].max() < self._t.used_util or self._is_calm(group):
                continue
            load = self._load(group)
            if load is not None:
                yield load

    def _is_calm(self, group: LinkGroup) -> bool:
        """Whether queues can be seen, and nobody was slowed by one of late."""
        touched, counted = self._touched
        if not len(group.hosts) or not counted[group.hosts].any():
            return False
        return not (touched.any() if group.is_inward else touched[group.hosts].any())

    @cached_property
    def _touched(self) -> tuple[Mask, Mask]:
        """[ports]: who saw marks or was slowed of late, and who counts any of that."""
        inputs = self._inputs
        told = inputs.told_to_slow[:, -self._t.of_ticks :] | inputs.marked[:, -self._t.of_ticks :]
        counted = np.zeros(len(told), np.bool_)
        for column in ("cnp", "ecn", "pause_rx", "stall"):
            counted |= np.isfinite(inputs.window(column)[:, -1])
        return np.any(told, axis=1), counted

    def _load(self, group: LinkGroup) -> Load | None:
        t, rows = self._t, group.rows
        own = self.util[rows]
        alive: Mask = np.any(np.isfinite(own), axis=1)
        if alive.sum() < 2:
            return None
        known = np.nan_to_num(own)
        top: Floats = known.max(axis=0)
        kind, queued, passes_on = self._queue(group)
        if kind:
            counts = _last(queued & (top >= t.used_util), t.of_ticks)
            if not counts[-t.of_ticks :].any():
                return None
            # Pause goes where marks do not: its root gets a second more to show itself.
            more = 1 if kind == "pause" else 0
            leads = counts & (known >= _LEADS * top) & ~passes_on
            hot_ticks = leads.sum(axis=1)
            full_ticks = (counts & (known >= t.full_util) & ~passes_on).sum(axis=1)
            level = _level(own, alive, counts)
            with np.errstate(invalid="ignore", divide="ignore"):
                alike = level >= _ALIKE * np.nanmax(level)
                leaves_room = 1.0 - np.nanmean(level) / level >= t.lost_min
            full = full_ticks >= t.full_ticks + more
            was_full = bool((alike & full).any())
            always = (hot_ticks == counts.sum()) & (hot_ticks >= t.hot_ticks + more)
            # Beside a link that was full, one that was not is only the next.
            hot = full & (alike | leaves_room) if was_full else alike & always
        else:
            late = np.arange(TICKS) >= TICKS - t.of_ticks
            hot_ticks = (late & (known >= t.hot_util)).sum(axis=1)
            hot = hot_ticks >= t.hot_ticks
            was_full = True
            counts = late & (top >= t.hot_util)
            level = _level(own, alive, counts)
        if not hot.any():
            return None
        streams, is_lone = self._streams(group, level, counts)
        return Load(
            group=group,
            level=level,
            hot=hot,
            hot_ticks=hot_ticks,
            queue=kind,
            streams=streams,
            is_lone=is_lone,
            is_full=bool((_mean(own[alive][:, counts]) >= t.hot_util).any()),
            was_full=was_full,
            tops=np.where(counts, known[hot].max(axis=0), 0),
            slowed=self._slowed(group, counts) if kind == "marks" else None,
        )

    def _slowed(self, group: LinkGroup, counts: Mask) -> Rows:
        """The NICs behind a group by whose marks its queue was seen, often enough."""
        hosts = group.hosts
        if group.is_inward:
            hosts = hosts[~full_receivers(self._inputs).full[hosts]]
            told = self._inputs.marked[hosts]
        else:
            told = self._inputs.filled("cnp")[hosts] > 1
        often: Mask = (told & counts).sum(axis=1) >= self._t.hot_ticks
        return hosts[often]

    def _queue(self, group: LinkGroup) -> tuple[str, Mask, Mask]:
        """What can tell of a queue in front of the group; in which [ticks] it did; and which
        [members, ticks] are held themselves, so that the queue is further on.
        """
        inputs, late = self._inputs, self._t.of_ticks
        hosts = group.hosts
        no_tick = np.zeros(TICKS, np.bool_)
        nobody = np.zeros((len(group.rows), 1), np.bool_)
        if not len(hosts):
            return "", no_tick, nobody
        column = "ecn" if group.is_inward else "cnp"
        counted = np.isfinite(inputs.window(column)[hosts, -1]).any()
        receivers = full_receivers(inputs)
        if not counted or not receivers.marks[-late:].any():
            # ECN may be off, or the queue too short for it.
            paused = inputs.window("pause_rx")[hosts, -1], inputs.window("stall")[hosts, -1]
            if not counted and not np.isfinite(paused).any():
                return "", no_tick, nobody
            return "pause", *self._held(group)
        if group.is_inward:
            open_ones = hosts[~receivers.full[hosts]]
            marked: Mask = np.any(inputs.marked[open_ones], axis=0)
        else:
            slowed = inputs.filled("cnp")[hosts] > 1
            marked = slowed.any(axis=0) & ~receivers.explain
        return "marks", marked, nobody

    def _held(self, group: LinkGroup) -> tuple[Mask, Mask]:
        """[ticks]: whether those who fill the group are held; [members, ticks]: whether it is."""
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
        held: Mask = before > self._t.held
        return held, share[group.rows] > 0.5 * before

    def _streams(self, group: LinkGroup, level: Floats, counts: Mask) -> tuple[int | None, bool]:
        """The least number of flows in the group, and whether one alone fills its hottest link."""
        if not len(group.edges):
            return None, False
        inputs = self._inputs
        way = "tx_bps" if group.is_inward else "rx_bps"
        sent = np.nan_to_num(inputs.window(way)[group.edges][:, counts])
        total = np.nan_to_num(inputs.window("tx_bps")[group.rows][:, counts])
        biggest = float(sent.sum(axis=1).max())
        if biggest <= 0:
            return None, False
        bits = total.sum(axis=1)
        streams = _fewest(sent.sum(axis=1), 0.98 * float(bits.sum()))
        return max(1, streams), bool(biggest >= 0.9 * bits.max() and streams <= 1)


def loads(inputs: DetectorInput, t: EcmpGroups) -> tuple[Load, ...]:
    """The groups with a hot member, worked out once a tick."""
    if inputs.group_loads is None:
        inputs.group_loads = Loads(inputs, t)
    return inputs.group_loads.all


def _fewest(senders: Floats, carried: float) -> int:
    """How few of the senders, the biggest first, could have sent so much."""
    return int(np.searchsorted(np.cumsum(np.sort(senders)[::-1]), carried)) + 1


def _level(own: Floats, alive: Mask, counts: Mask) -> Floats:
    """[members] means over the ticks that count; NaN of the dead and of the silent."""
    known = np.isfinite(own) & counts & alive[:, None]
    with np.errstate(invalid="ignore"):
        level: Floats = np.where(known, own, 0).sum(axis=1) / known.sum(axis=1)
    return level


def _mean(own: Floats) -> Floats:
    """[ticks] mean over the members, the silent as idle."""
    mean: Floats = np.nan_to_num(own).mean(axis=0)
    return mean


def _last_level(condition: Condition) -> float:
    """Utilisation of its fullest link when it was last told of; 1 where that was not told."""
    told = (each.value for each in condition.evidence if each.name == LEVEL)
    return next((value / 100 for value in told if not isinstance(value, str)), 1.0)


def _last(counts: Mask, most: int) -> Mask:
    """The last so many of the ticks that count."""
    after = np.cumsum(counts[::-1])[::-1]
    last: Mask = counts & (after <= most)
    return last


def _suspect(load: Load) -> Suspect:
    return Suspect(load.tops, load.group.is_inward, load.group.hosts, load.slowed)


def _is_group(condition: Condition) -> bool:
    """Whether it is about a group, its hottest links first, and not about one link of it."""
    return condition.cause != "ecmp_collision"
