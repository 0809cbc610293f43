"""What random hashing does by itself: n equal flows thrown at m links.

Reference: detection.md section 2. CoV of the loads is sqrt((m-1)/n); its inverse gives the number
of flows that would look like this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.finding import Condition, Evidence
from fabmon.fabric.snapshot import Floats

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


# What random hashing alone would do to a group, as evidence of a finding, and read from it.


_SEEN = "max/mean"
_USUAL_chance = "max/mean of random hashing, p95"
_FLOWS = ("flows, at least", "effective flows")
"""How many flows there are, where that is known; else how many would be as uneven."""
_LINKS = "group links"
_MOST_FLOWS = 4096


@dataclass(frozen=True, slots=True)
class HashingComparison:
    """`usual` is the p95 of max/mean for `flows` flows hashed at random on `links` links; `seen`
    the max/mean that was seen.
    """

    flows: int
    links: int
    usual: float
    seen: float

    @property
    def explains(self) -> bool:
        """Whether chance does as much in one of twenty cases."""
        return self.seen <= self.usual


def hashing_evidence(seen: float, flows: int, links: int) -> tuple[Evidence, Evidence]:
    """The max/mean that was seen, and the one that so many flows have by chance."""
    usual = peak_to_average_p95(max(1, min(flows, _MOST_FLOWS)), links)
    return Evidence(_SEEN, round(seen, 2)), Evidence(_USUAL_chance, round(usual, 2))


def compare_with_hashing(finding: Condition) -> HashingComparison | None:
    """What chance has to do with a finding; None where that is not the question."""
    told = {each.name: each.value for each in finding.evidence if not isinstance(each.value, str)}
    flows = next((told[name] for name in _FLOWS if name in told), None)
    if flows is None or not {_SEEN, _USUAL_chance, _LINKS} <= set(told):
        return None
    return HashingComparison(round(flows), round(told[_LINKS]), told[_USUAL_chance], told[_SEEN])
