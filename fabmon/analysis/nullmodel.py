"""What random hashing does by itself: n equal flows thrown at m links.

Reference: detection.md section 2. CoV of the loads is sqrt((m-1)/n); its inverse gives the number
of flows that would look like this.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.moment import Floats

_USUAL = 0.95
_NEVER = 1e-300


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
    used = np.arange(links_used + 1)
    stays, grows = used / links, (links - used[:-1]) / links
    shares = np.zeros(links_used + 1)
    shares[0] = 1.0
    for _ in range(flows):
        grown = shares[:-1] * grows
        shares *= stays
        shares[1:] += grown
        if shares.sum() < _NEVER:
            return 0.0
    return float(shares.sum())


@lru_cache(maxsize=4096)
def peak_to_average_p95(flows: int, links: int) -> float:
    """The 95th percentile of max/mean for so many flows, exactly; a fraction of a millisecond."""
    flows = max(1, flows)
    if links < 2:
        return 1.0
    # A link that does not know of the others is a shade worse than one that does: a close start.
    log = _log_factorials(flows)
    ways = log[-1] - log - log[::-1]
    lost = np.arange(flows, -1, -1) * math.log1p(-1 / links)
    alone = np.cumsum(np.exp(ways + lost - np.arange(flows + 1) * math.log(links)))
    peak = int(np.searchsorted(alone, _USUAL ** (1 / links)))
    while peak < flows and _peak_at_most(peak, flows, links) < _USUAL:
        peak += 1
    while (peak - 1) * links >= flows and _peak_at_most(peak - 1, flows, links) >= _USUAL:
        peak -= 1
    return peak * links / flows


def _peak_at_most(peak: int, flows: int, links: int) -> float:
    """Probability that no link gets more than `peak` flows.

    A multinomial is independent Poisson variables of a given sum; the sum of those that are cut off
    at `peak` is a convolution (Levin 1981, "A representation for multinomial cumulative
    distribution functions").
    """
    mean = flows / links
    log = _log_factorials(flows)
    share = np.exp(np.arange(peak + 1) * math.log(mean) - mean - log[: peak + 1])
    below = float(share.sum())
    size = 1 << (peak * links).bit_length()
    summed = np.fft.irfft(np.fft.rfft(share / below, size) ** links, size)
    of_all = flows * math.log(flows) - flows - float(log[flows])
    return max(float(summed[flows]), 0.0) * math.exp(links * math.log(below) - of_all)


def _log_factorials(most: int) -> NDArray[np.float64]:
    """[0..most]"""
    factorials: NDArray[np.float64] = np.cumsum(np.log(np.maximum(np.arange(most + 1), 1)))
    return factorials


def flows_to_see_all(links: int, chance: float) -> int:
    """How many flows, hashed at random, use every one of `links` links with that probability.

    The coupon collector, as if links were missed independently (to within 1): detection.md
    section 2, `Coverage`.
    """
    if links < 2:
        return 1
    missed = -math.expm1(math.log(chance) / links)
    return math.ceil(math.log(missed) / math.log1p(-1 / links))
