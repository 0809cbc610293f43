"""What random hashing alone would do to a group, as evidence of a finding, and read from it."""

from __future__ import annotations

from dataclasses import dataclass

from fabmon.analysis.condition import Condition, Evidence
from fabmon.analysis.nullmodel import peak_to_average_p95

_SEEN = "max/mean"
_USUAL = "max/mean of random hashing, p95"
_FLOWS = ("flows, at least", "effective flows")
"""How many flows there are, where that is known; else how many would be as uneven."""
_LINKS = "group links"
_MOST_FLOWS = 4096


@dataclass(frozen=True, slots=True)
class Chance:
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


def evidence(seen: float, flows: int, links: int) -> tuple[Evidence, Evidence]:
    """The max/mean that was seen, and the one that so many flows have by chance."""
    usual = peak_to_average_p95(max(1, min(flows, _MOST_FLOWS)), links)
    return Evidence(_SEEN, round(seen, 2)), Evidence(_USUAL, round(usual, 2))


def chance(finding: Condition) -> Chance | None:
    """What chance has to do with a finding; None where that is not the question."""
    told = {each.name: each.value for each in finding.evidence if not isinstance(each.value, str)}
    flows = next((told[name] for name in _FLOWS if name in told), None)
    if flows is None or not {_SEEN, _USUAL, _LINKS} <= set(told):
        return None
    return Chance(round(flows), round(told[_LINKS]), told[_USUAL], told[_SEEN])
