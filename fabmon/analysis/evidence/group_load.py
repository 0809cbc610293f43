"""How the parallel links of a group are loaded, and whether a full one slows the flows on it.

A full link by itself is no fault: one flow at the line rate of its sender fills a link, and so do
all links of a 1:1 leaf whose hosts send all they can. A link is too small for what it is given when
it is full while ports that feed it stay below what they could send, and when the ports that do send
all they can do not account for its load. Only seconds in which the link was full are compared, so
that compute phases and the edges of bursts say nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput
from fabmon.analysis.evidence.null_model import effective_flows
from fabmon.analysis.evidence.queue_signals import QueueThresholds, queue_signals
from fabmon.analysis.fabric_structure import NONE, LinkGroup, Mask, Rows
from fabmon.analysis.thresholds import Share, Ticks
from fabmon.fabric.snapshot import Floats

LINK_UTIL = "link util"
"""Name of the evidence that has the utilisation of a finding's link, in %."""

WINDOW_TICKS = 40
"""Ticks in which full ones are looked for: more than one iteration of most jobs."""

_MOST_FULL_TICKS = 10
"""The latest full ticks that are compared: what was full longer ago may have had other flows."""

_USED = 0.1
"""Share of the fullest link's load, 0 to 1, above which a link counts as used."""

_BIG, _LEAST = 0.1, 0.01
"""Share of what the largest sender sends, and of line rate, 0 to 1, above which a port takes part
in sharing a group: less is not limited by the group, and is subtracted from its capacity."""

_BELOW = 0.9
"""Share of what a port could send, 0 to 1, below which it is slowed: a NIC that nothing limits
reaches 93 % and more."""

_ALONE = 0.15
"""A link whose load differs by less than this share from what one port sends is that port's."""

_CALM = 0.02
"""Share of time paused or without credits, 0 to 1, below which a host is not slowed."""

_LEADS_TICKS, _FAR_BELOW, _MOSTLY_HERE = 8, 0.6, 0.8
"""A link that fills no second is suspected when it leads its group in so many of the last ten
ticks, the median of the group is below this share of it, and this share of all slowed hosts is
behind the group."""

_KNOWN_FEEDERS = 0.5
"""Share of what a group carries, 0 to 1, that the ports that feed it must bring for them to be
known."""

_CLEARLY_UNEVEN = 0.3
"""1 - mean/max of a group, 0 to 1, from which on a full link is reported without knowing who feeds
it."""

_ACCOUNTED = 0.85
"""Share of a link's load, 0 to 1, that the slowed ports must send for it to be the reason."""

_SAME_SHARE = 0.2
"""Flows that share a link fairly have rates within this share of each other."""

_SAME_LOAD = 0.06
"""Links whose loads differ by less than this share, in the same ticks, carry the same flows."""

_NEARLY = 0.9
"""Share of a link's greatest load, 0 to 1, from which on a tick shows what fills it."""

_NO_ROOM = 0.85
"""Mean utilisation of a group, 0 to 1, from which on it has too few links, however it hashes."""

_MORE = 1.015
"""A link that carries this many times another's load has traffic that the other has not."""


class EcmpGroupThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [ecmp_groups]; shares are of line rate and of bandwidth."""

    full_util: Share
    full_util_tcp: Share
    full_ticks: Ticks
    room_util: Share
    used_util: Share
    lost_min: Share


@dataclass(frozen=True, slots=True)
class FullLink:
    """A link of a group that is full and slows its flows.

    `row` is the port that sends into it. `feeders` are the ports whose traffic it slows (edge ports
    of the switch before it, or behind it for links into a switch). `level` [members] is the mean
    utilisation of the group's members while the link was full, NaN of those that are down.
    `full_ticks` is the number of these ticks. `lost` is 1 - achieved / possible, 0 to 1: what the
    slowed ports send over what they could (the smaller of their line rate and their fair share of
    the group). `slowed_by` says how a queue was seen at the hosts (`CNPs or marks`, `pause or
    credits`; empty where it was not). `active` is the number of ports that take part in sharing the
    group; 0 where it is not known who feeds it: then `feeders` is empty, and `lost` the imbalance.
    """

    row: int
    group: LinkGroup
    level: Floats
    full_ticks: int
    feeders: Rows
    lost: float
    slowed_by: str
    active: int

    @property
    def links(self) -> int:
        """Members that are up."""
        return int(np.isfinite(self.level).sum())

    @property
    def mean(self) -> float:
        """Mean utilisation of the members."""
        return float(np.nanmean(self.level))

    @property
    def util(self) -> float:
        """Utilisation of the link itself."""
        return float(self.level[self.group.rows == self.row][0])

    @property
    def imbalance(self) -> float:
        """1 - mean/max of the group, 0 to 1."""
        return max(0.0, 1.0 - self.mean / float(np.nanmax(self.level)))

    @property
    def used(self) -> int:
        """Members that carry a notable part of the traffic."""
        return int((self.level > _USED * float(np.nanmax(self.level))).sum())

    @property
    def effective_flows(self) -> float:
        """The number of equal flows, hashed at random, that would be as uneven."""
        return effective_flows(self.level[np.isfinite(self.level)])


@dataclass(frozen=True, slots=True)
class FullGroup:
    """A group none of whose links has room while ports that feed it are slowed; `lost` as above.

    `ratio` is the line rate of the ports that feed the group over that of its links.
    """

    group: LinkGroup
    level: Floats
    feeders: Rows
    lost: float
    ratio: float
    slowed_by: str


@dataclass(frozen=True, slots=True)
class GroupLoads:
    """What is wrong with the groups of a tick."""

    links: tuple[FullLink, ...]
    groups: tuple[FullGroup, ...]


def group_loads(
    inputs: DetectorInput, thresholds: EcmpGroupThresholds, queue: QueueThresholds
) -> GroupLoads:
    """The full links that slow their flows, and the full groups; computed once a tick."""
    return inputs.once(_group_loads, thresholds, queue)


def _group_loads(
    inputs: DetectorInput, thresholds: EcmpGroupThresholds, queue: QueueThresholds
) -> GroupLoads:
    links: list[FullLink] = []
    groups: list[FullGroup] = []
    used: list[_Group] = []
    peak = inputs.sent.max(axis=1)
    for group in inputs.structure.groups:
        if peak[group.rows].max(initial=0) < thresholds.used_util:
            continue
        measured = _Group(inputs, thresholds, queue, group)
        if measured.members < 2:
            continue
        used.append(measured)
        whole = measured.full_group()
        if whole is not None:
            groups.append(whole)
        else:
            links += measured.full_links()
    if not links and not groups:
        # A link that is never full for a second is suspected only where no other explains a queue.
        suspects = [found for each in used for found in each.leading_link()]
        links = suspects if len(suspects) == 1 else []
    return GroupLoads(tuple(_without_downstream(inputs, links)), tuple(groups))


class _Group:
    """Measures one group. Ticks are the last WINDOW_TICKS, oldest first."""

    def __init__(
        self,
        inputs: DetectorInput,
        t: EcmpGroupThresholds,
        queue: QueueThresholds,
        group: LinkGroup,
    ) -> None:
        self._inputs = inputs
        self._t = t
        self._queue = queue
        self._group = group
        lines = inputs.snapshot.line_rate_bps
        self._bps = inputs.leaving(group.rows, WINDOW_TICKS)
        self._capacity = lines[group.rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            self._util: Floats = self._bps / self._capacity[:, None]
        is_up = np.isfinite(self._util[:, -TICKS:]).any(axis=1)
        is_up &= inputs.snapshot.up[group.rows] != 0
        self._util[~is_up] = np.nan
        self._is_up = is_up
        is_rdma = not len(group.hosts) or inputs.has_rdma_counters[group.hosts].any()
        self._full_util = t.full_util if is_rdma else t.full_util_tcp
        self.members = int(is_up.sum())

    def full_links(self) -> list[FullLink]:
        """The members that are full, and slow flows while others of the group have room."""
        full: Mask = np.nan_to_num(self._util) >= self._full_util
        hot = (full.sum(axis=1) >= self._t.full_ticks) & full[:, -TICKS:].any(axis=1)
        if not hot.any():
            return []
        return list(self._too_small(np.flatnonzero(hot).tolist(), full))

    def _too_small(self, hot: list[int], full: Mask) -> Iterator[FullLink]:
        feeds, lines = self._feeders()
        if not self._are_known(feeds):
            yield from self._by_load_alone(hot, full)
            return
        alone: set[int] = set()
        shared: list[tuple[int, Mask, Floats, Floats]] = []
        for member in hot:
            ticks = last_ticks(full[member], _MOST_FULL_TICKS)
            rate, possible = self._shares(feeds, lines, ticks)
            free = (possible > 0) & (rate >= _BELOW * possible)
            lone = self._alone_on(member, ticks, feeds, free, alone)
            if lone is None:
                shared.append((member, ticks, rate, possible))
            else:
                alone.add(lone)
        carried = float(sum(np.nan_to_num(self._bps[each][on]).mean() for each, on, *_ in shared))
        for member, ticks, rate, possible in shared:
            level = self._level(ticks)
            has_room = np.nanmin(level) < self._t.room_util and np.nanmean(level) < _NO_ROOM
            is_big = possible > 0
            slowed = is_big & (rate < _BELOW * possible)
            free = is_big & ~slowed
            free[list(alone)] = False
            load = float(np.nan_to_num(self._bps[member][ticks]).mean())
            if not has_room or slowed.sum() < 2 or rate[slowed].sum() < _ACCOUNTED * load:
                continue
            on_it = sharing(rate, slowed, load)
            lost = 1.0 - float(rate[on_it].mean() / possible[on_it].mean())
            edges = self._group.edges[slowed]
            slowed_by = self._slowed_by(edges)
            # Senders that nothing slows may be what fills it: then a queue must be seen at others.
            is_excused = rate[free].sum() >= _ACCOUNTED * carried
            if not slowed_by and (is_excused or self._is_calm(edges)):
                continue
            if lost < self._t.lost_min:
                continue
            yield FullLink(
                row=int(self._group.rows[member]),
                group=self._group,
                level=level,
                full_ticks=int(full[member].sum()),
                feeders=self._group.edges[on_it],
                lost=lost,
                slowed_by=slowed_by,
                active=int(is_big.sum()),
            )

    def _are_known(self, feeds: Floats) -> bool:
        """Whether the ports that feed the group account for what it carries."""
        carried = float(np.nan_to_num(self._bps[:, -TICKS:]).sum())
        return float(np.nan_to_num(feeds[:, -TICKS:]).sum()) >= _KNOWN_FEEDERS * carried

    def _by_load_alone(self, hot: list[int], full: Mask) -> Iterator[FullLink]:
        """Full links beside others with room, where it is not known who feeds them."""
        for member in hot:
            level = self._level(last_ticks(full[member], _MOST_FULL_TICKS))
            lost = 1.0 - float(np.nanmean(level) / level[member])
            if np.nanmin(level) < self._t.room_util and lost >= _CLEARLY_UNEVEN:
                yield FullLink(
                    row=int(self._group.rows[member]),
                    group=self._group,
                    level=level,
                    full_ticks=int(full[member].sum()),
                    feeders=self._group.edges[:0],
                    lost=lost,
                    slowed_by="",
                    active=0,
                )

    def leading_link(self) -> list[FullLink]:
        """The member that leads its group in all recent ticks, where the hosts that are slowed are
        behind this group: bursts of less than a second fill no second.
        """
        recent = np.nan_to_num(self._util[:, -TICKS:])
        used = recent.max(axis=0) >= self._t.used_util
        if used.sum() < _LEADS_TICKS or (recent >= self._full_util).any():
            return []
        level = self._level(np.concatenate((np.zeros(WINDOW_TICKS - TICKS, np.bool_), used)))
        member = int(np.nanargmax(level))
        top, usual = float(level[member]), float(np.nanmedian(level))
        if usual > _FAR_BELOW * top or not (recent[member] >= recent.max(axis=0))[used].all():
            return []
        signals = queue_signals(self._inputs, self._queue)
        seen = signals.marked if self._group.is_inward else signals.slowed
        hosts = self._group.hosts[seen[self._group.hosts]]
        if len(hosts) < 2 or len(hosts) < _MOSTLY_HERE * seen.sum():
            return []
        ends = self._inputs.structure.peer[hosts]
        return [
            FullLink(
                row=int(self._group.rows[member]),
                group=self._group,
                level=level,
                full_ticks=0,
                feeders=ends[ends != NONE],
                lost=1.0 - usual / top,
                slowed_by="CNPs, marks, pause or credits",
                active=len(self._group.hosts),
            )
        ]

    def full_group(self) -> FullGroup | None:
        """The group, where no member has room and ports that feed it are slowed; else None."""
        known = self._util[self._is_up]
        full: Mask = np.nan_to_num(known).min(axis=0) >= self._t.room_util
        full &= np.nan_to_num(known).mean(axis=0) >= self._full_util - 0.03
        if full.sum() < self._t.full_ticks or not full[-TICKS:].any():
            return None
        feeds, lines = self._feeders()
        ticks = last_ticks(full, _MOST_FULL_TICKS)
        if not len(feeds):
            return None
        rate = np.nan_to_num(feeds[:, ticks]).mean(axis=1)
        slowed = (rate > _BIG * rate.max()) & (rate > _LEAST * lines) & (rate < _BELOW * lines)
        capacity = float(np.nansum(self._capacity[self._is_up]))
        ratio = float(np.nansum(lines)) / capacity if capacity > 0 else 0.0
        if slowed.sum() < 2 or ratio <= 1.05:
            return None
        lost = 1.0 - float(rate[slowed].sum() / lines[slowed].sum())
        if lost < self._t.lost_min:
            return None
        edges = self._group.edges[slowed]
        return FullGroup(
            self._group, self._level(ticks), edges, lost, ratio, self._slowed_by(edges)
        )

    def _feeders(self) -> tuple[Floats, Floats]:
        """[edges, ticks] bits/s that the switch's other ports bring to the group (or take from it,
        for links into a switch), and their line rates [edges], bits/s, 0 where not known."""
        edges = self._group.edges
        inputs = self._inputs
        feeds = (inputs.leaving if self._group.is_inward else inputs.entering)(edges, WINDOW_TICKS)
        return feeds, np.nan_to_num(inputs.snapshot.line_rate_bps[edges])

    def _shares(self, feeds: Floats, lines: Floats, ticks: Mask) -> tuple[Floats, Floats]:
        """[edges] bits/s that a port sends in some ticks, and that it could send: the smaller of
        its line rate and its fair share of the group; 0 for ports that send next to nothing."""
        rate: Floats = np.nan_to_num(feeds[:, ticks]).mean(axis=1)
        is_big = (rate > _BIG * rate.max()) & (rate > _LEAST * lines) & (lines > 0)
        capacity = float(np.nansum(self._capacity[self._is_up]))
        fair = (capacity - float(rate[~is_big].sum())) / max(int(is_big.sum()), 1)
        possible: Floats = np.where(is_big, np.fmin(lines, np.float32(max(fair, 0.0))), 0)
        return rate, possible

    def _alone_on(
        self, member: int, ticks: Mask, feeds: Floats, free: Mask, taken: set[int]
    ) -> int | None:
        """The port that sends all it can and accounts for a link's load alone; None without."""
        load = np.nan_to_num(self._bps[member][ticks])
        differs = np.abs(np.nan_to_num(feeds[:, ticks]) - load).mean(axis=1) / load.mean()
        differs[~free] = np.inf
        differs[list(taken)] = np.inf
        best = int(np.argmin(differs))
        return best if differs[best] <= _ALONE else None

    def _level(self, ticks: Mask) -> Floats:
        known = np.isfinite(self._util) & ticks
        with np.errstate(invalid="ignore"):
            level: Floats = np.where(known, self._util, 0).sum(axis=1) / known.sum(axis=1)
        return level.astype(np.float32, copy=False)

    def _is_calm(self, edges: Rows) -> bool:
        """Whether the hosts behind some edge ports count CNPs or waiting and have next to none.

        Then their flows just fit, and what limits them is elsewhere.
        """
        inputs, hosts = self._inputs, self._inputs.structure.peer[edges]
        hosts = hosts[hosts != NONE]
        signals = queue_signals(inputs, self._queue)
        cnps = inputs.window("ecn" if self._group.is_inward else "cnp")[hosts]
        waits = np.fmax(inputs.window("pause_rx")[hosts], inputs.window("stall")[hosts])
        if not np.isfinite(cnps).any() and not np.isfinite(waits).any():
            return False
        seen = signals.marks if self._group.is_inward else signals.cnps
        least = self._queue.marks_per_gbit if self._group.is_inward else self._queue.cnps_per_gbit
        return bool((seen[hosts] < least).all() and (signals.waiting[hosts] < _CALM).all())

    def _slowed_by(self, edges: Rows) -> str:
        """How a queue is seen at the hosts behind some edge ports; empty where it is not."""
        hosts = self._inputs.structure.peer[edges]
        hosts = hosts[hosts != NONE]
        signals = queue_signals(self._inputs, self._queue)
        if (signals.waiting[hosts] >= self._queue.waiting).any():
            return "pause or credits"
        seen = signals.marked if self._group.is_inward else signals.slowed
        return "CNPs or marks" if seen[hosts].any() else ""


def sharing(rate: Floats, slowed: Mask, load: float) -> Mask:
    """[edges]: the slowed ports that share a link of a load: the fewest that have an equal part of
    it each; all slowed ones where no number of them does."""
    order = np.flatnonzero(slowed)
    for flows in range(2, len(order) + 1):
        part = load / flows
        near = order[np.abs(rate[order] - part) <= _SAME_SHARE * part]
        if len(near) >= flows:
            closest = near[np.argsort(np.abs(rate[near] - part), kind="stable")[:flows]]
            found = np.zeros(len(slowed), np.bool_)
            found[closest] = True
            return found
    return slowed


def last_ticks(counts: Mask, most: int) -> Mask:
    """The last so many of the ticks that count."""
    after = np.cumsum(counts[::-1])[::-1]
    last: Mask = counts & (after <= most)
    return last


def _without_downstream(inputs: DetectorInput, links: list[FullLink]) -> list[FullLink]:
    """Full links without those that only carry the flows of another one before or behind them.

    Flows that collided on their way up go down together where their destination is the same; there
    is no second queue then. Of two such links the one that carries more has other traffic as well,
    which makes it the narrower one; where they carry the same, it is the first.
    """
    peer, node = inputs.structure.peer, inputs.structure.node
    into: dict[int, list[int]] = {}
    for each in links:
        if peer[each.row] != NONE:
            into.setdefault(int(node[peer[each.row]]), []).append(each.row)
    dropped: set[int] = set()
    for each in links:
        # What comes down into a leaf does not go up again.
        is_first_hop = not each.group.is_inward and len(each.group.hosts) > 0
        for before in () if is_first_hop else into.get(int(node[each.row]), ()):
            rows = np.array([before, each.row])
            fed, own = np.nan_to_num(inputs.leaving(rows, WINDOW_TICKS))
            ticks = last_ticks(own >= _NEARLY * own.max(), _MOST_FULL_TICKS)
            first, second = float(fed[ticks].mean()), float(own[ticks].mean())
            if abs(first - second) <= _SAME_LOAD * second:
                dropped.add(before if second > first * _MORE else each.row)
    return [each for each in links if each.row not in dropped]
