"""The null model of ECMP: what random hashing does by itself, n equal flows hashed to m links.

Reference: detection.md section 2. The coefficient of variation (CoV) of the links' loads is
sqrt((m-1)/n); its inverse is the number of flows that would look like a measured load. The second
half of this module puts the model into the evidence of a finding and reads it from there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.finding import Condition, Evidence
from fabmon.fabric.snapshot import Floats

_PERCENTILE = 0.95
"""The quantile of max/mean that random hashing is given: it exceeds it in one of twenty cases."""

_MAX_FLOWS = 4096
"""Flows beyond which max/mean is no longer computed exactly: it is then close to 1 anyway."""

_MEASURED = "max/mean"
_EXPECTED = "max/mean of random hashing, p95"
LEAST_FLOWS, EFFECTIVE_FLOWS = "flows, at least", "effective flows"
_FLOWS = (LEAST_FLOWS, EFFECTIVE_FLOWS)
_LINKS = "group links"
"""Names of evidence. `_FLOWS`: the number of flows where it is known, else how many equal flows
would be as uneven."""


def effective_flows(loads: Floats) -> float:
    """(m-1)/CoV^2: the number of equal flows, hashed at random, that would be as uneven as these
    loads; at most _MAX_FLOWS, as when they are even."""
    mean = float(np.mean(loads))
    variance = float(np.var(loads))
    if variance <= 0 or mean <= 0:
        return _MAX_FLOWS
    return min((len(loads) - 1) * mean * mean / variance, _MAX_FLOWS)


@lru_cache(maxsize=4096)
def occupied_at_most(links_used: int, flows: int, links: int) -> float:
    """Probability that `flows` flows hashed to `links` links use at most `links_used` of them."""
    used = np.arange(links_used + 1)
    stays, grows = used / links, (links - used[:-1]) / links
    shares = np.zeros(links_used + 1)
    shares[0] = 1.0
    for _ in range(flows):
        grown = shares[:-1] * grows
        shares *= stays
        shares[1:] += grown
    return float(shares.sum())


@lru_cache(maxsize=4096)
def peak_to_average_p95(flows: int, links: int) -> float:
    """The 95th percentile of max/mean for so many flows, exactly. Takes a fraction of a ms."""
    flows = max(1, flows)
    if links < 2:
        return 1.0
    # As if links were independent of each other: a start that is close to the exact answer.
    log = _log_factorials(flows)
    ways = log[-1] - log - log[::-1]
    lost = np.arange(flows, -1, -1) * math.log1p(-1 / links)
    alone = np.cumsum(np.exp(ways + lost - np.arange(flows + 1) * math.log(links)))
    peak = int(np.searchsorted(alone, _PERCENTILE ** (1 / links)))
    while peak < flows and _peak_at_most(peak, flows, links) < _PERCENTILE:
        peak += 1
    return peak * links / flows


def _peak_at_most(peak: int, flows: int, links: int) -> float:
    """Probability that no link gets more than `peak` flows.

    A multinomial is independent Poisson variables with a given sum; the sum of those that are
    truncated at `peak` is a convolution (Levin 1981, "A representation for multinomial cumulative
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
    """Logarithms of 0! to `most`!."""
    factorials: NDArray[np.float64] = np.cumsum(np.log(np.maximum(np.arange(most + 1), 1)))
    return factorials


@dataclass(frozen=True, slots=True)
class HashingComparison:
    """A group's measured max/mean (`seen`) beside the p95 of random hashing (`usual`), for `flows`
    flows on `links` links."""

    flows: int
    links: int
    usual: float
    seen: float

    @property
    def explains(self) -> bool:
        """Whether random hashing is as uneven in one of twenty cases."""
        return self.seen <= self.usual


def hashing_evidence(seen: float, flows: int, links: int) -> tuple[Evidence, Evidence]:
    """Evidence: the measured max/mean, and the p95 of random hashing for so many flows."""
    usual = peak_to_average_p95(min(flows, _MAX_FLOWS), links)
    return Evidence(_MEASURED, round(seen, 2)), Evidence(_EXPECTED, round(usual, 2))


def compare_with_hashing(finding: Condition) -> HashingComparison | None:
    """The comparison in a finding's evidence; None for findings without one."""
    values = {each.name: each.value for each in finding.evidence if not isinstance(each.value, str)}
    flows = next((values[name] for name in _FLOWS if name in values), None)
    if flows is None or not {_MEASURED, _EXPECTED, _LINKS} <= set(values):
        return None
    return HashingComparison(
        round(flows), round(values[_LINKS]), values[_EXPECTED], values[_MEASURED]
    )
