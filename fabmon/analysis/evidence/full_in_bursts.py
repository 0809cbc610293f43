"""Links that are full in bursts shorter than a second, by what they mark or their senders wait."""

from __future__ import annotations

from collections.abc import Container, Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, WINDOW_TICKS
from fabmon.analysis.evidence.downstream_links import SAME_LOAD
from fabmon.analysis.evidence.full_link import CLEARLY_UNEVEN, NO_ROOM, OWN_QUEUE, FullLink
from fabmon.analysis.evidence.group_rates import GroupRates, lost_share, takes_part
from fabmon.analysis.evidence.pause_graph import pause_graph
from fabmon.analysis.evidence.sharing import (
    ACCOUNTED,
    ALL_ON_IT,
    are_enough,
    last_ticks,
    only_sender,
)
from fabmon.fabric.snapshot import Floats

_MOST_WAITING = 0.9
"""Share of the time with traffic, 0 to 1, up to which what is sent shows its length."""

BURSTS = 0.2
"""Mean utilisation of a link from which on it may be full in bursts: requests at low load queue for
moments."""

_MOSTLY, _LESS_BUSY = 0.5, 0.8
"""Mean utilisation from which on a link is busy for most of the time, and the share of that which
the other ports of its switch have at most."""

_FULL_IN_BURSTS, _TOGETHER, _MOST_IN_BURSTS = 0.9, 1.05, 1.3
"""Share of the time in which a sender sends or waits that a link sends, from which on it is full
whenever they are active; up to which they are active together; and up to which that can be: senders
begin and end at different times."""


def marked_in_bursts(rates: GroupRates, known: Container[int]) -> Iterator[FullLink]:
    """The members, apart from those with `known` rows, whose own queue marks or drops packets.

    A link does so when it is full. For how much of the time is not observable: at most as much as
    it needs for what it sends.
    """
    if not rates.has_queue.any():
        return
    mean = rates.known_util[:, -TICKS:].mean(axis=1)
    marks = rates.has_queue & ~rates.waits & (mean >= BURSTS)
    marks &= rates.queue_ticks >= rates.thresholds.full_ticks * rates.full_util
    members = [m for m in np.flatnonzero(marks).tolist() if int(rates.group.rows[m]) not in known]
    if not members:
        return
    feeds, lines = rates.feeders()
    if not rates.are_known(feeds):
        return
    ticks = last_ticks(np.ones(WINDOW_TICKS, np.bool_), TICKS)
    for member in members:
        active = min(1.0, float(mean[member]) / rates.full_util)
        # Others may be busy for more of the time: what they send meanwhile is at most all.
        level: Floats = np.where(rates.is_up, np.fmin(mean / active, 1), np.nan)
        if np.nanmin(level) >= rates.thresholds.room_util or np.nanmean(level) >= NO_ROOM:
            continue
        sent, load = feeds[:, ticks] / active, rates.load(member, ticks) / active
        carried = rates.carried(ticks) / active
        rate, possible, slowed = rates.shares(sent, lines, carried)
        queued = slowed & rates.queues.queued()
        slowed = queued if queued.any() else slowed
        # One that is so busy is shared by several ports, whichever they are.
        most = np.inf if mean[member] >= rates.thresholds.room_util else ALL_ON_IT
        sharers = rates.sharers(member, sent, slowed, load, len(members), most)
        on_it = sharers.slowed
        held = rates.held(rate, on_it)
        if held.sum() < 2 or rates.queues.are_calm(rates.group.edges[on_it]):
            continue
        could = rates.could_send(rate, lines, on_it, ticks, active)
        lost = lost_share(rate, could, held, float(level[member]))
        if lost < rates.thresholds.lost_min:
            continue
        yield FullLink(
            row=int(rates.group.rows[member]),
            group=rates.group,
            level=level,
            full_ticks=TICKS,
            feeders=rates.group.edges[on_it],
            named=rates.group.edges[sharers.named],
            lost=lost,
            slowed_by=OWN_QUEUE,
            active=int((possible > 0).sum()),
            busy=active,
        )


def others_wait_for(rates: GroupRates, known: Container[int]) -> Iterator[FullLink]:
    """The link of a switch without hosts for which other switches wait, unless its row is `known`.

    They wait for this switch, and it waits for none: a queue is before one of its own ports. That
    is the only one which is busy for most of the time. How long it is full is not observable.
    """
    inputs, group = rates.inputs, rates.group
    if group.is_inward or len(group.hosts) or not rates.queues.wait_much().any():
        return
    mean = rates.known_util[:, -TICKS:].mean(axis=1)
    member = int(mean.argmax())
    row, util = int(group.rows[member]), float(mean[member])
    if row in known or util < _MOSTLY:
        return
    if int(inputs.structure.node[row]) not in pause_graph(inputs).roots:
        return
    others = np.append(group.edges, group.rows[group.rows != row])
    if float(inputs.mean_sent[others].max(initial=0)) > _LESS_BUSY * util:
        return
    active = min(1.0, util / rates.full_util)
    level: Floats = np.where(rates.is_up, np.fmin(mean / active, 1), np.nan)
    feeds, lines = rates.feeders()
    if not rates.are_known(feeds) or np.nanmean(level) >= NO_ROOM:
        return
    ticks = last_ticks(np.ones(WINDOW_TICKS, np.bool_), TICKS)
    rate = feeds[:, ticks].mean(axis=1) / active
    on_it = takes_part(rate, lines)
    if only_sender(feeds, np.fmax(rates.bps[member], 0), ticks, on_it) is not None:
        return
    could = rates.could_send(rate, lines, on_it, ticks, active)
    lost = lost_share(rate, could, on_it, float(level[member]))
    if on_it.sum() < 2 or lost < rates.thresholds.lost_min:
        return
    yield FullLink(
        row=row,
        group=group,
        level=level,
        full_ticks=TICKS,
        feeders=group.edges[on_it],
        named=group.edges[:0],
        lost=lost,
        slowed_by=rates.queues.seen_at(group.edges[on_it]),
        active=int(on_it.sum()),
        busy=active,
    )


def full_in_bursts(rates: GroupRates) -> list[FullLink]:
    """The members that are full for parts of most seconds, whose senders show a queue.

    Loads are those of the last TICKS over the share of time in which there is traffic. Where
    there are credits or pause, that is what a sender sends and waits; else the fullest link is
    full whenever there is traffic if all senders that share it show a queue.
    """
    recent = rates.known_util[:, -TICKS:]
    mean = recent.mean(axis=1)
    level: Floats = np.where(rates.is_up, mean, np.nan)
    top = float(mean.max())
    is_steady = (recent[int(mean.argmax())] > top / 2).sum() > TICKS // 2
    if not is_steady or top < BURSTS or np.nanmin(level) >= rates.thresholds.room_util * top:
        return []
    feeds, lines = rates.feeders()
    queued = rates.queues.queued()
    waits = rates.queues.waiting()
    if not len(rates.group.hosts):
        waits = np.where(rates.queues.wait_much(), waits, np.float32(0))
        queued = waits > 0
    if not rates.are_known(feeds) or not queued.any():
        return []
    ticks = last_ticks(np.ones(WINDOW_TICKS, np.bool_), TICKS)
    sent = feeds[:, ticks]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = sent.mean(axis=1) / lines / (1 - np.fmin(waits, _MOST_WAITING))
        active = min(1.0, float(np.max(share[waits > 0], initial=0)))
    is_seen = active > 0
    if is_seen and not _FULL_IN_BURSTS <= top / active <= _MOST_IN_BURSTS:
        return []  # They wait for another link, or do not wait all the time.
    # Where it is less clear that they fill the link, they must send nothing else.
    most = ALL_ON_IT if is_seen and top / active <= _TOGETHER else 1 / ACCOUNTED
    active = max(active, top if is_seen else top / rates.full_util)
    level, sent = level / active, sent / active
    if np.nanmean(level) >= (NO_ROOM if is_seen else 1 - CLEARLY_UNEVEN):
        return []
    rate, possible, slowed = rates.shares(sent, lines, rates.carried(ticks) / active)
    if not is_seen:
        slowed &= queued & rates.queues.are_lasting()
    elif not len(rates.group.hosts):
        slowed |= waits > 0  # Of another switch, however much it carries.
    alone = np.zeros(len(lines), np.bool_)
    shared = []
    for member in np.flatnonzero((mean >= (1 - SAME_LOAD) * top) & ~rates.waits).tolist():
        lone = only_sender(feeds, np.fmax(rates.bps[member], 0), ticks, ~alone)
        if lone is None:
            shared.append((member, rates.load(member, ticks) / active))
        else:
            alone[lone] = True
    # Those that wait must fill these links ...
    carried = sum(float(load.mean()) for _, load in shared)
    if rate[slowed & queued & ~alone].sum() < ACCOUNTED * carried:
        return []
    found: list[FullLink] = []
    of_links = [
        rates.sharers(member, sent, slowed & ~alone, load, len(shared), ALL_ON_IT if is_seen else 0)
        for member, load in shared
    ]
    for (member, _), sharers in zip(shared, of_links, strict=True):
        on_it = sharers.slowed
        held = rates.held(rate, on_it)
        if not are_enough(held, of_links):
            continue
        # ... and not send most of their traffic elsewhere.
        if rate[on_it].sum() > most * carried:
            continue
        could = rates.could_send(rate, lines, on_it, ticks, active)
        lost = lost_share(rate, could, held, float(level[member]))
        slowed_by = rates.queues.seen_at(rates.group.edges[on_it])
        if lost >= rates.thresholds.lost_min and slowed_by:
            found.append(
                FullLink(
                    row=int(rates.group.rows[member]),
                    group=rates.group,
                    level=level,
                    full_ticks=TICKS,
                    feeders=rates.group.edges[on_it],
                    named=rates.group.edges[sharers.named],
                    lost=lost,
                    slowed_by=slowed_by,
                    active=int((possible > 0).sum()),
                    busy=active,
                    is_inferred=not is_seen,
                )
            )
    return found
