"""What a study keeps of rate chunks, each read once: sums of samples, means of 10 s, and jobs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.fluctuation.foreign_traffic import ForeignShares
from fabmon.analysis.fluctuation.jobs import JobPart, JobRegistry
from fabmon.analysis.fluctuation.links import PortFilter, TrafficLink, all_ports, traffic_links
from fabmon.analysis.fluctuation.results import JOB
from fabmon.analysis.fluctuation.samples import (
    Bools,
    SampleSums,
    cell_means,
    cell_ticks,
    communication_mask,
    inside_phases,
)
from fabmon.analysis.iteration.measurement import iteration_lengths
from fabmon.fabric.measures import known_mean
from fabmon.fabric.model import Fabric
from fabmon.fabric.port_arrays import grown
from fabmon.fabric.snapshot import Floats
from fabmon.history.chunk_rates import RateChunk

Indices = NDArray[np.intp]


class SampleTotals:
    """One way to select samples: sums of links and jobs, and the cells of each chunk.

    `cells` are [cells, links]; `job_cells` by job are [cells], each with the number of its chunk.
    """

    def __init__(self) -> None:
        self.links, self.jobs = SampleSums(), SampleSums()
        self.cells: list[Floats] = []
        self.job_cells: dict[int, list[tuple[int, Floats]]] = {}

    def add(self, rates: Floats, selected: Bools, links: Indices, ticks: int) -> None:
        """Take the selected of [ticks, links] samples, `ticks` a cell."""
        at = np.nonzero(selected)
        self.links.add(links[at[1]], rates[at])
        means = cell_means(rates, selected, ticks)
        wide = np.full((len(means), int(links.max(initial=-1)) + 1), np.nan, np.float32)
        wide[:, links] = means
        self.cells.append(wide)


class Accumulator:
    """Takes rate chunks in order of time; `accept` one, then read the attributes.

    Arrays have an element for each of `links`. `whole` has the samples that are entirely in phases
    of communication, `any` all samples in such phases. `busy` is the number of samples that are
    communication, `known` that of all, `rate` the line rate (bits/s). `times` (ns) are those of the
    cells, an array a chunk. `span` are the times (ns) of the tick with which the first
    sample begins, and of that with which the last one ends.

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
            totals.add(rates, selected, links, per_cell)
            for job in jobs:
                theirs, counts = rates[:, job.links], selected[:, job.links] & job.runs
                means = known_mean(cell_means(theirs, counts, per_cell))
                totals.job_cells.setdefault(job.number, []).append((len(self.times), means))
                samples = theirs[counts]
                totals.jobs.add(np.full(len(samples), job.number), samples)
        for job in jobs:
            tracked = self.registry.jobs[job.number]
            tracked.busy += float((busy[:, job.links] & job.runs).sum())
            tracked.known += float((known[:, job.links] & job.runs).sum())
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
        links = len(self.links)
        self.busy, self.known = grown(self.busy, links), grown(self.known, links)
        self.rate = grown(self.rate, links, np.nan)

    def _count_time(self, rate_chunk: RateChunk, ticks: Indices) -> None:
        """Add the time in which something is known; `ticks` are those with a sample."""
        step_ns = rate_chunk.interval_s * 1e9
        first, last = (rate_chunk.start_ns + int(tick * step_ns) for tick in ticks[[0, -1]])
        begin = first - int(step_ns)
        before = self.span or (begin, last)
        self.span = (min(before[0], begin), max(before[1], last))
        self.watched_s += len(ticks) * rate_chunk.interval_s

    def _jobs(
        self, rate_chunk: RateChunk, rates: Floats, line_rates: Floats
    ) -> tuple[list[_JobSamples], Floats]:
        """The samples of each job, and the signal [ticks, links] that phases are judged by.

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
        names = list(rails)
        sent = np.stack([known_mean(rates[:, rails[name]]) for name in names], axis=1)
        parts = self.registry.accept(rate_chunk, names, sent)
        jobs = [_samples_of(part, [rails[name] for name in names]) for part in parts]
        for job in jobs:
            tracked = self.registry.jobs[job.number]
            if tracked.kind != JOB:
                continue
            mean_rail = known_mean(np.where(job.runs, rates[:, job.links], np.float32(np.nan)))
            signal[:, job.links] = np.where(job.runs, mean_rail[:, None], signal[:, job.links])
            ticks = np.flatnonzero(job.runs.any(axis=1))
            known = line_rates[job.links][np.isfinite(line_rates[job.links])]
            ceiling_bps = float(known.mean()) if len(known) else np.inf
            while_running = mean_rail[ticks[0] : ticks[-1] + 1]
            lengths_s = iteration_lengths(while_running, ceiling_bps) * rate_chunk.interval_s
            if len(lengths_s):
                tracked.lengths_s.append(lengths_s)
        return jobs, signal


@dataclass(frozen=True, slots=True)
class _JobSamples:
    """Which samples of a chunk are a job's: those of some links, where `runs` [ticks, links]."""

    number: int
    links: Indices
    runs: Bools


def _samples_of(part: JobPart, links_of_hosts: list[list[int]]) -> _JobSamples:
    links = [(link, n) for n, host in enumerate(part.columns) for link in links_of_hosts[host]]
    own, columns = np.array(links, np.intp).T
    return _JobSamples(part.number, own, part.runs[:, columns])


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
