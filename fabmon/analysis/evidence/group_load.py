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

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput, without_nan
from fabmon.analysis.evidence.downstream_links import without_downstream
from fabmon.analysis.evidence.edge_queues import CNPS_OR_MARKS
from fabmon.analysis.evidence.flow_control import flow_control_of
from fabmon.analysis.evidence.full_in_bursts import (
    BURSTS,
    full_in_bursts,
    marked_in_bursts,
    others_wait_for,
)
from fabmon.analysis.evidence.full_link import (
    CLEARLY_UNEVEN,
    NO_ROOM,
    OWN_QUEUE,
    EcmpGroupThresholds,
    FullGroup,
    FullLink,
    GroupLoads,
)
from fabmon.analysis.evidence.group_rates import (
    GroupRates,
    lost_share,
    rates_of_group,
    takes_part,
)
from fabmon.analysis.evidence.link_queues import link_queues
from fabmon.analysis.evidence.queue_signals import QueueThresholds, queue_signals
from fabmon.analysis.evidence.sharing import (
    ACCOUNTED,
    ALL_ON_IT,
    are_enough,
    last_ticks,
    only_sender,
)
from fabmon.analysis.fabric_structure import Mask
from fabmon.fabric.snapshot import Floats

_NEARLY_AS_MUCH, _CLIPPED = 0.75, 0.25
"""Share of a full link's load, 0 to 1, from which on a tick is nearly full, and the share of these
ticks that must be full: what limits its flows is full whenever they are fast, and not by chance."""

_ROUNDING = 1.001
"""The mean of some numbers can be this many times smaller than the least of them."""

_NEARLY_FULL = 0.03
"""A whole group is full where its mean is this much below the utilisation of one full link."""

_SAME_RATIO = 1.05
"""Line rate below a group over that of its links up to which the group cannot be too small."""

_MOST = 0.5
"""Share of the ports that send much, 0 to 1, that a full group slows at least."""

_EQUAL = 0.9
"""Links of which the least carries more than this share of the most, 0 to 1, are evenly loaded."""

_EXPECTED = 0.4
"""In a lossless fabric, senders that lose a share of their bandwidth wait for as much of the time
with traffic: less than this part of it, 0 to 1, is background."""


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
    peak, structure = inputs.peak_sent, inputs.structure
    least = min(thresholds.full_util, thresholds.full_util_tcp) - _NEARLY_FULL
    signals = queue_signals(inputs, queue)
    slowed = signals.slowed | (signals.waiting >= queue.waiting)
    queues = link_queues(inputs, queue).queued
    may_be_full = structure.group_links.touched(peak >= least)
    ends, into = structure.group_ends, structure.group_is_inward
    at_hosts = np.where(into, ends.touched(signals.marked), ends.touched(slowed))
    queued = structure.group_links.touched(queues) | at_hosts
    queued &= structure.group_links.touched(peak >= BURSTS)
    for place in np.flatnonzero(may_be_full | queued).tolist():
        measured = rates_of_group(inputs, thresholds, queue, place)
        if measured.members < 2:
            continue
        whole = _full_group(measured) if may_be_full[place] else None
        if whole is not None:
            groups.append(whole)
            continue
        full: Mask = measured.known_util >= measured.full_util
        hot = _long_full(measured, full)
        found = _full_links(measured, hot, full) if hot.any() else []
        if queued[place] and full.sum(axis=1).max() < thresholds.full_ticks:
            found = full_in_bursts(measured)
        links += found
        links += marked_in_bursts(measured, {each.row for each in found})
        links += others_wait_for(measured, {each.row for each in found})
    if groups:
        links = [each for each in links if not each.is_inferred]
    kept = without_downstream(inputs, links, thresholds.room_util)
    return GroupLoads(tuple(kept), tuple(groups))


def _long_full(rates: GroupRates, full: Mask) -> Mask:
    """[members]: whether a member is full in enough ticks [members, ticks], and not by chance."""
    hot: Mask = (full.sum(axis=1) >= rates.thresholds.full_ticks) & full[:, -TICKS:].any(axis=1)
    nearly = (rates.known_util >= _NEARLY_AS_MUCH * rates.full_util).sum(axis=1)
    hot &= full.sum(axis=1) >= _CLIPPED * nearly
    hot &= _carries_more(rates)
    return hot


def _full_links(rates: GroupRates, hot: Mask, full: Mask) -> list[FullLink]:
    """The members that are full, and slow flows while others of the group have room."""
    if not _has_room_at_times(rates, full):
        return []
    return list(_too_small(rates, np.flatnonzero(hot).tolist(), full))


def _carries_more(rates: GroupRates) -> Mask:
    """[members]: whether a link carries more than the least of them over ten seconds: in single
    seconds, links that are sampled at different moments differ."""
    mean = rates.known_util[:, -TICKS:].mean(axis=1)
    more: Mask = mean * _EQUAL > mean[rates.is_up].min(initial=np.inf)
    return more


def _has_room_at_times(rates: GroupRates, full: Mask) -> bool:
    """Whether some member has room in some tick in which a member is full."""
    lowest = np.fmin.reduce(rates.util[:, full.any(axis=0)], axis=None, initial=np.inf)
    return bool(lowest < rates.thresholds.room_util * _ROUNDING)


def _too_small(rates: GroupRates, hot: list[int], full: Mask) -> Iterator[FullLink]:
    feeds, lines = rates.feeders()
    if not rates.are_known(feeds):
        if not rates.may_be_known_soon():
            yield from _by_load_alone(rates, hot, full)
        return
    alone: set[int] = set()
    shared: list[tuple[int, Mask, Floats, Floats]] = []
    by_ticks: dict[bytes, tuple[Floats, Floats, Mask]] = {}
    ticks_of = _ticks_with_room(rates, hot, full)
    for member in hot:
        ticks = ticks_of[member]
        if ticks.tobytes() not in by_ticks:
            by_ticks[ticks.tobytes()] = rates.shares(feeds[:, ticks], lines, rates.carried(ticks))
    if not any(slowed.sum() >= 2 for *_, slowed in by_ticks.values()):
        return
    for member in hot:
        ticks = ticks_of[member]
        rate, possible, _ = by_ticks[ticks.tobytes()]
        free = possible > 0
        free[list(alone)] = False
        load = np.fmax(rates.bps[member], 0)
        lone = None if rates.has_queue[member] else only_sender(feeds, load, ticks, free)
        if lone is None:
            shared.append((member, ticks, rate, possible))
        else:
            alone.add(lone)
    likely = _likely(rates, shared, by_ticks, full)
    if not likely:
        return
    of_links = {
        member: rates.sharers(
            member,
            feeds[:, ticks],
            by_ticks[ticks.tobytes()][2],
            rates.load(member, ticks),
            len(shared),
            np.inf if rates.has_queue[member] else ALL_ON_IT,
        )
        for member, ticks, *_ in shared
    }
    for member, ticks, rate, possible in shared:
        if member not in likely:
            continue
        level, load_bps, slowed_by = likely[member]
        is_big, slowed = possible > 0, by_ticks[ticks.tobytes()][2]
        free = is_big & ~slowed
        free[list(alone)] = False
        sharers = of_links[member]
        on_it = sharers.slowed
        held = rates.held(rate, on_it)
        if not are_enough(held, of_links.values()):
            continue
        dropped = rates.dropped_bps(ticks, load_bps)
        could = rates.could_send(rate, lines, on_it, ticks)
        lost = lost_share(rate, could, held, float(level[member]), dropped)
        if lost < rates.thresholds.lost_min:
            continue
        # Senders that nothing slows may be what fills it: then a queue must be seen at others.
        carried = sum(
            float(rates.load(each, ticks).mean())
            for each, *_ in shared
            if level[each] >= rates.full_util - _NEARLY_FULL
        )
        is_excused = rate[free].sum() >= ACCOUNTED * carried
        queued = slowed & rates.queues.queued()
        if (
            is_excused
            and slowed_by
            and slowed_by != OWN_QUEUE
            and rate[queued].sum() < ACCOUNTED * carried
        ):
            continue
        edges = rates.group.edges[slowed]
        if not slowed_by and (is_excused or rates.queues.are_calm(edges, _EXPECTED * lost)):
            continue
        yield FullLink(
            row=int(rates.group.rows[member]),
            group=rates.group,
            level=level,
            full_ticks=int(full[member].sum()),
            feeders=rates.group.edges[on_it],
            named=rates.group.edges[sharers.named],
            lost=lost,
            slowed_by=slowed_by,
            active=int(is_big.sum()),
        )


def _likely(
    rates: GroupRates,
    shared: list[tuple[int, Mask, Floats, Floats]],
    by_ticks: dict[bytes, tuple[Floats, Floats, Mask]],
    full: Mask,
) -> dict[int, tuple[Floats, float, str]]:
    """The full members beside others with room that may slow flows, by what is quick to
    compute: of most of those that slow nothing it is enough. By member: the level of the group
    [members], what the member carries, bits/s, and how a queue is seen, empty where it is not."""
    likely = {}
    for member, ticks, rate, _ in shared:
        level, slowed = rates.level(ticks), by_ticks[ticks.tobytes()][2]
        least, load_bps = np.fmin.reduce(level), float(rates.load(member, ticks).mean())
        has_room = least < rates.thresholds.room_util and np.nanmean(level) < NO_ROOM
        if not has_room or rate[slowed].sum() < ACCOUNTED * load_bps:
            continue
        edges = rates.group.edges[slowed]
        slowed_by = OWN_QUEUE if rates.has_queue[member] else rates.queues.seen_at(edges)
        if not slowed_by and rates.holds_up[member]:
            ports = rates.inputs.structure.fabric.ports
            slowed_by = flow_control_of([ports[rates.group.rows[member]]])
        if slowed_by in (CNPS_OR_MARKS, "") and rates.has_no_queue[member]:
            continue  # The queue is elsewhere.
        is_short = full[member].sum() < rates.thresholds.unseen_ticks
        if not slowed_by and (is_short or rates.queues.are_calm(edges)):
            continue
        likely[member] = level, load_bps, slowed_by
    return likely


def _ticks_with_room(rates: GroupRates, hot: list[int], full: Mask) -> dict[int, Mask]:
    """By member, the last ticks in which it is full, of those in which others have room if these
    are enough: while the whole group is full, its flows lose more or less than by the collision."""
    known = rates.util[rates.is_up]
    with np.errstate(invalid="ignore"):
        mean = np.nansum(known, axis=0) / np.isfinite(known).sum(axis=0)
        has_room = (np.fmin.reduce(known, axis=0) < rates.thresholds.room_util) & (mean < NO_ROOM)
    ticks = {}
    for member in hot:
        apart = full[member] & has_room
        is_enough = apart.sum() >= rates.thresholds.full_ticks
        ticks[member] = last_ticks(apart if is_enough else full[member])
    return ticks


def _by_load_alone(rates: GroupRates, hot: list[int], full: Mask) -> Iterator[FullLink]:
    """Full links beside others with room where it is not known who feeds them: `lost` is 0."""
    for member in hot:
        level = rates.level(last_ticks(full[member]))
        uneven = 1.0 - float(np.nanmean(level) / level[member])
        if np.nanmin(level) < rates.thresholds.room_util and uneven >= CLEARLY_UNEVEN:
            yield FullLink(
                row=int(rates.group.rows[member]),
                group=rates.group,
                level=level,
                full_ticks=int(full[member].sum()),
                feeders=rates.group.edges[:0],
                named=rates.group.edges[:0],
                lost=0.0,
                slowed_by="",
                active=0,
            )


def _full_group(rates: GroupRates) -> FullGroup | None:
    """The group, where no member has room and ports that feed it are slowed; else None."""
    known = rates.known_util[rates.is_up]
    full: Mask = known.min(axis=0) >= rates.thresholds.room_util
    full &= known.mean(axis=0) >= rates.full_util - _NEARLY_FULL
    if full.sum() < rates.thresholds.full_ticks or not full[-TICKS:].any():
        return None
    feeds, lines = rates.feeders()
    ticks = last_ticks(full)
    if not len(feeds):
        return None
    # Ports that wait for slower NICs have no queue on their way.
    own = without_nan(rates.inputs.snapshot.line_rate_bps[rates.group.edges])
    lines = np.where(rates.queues.queued() | rates.has_queue[rates.is_up].all(), own, lines)
    rate = feeds[:, ticks].mean(axis=1)
    is_big = takes_part(rate, lines)
    slowed = is_big & (rate < rates.slowed_below * lines)
    capacity = float(np.nansum(rates.capacity_bps[rates.is_up]))
    below = float(np.nansum(rates.inputs.snapshot.line_rate_bps[rates.group.edges]))
    ratio = below / capacity if capacity > 0 else 0.0
    crossing = float(is_big.sum()) * rates.crossing(rate, rates.carried(ticks))
    if slowed.sum() < max(2, _MOST * crossing) or ratio <= _SAME_RATIO:
        return None
    lost = 1.0 - float(rate[slowed].sum() / lines[slowed].sum())
    if lost < rates.thresholds.lost_min:
        return None
    edges = rates.group.edges[slowed]
    slowed_by = rates.queues.seen_at(edges)
    if not slowed_by and rates.queues.are_calm(edges):
        return None
    return FullGroup(rates.group, rates.level(ticks), edges, lost, ratio, slowed_by)
