"""Which ports share a full link, from signs of a queue and the parts of its load that they send.

Ports that share a link fairly send equal parts of its load, and show its queue. A port whose rate
is that of the link has it for itself. Only ticks in which the link was full are compared, so that
compute phases and the edges of bursts do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fabmon.analysis.fabric_structure import Mask, Rows
from fabmon.analysis.median import median
from fabmon.fabric.snapshot import Floats

MOST_FULL_TICKS = 10
"""The latest full ticks that are compared: what was full longer ago may have had other flows."""

SLOWED_BELOW, SLOWED_BELOW_TCP = 0.9, 0.85
"""Share of what a port could send, 0 to 1, below which it is slowed: RDMA that nothing limits
reaches 93 % and more, TCP 88 %."""

ACCOUNTED = 0.85
"""Share of a link's load, 0 to 1, that the slowed ports must send to be the ones that share it."""

_ALONE = 0.15
"""A link whose load differs by less than this share from what one port sends is that port's."""

_SAME_PART = 0.2
"""Ports that share a link fairly have rates within this share of each other."""

_APART = 0.35
"""By how much of it, on average, the part of a link may differ from what its port sends in single
ticks."""

_MOST_OF_LOAD = 0.6
"""Share of a link's load, 0 to 1, that the ports which stand out must send: packets that are spread
over all links, or small flows, may be the rest."""

_STANDS_OUT = 3.0
"""How many times the signs of a queue of other ports those of a port on the full link are."""

ALL_ON_IT = 2.2
"""What slowed ports send over the load of a link, up to which all of them may be on it (two senders
at line rate that do not slow down send twice its load): of more, most is on other links."""


def last_ticks(counts: Mask, most: int = MOST_FULL_TICKS) -> Mask:
    """[ticks, ...]: the last so many of the ticks that count."""
    after = np.cumsum(counts[::-1], axis=0)[::-1]
    last: Mask = counts & (after <= most)
    return last


def with_neighbours(ticks: Mask) -> Mask:
    """[ticks]: some ticks, and those beside them: of ports that are read at different moments, what
    moves together is in these."""
    wide = ticks.copy()
    wide[1:] |= ticks[:-1]
    wide[:-1] |= ticks[1:]
    return wide


def only_sender(sent: Floats, load: Floats, ticks: Mask, may: Mask) -> int | None:
    """The place of the port that accounts for the load of a link alone; None without one. See
    `closest_senders`."""
    places, _ = closest_senders(sent, load, ticks, may)
    return int(places[0]) if len(places) else None


def closest_senders(sent: Floats, load: Floats, ticks: Mask, may: Mask) -> tuple[Rows, Floats]:
    """The places of the ports that may account for the load of a link alone, the closest first, and
    by what share of the load each differs from it.

    `sent` is [ports, all ticks] and `load` [all ticks], in the same unit; `ticks` are those in
    which the link was full, `may` [ports] are the ports that can be it. The ticks beside them count
    as well: a port that is sampled at another moment moves the same in them together.
    """
    if not may.any() or not ticks.any():
        return np.empty(0, np.intp), np.empty(0, np.float32)
    wide = with_neighbours(ticks)
    mean = max(float(load[wide].mean()), 1.0)
    # As a product of matrices: there may be thousands of ports.
    differs = np.abs(sent @ wide.astype(np.float32) / (wide.sum() * mean) - 1)
    near = np.flatnonzero(may & (differs <= _ALONE))
    full = max(float(load[ticks].mean()), 1.0)
    apart = np.abs(sent[near][:, ticks] - load[ticks]).mean(axis=1) / full
    is_close = apart <= _APART
    near, differs = near[is_close], (differs[near] + apart)[is_close]
    order = np.argsort(differs, kind="stable")
    return near[order], differs[order]


@dataclass(frozen=True, slots=True)
class Sharers:
    """Who shares a link, both [ports]: `slowed` are ports whose loss is that of the link, `named`
    those that are known to send over it. Nobody is `named` where ports that are on it cannot be
    distinguished from ports that wait for them."""

    slowed: Mask
    named: Mask


def are_enough(held: Mask, of_links: Iterable[Sharers]) -> bool:
    """Whether ports [ports] are two or more for each of the links that some of them may be on."""
    links = sum(bool((each.slowed & held).any()) for each in of_links)
    return int(held.sum()) >= 2 * max(links, 1)


def sharing(
    sent: Floats,
    slowed: Mask,
    load: Floats,
    signs: Sequence[Floats],
    full_links: int = 1,
    most: float = ALL_ON_IT,
    are_on_it: bool = False,
) -> Sharers:
    """Which of the slowed ports share a link; none where they send one after the other.

    `sent` is [ports, ticks] and `load` [ticks], in the same unit, in ticks in which the link was
    full; `signs` are signs of a queue, [ports] each, 0 where there is none; so many `full_links` of
    the same group may have that queue. In a collective all ports send equally fast, whichever link
    is full. So those that share the only full link are the ones whose signs stand out and that
    send most of its load; else, as many ports as have an equal part of it each, if no others do.
    Where neither is known, all that could be on the link lose what it costs, and nobody is named,
    if they send `most` times its load at most; if that is 0, only ports with equal parts lose. If
    all slowed ports are known to have connections over the link (they `are_on_it`), and send hardly
    more than it carries, all are named then: of connections that bring more than that, some are
    idle.
    """
    rate, mean = sent.mean(axis=1), float(load.mean())
    nobody = np.zeros(len(slowed), np.bool_)
    shown = standing_out(rate, slowed, mean, signs)
    among = shown if shown.any() else slowed
    equal = _equal_parts(sent, among, load)
    flows, parts = equal if equal else (0, nobody)
    total = float(rate[among].sum())
    named = nobody
    stands_out = shown.sum() < slowed.sum() or total <= ALL_ON_IT * mean
    if full_links == 1 and ((shown.any() and stands_out) or total <= mean / ACCOUNTED):
        named = among
    elif parts.sum() == flows:
        named = parts
    if are_on_it and not named.any() and float(rate[slowed].sum()) <= mean / ACCOUNTED:
        named = slowed
    found = named
    if not named.any():
        may_share = most > 0 and (shown.any() or total <= most * mean)
        found = parts if equal else among if may_share else nobody
    largest = sent[found].max(axis=0, initial=0)
    takes_turns = median(largest / np.maximum(load, 1.0)) >= SLOWED_BELOW
    return Sharers(nobody, nobody) if takes_turns else Sharers(found, named & found)


def standing_out(rate: Floats, among: Mask, load: float, signs: Sequence[Floats]) -> Mask:
    """[ports]: the fewest ports, two or more, with the strongest signs of a queue that send most of
    a load, and whose signs are `_STANDS_OUT` times those of all others; none where no sign has such
    ports."""
    found = np.zeros(len(among), np.bool_)
    for sign in signs:
        order = np.flatnonzero(among & (sign > 0))
        order = order[np.argsort(-sign[order], kind="stable")]
        own = sign[order]
        ends = own > _STANDS_OUT * np.append(own[1:], 0)
        ends &= np.cumsum(rate[order]) >= _MOST_OF_LOAD * load
        ends[:1] = False
        if ends.any():
            found[order[: int(np.argmax(ends)) + 1]] = True
            break
    return found


def _equal_parts(sent: Floats, among: Mask, load: Floats) -> tuple[int, Mask] | None:
    """The least number of flows, two or more, of which as many ports as are needed each send an
    equal part of a load, and [ports] which ports do; None without one. There may be more ports."""
    rate = sent.mean(axis=1)
    for flows in _possible_flows(rate[among], float(load.mean())):
        part = load / flows
        near = np.flatnonzero(among & (np.abs(rate - part.mean()) <= _SAME_PART * part.mean()))
        near = near[np.abs(sent[near] - part).mean(axis=1) <= _APART * part.mean()]
        if len(near) >= flows:
            parts = np.zeros(len(among), np.bool_)
            parts[near] = True
            return flows, parts
    return None


def _possible_flows(rates: Floats, load: float) -> list[int]:
    """The numbers of flows, two or more, of which some rates are as many as are needed, each near
    an equal part of a load."""
    flows = np.arange(2, len(rates) + 1)
    ordered, part = np.sort(rates), load / flows
    low, high = (1 - _SAME_PART) * part, (1 + _SAME_PART) * part
    # Slightly more than are near: the caller compares exactly.
    near = np.searchsorted(ordered, high * 1.001) - np.searchsorted(ordered, low * 0.999)
    possible: list[int] = flows[near >= flows].tolist()
    return possible
