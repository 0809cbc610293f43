"""Of full links in a row, the one whose queue it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, WINDOW_TICKS, DetectorInput
from fabmon.analysis.evidence.full_link import NO_ROOM, FullLink
from fabmon.analysis.evidence.sharing import ACCOUNTED, last_ticks
from fabmon.analysis.fabric_structure import NONE, Mask
from fabmon.fabric.snapshot import Floats

SAME_LOAD = 0.06
"""Links whose loads differ by less than this share, in the same ticks, carry the same flows."""

_NEARLY = 0.9
"""Share of a link's greatest load, 0 to 1, from which on a tick shows what fills it."""

_DIFFER = 0.15
"""Ticks of traffic by which the counters of two links that carry the same differ: what is queued
between them, and when they were read. A link that carries more has traffic that the other has not.
"""


def without_downstream(
    inputs: DetectorInput, links: list[FullLink], room_util: float
) -> list[FullLink]:
    """Full links without those that only carry the flows of another one before or behind them.

    Flows that collided on their way up go down together where their destination is the same; there
    is no second queue then. Of two such links the one that carries more has other traffic as well,
    which makes it the narrower one; where they carry the same, it is the first. Links are
    inferred from a queue that may be another's: where none is known to be full, and of two such
    links the one that loses more; into a leaf, where no link before carries as much. A link that
    may only carry what another one brings, judged or not, must be full for longer: that one may not
    have been read for as long, or meet its rule a few ticks later. After that the link that alone
    brings it is named instead, if it is as fast: what comes over one link queues before that.
    """
    peer, node = inputs.structure.peer, inputs.structure.node
    links = [each for each in links if not each.is_inferred] or links
    into: dict[int, list[int]] = {}
    arriving: dict[int, float] = {}
    leaving: dict[int, float] = {}
    for each in links:
        here, there = int(node[each.row]), int(node[peer[each.row]])
        leaving[here] = max(each.lost, leaving.get(here, 0.0))
        if peer[each.row] != NONE:
            into.setdefault(there, []).append(each.row)
            arriving[there] = max(each.lost, arriving.get(there, 0.0))
    dropped = {
        each.row
        for each in links
        if each.is_inferred
        and each.lost
        < max(arriving.get(int(node[each.row]), 0.0), leaving.get(int(node[peer[each.row]]), 0.0))
    }
    for each in links:
        # What comes down into a leaf does not go up again.
        for before in () if each.is_first_hop else into.get(int(node[each.row]), ()):
            rows = np.array([before, each.row])
            fed, own = np.nan_to_num(inputs.leaving(rows, WINDOW_TICKS))
            ticks = last_ticks(own >= _NEARLY * own.max())
            first, second = float(fed[ticks].mean()), float(own[ticks].mean())
            if abs(first - second) <= SAME_LOAD * second:
                has_more = second > first * _clearly_more(ticks)
                dropped.add(before if has_more else each.row)
        if each.is_inferred and each.group.is_inward and _may_queue_before(inputs, each.row):
            dropped.add(each.row)
        if not each.is_first_hop and each.full_ticks < TICKS and _may_be_brought(inputs, each.row):
            dropped.add(each.row)
    kept = [each for each in links if each.row not in dropped]
    return [_at_its_source(inputs, each, room_util) for each in kept]


def _at_its_source(inputs: DetectorInput, link: FullLink, room_util: float) -> FullLink:
    """The link before a full one, if that alone brings what the full one carries, is as fast, and
    others of its group have room; else the full one. The switch before it does not show that it
    slows flows whose senders do not slow down (UDP): what arrives does."""
    structure, lines = inputs.structure, inputs.snapshot.line_rate_bps
    row = None if link.is_first_hop or link.is_inferred else _only_source(inputs, link.row)
    if row is None or not abs(lines[row] - lines[link.row]) <= SAME_LOAD * lines[link.row]:
        return link
    members = np.arange(len(lines)) == row
    for place in np.flatnonzero(structure.group_links.touched(members)).tolist():
        group = structure.groups[place]
        with np.errstate(divide="ignore", invalid="ignore"):
            util = inputs.leaving(group.rows, WINDOW_TICKS) / lines[group.rows][:, None]
        util[inputs.snapshot.up[group.rows] == 0] = np.nan
        own = np.nan_to_num(util[group.rows == row][0])
        in_full = util[:, last_ticks(own >= _NEARLY * own.max())]
        with np.errstate(invalid="ignore"):
            level: Floats = np.nansum(in_full, axis=1) / np.isfinite(in_full).sum(axis=1)
        has_room = np.fmin.reduce(level) < room_util and np.nanmean(level) < NO_ROOM
        if has_room and not group.is_inward:
            return replace(link, row=row, group=group, level=level, at_receivers=True)
    return link


def _only_source(inputs: DetectorInput, row: int) -> int | None:
    """The port of another switch that sends what leaves a switch by a full link; None if there is
    none, or other ports bring more than a small part of it."""
    structure = inputs.structure
    before = structure.peer[structure.node == structure.node[row]]
    before = before[(before != NONE) & (before != structure.peer[row])]
    before = before[structure.is_switch[before]]
    own = np.nan_to_num(inputs.leaving(np.array([row]), WINDOW_TICKS)[0])
    ticks = last_ticks(own >= _NEARLY * own.max())
    load = float(own[ticks].mean())
    sent = np.nan_to_num(inputs.leaving(before, WINDOW_TICKS)[:, ticks]).mean(axis=1)
    same = np.flatnonzero(_is_same(load, sent, ticks))
    is_alone = len(same) == 1 and sent.sum() - sent[same[0]] <= (1 - ACCOUNTED) * load
    return int(before[same[0]]) if is_alone else None


def _may_be_brought(inputs: DetectorInput, row: int) -> bool:
    """Whether one of the other links into a switch brings as much as leaves it by a full link."""
    own, others = _sent_and_brought(inputs, row, WINDOW_TICKS)
    ticks = last_ticks(own >= _NEARLY * own.max())
    load, brought = float(own[ticks].mean()), others[:, ticks].mean(axis=1)
    return bool(_is_same(load, brought, ticks).any())


def _is_same(load: float, brought: Floats, ticks: Mask) -> Mask:
    """Of what links bring, what may be all that a full link sends, in some ticks."""
    near: Mask = np.abs(brought - load) <= SAME_LOAD * load
    return near & (load <= brought * _clearly_more(ticks))


def _may_queue_before(inputs: DetectorInput, row: int) -> bool:
    """Whether one of the other links into a switch brings as much as leaves it by some link: then
    what its receivers show may be a queue before that one."""
    own, others = _sent_and_brought(inputs, row, TICKS)
    return bool((others.mean(axis=1) >= (1 - SAME_LOAD) * float(own.mean())).any())


def _sent_and_brought(inputs: DetectorInput, row: int, ticks: int) -> tuple[Floats, Floats]:
    """Bits/s that a port sends [ticks], and that the other ports of its switch bring [ports,
    ticks]; 0 where not known."""
    node = inputs.structure.node
    others = np.flatnonzero(node == node[row])
    sent = np.nan_to_num(inputs.leaving(np.array([row]), ticks)[0])
    return sent, np.nan_to_num(inputs.entering(others[others != row], ticks))


def _clearly_more(ticks: Mask) -> float:
    """How many times the load of a link, in some ticks, one that carries more must have."""
    return 1 + _DIFFER / max(1, int(ticks.sum()))
