"""Which ports share a full link: the parts that queue signs and pause do not show.

Ports that share a link fairly send equal parts of its load. A port whose rate is that of the link
has it for itself. Only ticks in which the link was full are compared, so that compute phases and
the edges of bursts say nothing.
"""

from __future__ import annotations

import numpy as np

from fabmon.analysis.fabric_structure import Mask
from fabmon.fabric.snapshot import Floats

WINDOW_TICKS = 40
"""Ticks in which full ones are looked for: more than one iteration of most jobs."""

MOST_FULL_TICKS = 10
"""The latest full ticks that are compared: what was full longer ago may have had other flows."""

SLOWED_BELOW = 0.9
"""Share of what a port could send, 0 to 1, below which it is slowed: a NIC that nothing limits
reaches 93 % and more."""

ACCOUNTED = 0.85
"""Share of a link's load, 0 to 1, that the slowed ports must send to be the ones that share it."""

_ALONE = 0.15
"""A link whose load differs by less than this share from what one port sends is that port's."""

_SAME_PART = 0.2
"""Ports that share a link fairly have rates within this share of each other."""


def last_ticks(counts: Mask, most: int = MOST_FULL_TICKS) -> Mask:
    """The last so many of the ticks that count."""
    after = np.cumsum(counts[::-1])[::-1]
    last: Mask = counts & (after <= most)
    return last


def only_sender(sent: Floats, load: Floats, may: Mask) -> int | None:
    """The place of the port that accounts for a link's load alone; None without one.

    `sent` is [ports, ticks] and `load` [ticks], in the same unit; `may` [ports] are the ports that
    can be it.
    """
    if not may.any():
        return None
    differs = np.abs(sent - load).mean(axis=1) / load.mean()
    best = int(np.argmin(np.where(may, differs, np.inf)))
    return best if differs[best] <= _ALONE else None


def sharing(sent: Floats, slowed: Mask, load: Floats) -> Mask:
    """[ports]: the slowed ports that share a link; none where they send one after the other.

    `sent` is [ports, ticks] and `load` [ticks], as above. They are the fewest that have an equal
    part of the load each; all slowed ones where no number of them does.
    """
    rate, mean = sent.mean(axis=1), float(load.mean())
    order = np.flatnonzero(slowed)
    found = slowed
    for flows in range(2, len(order) + 1):
        part = mean / flows
        near = order[np.abs(rate[order] - part) <= _SAME_PART * part]
        if len(near) >= flows:
            found = np.zeros(len(slowed), np.bool_)
            found[near[np.argsort(np.abs(rate[near] - part), kind="stable")[:flows]]] = True
            break
    largest = sent[found].max(axis=0, initial=0)
    takes_turns = float(np.median(largest / np.maximum(load, 1.0))) >= SLOWED_BELOW
    return np.zeros(len(slowed), np.bool_) if takes_turns else found
