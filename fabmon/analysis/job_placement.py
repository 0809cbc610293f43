"""Where jobs run: the leaves of their nodes, whether fewer are enough, whose uplinks they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fabmon.fabric.jobs.job import Job
from fabmon.fabric.model import RAIL, SWITCH, UPLINK
from fabmon.fabric.names import natural
from fabmon.fabric.port_arrays import NONE
from fabmon.fabric.snapshot import Snapshot


class Placement(NamedTuple):
    """Where a job runs.

    `leaves` are the switches that its NICs are cabled to, empty where unknown. `least_leaves` is on
    how many leaves it could run, given the watched hosts below each. `meets` are the jobs, by
    number, that also cross uplinks of its leaves, with these leaves.
    """

    leaves: tuple[str, ...]
    least_leaves: int
    meets: Mapping[str, tuple[str, ...]]


class Places:
    """Where the nodes of a fabric are: their NICs, their leaves, the uplinks of these.

    `crossed_by` are the leaves whose uplinks each job needs, by its number.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        leaves = snapshot.connections.leaves
        self._rails_of: dict[str, list[int]] = {}
        self._leaves_of: dict[str, frozenset[str]] = {}
        self._uplinks: dict[str, list[int]] = {}
        for node in snapshot.fabric.nodes:
            if node.role == SWITCH:
                self._uplinks[node.name] = [p.row for p in node.ports if p.role == UPLINK]
                continue
            rows = [port.row for port in node.ports if port.role == RAIL]
            self._rails_of[node.name] = rows
            found = {int(each) for each in leaves.of[rows]} - {NONE}
            if found:
                self._leaves_of[node.name] = frozenset(leaves.names[each] for each in found)
        self._hosts_at = Counter(self._leaves_of.values())
        jobs = snapshot.jobs
        self.crossed_by = {job.number: self.crossed(jobs.nodes_of(job)) for job in jobs.jobs}
        self._crossing: dict[str, list[str]] = {}
        for number, crossed in self.crossed_by.items():
            for leaf in crossed:
                self._crossing.setdefault(leaf, []).append(number)

    def placement(self, job: Job, nodes: Sequence[str]) -> Placement:
        """Where a job on some nodes runs."""
        crossed = self.crossed_by[job.number]
        meets: dict[str, tuple[str, ...]] = {}
        for leaf in sorted(crossed, key=natural):
            for other in self._crossing[leaf]:
                if other != job.number:
                    meets[other] = (*meets.get(other, ()), leaf)
        return Placement(self.leaves(nodes), self.least_leaves(nodes), meets)

    def rails(self, nodes: Iterable[str]) -> list[int]:
        """The rows of the NICs of some nodes."""
        return [row for node in nodes for row in self._rails_of.get(node, ())]

    def leaves(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """The leaves of some nodes, in the order of the nodes."""
        every = (
            leaf for node in nodes for leaf in sorted(self._leaves_of.get(node, ()), key=natural)
        )
        return tuple(dict.fromkeys(every))

    def least_leaves(self, nodes: Iterable[str]) -> int:
        """The number of leaves of as many hosts where they are closest together: hosts at the same
        leaves (one, or one for each rail) are together."""
        left = sum(node in self._leaves_of for node in nodes)
        used: set[str] = set()
        for at, hosts in sorted(self._hosts_at.items(), key=lambda each: -each[1]):
            if left <= 0:
                break
            used |= at
            left -= hosts
        return len(used)

    def crossed(self, nodes: Iterable[str]) -> frozenset[str]:
        """The leaves whose uplinks a job on these nodes needs: it has nodes elsewhere too."""
        places = {self._leaves_of[node] for node in nodes if node in self._leaves_of}
        return frozenset().union(*places) if len(places) > 1 else frozenset()

    def uplinks(self, leaves: Iterable[str]) -> list[int]:
        """The rows of the uplinks of some leaves."""
        return [row for leaf in leaves for row in self._uplinks.get(leaf, ())]


def placement_text(placement: Placement, label_of: Mapping[str, str]) -> str:
    """What is wrong with where a job runs; empty where nothing is, or where it is not known.

    `label_of` are the labels of jobs by number.
    """
    parts = []
    if 0 < placement.least_leaves < len(placement.leaves):
        least = placement.least_leaves
        enough = "1 is" if least == 1 else f"{least} are"
        parts.append(f"spans {len(placement.leaves)} leaves where {enough} enough")
    if placement.meets:
        leaves = sorted({leaf for each in placement.meets.values() for leaf in each}, key=natural)
        shown = ", ".join(leaves[:4]) + (f" and {len(leaves) - 4} more" if len(leaves) > 4 else "")
        others = [label_of.get(number, number) for number in placement.meets]
        named = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
        parts.append(f"shares the uplinks of {shown} with {named}")
    return "; ".join(parts)
