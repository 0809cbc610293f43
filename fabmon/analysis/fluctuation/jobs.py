"""Jobs, users and partitions over hours: which samples of which hosts are theirs.

A job of the scheduler is known by its number, through requeues and restarts of fabmon. Hosts on
which no such job runs are grouped by traffic that moves together, from chunk to chunk: a group that
shares at least half of its hosts with an earlier one is that group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.fluctuation.results import JOB, PARTITION, USER
from fabmon.analysis.fluctuation.samples import Bools
from fabmon.analysis.iteration.host_groups import (
    MIN_SAMPLES,
    SAME_JOB,
    group_hosts,
    host_similarity,
)
from fabmon.fabric.jobs.job import Job
from fabmon.fabric.snapshot import Floats
from fabmon.history.chunk_rates import RateChunk

_MOST_UNNAMED = 1024
"""Jobs of the processes of one node, that no scheduler names, in a study of any length: a job an
hour for a month. Each takes 24 kB and some milliseconds."""


@dataclass(slots=True)
class TrackedJob:
    """A job (`kind` JOB), or all jobs of a user or partition, which is its `name`.

    `hosts` are those of the last chunk with it, `job` is None of hosts whose traffic moves
    together. `lengths_s` are the lengths of its iterations in seconds (an array a chunk); `busy`
    and `known` count the samples of its rails that are communication and that are known.
    """

    kind: str
    hosts: frozenset[str]
    name: str = ""
    job: Job | None = None
    lengths_s: list[NDArray[np.float64]] = field(default_factory=list)
    busy: float = 0.0
    known: float = 0.0


@dataclass(frozen=True, slots=True)
class JobPart:
    """The part of a job in a chunk: its number in the registry, the columns of its hosts, and when
    it ran on each of them, [ticks, columns]."""

    number: int
    columns: tuple[int, ...]
    runs: Bools


class JobRegistry:
    """The jobs, users and partitions of all chunks, in the order in which they were first seen.

    `cut` are the nodes whose processes report more jobs, that no scheduler names, than are studied.
    """

    def __init__(self) -> None:
        self.cut: set[str] = set()
        self._unnamed_on: Counter[str] = Counter()
        self.jobs: list[TrackedJob] = []
        self._numbers: dict[tuple[str, str], int] = {}
        self._groups: list[int] = []

    def names(self) -> list[str]:
        """A name for each, unique among those of its kind: `job 8801 llama-70b (anna)`; of hosts
        without a job of the scheduler `gpu001 +3`, or `gpu001 +3 (1)` and `gpu001 +3 (2)`."""
        named = [(job.kind, _name(job)) for job in self.jobs]
        count, so_far = Counter(named), Counter[tuple[str, str]]()
        names = []
        for each in named:
            so_far[each] += 1
            names.append(f"{each[1]} ({so_far[each]})" if count[each] > 1 else each[1])
        return names

    def accept(self, chunk: RateChunk, names: Sequence[str], sent: Floats) -> list[JobPart]:
        """The parts of jobs in a chunk; `sent` [ticks, hosts] is what each host sent."""
        parts = self._scheduled(chunk, names, len(sent))
        taken = {column for part in parts for column in part.columns}
        free = [column for column in range(len(names)) if column not in taken]
        return [*parts, *self._correlated(names, sent, free)]

    def _scheduled(self, chunk: RateChunk, names: Sequence[str], ticks: int) -> list[JobPart]:
        """The parts of the scheduler's jobs, their users and partitions."""
        column_of = {name: column for column, name in enumerate(names)}
        times_ns = chunk.start_ns + (np.arange(ticks) * (chunk.interval_s * 1e9)).astype(np.int64)
        runs: dict[int, dict[int, Bools]] = {}
        for place, (from_ns, table) in enumerate(chunk.jobs):
            is_now = times_ns >= from_ns if place else np.ones(ticks, np.bool_)
            if place + 1 < len(chunk.jobs):
                is_now &= times_ns < chunk.jobs[place + 1][0]
            for job in table.jobs:
                nodes = table.nodes_of(job)
                columns = [column_of[node] for node in nodes if node in column_of]
                is_running = is_now & (times_ns >= job.start_ns)
                if not columns or not is_running.any():
                    continue
                for number in self._numbers_of(job, nodes):
                    on_host = runs.setdefault(number, {})
                    for column in columns:
                        on_host[column] = on_host.get(column, False) | is_running
        parts = []
        for number, on_host in runs.items():
            used = tuple(sorted(on_host))
            self.jobs[number].hosts |= frozenset(names[column] for column in used)
            wide = np.stack([on_host[column] for column in used], axis=1)
            parts.append(JobPart(number, used, wide))
        return parts

    def _numbers_of(self, job: Job, nodes: Sequence[str]) -> list[int]:
        """The numbers of a job, its user and its partition; none of an unnamed job of nodes that
        reported too many."""
        keys = [(JOB, f"{job.scheduler} {job.id or job.name}")]
        if not (job.name or job.user) and keys[0] not in self._numbers:
            if all(self._unnamed_on[node] >= _MOST_UNNAMED for node in nodes):
                self.cut.update(nodes)
                return []
            self._unnamed_on.update(nodes)
        keys += [(USER, job.user)] if job.user else []
        keys += [(PARTITION, job.partition)] if job.partition else []
        numbers = []
        for kind, key in keys:
            number = self._numbers.setdefault((kind, key), len(self.jobs))
            if number == len(self.jobs):
                name = "" if kind == JOB else key
                self.jobs.append(TrackedJob(kind, frozenset(), name))
            numbers.append(number)
        self.jobs[numbers[0]].job = job
        return numbers

    def _correlated(self, names: Sequence[str], sent: Floats, free: Sequence[int]) -> list[JobPart]:
        """The groups of hosts whose traffic moves together, among those of some columns."""
        if len(sent) < MIN_SAMPLES or not free:
            return []
        now: dict[int, tuple[int, ...]] = {}
        for group in group_hosts(sent[:, free].T):
            if len(group.members) >= 2:
                columns = tuple(free[member] for member in group.members)
                hosts = frozenset(names[column] for column in columns)
                number = self._number_of_hosts(hosts, taken=now)
                self.jobs[number].hosts = hosts
                now[number] = columns
        return [
            JobPart(number, columns, np.ones((len(sent), len(columns)), np.bool_))
            for number, columns in now.items()
        ]

    def _number_of_hosts(self, hosts: frozenset[str], taken: Collection[int]) -> int:
        """The number of the group with these hosts; a new one where no earlier one is similar."""
        candidates = [
            (host_similarity(self.jobs[number].hosts, hosts), -number)
            for number in self._groups
            if number not in taken
        ]
        similarity, number = max(candidates, default=(0.0, 0))
        if similarity >= SAME_JOB:
            return -number
        self._groups.append(len(self.jobs))
        self.jobs.append(TrackedJob(JOB, hosts))
        return len(self.jobs) - 1


def _name(job: TrackedJob) -> str:
    if job.job is not None:
        return job.job.label
    if job.name or not job.hosts:
        return job.name
    first, others = min(job.hosts), len(job.hosts) - 1
    return f"{first} +{others}" if others else first
