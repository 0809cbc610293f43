"""What random hashing does by itself: n equal flows thrown at m links.

Reference: detection.md section 2. CoV of the loads is sqrt((m-1)/n); its inverse gives the number
of flows that would look like this.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fabmon.fabric.moment import Floats

_TRIALS = 4000
_SEED = 1


def effective_flows(loads: Floats) -> float:
    """(m-1)/CoV^2: so many equal flows, hashed at random, would be as uneven. inf when even."""
    mean = float(np.mean(loads))
    variance = float(np.var(loads))
    if variance <= 0 or mean <= 0:
        return float("inf")
    return (len(loads) - 1) * mean * mean / variance


@lru_cache(maxsize=4096)
def occupied_at_most(links_used: int, flows: int, links: int) -> float:
    """Probability that `flows` flows use so few of `links` links, or fewer."""
    shares = np.zeros(links + 1)
    shares[0] = 1.0
    used = np.arange(links + 1)
    for _ in range(flows):
        stay = shares * used / links
        grow = np.concatenate(([0.0], shares[:-1] * (links - used[:-1]) / links))
        shares = stay + grow
    return float(shares[: links_used + 1].sum())


@lru_cache(maxsize=512)
def peak_to_average_p95(flows: int, links: int) -> float:
    """The 95th percentile of max/mean for so many flows, by simulation with a fixed seed."""
    hashed = np.random.default_rng(_SEED).integers(0, links, (_TRIALS, max(1, flows)))
    loads = np.stack([np.bincount(row, minlength=links) for row in hashed])
    return float(np.percentile(loads.max(axis=1) * links / max(1, flows), 95))


@lru_cache(maxsize=256)
def flows_to_see_all(links: int, chance: float) -> int:
    """How many flows, hashed at random, use every one of `links` links with that probability.

    The coupon collector: detection.md section 2, `Coverage`.
    """
    flows = links
    while occupied_at_most(links - 1, flows, links) > 1 - chance:
        flows += 1
    return flows
