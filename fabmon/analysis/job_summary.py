"""What a person asks of each job: where it runs, what it sends, what slows it.

The bus bandwidth is that of nccl-tests: for a ring over whole nodes it is about the sum of what
the NICs of one node send (NVIDIA/nccl#495). Here it is the highest such sum of the last minute, the
mean over the nodes: a lower bound where a collective is shorter than a tick.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fabmon.analysis.finding import Finding
from fabmon.analysis.iteration.results import JobIteration
from fabmon.analysis.scene import Scene
from fabmon.fabric.jobs.collectives import Collective
from fabmon.fabric.jobs.job import Job
from fabmon.fabric.model import RAIL, SWITCH, UPLINK
from fabmon.fabric.names import natural
from fabmon.fabric.pseudonyms import without_domain
from fabmon.fabric.snapshot import WAYS, Floats, Snapshot
from fabmon.fabric.topology.leaves import NONE

_MINUTE_S = 60.0
_BUSIEST_S = 10.0
"""Time of which the busiest tick of a link counts, as in the heatmap: iterations have phases."""
_COMMUNICATES = 0.01
"""Share of line rate above which the bandwidth is that of a collective, and not of monitoring."""


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job at one tick.

    `nodes` are the watched ones. `leaves` are the switches that its NICs are cabled to, `pods`
    those of its nodes; empty where unknown. `least_leaves` is on how many leaves it could run,
    given the watched hosts below each. `meets` are the jobs that also cross uplinks of its leaves,
    with these leaves. `tx_bps` is what all of its NICs sent, the mean of the last minute,
    `busbw_bps` the bus bandwidth in bits/s, each None where unknown. `worst_row` is the busiest
    port of its NICs and of the uplinks that it crosses, at `worst_util` of line rate in the busiest
    tick of the last 10 s. `collectives` are what NCCL measured of it, `rails_bps` the line rates of
    the NICs of one node together (0 unknown).
    """

    job: Job
    nodes: tuple[str, ...]
    leaves: tuple[str, ...]
    least_leaves: int
    pods: tuple[str, ...]
    meets: Mapping[str, tuple[str, ...]]
    tx_bps: float | None
    busbw_bps: float | None
    worst_row: int | None
    worst_util: float
    iteration: JobIteration | None
    findings: tuple[Finding, ...]
    collectives: tuple[Collective, ...] = ()
    rails_bps: float = 0.0


def job_summaries(scene: Scene) -> tuple[JobSummary, ...]:
    """All jobs of a scene, by number."""
    snapshot = scene.snapshot
    places = _Places(snapshot)
    jobs = snapshot.jobs.jobs
    spread = {job.number: places.crossed(snapshot.jobs.nodes_of(job)) for job in jobs}
    return tuple(_summary(scene, job, places, spread) for job in jobs)


def leaves_of(snapshot: Snapshot, nodes: Iterable[str]) -> int:
    """The number of leaves that the NICs of some nodes are cabled to; 0 where unknown."""
    wanted, leaves = set(nodes), snapshot.connections.leaves
    ports = snapshot.fabric.ports
    rows = [port.row for port in ports if port.role == RAIL and port.node in wanted]
    return len({int(each) for each in leaves.of[rows]} - {NONE})


def _summary(
    scene: Scene, job: Job, places: _Places, crossed_by: Mapping[str, frozenset[str]]
) -> JobSummary:
    snapshot = scene.snapshot
    nodes = snapshot.jobs.nodes_of(job)
    rails = places.rails(nodes)
    crossed = crossed_by[job.number]
    meets = {
        other: tuple(sorted(crossed & leaves, key=natural))
        for other, leaves in crossed_by.items()
        if other != job.number and crossed & leaves
    }
    sent_bps = _sent(snapshot, rails)
    worst, worst_util = _busiest(snapshot, [*rails, *places.uplinks(crossed)])
    shape = snapshot.fabric.shape
    return JobSummary(
        job=job,
        nodes=nodes,
        leaves=places.leaves(nodes),
        least_leaves=places.least_leaves(nodes),
        pods=tuple(dict.fromkeys(shape.pods[each] for each in nodes if each in shape.pods)),
        meets=meets,
        tx_bps=float(sent_bps.mean()) if len(sent_bps) else None,
        busbw_bps=_busbw(sent_bps, snapshot.line_rate_bps[rails], len(nodes)),
        worst_row=worst,
        worst_util=worst_util,
        iteration=next((each for each in scene.iteration_report.jobs if each.job == job), None),
        findings=tuple(each for each in scene.findings if job.label in each.jobs),
        collectives=_collectives(snapshot, job, nodes),
        rails_bps=float(np.nansum(snapshot.line_rate_bps[rails])) / max(len(nodes), 1),
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
    ticks = max(1, round(_BUSIEST_S / max(snapshot.interval_s, 1e-3)))
    windows = [snapshot.window(f"{way}_bps", every, ticks) for way in WAYS]
    most_bps = np.fmax.reduce(np.concatenate(windows, axis=1), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        util = np.nan_to_num(most_bps / snapshot.line_rate_bps[every], nan=-1.0, posinf=-1.0)
    place = int(util.argmax())
    return (every[place], float(util[place])) if util[place] >= 0 else (None, 0.0)


def _sent(snapshot: Snapshot, rails: list[int]) -> Floats:
    """[ticks] bits/s that some NICs sent together, in the known ticks of the last minute."""
    if not rails:
        return np.empty(0, np.float32)
    ticks = max(1, round(_MINUTE_S / max(snapshot.interval_s, 1e-3)))
    sent = snapshot.window("tx_bps", rails, ticks)
    together: Floats = np.nansum(sent[:, np.isfinite(sent).any(axis=0)], axis=0)
    return together


def _busbw(sent_bps: Floats, line_rate_bps: Floats, nodes: int) -> float | None:
    """Bits/s that the NICs of a node sent in the best tick, the mean over the nodes: a ring has
    all of them. None where they sent next to nothing."""
    if not len(sent_bps) or not nodes:
        return None
    best_bps = float(sent_bps.max())
    is_collective = best_bps > _COMMUNICATES * float(np.nansum(line_rate_bps))
    return best_bps / nodes if is_collective else None


class _Places:
    """Where the nodes of a fabric are: their NICs, their leaves, the uplinks of these."""

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

    def rails(self, nodes: Iterable[str]) -> list[int]:
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
        return [row for leaf in leaves for row in self._uplinks.get(leaf, ())]


def placement_text(summary: JobSummary, label_of: Mapping[str, str]) -> str:
    """What is wrong with where a job runs; empty where nothing is, or where it is not known.

    `label_of` are the labels of jobs by number.
    """
    parts = []
    if 0 < summary.least_leaves < len(summary.leaves):
        least = summary.least_leaves
        enough = "1 is" if least == 1 else f"{least} are"
        parts.append(f"spans {len(summary.leaves)} leaves where {enough} enough")
    if summary.meets:
        leaves = sorted({leaf for each in summary.meets.values() for leaf in each}, key=natural)
        shown = ", ".join(leaves[:4]) + (f" and {len(leaves) - 4} more" if len(leaves) > 4 else "")
        others = [label_of.get(number, number) for number in summary.meets]
        named = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
        parts.append(f"shares the uplinks of {shown} with {named}")
    return "; ".join(parts)
