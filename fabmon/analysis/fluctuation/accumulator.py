"""What a study keeps of rate chunks, each read once: sums of samples, means of 10 s, and jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.fluctuation.foreign_traffic import ForeignShares
from fabmon.analysis.fluctuation.links import PortFilter, TrafficLink, all_ports, traffic_links
from fabmon.analysis.fluctuation.samples import (
    Bools,
    SampleSums,
    cell_means,
    cell_ticks,
    communication_mask,
    inside_phases,
    nanmean,
)
from fabmon.analysis.iteration.host_groups import (
    MIN_SAMPLES,
    SAME_JOB,
    group_hosts,
    host_similarity,
)
from fabmon.analysis.iteration.measurement import iteration_lengths
from fabmon.fabric.model import Fabric
from fabmon.fabric.snapshot import Floats
from fabmon.history.chunk_rates import RateChunk

Indices = NDArray[np.intp]


@dataclass(slots=True)
class TrackedJob:
    """A job: its hosts by name, the lengths of its iterations in seconds (an array a chunk), and
    how many samples of its rails are communication and how many are known."""

    hosts: frozenset[str]
    lengths_s: list[NDArray[np.float64]] = field(default_factory=list)
    busy: float = 0.0
    known: float = 0.0


class JobRegistry:
    """Jobs over hours: groups of hosts whose traffic moves together, followed from chunk to chunk.

    A group that shares at least half of its hosts with an earlier job is that job.
    """

    def __init__(self) -> None:
        self.jobs: list[TrackedJob] = []

    def names(self) -> list[str]:
        """A unique name for each job, from its first host: `gpu001 +3`, `gpu001 +3 (2)`."""
        named = [
            f"{min(job.hosts)} +{len(job.hosts) - 1}" if len(job.hosts) > 1 else min(job.hosts)
            for job in self.jobs
        ]
        return [
            f"{name} ({named[:number].count(name) + 1})" if named.count(name) > 1 else name
            for number, name in enumerate(named)
        ]

    def accept(self, names: Sequence[str], sent: Floats) -> list[tuple[int, tuple[int, ...]]]:
        """The jobs of a chunk, from what each host sent [ticks, hosts]: number of the job, and
        columns of its hosts."""
        if len(sent) < MIN_SAMPLES:
            return []
        now: dict[int, tuple[int, ...]] = {}
        for group in group_hosts(sent.T):
            if len(group.members) >= 2:
                hosts = frozenset(names[member] for member in group.members)
                number = self._number_of(hosts, taken=now)
                self.jobs[number].hosts = hosts
                now[number] = group.members
        return list(now.items())

    def _number_of(self, hosts: frozenset[str], taken: Collection[int]) -> int:
        """The number of the job with these hosts; a new one where no earlier job is similar."""
        candidates = [
            (host_similarity(job.hosts, hosts), -number)
            for number, job in enumerate(self.jobs)
            if number not in taken
        ]
        similarity, number = max(candidates, default=(0.0, 0))
        if similarity >= SAME_JOB:
            return -number
        self.jobs.append(TrackedJob(hosts))
        return len(self.jobs) - 1


class SampleTotals:
    """One way to select samples: sums of links and jobs, and the cells of each chunk.

    `cells` are [cells, links], `job_cells` [cells] by job.
    """

    def __init__(self) -> None:
        self.links, self.jobs = SampleSums(), SampleSums()
        self.cells: list[Floats] = []
        self.job_cells: list[dict[int, Floats]] = []

    def add(self, rates: Floats, selected: Bools, links: Indices, ticks: int) -> Floats:
        """Take the selected of [ticks, links] samples. Returns their cells, `ticks` a cell."""
        at = np.nonzero(selected)
        self.links.add(links[at[1]], rates[at])
        means = cell_means(rates, selected, ticks)
        wide = np.full((len(means), int(links.max(initial=-1)) + 1), np.nan, np.float32)
        wide[:, links] = means
        self.cells.append(wide)
        self.job_cells.append({})
        return means


class Accumulator:
    """Takes rate chunks in order of time; `accept` one, then read the attributes.

    Arrays have an element for each of `links`. `whole` has the samples that are entirely in phases
    of communication, `any` all samples in such phases. `busy` is the number of samples that are
    communication, `known` that of all, `rate` the line rate (bits/s). `times` (ns) are those of the
    cells, an array a chunk. `span` are the times of the first and the last sample (ns).

    `wanted` selects the links that are studied, `mine` the hosts that are ours (None: all that are
    watched).
    """

    def __init__(self, wanted: PortFilter = all_ports, mine: Collection[str] | None = None) -> None:
        self._wanted = wanted
        self._indices: dict[str, int] = {}
        self.links: list[TrafficLink] = []
        self._links_now: list[TrafficLink] = []
        self._version: tuple[int, int] | None = None
        self.whole, self.any = SampleTotals(), SampleTotals()
        self.busy, self.known = np.zeros(0), np.zeros(0)
        self.rate: Floats = np.empty(0, np.float32)
        self.times: list[NDArray[np.int64]] = []
        self.registry = JobRegistry()
        self.foreign = ForeignShares(mine)
        self.watched_s = 0.0
        self.interval_s = 0.0
        self.span: tuple[int, int] | None = None

    @property
    def cell_s(self) -> float:
        """Seconds from one cell to the next, where no time is missing between them."""
        return cell_ticks(self.interval_s) * self.interval_s

    def accept(self, rate_chunk: RateChunk) -> None:
        """Take a chunk."""
        self._lay_out(rate_chunk.fabric)
        self.interval_s = rate_chunk.interval_s
        self.foreign.accept(rate_chunk)
        if not self._links_now:
            return
        per_cell = cell_ticks(rate_chunk.interval_s)
        rate_chunk = _trimmed(rate_chunk, per_cell)
        rows = np.array([link.row for link in self._links_now])
        sends = np.array([link.way == "tx" for link in self._links_now])
        rates = np.where(sends, rate_chunk.tx_bps[:, rows], rate_chunk.rx_bps[:, rows])
        known = np.isfinite(rates)
        ticks = np.flatnonzero(known.any(axis=1))
        if not len(ticks):
            return
        self._count_time(rate_chunk, ticks)
        links = np.array([self._indices[link.key] for link in self._links_now])
        line_rates = rate_chunk.line_rate_bps[rows]
        self.rate[links] = line_rates
        jobs, signal = self._jobs(rate_chunk, rates, line_rates)
        phases = communication_mask(signal, line_rates)
        busy = phases & known
        np.add.at(self.busy, links, busy.sum(axis=0))
        np.add.at(self.known, links, known.sum(axis=0))
        for totals, selected in ((self.whole, inside_phases(phases) & known), (self.any, busy)):
            means = totals.add(rates, selected, links, per_cell)
            for number, ours in jobs:
                totals.job_cells[-1][number] = nanmean(means[:, ours])
                samples = rates[:, ours][selected[:, ours]]
                totals.jobs.add(np.full(len(samples), number), samples)
        for number, ours in jobs:
            self.registry.jobs[number].busy += float(busy[:, ours].sum())
            self.registry.jobs[number].known += float(known[:, ours].sum())
        cells = -(-len(rates) // per_cell)
        step_ns = int(per_cell * rate_chunk.interval_s * 1e9)
        self.times.append(rate_chunk.start_ns + np.arange(cells) * step_ns)

    def _lay_out(self, fabric: Fabric) -> None:
        """Find the links of a fabric that has changed; a link keeps its index."""
        if self._version == (id(fabric), fabric.version):
            return
        self._version = (id(fabric), fabric.version)
        self._links_now = traffic_links(fabric, self._wanted)
        for link in self._links_now:
            index = self._indices.setdefault(link.key, len(self._indices))
            self.links[index : index + 1] = [link]
        new = len(self.links) - len(self.busy)
        self.busy, self.known = (np.pad(each, (0, new)) for each in (self.busy, self.known))
        self.rate = np.pad(self.rate, (0, new), constant_values=np.nan)

    def _count_time(self, rate_chunk: RateChunk, ticks: Indices) -> None:
        """Add the time in which something is known; `ticks` are those with a sample."""
        step_ns = rate_chunk.interval_s * 1e9
        first, last = (rate_chunk.start_ns + int(tick * step_ns) for tick in ticks[[0, -1]])
        before = self.span or (first, last)
        self.span = (min(before[0], first), max(before[1], last))
        self.watched_s += len(ticks) * rate_chunk.interval_s

    def _jobs(
        self, rate_chunk: RateChunk, rates: Floats, line_rates: Floats
    ) -> tuple[list[tuple[int, Indices]], Floats]:
        """Number and links of each job, and the signal [ticks, links] that phases are judged by.

        The signal is that of the job's mean rail, so that a rail that is slowed down is not taken
        for one that pauses; for hosts in no job, and between switches, it is the link's own.
        """
        rails: dict[str, list[int]] = {}
        for index, link in enumerate(self._links_now):
            if link.rail:
                rails.setdefault(link.node, []).append(index)
        if not rails:
            return [], rates
        signal = rates.copy()
        jobs: list[tuple[int, Indices]] = []
        names = list(rails)
        sent = np.stack([nanmean(rates[:, rails[name]]) for name in names], axis=1)
        for number, hosts in self.registry.accept(names, sent):
            ours = np.array([index for host in hosts for index in rails[names[host]]])
            mean_rail = nanmean(rates[:, ours])
            signal[:, ours] = mean_rail[:, None]
            jobs.append((number, ours))
            known = line_rates[ours][np.isfinite(line_rates[ours])]
            ceiling_bps = float(known.mean()) if len(known) else np.inf
            lengths_s = iteration_lengths(mean_rail, ceiling_bps) * rate_chunk.interval_s
            if len(lengths_s):
                self.registry.jobs[number].lengths_s.append(lengths_s)
        return jobs, signal


def _trimmed(rate_chunk: RateChunk, ticks: int) -> RateChunk:
    """The chunk without the time before its first and after its last sample, in whole cells."""
    known = np.flatnonzero(np.isfinite(rate_chunk.tx_bps).any(axis=1))
    if not len(known):
        return rate_chunk
    begin, end = int(known[0]) // ticks * ticks, int(known[-1]) + 1
    return replace(
        rate_chunk,
        start_ns=rate_chunk.start_ns + int(begin * rate_chunk.interval_s * 1e9),
        tx_bps=rate_chunk.tx_bps[begin:end],
        rx_bps=rate_chunk.rx_bps[begin:end],
    )
