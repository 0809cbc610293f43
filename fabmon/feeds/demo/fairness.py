"""Max-min fair rates of groups of flows over shared links, by progressive filling.

All flows of a group move in step, as those of a synchronous collective do. A group that loads a
link with `weight` w takes w times its rate there; a lone flow is a group that loads each link of
its path with 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

_SLACK = 1e-9


def sums(place: Indices, values: Floats, size: int) -> Floats:
    """[size] sums of the values of each place."""
    return np.bincount(place, values, size).astype(np.float64, copy=False)


def fair_rates(
    capacity: Floats, link: Indices, group: Indices, weight: Floats, demand: Floats
) -> Floats:
    """[groups] rates that are max-min fair, none above its demand, no link above its capacity.

    `capacity` is [links], `demand` [groups], all in the same unit; `link`, `group` and `weight`
    say, element by element, what a group loads a link with. Every group must have a demand that is
    finite.

    A link whose share is the smallest on the way of every group that crosses it will fill first
    for all of them, so all such links are filled at once: a few rounds instead of one a link.
    """
    rate = np.zeros(len(demand))
    live = np.ones(len(demand), np.bool_)
    left = capacity.astype(np.float64)
    while live.any():
        load = sums(link, weight, len(capacity))
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(load > 0, np.maximum(left, 0.0) / load, np.inf)
        on_link = share[link]
        least = demand.copy()
        np.minimum.at(least, group, on_link)
        elsewhere = least[group] < on_link * (1 - _SLACK)
        waits = np.zeros(len(capacity), np.bool_)
        waits[link[elsewhere]] = True
        freeze = live & (demand <= least * (1 + _SLACK))
        freeze[group[~waits[link]]] = True
        rate[freeze] = least[freeze]
        gone = freeze[group]
        left -= sums(link[gone], weight[gone] * rate[group[gone]], len(capacity))
        live &= ~freeze
        link, group, weight = link[~gone], group[~gone], weight[~gone]
    return rate
