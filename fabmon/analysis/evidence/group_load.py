"""How the parallel links of a group are loaded, and whether a full one slows the flows on it.

A full link by itself is no fault: one flow at the line rate of its sender fills a link, and so do
all links of a 1:1 leaf whose hosts send all they can. A link is too small for what it is given when
it is full while ports that feed it stay below what they could send, and when the ports that do send
all they can do not account for its load. Only seconds in which the link was full are compared, so
that compute phases and the edges of bursts do not count.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import (
    TICKS,
    WINDOW_TICKS,
    DetectorInput,
    without_nan,
)
from fabmon.analysis.evidence.downstream_links import SAME_LOAD, without_downstream
from fabmon.analysis.evidence.edge_queues import EdgeQueues
from fabmon.analysis.evidence.full_link import (
    EcmpGroupThresholds,
    FullGroup,
    FullLink,
    GroupLoads,
)
from fabmon.analysis.evidence.queue_signals import QueueThresholds, queue_signals
from fabmon.analysis.evidence.sharing import (
    ACCOUNTED,
    SLOWED_BELOW,
    SLOWED_BELOW_TCP,
    last_ticks,
    only_sender,
    sharing,
)
from fabmon.analysis.fabric_structure import LinkGroup, Mask
from fabmon.fabric.snapshot import Floats

_BIG, _LEAST = 0.1, 0.01
"""Share of what the largest sender sends, and of line rate, 0 to 1, above which a port takes part
in sharing a group: less is not limited by the group, and is subtracted from its capacity."""

_KNOWN_FEEDERS = 0.5
"""Share of what a group carries, 0 to 1, that the ports that feed it must bring for them to be
known."""

_CLEARLY_UNEVEN = 0.3
"""1 - mean/max of a group, 0 to 1, from which on a full link is reported without knowing who feeds
it, or for how much of the time it is full."""

_NEARLY_AS_MUCH, _CLIPPED = 0.75, 0.25
"""Share of a full link's load, 0 to 1, from which on a tick is nearly full, and the share of these
ticks that must be full: what limits its flows is full whenever they are fast, and not by chance."""

_NO_ROOM = 0.85
"""Mean utilisation of a group, 0 to 1, from which on it has too few links, however it hashes."""

_HELD = 0.5
"""Share of the fastest sender's rate, 0 to 1, from which on the link holds a sender that shares it:
slower ones are held elsewhere, or have less to send."""

_ROUNDING = 1.001
"""The mean of some numbers can be this many times smaller than the least of them."""

_NEARLY_FULL = 0.03
"""A whole group is full where its mean is this much below the utilisation of one full link."""

_SAME_RATIO = 1.05
"""Line rate below a group over that of its links up to which the group cannot be too small."""

_MOST = 0.5
"""Share of the ports that send much, 0 to 1, that a full group slows at least."""

_MOST_WAITING = 0.9
"""Share of the time with traffic, 0 to 1, up to which its length can be told from what is sent."""

_BURSTS = 0.2
"""Mean utilisation of a link from which on it may be full in bursts: requests at low load queue for
moments."""

_FULL_IN_BURSTS, _MOST_IN_BURSTS = 0.9, 1.05
"""Share of the time in which a sender sends or waits that a link sends, 0 to 1, from which on it is
full whenever they are active, and up to which that can be."""

_EQUAL = 0.9
"""Links of which the least carries more than this share of the most, 0 to 1, are evenly loaded."""

_EXPECTED = 0.4
"""In a lossless fabric, senders that lose a share of their bandwidth wait for as much of the time
with traffic: less than this part of it, 0 to 1, is background."""

_SLOWER = 1.02
"""Ports that never send more than this many times the line rate of slower ones may wait for
them."""

_DROPPED = 0.05
"""Share of a link's load, 0 to 1, above which what enters a switch and does not leave it was
dropped: clocks and counters differ by less."""


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
    peak = inputs.sent.max(axis=1)
    least = min(thresholds.full_util, thresholds.full_util_tcp) - _NEARLY_FULL
    signals = queue_signals(inputs, queue)
    slowed = signals.slowed | (signals.waiting >= queue.waiting)
    is_queued = bool(slowed.any())
    for group in inputs.structure.groups if peak.max(initial=0) >= least or is_queued else ():
        is_full = peak[group.rows].max(initial=0) >= least
        # Marks of receivers are of any queue before them, CNPs of senders of one behind them.
        may_burst = not group.is_inward and bool(slowed[group.hosts].any())
        may_burst &= bool(peak[group.rows].max(initial=0) >= _BURSTS)
        if not is_full and not may_burst:
            continue
        measured = _Group(inputs, thresholds, queue, group)
        if measured.members < 2:
            continue
        whole = measured.full_group() if is_full else None
        if whole is not None:
            groups.append(whole)
            continue
        full = measured.full_links() if is_full else []
        links += full or (measured.full_in_bursts() if may_burst else [])
    if groups:
        links = [each for each in links if not each.is_inferred]
    return GroupLoads(tuple(without_downstream(inputs, links)), tuple(groups))


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
        self._queues = EdgeQueues(inputs, queue, group)
        self._group = group
        lines = inputs.snapshot.line_rate_bps
        self._bps = np.ascontiguousarray(inputs.leaving(group.rows, WINDOW_TICKS))
        self._capacity = lines[group.rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            self._util: Floats = self._bps / self._capacity[:, None]
        is_up = np.isfinite(self._util[:, -TICKS:]).any(axis=1)
        is_up &= inputs.snapshot.up[group.rows] != 0
        self._util[~is_up] = np.nan
        self._known_util: Floats = without_nan(self._util)
        self._is_up = is_up
        is_rdma = not len(group.hosts) or inputs.has_rdma_counters[group.hosts].any()
        self._full_util = t.full_util if is_rdma else t.full_util_tcp
        self._slowed_below = SLOWED_BELOW if is_rdma else SLOWED_BELOW_TCP
        self.members = int(is_up.sum())

    def full_links(self) -> list[FullLink]:
        """The members that are full, and slow flows while others of the group have room."""
        full: Mask = self._known_util >= self._full_util
        hot = (full.sum(axis=1) >= self._t.full_ticks) & full[:, -TICKS:].any(axis=1)
        nearly = (self._known_util >= _NEARLY_AS_MUCH * self._full_util).sum(axis=1)
        hot &= full.sum(axis=1) >= _CLIPPED * nearly
        hot &= self._carries_more()
        if not hot.any() or not self._has_room_at_times(full):
            return []
        return list(self._too_small(np.flatnonzero(hot).tolist(), full))

    def _carries_more(self) -> Mask:
        """[members]: whether a link carries more than the least of them over ten seconds: in single
        seconds, links that are sampled at different moments differ."""
        mean = self._known_util[:, -TICKS:].mean(axis=1)
        more: Mask = mean * _EQUAL > mean[self._is_up].min(initial=np.inf)
        return more

    def _too_small(self, hot: list[int], full: Mask) -> Iterator[FullLink]:
        feeds, lines = self._feeders()
        if not self._are_known(feeds):
            yield from self._by_load_alone(hot, full)
            return
        alone: set[int] = set()
        shared: list[tuple[int, Mask, Floats, Floats]] = []
        by_ticks: dict[bytes, tuple[Floats, Floats, Mask]] = {}
        for member in hot:
            ticks = last_ticks(full[member])
            if ticks.tobytes() not in by_ticks:
                by_ticks[ticks.tobytes()] = self._shares(
                    feeds[:, ticks], lines, self._carried(ticks)
                )
        if not any(slowed.sum() >= 2 for *_, slowed in by_ticks.values()):
            return
        for member in hot:
            ticks = last_ticks(full[member])
            rate, possible, _ = by_ticks[ticks.tobytes()]
            free = possible > 0
            free[list(alone)] = False
            lone = only_sender(feeds, np.fmax(self._bps[member], 0), ticks, free)
            if lone is None:
                shared.append((member, ticks, rate, possible))
            else:
                alone.add(lone)
        for member, ticks, rate, possible in shared:
            level, load = self._level(ticks), self._load(member, ticks)
            has_room = np.nanmin(level) < self._t.room_util and np.nanmean(level) < _NO_ROOM
            is_big, slowed = possible > 0, by_ticks[ticks.tobytes()][2]
            free = is_big & ~slowed
            free[list(alone)] = False
            if not has_room or rate[slowed].sum() < ACCOUNTED * load.mean():
                continue
            sharers = sharing(feeds[:, ticks], slowed, load, self._queues.signs(), len(shared))
            on_it = sharers.slowed
            if on_it.sum() < 2:
                continue
            dropped = self._dropped_bps(ticks, float(load.mean()))
            lost = _lost(rate, possible, on_it, float(level[member]), dropped)
            edges = self._group.edges[slowed]
            slowed_by = self._queues.seen_at(edges)
            # Senders that nothing slows may be what fills it: then a queue must be seen at others.
            carried = sum(
                float(self._load(each, ticks).mean())
                for each, *_ in shared
                if level[each] >= self._full_util - _NEARLY_FULL
            )
            is_excused = rate[free].sum() >= ACCOUNTED * carried
            queued = slowed & self._queues.queued()
            if is_excused and slowed_by and rate[queued].sum() < ACCOUNTED * carried:
                continue
            is_short = full[member].sum() < self._t.unseen_ticks
            is_unlikely = is_short or is_excused or self._queues.are_calm(edges, _EXPECTED * lost)
            if lost < self._t.lost_min or (not slowed_by and is_unlikely):
                continue
            yield FullLink(
                row=int(self._group.rows[member]),
                group=self._group,
                level=level,
                full_ticks=int(full[member].sum()),
                feeders=self._group.edges[on_it],
                named=self._group.edges[sharers.named],
                lost=lost,
                slowed_by=slowed_by,
                active=int(is_big.sum()),
            )

    def full_in_bursts(self) -> list[FullLink]:
        """The members that are full for parts of most seconds, whose senders show a queue.

        Loads are those of the last TICKS over the share of time in which there is traffic. Where
        there are credits or pause, that is what a sender sends and waits; else the fullest link is
        full whenever there is traffic if all senders that share it show a queue.
        """
        recent = self._known_util[:, -TICKS:]
        mean = recent.mean(axis=1)
        level: Floats = np.where(self._is_up, mean, np.nan)
        top = float(mean.max())
        is_steady = (recent[int(mean.argmax())] > top / 2).sum() > TICKS // 2
        if not is_steady or top < _BURSTS or np.nanmin(level) >= self._t.room_util * top:
            return []
        feeds, lines = self._feeders()
        queued, signs = self._queues.queued(), self._queues.signs()
        waits = self._queues.waiting()
        if not self._are_known(feeds) or not queued.any():
            return []
        ticks = last_ticks(np.ones(WINDOW_TICKS, np.bool_), TICKS)
        sent = feeds[:, ticks]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = sent.mean(axis=1) / lines / (1 - np.fmin(waits, _MOST_WAITING))
            active = min(1.0, float(np.max(share[waits > 0], initial=0)))
        is_seen = active > 0
        if is_seen and not _FULL_IN_BURSTS <= top / active <= _MOST_IN_BURSTS:
            return []  # They wait for another link, or do not wait all the time.
        if not is_seen:
            active = top / self._full_util
        level, sent = level / active, sent / active
        if np.nanmean(level) >= (_NO_ROOM if is_seen else 1 - _CLEARLY_UNEVEN):
            return []
        rate, possible, slowed = self._shares(sent, lines, self._carried(ticks) / active)
        if not is_seen:
            slowed &= queued & self._queues.are_lasting()
        found: list[FullLink] = []
        alone = np.zeros(len(lines), np.bool_)
        fullest = np.flatnonzero(mean >= (1 - SAME_LOAD) * top).tolist()
        for member in fullest:
            lone = only_sender(feeds, np.fmax(self._bps[member], 0), ticks, ~alone)
            if lone is not None:
                alone[lone] = True
                continue
            load = self._load(member, ticks) / active
            carried = len(fullest) * float(load.mean())
            fast = (possible > 0) & ~slowed & ~alone
            is_excused = rate[fast].sum() >= ACCOUNTED * carried
            if is_excused and rate[slowed & queued].sum() < ACCOUNTED * carried:
                continue
            sharers = sharing(
                sent, slowed & ~alone, load, signs, len(fullest), must_be_known=not is_seen
            )
            on_it = sharers.slowed
            if on_it.sum() < 2:
                continue
            lost = _lost(rate, possible, on_it, float(level[member]))
            slowed_by = self._queues.seen_at(self._group.edges[on_it])
            if lost >= self._t.lost_min and slowed_by:
                found.append(
                    FullLink(
                        row=int(self._group.rows[member]),
                        group=self._group,
                        level=level,
                        full_ticks=TICKS,
                        feeders=self._group.edges[on_it],
                        named=self._group.edges[sharers.named],
                        lost=lost,
                        slowed_by=slowed_by,
                        active=int((possible > 0).sum()),
                        busy=active,
                        is_inferred=not is_seen,
                    )
                )
        return found

    def _dropped_bps(self, ticks: Mask, load: float) -> float:
        """Bits/s that enter the switch of the group and do not leave it, where that is more than
        counters differ by; 0 for links into a switch, whose drops are at other switches. Senders
        that do not slow down (UDP) lose them."""
        if self._group.is_inward:
            return 0.0
        structure = self._inputs.structure
        own = np.flatnonzero(structure.node == structure.node[self._group.rows[0]])
        enters, leaves = (
            float(np.nan_to_num(of(own, WINDOW_TICKS)[:, ticks]).mean(axis=1).sum())
            for of in (self._inputs.entering, self._inputs.leaving)
        )
        return enters - leaves if enters - leaves > _DROPPED * load else 0.0

    def _load(self, member: int, ticks: Mask) -> Floats:
        """[ticks that count]: bits/s on a member; 0 where it is not known."""
        load: Floats = np.fmax(self._bps[member][ticks], np.float32(0))
        return load

    def _are_known(self, feeds: Floats) -> bool:
        """Whether the ports that feed the group account for what it carries."""
        carried = float(np.nan_to_num(self._bps[:, -TICKS:]).sum())
        return float(feeds[:, -TICKS:].sum()) >= _KNOWN_FEEDERS * carried

    def _by_load_alone(self, hot: list[int], full: Mask) -> Iterator[FullLink]:
        """Full links beside others with room, where it is not known who feeds them."""
        for member in hot:
            level = self._level(last_ticks(full[member]))
            lost = 1.0 - float(np.nanmean(level) / level[member])
            if np.nanmin(level) < self._t.room_util and lost >= _CLEARLY_UNEVEN:
                yield FullLink(
                    row=int(self._group.rows[member]),
                    group=self._group,
                    level=level,
                    full_ticks=int(full[member].sum()),
                    feeders=self._group.edges[:0],
                    named=self._group.edges[:0],
                    lost=lost,
                    slowed_by="",
                    active=0,
                )

    def full_group(self) -> FullGroup | None:
        """The group, where no member has room and ports that feed it are slowed; else None."""
        known = self._known_util[self._is_up]
        full: Mask = known.min(axis=0) >= self._t.room_util
        full &= known.mean(axis=0) >= self._full_util - _NEARLY_FULL
        if full.sum() < self._t.full_ticks or not full[-TICKS:].any():
            return None
        feeds, lines = self._feeders()
        ticks = last_ticks(full)
        if not len(feeds):
            return None
        rate = feeds[:, ticks].mean(axis=1)
        is_big = _takes_part(rate, lines)
        slowed = is_big & (rate < self._slowed_below * lines)
        capacity = float(np.nansum(self._capacity[self._is_up]))
        below = float(np.nansum(self._inputs.snapshot.line_rate_bps[self._group.edges]))
        ratio = below / capacity if capacity > 0 else 0.0
        crossing = self._crossing(rate, is_big, self._carried(ticks))
        if slowed.sum() < max(2, _MOST * crossing) or ratio <= _SAME_RATIO:
            return None
        lost = 1.0 - float(rate[slowed].sum() / lines[slowed].sum())
        if lost < self._t.lost_min:
            return None
        edges = self._group.edges[slowed]
        slowed_by = self._queues.seen_at(edges)
        if not slowed_by and self._queues.are_calm(edges):
            return None
        return FullGroup(self._group, self._level(ticks), edges, lost, ratio, slowed_by)

    def _carried(self, ticks: Mask) -> float:
        """Bits/s on all members in some ticks."""
        return float(np.fmax(self._bps[:, ticks], 0).mean(axis=1).sum())

    def _crossing(self, rate: Floats, is_big: Mask, carried: float) -> float:
        """How many of the ports that send much send it over the group, which carries so many
        bits/s: traffic between two ports of the same switch does not."""
        return float(is_big.sum()) * min(1.0, carried / max(float(rate.sum()), 1.0))

    def _feeders(self) -> tuple[Floats, Floats]:
        """[edges, ticks] bits/s that the switch's other ports bring to the group (or take from it,
        for links into a switch), and what they can send [edges], bits/s: their line rates, or that
        of slower NICs that they may wait for; 0 where not known."""
        edges = self._group.edges
        inputs = self._inputs
        counted = (inputs.leaving if self._group.is_inward else inputs.entering)(
            edges, WINDOW_TICKS
        )
        feeds = np.ascontiguousarray(without_nan(counted))
        lines = without_nan(inputs.snapshot.line_rate_bps[edges])
        most = feeds.max(axis=1)
        for slower in inputs.once(_speeds_in_full_use):
            lines = np.where(most <= _SLOWER * slower, np.fmin(lines, slower), lines)
        return feeds, lines

    def _has_room_at_times(self, full: Mask) -> bool:
        """Whether some member has room in some tick in which a member is full."""
        lowest = np.fmin.reduce(self._util[:, full.any(axis=0)], axis=None, initial=np.inf)
        return bool(lowest < self._t.room_util * _ROUNDING)

    def _shares(self, feeds: Floats, lines: Floats, carried: float) -> tuple[Floats, Floats, Mask]:
        """[edges] bits/s that a port sends in the ticks of `feeds`, in which the group carries so
        many, and that it could send: the smaller of its line rate and its fair share of the group;
        0 for ports that send next to nothing. And whether it is slowed, most of the time."""
        rate: Floats = feeds.mean(axis=1)
        is_big = _takes_part(rate, lines)
        capacity = float(np.nansum(self._capacity[self._is_up]))
        fair = (capacity - float(rate[~is_big].sum())) / max(
            self._crossing(rate, is_big, carried), 1
        )
        possible: Floats = np.where(is_big, np.fmin(lines, np.float32(max(fair, 0.0))), 0)
        mostly = np.fmax(rate, np.median(feeds, axis=1))
        return rate, possible, (possible > 0) & (mostly < self._slowed_below * possible)

    def _level(self, ticks: Mask) -> Floats:
        known = np.isfinite(self._util) & ticks
        with np.errstate(invalid="ignore"):
            level: Floats = np.where(known, self._util, 0).sum(axis=1) / known.sum(axis=1)
        return level.astype(np.float32, copy=False)


def _lost(
    rate: Floats, possible: Floats, sharers: Mask, util: float, dropped_bps: float = 0.0
) -> float:
    """1 - achieved / possible of the ports that share a link at its utilisation, 0 to 1.

    Of flows that share a link, those with less than their part of it have no more to send. No link
    carries more than the full one: 93 to 99 % of its line rate.
    """
    held = sharers & (rate >= _HELD * rate[sharers].max())
    achieved = max(0.0, float(rate[held].sum()) - dropped_bps)
    return max(0.0, 1.0 - achieved / (min(1.0, util) * float(possible[held].sum())))


def _speeds_in_full_use(inputs: DetectorInput) -> tuple[np.float32, ...]:
    """The line rates, bits/s, highest first, at which some rail sends or receives, where not all
    rails are as fast."""
    rail, lines = inputs.structure.is_rail, inputs.snapshot.line_rate_bps
    known = lines[rail & np.isfinite(lines)]
    if not len(known) or known.min() == known.max():
        return ()
    used = np.fmax(inputs.sent, inputs.received_filled).max(axis=1)
    return tuple(np.unique(lines[rail & (used >= SLOWED_BELOW)])[::-1])


def _takes_part(rate: Floats, lines: Floats) -> Mask:
    """[ports]: whether a port sends enough to be limited by the links that it shares."""
    big: Mask = (rate > _BIG * rate.max(initial=0)) & (rate > _LEAST * lines) & (lines > 0)
    return big
