"""Which ports share a full link, from the parts of its load that they send.

Ports that share a link fairly send equal parts of its load. A port whose rate is that of the link
has it for itself. Only ticks in which the link was full are compared, so that compute phases and
the edges of bursts do not count.
"""

from __future__ import annotations

import numpy as np

from fabmon.analysis.fabric_structure import Mask
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

_ALL_ON_IT = 2.2
"""What slowed ports send over the load of a link, up to which all of them may be on it (two senders
at line rate that do not slow down send twice its load): of more, most is on other links."""


def last_ticks(counts: Mask, most: int = MOST_FULL_TICKS) -> Mask:
    """[ticks, ...]: the last so many of the ticks that count."""
    after = np.cumsum(counts[::-1], axis=0)[::-1]
    last: Mask = counts & (after <= most)
    return last


def only_sender(sent: Floats, load: Floats, ticks: Mask, may: Mask) -> int | None:
    """The place of the port that accounts for the load of a link alone; None without one.

    `sent` is [ports, all ticks] and `load` [all ticks], in the same unit; `ticks` are those in
    which the link was full, `may` [ports] are the ports that can be it. The ticks beside them count
    as well: a port that is sampled at another moment moves the same in them together.
    """
    if not may.any() or not ticks.any():
        return None
    wide = ticks.copy()
    wide[1:] |= ticks[:-1]
    wide[:-1] |= ticks[1:]
    mean = max(float(load[wide].mean()), 1.0)
    differs = np.abs(sent[:, wide].mean(axis=1) / mean - 1)
    near = np.flatnonzero(may & (differs <= _ALONE))
    full = max(float(load[ticks].mean()), 1.0)
    apart = np.abs(sent[near][:, ticks] - load[ticks]).mean(axis=1) / full
    best = int(np.argmin(differs[near] + apart)) if len(near) else 0
    return int(near[best]) if len(near) and apart[best] <= _APART else None


def sharing(
    sent: Floats, slowed: Mask, load: Floats, queued: Mask, must_be_equal: bool = False
) -> Mask:
    """[ports]: the slowed ports that share a link; none where they send one after the other.

    `sent` is [ports, ticks] and `load` [ticks], in the same unit, in ticks in which the link was
    full; `queued` [ports] are those that show a queue. They are the fewest slowed ones that have an
    equal part of the load each, of equal ones those that show a queue. Where no number of them
    does, they are those that show a queue, or all, if all could be on the link; none if they
    `must_be_equal`.
    """
    rate, mean = sent.mean(axis=1), float(load.mean())
    nobody = np.zeros(len(slowed), np.bool_)
    found = slowed & queued
    if not queued.any() and rate[slowed].sum() <= _ALL_ON_IT * mean:
        found = slowed
    if must_be_equal:
        found = nobody
    for flows in _possible_flows(rate[slowed], mean):
        part = load / flows
        near = np.flatnonzero(slowed & (np.abs(rate - part.mean()) <= _SAME_PART * part.mean()))
        near = near[np.abs(sent[near] - part).mean(axis=1) <= _APART * part.mean()]
        if len(near) >= flows:
            found = nobody.copy()
            differs = np.round(np.abs(rate[near] * flows / mean - 1), 1)
            found[near[np.lexsort((~queued[near], differs))[:flows]]] = True
            break
    largest = sent[found].max(axis=0, initial=0)
    takes_turns = float(np.median(largest / np.maximum(load, 1.0))) >= SLOWED_BELOW
    return nobody if takes_turns else found


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
