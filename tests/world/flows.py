"""Flows in groups that progress in step, and the rates that congestion control converges to.

A group is what one collective operation keeps in lockstep: all flows of a ring move as fast as the
slowest. A flow that depends on no other is a group of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.world.topology import Floats, Hop, Ints

Mask = NDArray[np.bool_]

NO_LINK = -1

_NEARLY = 0.9
"""A group that has this share of what a full link gives to others is held by it as well, if
another link limits it: the rates of congestion control oscillate by as much."""


def sums(index: Ints, weights: Floats, length: int) -> Floats:
    """[length] the sums of the weights of each index."""
    return np.bincount(index, weights, length).astype(np.float64, copy=False)


@dataclass(frozen=True)
class Flow:
    """One connection: ports of the sender and the receiver (-1: outside), and its path."""

    src: int
    dst: int
    hops: tuple[Hop, ...]
    key: int = 0

    def depths(self) -> list[int]:
        """How many links are before each hop on its path."""
        known = {NO_LINK: -1}
        for hop in self.hops:
            known[hop.link] = known[hop.before] + 1
        return [known[hop.link] for hop in self.hops]


class FlowTable:
    """All flows, as arrays: entries are the links of every flow, ordered by group."""

    def __init__(self) -> None:
        self._flows: list[Flow] = []
        self._group: list[int] = []
        self._is_tcp: list[bool] = []
        self._stale = True
        self.active: Mask = np.zeros(0, np.bool_)
        self.remaining: Floats = np.zeros(0)
        self.cap: Floats = np.zeros(0)
        self.weight: Floats = np.zeros(0)

    def add_group(self, flows: Sequence[Flow], tcp: bool, weight: float) -> int:
        """Add flows that progress in step; returns the number of their group."""
        group = len(self._is_tcp)
        self._is_tcp.append(tcp)
        self._flows += flows
        self._group += [group] * len(flows)
        self.active = np.append(self.active, False)
        self.remaining = np.append(self.remaining, 0.0)
        self.cap = np.append(self.cap, np.inf)
        self.weight = np.append(self.weight, weight)
        self._stale = True
        return group

    def replace_paths(self, group: int, flows: Sequence[Flow]) -> None:
        """New paths of a group's flows, as many as before."""
        mine = [n for n, g in enumerate(self._group) if g == group]
        assert len(mine) == len(flows)
        for number, flow in zip(mine, flows, strict=True):
            self._flows[number] = flow
        self._stale = True

    def flows_of(self, group: int) -> list[Flow]:
        """The flows of a group."""
        return [f for f, g in zip(self._flows, self._group, strict=True) if g == group]

    @property
    def flows(self) -> list[Flow]:
        """All flows."""
        return self._flows

    def compile(self) -> None:
        """Bring the arrays up to date."""
        if not self._stale:
            return
        self._stale = False
        self.group = np.array(self._group, np.intp)
        self.src = np.array([f.src for f in self._flows], np.intp)
        self.dst = np.array([f.dst for f in self._flows], np.intp)
        self.tcp = np.array(self._is_tcp, np.bool_)[self.group]
        entries = [
            (number, hop.link, hop.before, hop.share, depth)
            for number, flow in enumerate(self._flows)
            for hop, depth in zip(flow.hops, flow.depths(), strict=True)
        ]
        self.e_flow = np.array([e[0] for e in entries], np.intp)
        self.e_link = np.array([e[1] for e in entries], np.intp)
        self.e_before = np.array([e[2] for e in entries], np.intp)
        self.e_share = np.array([e[3] for e in entries])
        self.e_depth = np.array([e[4] for e in entries], np.intp)
        self.e_group = self.group[self.e_flow]
        self.e_by_link = np.argsort(self.e_link, kind="stable")


@dataclass(frozen=True)
class Entries:
    """The entries of the active groups, which are numbered anew from 0 (`groups` has the old
    numbers), ordered by group; `by_link` orders them by link. `depth` is how many links of the
    flow's path are before this one."""

    groups: Ints
    group: Ints
    link: Ints
    before: Ints
    share: Floats
    flow: Ints
    depth: Ints
    group_starts: Ints
    by_link: Ints
    link_starts: Ints
    links_used: Ints

    @classmethod
    def of(cls, table: FlowTable) -> Entries:
        """Those of a table's active groups."""
        on = table.active[table.e_group]
        pick = np.flatnonzero(on)
        old = table.e_group[pick]
        if not len(pick):
            none = np.zeros(0, np.intp)
            return cls(none, none, none, none, np.zeros(0), *[none] * 6)
        starts = _starts(old)
        groups = old[starts]
        new = np.zeros(len(table.active), np.intp)
        new[groups] = np.arange(len(groups))
        place = np.zeros(len(on), np.intp)
        place[pick] = np.arange(len(pick))
        ordered = table.e_by_link[on[table.e_by_link]]
        links = table.e_link[ordered]
        link_starts = _starts(links)
        return cls(
            groups,
            new[old],
            table.e_link[pick],
            table.e_before[pick],
            table.e_share[pick],
            table.e_flow[pick],
            table.e_depth[pick],
            starts,
            place[ordered],
            link_starts,
            links[link_starts],
        )


def _starts(ordered: Ints) -> Ints:
    """Where each run of equal numbers begins."""
    begins = np.empty(len(ordered), np.bool_)
    begins[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    return np.flatnonzero(begins)


def fair_rates(
    entries: Entries, service: Floats, cap: Floats, weight: Floats
) -> tuple[Floats, Ints, Mask]:
    """The weighted max-min fair rates of groups, per flow; the first link that limits each; and
    [entries] whether a link limits the entry's group (several can, equally).

    `service` is [links], `cap` and `weight` are [active groups]. A group's flows all have the rate
    of the slowest. NO_LINK: the group is limited by its cap.
    """
    count = len(entries.groups)
    rate = np.zeros(count)
    limit = np.full(count, NO_LINK, np.intp)
    tied = np.zeros(len(entries.link), np.bool_)
    if not count:
        return rate, limit, tied
    live = np.ones(count, np.bool_)
    room = service.copy()
    links = len(service)
    own_cap = cap / weight
    pull = entries.share * weight[entries.group]
    by_link_group = entries.group[entries.by_link]
    level = np.empty(links)
    lowest = np.full(links, np.inf)
    for _ in range(60):
        alive = live[entries.group]
        asked = np.bincount(entries.link, pull * alive, links)
        level.fill(np.inf)
        np.divide(np.maximum(room, 0.0), asked, out=level, where=asked > 1e-12)
        at = level[entries.link]
        least = np.minimum.reduceat(at, entries.group_starts)
        mine = np.minimum(least, own_cap)
        mine[~live] = np.inf
        lowest[entries.links_used] = np.minimum.reduceat(mine[by_link_group], entries.link_starts)
        # A link is a bottleneck when none of its groups is limited further elsewhere.
        binding = (lowest >= level * (1 - 1e-9)) & np.isfinite(level)
        hit = binding[entries.link] & alive & (at <= mine[entries.group] * (1 + 1e-9))
        freeze = np.zeros(count, np.bool_)
        freeze[entries.group[hit]] = True
        tied |= hit
        new_limit = limit.copy()
        places = np.flatnonzero(hit)[::-1]
        new_limit[entries.group[places]] = entries.link[places]
        capped = live & (own_cap <= least)
        new_limit[capped & ~freeze] = NO_LINK
        freeze |= capped
        freeze &= live
        if not freeze.any():
            break
        limit[freeze] = new_limit[freeze]
        rate[freeze] = (mine * weight)[freeze]
        moved = freeze[entries.group]
        used = np.where(moved, rate[entries.group] * entries.share, 0.0)
        room -= np.bincount(entries.link, used, links)
        live &= ~freeze
        if not live.any():
            break
    tied |= _held(entries, service, rate, weight)
    return rate, limit, tied


def _held(entries: Entries, service: Floats, rate: Floats, weight: Floats) -> Mask:
    """[entries] whether a link is a bottleneck of the entry's group: it is full, and no other group
    on it has more than its share (Bertsekas and Gallager, Data Networks, 6.5.2).

    Groups that two links limit to nearly the same rate are held by both, whichever was filled
    first: relieving one of them gains next to nothing.
    """
    links = len(service)
    load = np.bincount(entries.link, rate[entries.group] * entries.share, links)
    level = (rate / weight)[entries.group]
    highest = np.zeros(links)
    np.maximum.at(highest, entries.link, level)
    is_full = load >= service * (1 - 1e-6)
    return is_full[entries.link] & (level >= _NEARLY * highest[entries.link])
