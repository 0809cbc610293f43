"""Jobs over hours: groups of hosts that keep one rhythm, followed from passage to passage."""

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
from fabmon.analysis.iteration.host_groups import MIN_SAMPLES, group_hosts
from fabmon.analysis.iteration.measurement import measure_iteration
from fabmon.analysis.iteration.signal_analysis import fill_gaps, find_pulses, normalise
from fabmon.fabric.model import Fabric
from fabmon.fabric.snapshot import Floats
from fabmon.history.chunk_rates import RateChunk

_SAME_JOB = 0.5
_SAME_PERIOD = 0.1
_USUAL = 0.4


@dataclass(slots=True)
class TrackedJob:
    """Hosts by name, and the lengths of its iterations: seconds, by passage."""

    hosts: frozenset[str]
    lengths_s: list[NDArray[np.float64]] = field(default_factory=list)


class JobRegistry:
    """Knows a job again by its hosts: half of all that are in either."""

    def __init__(self) -> None:
        self.found: list[TrackedJob] = []

    def names(self) -> list[str]:
        """Of every job another, by its first host: nobody has told its name."""
        named = [
            f"{min(job.hosts)} +{len(job.hosts) - 1}" if len(job.hosts) > 1 else min(job.hosts)
            for job in self.found
        ]
        return [
            f"{name} ({named[:number].count(name) + 1})" if named.count(name) > 1 else name
            for number, name in enumerate(named)
        ]

    def accept(self, names: Sequence[str], sent: Floats) -> list[tuple[int, tuple[int, ...]]]:
        """The jobs of a passage, by what each host sent [ticks, hosts]: number, places of hosts."""
        if len(sent) < MIN_SAMPLES:
            return []
        now = []
        taken: set[int] = set()
        for group in group_hosts(sent.T):
            if len(group.members) < 2:
                continue
            hosts = frozenset(names[member] for member in group.members)
            number = self._known(hosts, taken)
            taken.add(number)
            self.found[number].hosts = hosts
            now.append((number, group.members))
        return now

    def _known(self, hosts: frozenset[str], taken: set[int]) -> int:
        likely = [
            (len(job.hosts & hosts) / len(job.hosts | hosts), -number)
            for number, job in enumerate(self.found)
            if number not in taken
        ]
        best, number = max(likely, default=(0.0, 0))
        if best >= _SAME_JOB:
            return -number
        self.found.append(TrackedJob(hosts))
        return len(self.found) - 1


def iteration_lengths(signal: Floats, interval_s: float, ceiling: float) -> NDArray[np.float64]:
    """Seconds of each iteration in a signal [ticks]; none where it has no rhythm that is sure.

    One that is far from the usual (a checkpoint, a pulse that was missed) is left out; where an
    iteration has several pulses, there is one number, the mean of all.
    """
    beat = measure_iteration(signal, ceiling)
    values = fill_gaps(signal)
    if beat is None or values is None:
        return np.empty(0)
    at = normalise(values, beat.period)
    if at is None:
        return np.empty(0)
    lengths = np.diff(find_pulses(at.height).middles)
    likely = lengths[np.abs(lengths - beat.period) <= _USUAL * beat.period]
    if len(likely) < 2 or abs(likely.mean() - beat.period) > _SAME_PERIOD * beat.period:
        return np.array([beat.period * interval_s])
    seconds: NDArray[np.float64] = likely * interval_s
    return seconds


# Passages taken in, each once: sums of samples, means of ten seconds, who is which job.


Indices = NDArray[np.intp]


class SampleTotals:
    """One way to count samples: sums of links and jobs, and cells by passage."""

    def __init__(self) -> None:
        self.links, self.jobs = SampleSums(), SampleSums()
        self.cells: list[Floats] = []
        self.job_cells: list[dict[int, Floats]] = []

    def add(self, rates: Floats, counts: Bools, places: Indices, ticks: int) -> Floats:
        """Take [ticks, links] of the links at `places`; their cells."""
        at = np.nonzero(counts)
        self.links.add(places[at[1]], rates[at])
        made = cell_means(rates, counts, ticks)
        wide = np.full((len(made), int(places.max(initial=-1)) + 1), np.nan, np.float32)
        wide[:, places] = made
        self.cells.append(wide)
        self.job_cells.append({})
        return made


class Accumulator:
    """`accept` passages by time. What is there then, of each link by its place in `links`:

    `whole` and `any`: samples that lie wholly in phases of communication, and all of these; `busy`
    and `known`: how many communicate, and how many there are; `rate`: line rates. `times` are of
    the cells, by passage. `jobs` are in the order in which they were seen, `job_busy` the same of
    their rails. `span` are the times of the first and the last sample.

    `wanted` says which links are looked at, `mine` our hosts (None: all that are watched).
    """

    def __init__(
        self,
        wanted: PortFilter = all_ports,
        mine: Collection[str] | None = None,
    ) -> None:
        self._wanted = wanted
        self._places: dict[str, int] = {}
        self.links: list[TrafficLink] = []
        self._now: list[TrafficLink] = []
        self._version: tuple[int, int] | None = None
        self.whole, self.any = SampleTotals(), SampleTotals()
        self.busy, self.known = np.zeros(0), np.zeros(0)
        self.job_busy: dict[int, tuple[float, float]] = {}
        self.rate: Floats = np.empty(0, np.float32)
        self.times: list[NDArray[np.int64]] = []
        self.jobs = JobRegistry()
        self.shares = ForeignShares(mine)
        self.watched_s = 0.0
        self.interval_s = 0.0
        self.span: tuple[int, int] | None = None

    @property
    def cell_s(self) -> float:
        """From one cell to the next, where nothing is between them."""
        return cell_ticks(self.interval_s) * self.interval_s

    def accept(self, rate_chunk: RateChunk) -> None:
        """Take a passage."""
        self._lay_out(rate_chunk.fabric)
        self.interval_s = rate_chunk.interval_s
        self.shares.accept(
            rate_chunk.fabric, rate_chunk.tx_bps, rate_chunk.rx_bps, rate_chunk.interval_s
        )
        if not self._now:
            return
        per_cell = cell_ticks(rate_chunk.interval_s)
        rate_chunk = _trimmed(rate_chunk, per_cell)
        rows = np.array([link.row for link in self._now])
        sends = np.array([link.way == "tx" for link in self._now])
        rates = np.where(sends, rate_chunk.tx_bps[:, rows], rate_chunk.rx_bps[:, rows])
        known = np.isfinite(rates)
        ticks = np.flatnonzero(known.any(axis=1))
        if not len(ticks):
            return
        self._count_time(rate_chunk, ticks)
        places = np.array([self._places[link.label] for link in self._now])
        line = rate_chunk.line_rate_bps[rows]
        self.rate[places] = line
        jobs, signal = self._jobs_of(rate_chunk, rates, line)
        phases = communication_mask(signal, line)
        np.add.at(self.busy, places, (phases & known).sum(axis=0))
        np.add.at(self.known, places, known.sum(axis=0))
        for kept, counts in (
            (self.whole, inside_phases(phases) & known),
            (self.any, phases & known),
        ):
            made = kept.add(rates, counts, places, per_cell)
            for number, ours in jobs:
                mask = counts[:, ours]
                kept.job_cells[-1][number] = nanmean(made[:, ours])
                own = rates[:, ours][mask]
                kept.jobs.add(np.full(len(own), number), own)
        for number, ours in jobs:
            now = (float((phases & known)[:, ours].sum()), float(known[:, ours].sum()))
            before = self.job_busy.get(number, (0.0, 0.0))
            self.job_busy[number] = (before[0] + now[0], before[1] + now[1])
        count = -(-len(rates) // per_cell)
        step_ns = int(per_cell * rate_chunk.interval_s * 1e9)
        self.times.append(rate_chunk.start_ns + np.arange(count) * step_ns)

    def _lay_out(self, fabric: Fabric) -> None:
        if self._version == (id(fabric), fabric.version):
            return
        self._version = (id(fabric), fabric.version)
        self._now = traffic_links(fabric, self._wanted)
        for link in self._now:
            place = self._places.setdefault(link.label, len(self._places))
            if place == len(self.links):
                self.links.append(link)
            else:
                self.links[place] = link
        new = len(self.links) - len(self.busy)
        self.busy, self.known = (np.pad(each, (0, new)) for each in (self.busy, self.known))
        self.rate = np.pad(self.rate, (0, new), constant_values=np.nan)

    def _count_time(self, rate_chunk: RateChunk, ticks: Indices) -> None:
        step_ns = rate_chunk.interval_s * 1e9
        first = rate_chunk.start_ns + int(ticks[0] * step_ns)
        last = rate_chunk.start_ns + int(ticks[-1] * step_ns)
        before = self.span or (first, last)
        self.span = (min(before[0], first), max(before[1], last))
        self.watched_s += len(ticks) * rate_chunk.interval_s

    def _jobs_of(
        self, rate_chunk: RateChunk, rates: Floats, line: Floats
    ) -> tuple[list[tuple[int, Indices]], Floats]:
        """Jobs as numbers and places of their rails, and what each link's phases are judged by.

        That is the mean rail of the job; of a host in no job, and between switches, the link.
        """
        rails: dict[str, list[int]] = {}
        for place, link in enumerate(self._now):
            if link.rail:
                rails.setdefault(link.node, []).append(place)
        signal = rates
        found: list[tuple[int, Indices]] = []
        names = list(rails)
        if names:
            sent = np.stack([nanmean(rates[:, rails[name]]) for name in names], axis=1)
            for number, hosts in self.jobs.accept(names, sent):
                ours = np.array([place for host in hosts for place in rails[names[host]]])
                mean = nanmean(rates[:, ours])
                if signal is rates:
                    signal = rates.copy()
                signal[:, ours] = mean[:, None]
                found.append((number, ours))
                top = float(np.nanmean(line[ours])) if np.isfinite(line[ours]).any() else np.inf
                lengths = iteration_lengths(mean, rate_chunk.interval_s, top)
                if len(lengths):
                    self.jobs.found[number].lengths_s.append(lengths)
        return found, signal


def _trimmed(rate_chunk: RateChunk, ticks: int) -> RateChunk:
    """Without what lies before the first and after the last sample, in whole cells."""
    known = np.isfinite(rate_chunk.tx_bps).any(axis=1)
    inside = np.flatnonzero(known)
    if not len(inside):
        return rate_chunk
    begin, end = int(inside[0]) // ticks * ticks, int(inside[-1]) + 1
    return replace(
        rate_chunk,
        start_ns=rate_chunk.start_ns + int(begin * rate_chunk.interval_s * 1e9),
        tx_bps=rate_chunk.tx_bps[begin:end],
        rx_bps=rate_chunk.rx_bps[begin:end],
    )
