"""The jobs on the watched nodes: what the scheduler reports, joined to the fabric's nodes.

A job that the scheduler does not report, or while nobody asks it, is known by the processes that
own queue pairs: by its number only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from fabmon.fabric.flows.queue_pairs import QueuePairs
from fabmon.fabric.jobs.job import KUBERNETES, Job, JobReport
from fabmon.fabric.names import natural

MOST_OF_NODE = 512
"""Jobs that are known by the processes of one node alone: one on each of its hardware threads."""

_SAME_JOB = 0.5
"""Share of the hosts of either that two sets of hosts have in common where they are one job."""


class JobTable:
    """The jobs at one time.

    `report` is the scheduler's, None where none was asked. `jobs` are those with a watched node, by
    number; their `nodes` are the scheduler's names. `moved` are jobs that ran on watched nodes
    before, and now run on others only: a requeue may do that. `cut` has the number of jobs of the
    processes of each node that reports more than are taken.
    """

    def __init__(
        self,
        report: JobReport | None = None,
        hosts: Iterable[str] = (),
        processes: Mapping[str, QueuePairs] | None = None,
        before: JobTable | None = None,
    ) -> None:
        """`hosts` are the names of the watched hosts, `processes` the queue pairs by node, `before`
        is the table that this one replaces."""
        self.report = report
        self.cut: dict[str, int] = {}
        watched = _NodeNames(hosts)
        nodes_of: dict[str, list[str]] = {}
        known: dict[str, Job] = {}
        earlier = set() if before is None else {job.id for job in (*before.jobs, *before.moved)}
        moved: list[Job] = []
        for job in report.jobs if report is not None else ():
            own = [name for name in map(watched.find, job.nodes) if name is not None]
            if own:
                known[job.id or job.name], nodes_of[job.id or job.name] = job, own
            elif job.id in earlier and job.nodes:
                moved.append(job)
        job_of = {pod: job.id for job in known.values() for pod in job.pods}
        by_processes: dict[str, list[str]] = {}
        pods: set[str] = set()
        for node, pairs in (processes or {}).items():
            pods |= {each.pod for each in pairs.processes if each.pod and not each.job}
            owners = (each.job or job_of.get(each.pod, each.pod) for each in pairs.processes)
            unknown = [each for each in dict.fromkeys(owners) if each and each not in known]
            if len(unknown) > MOST_OF_NODE:
                self.cut[node] = len(unknown)
            for number in unknown[:MOST_OF_NODE]:
                by_processes.setdefault(number, []).append(node)
        for number, nodes in by_processes.items():
            known[number] = _unnamed(number, number in pods, nodes)
            nodes_of[number] = list(known[number].nodes)
        ordered = sorted(known.values(), key=lambda job: natural(job.number))
        self.jobs: tuple[Job, ...] = tuple(ordered)
        self._nodes_of = {key: tuple(nodes) for key, nodes in nodes_of.items()}
        self.moved: tuple[Job, ...] = tuple(moved)

    def nodes_of(self, job: Job) -> tuple[str, ...]:
        """The watched nodes of a job, in the order of its nodes."""
        return self._nodes_of.get(job.id or job.name, ())

    @cached_property
    def on_node(self) -> dict[str, tuple[Job, ...]]:
        """The jobs on each watched node, by its name; nodes without a job are left out."""
        found: dict[str, list[Job]] = {}
        for job in self.jobs:
            for node in self.nodes_of(job):
                found.setdefault(node, []).append(job)
        return {node: tuple(jobs) for node, jobs in found.items()}

    def matching(self, hosts: Iterable[str]) -> Job | None:
        """The job that has most of these hosts, and few others; None if none has."""
        own = frozenset(hosts)
        candidates = {job.number: job for host in own for job in self.on_node.get(host, ())}

        def likeness(job: Job) -> float:
            nodes = set(self.nodes_of(job))
            return len(nodes & own) / len(nodes | own)

        best = max(candidates.values(), key=likeness, default=None)
        return best if best is not None and likeness(best) >= _SAME_JOB else None


def _unnamed(number: str, is_pod: bool, nodes: Iterable[str]) -> Job:
    """A job that processes are in, or a pod, by the head of its uid."""
    ordered = tuple(sorted(nodes, key=natural))
    if not is_pod:
        return Job(id=number, nodes=ordered)
    return Job(scheduler=KUBERNETES, id=number, shown_id=f"pod {number[:8]}", nodes=ordered)


class _NodeNames:
    """Finds watched hosts by the scheduler's names, which may have a domain or lack it."""

    def __init__(self, names: Iterable[str]) -> None:
        self._exact: dict[str, str] = {}
        short: dict[str, list[str]] = {}
        for name in names:
            self._exact[name.lower()] = name
            short.setdefault(_short(name), []).append(name)
        self._short = {key: own[0] for key, own in short.items() if len(own) == 1}

    def find(self, name: str) -> str | None:
        return self._exact.get(name.lower()) or self._short.get(_short(name))


def _short(name: str) -> str:
    return name.lower().partition(".")[0]


NO_JOBS = JobTable()
"""Where no job is known."""
