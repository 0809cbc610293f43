"""What a person asks of each job: where it runs, what it sends, what slows it.

The bus bandwidth is that of nccl-tests: for a ring over whole nodes it is about the sum of what
the NICs of one node send (NVIDIA/nccl#495). Here it is the highest such sum of the last minute, the
mean over the nodes: a lower bound where a collective is shorter than a tick.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fabmon.analysis.finding import Finding, shown_moment
from fabmon.analysis.iteration.results import JobIteration
from fabmon.analysis.scene import Scene
from fabmon.fabric.jobs.collectives import Collective
from fabmon.fabric.jobs.job import Job
from fabmon.fabric.measures import known_sum
from fabmon.fabric.model import RAIL, SWITCH, UPLINK
from fabmon.fabric.names import natural
from fabmon.fabric.port_arrays import NONE
from fabmon.fabric.pseudonyms import without_domain
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.fabric.time_window import Span, TimeWindow


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


_MINUTE_S = 60.0
_COMMUNICATES = 0.01
"""Share of line rate above which the bandwidth is that of a collective, and not of monitoring."""


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job at one tick.

    `nodes` are the watched ones, `pods` those of its nodes; empty where unknown. `tx_bps` is what
    all of its NICs sent together over the window that is shown, `busbw_bps` the bus bandwidth in
    bits/s, each None where unknown. `worst_row` is the busiest port of its NICs and of the uplinks
    that it crosses, at `worst_util` of line rate over that window. `collectives` are
    what NCCL measured of it, `rails_bps` the line rates of the NICs of one node together (0
    unknown). `sent_bps` [ticks] is what all of its NICs sent together in the last minute or more.
    """

    job: Job
    nodes: tuple[str, ...]
    placement: Placement
    pods: tuple[str, ...]
    tx_bps: float | None
    busbw_bps: float | None
    worst_row: int | None
    worst_util: float
    iteration: JobIteration | None
    findings: tuple[Finding, ...]
    collectives: tuple[Collective, ...]
    rails_bps: float
    sent_bps: Floats = field(compare=False)


def job_summaries(
    scene: Scene,
    jobs: Iterable[Job] | None = None,
    shown: tuple[Snapshot, Span] | None = None,
) -> tuple[JobSummary, ...]:
    """Some jobs of a scene, all of them by default, by number: about 0.2 ms each. `shown` is the
    snapshot over the window that is shown, and that window. Without it, as for programs, links are
    at their maximum of 10 s, since iterations have phases, and traffic is the mean of a minute.
    """
    seen, over = shown or (scene.seen(TimeWindow.MAX), scene.span(TimeWindow.MINUTE))
    places = Places(scene.snapshot)
    iterations = {each.job: each for each in scene.iteration_report.jobs if each.job is not None}
    findings: dict[str, list[Finding]] = {}
    for finding in scene.findings:
        for label in shown_moment(finding).jobs:
            findings.setdefault(label, []).append(finding)
    return tuple(
        _summary(scene, seen, over, job, places, iterations.get(job), findings.get(job.label, ()))
        for job in (scene.snapshot.jobs.jobs if jobs is None else jobs)
    )


def leaves_of(snapshot: Snapshot, nodes: Iterable[str]) -> int:
    """The number of leaves that the NICs of some nodes are cabled to; 0 where unknown."""
    wanted, leaves = set(nodes), snapshot.connections.leaves
    ports = snapshot.fabric.ports
    rows = [port.row for port in ports if port.role == RAIL and port.node in wanted]
    return len({int(each) for each in leaves.of[rows]} - {NONE})


def _summary(
    scene: Scene,
    seen: Snapshot,
    over: Span,
    job: Job,
    places: Places,
    iteration: JobIteration | None,
    findings: Iterable[Finding],
) -> JobSummary:
    snapshot = scene.snapshot
    nodes = snapshot.jobs.nodes_of(job)
    rails = places.rails(nodes)
    sent_bps = _sent(snapshot, rails, over.ticks)
    tx_bps = float(over.reduce(sent_bps[None, -over.ticks :])[0])
    crossed = places.uplinks(places.crossed_by[job.number])
    worst, worst_util = _busiest(seen, [*rails, *crossed])
    shape = snapshot.fabric.shape
    return JobSummary(
        job=job,
        nodes=nodes,
        placement=places.placement(job, nodes),
        pods=tuple(dict.fromkeys(shape.pods[each] for each in nodes if each in shape.pods)),
        tx_bps=None if math.isnan(tx_bps) else tx_bps,
        busbw_bps=_busbw(sent_bps[-_minute(snapshot) :], snapshot.line_rate_bps[rails], len(nodes)),
        worst_row=worst,
        worst_util=worst_util,
        iteration=iteration,
        findings=tuple(findings),
        collectives=_collectives(snapshot, job, nodes),
        rails_bps=float(np.nansum(snapshot.line_rate_bps[rails])) / max(len(nodes), 1),
        sent_bps=sent_bps,
    )


def _collectives(snapshot: Snapshot, job: Job, nodes: Iterable[str]) -> tuple[Collective, ...]:
    """What NCCL measured of a job: by its number, or where that is not known by its nodes, if no
    other job runs on them."""
    report = snapshot.collectives
    own = {without_domain(node): len(snapshot.jobs.on_node.get(node, ())) == 1 for node in nodes}
    return tuple(
        each
        for each in (report.collectives if report is not None else ())
        if (each.job == job.id if each.job else _are_all(each.hosts, own))
    )


def _are_all(hosts: Iterable[str], known: Mapping[str, bool]) -> bool:
    found = [known.get(without_domain(host), False) for host in hosts]
    return bool(found) and all(found)


def _busiest(snapshot: Snapshot, rows: Iterable[int]) -> tuple[int | None, float]:
    """The busiest of some ports, and its utilisation; None and 0 where none is known."""
    every = list(rows)
    if not every:
        return None, 0.0
    util = np.nan_to_num(np.fmax(snapshot.tx_util, snapshot.rx_util)[every], nan=-1.0, posinf=-1.0)
    place = int(util.argmax())
    return (every[place], float(util[place])) if util[place] >= 0 else (None, 0.0)


def _minute(snapshot: Snapshot) -> int:
    """The ticks of a minute."""
    return max(1, round(_MINUTE_S / max(snapshot.interval_s, 1e-3)))


def _sent(snapshot: Snapshot, rails: list[int], ticks: int) -> Floats:
    """[ticks] bits/s that some NICs sent together in the last ticks, at least a minute of them; NaN
    where nothing is known."""
    ticks = max(ticks, _minute(snapshot))
    return known_sum(snapshot.window("tx_bps", rails, ticks), axis=0)


def _busbw(sent_bps: Floats, line_rate_bps: Floats, nodes: int) -> float | None:
    """Bits/s that the NICs of a node sent in the best tick, the mean over the nodes: a ring has
    all of them. None where they sent next to nothing."""
    best_bps = float(np.fmax.reduce(sent_bps))
    is_collective = best_bps > _COMMUNICATES * float(np.nansum(line_rate_bps))
    return best_bps / nodes if is_collective and nodes else None
