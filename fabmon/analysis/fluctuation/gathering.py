"""Passages taken in, each once: sums of samples, means of ten seconds, who is which job."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.fluctuation.foreign import Shares
from fabmon.analysis.fluctuation.jobs import Jobs, iterations
from fabmon.analysis.fluctuation.links import Link, Wanted, everything, links
from fabmon.analysis.fluctuation.phases import Bools, busy, whole
from fabmon.analysis.fluctuation.tally import Sums, cell_ticks, cells, nanmean
from fabmon.fabric.model import Fabric
from fabmon.fabric.moment import Floats
from fabmon.history.passage import Passage

Indices = NDArray[np.intp]


class Kept:
    """One way to count samples: sums of links and jobs, and cells by passage."""

    def __init__(self) -> None:
        self.links, self.jobs = Sums(), Sums()
        self.cells: list[Floats] = []
        self.job_cells: list[dict[int, Floats]] = []

    def add(self, rates: Floats, counts: Bools, places: Indices, ticks: int) -> Floats:
        """Take [ticks, links] of the links at `places`; their cells."""
        at = np.nonzero(counts)
        self.links.add(places[at[1]], rates[at])
        made = cells(rates, counts, ticks)
        wide = np.full((len(made), int(places.max(initial=-1)) + 1), np.nan, np.float32)
        wide[:, places] = made
        self.cells.append(wide)
        self.job_cells.append({})
        return made


class Gathering:
    """`accept` passages by time. What is there then, of each link by its place in `links`:

    `whole` and `any`: samples that lie wholly in phases of communication, and all of these; `busy`
    and `known`: how many communicate, and how many there are; `rate`: line rates. `times` are of
    the cells, by passage. `jobs` are in the order in which they were seen, `job_busy` the same of
    their rails. `span` are the times of the first and the last sample.

    `wanted` says which links are looked at, `mine` our hosts (None: all that are watched).
    """

    def __init__(
        self,
        wanted: Wanted = everything,
        mine: Collection[str] | None = None,
    ) -> None:
        self._wanted = wanted
        self._places: dict[str, int] = {}
        self.links: list[Link] = []
        self._now: list[Link] = []
        self._version: tuple[int, int] | None = None
        self.whole, self.any = Kept(), Kept()
        self.busy, self.known = np.zeros(0), np.zeros(0)
        self.job_busy: dict[int, tuple[float, float]] = {}
        self.rate: Floats = np.empty(0, np.float32)
        self.times: list[NDArray[np.int64]] = []
        self.jobs = Jobs()
        self.shares = Shares(mine)
        self.watched_s = 0.0
        self.interval_s = 0.0
        self.span: tuple[int, int] | None = None

    @property
    def cell_s(self) -> float:
        """From one cell to the next, where nothing is between them."""
        return cell_ticks(self.interval_s) * self.interval_s

    def accept(self, passage: Passage) -> None:
        """Take a passage."""
        self._lay_out(passage.fabric)
        self.interval_s = passage.interval_s
        self.shares.accept(passage.fabric, passage.tx_bps, passage.rx_bps, passage.interval_s)
        if not self._now:
            return
        per_cell = cell_ticks(passage.interval_s)
        passage = _trimmed(passage, per_cell)
        rows = np.array([link.row for link in self._now])
        sends = np.array([link.way == "tx" for link in self._now])
        rates = np.where(sends, passage.tx_bps[:, rows], passage.rx_bps[:, rows])
        known = np.isfinite(rates)
        ticks = np.flatnonzero(known.any(axis=1))
        if not len(ticks):
            return
        self._count_time(passage, ticks)
        places = np.array([self._places[link.label] for link in self._now])
        line = passage.line_rate_bps[rows]
        self.rate[places] = line
        jobs, signal = self._jobs_of(passage, rates, line)
        phases = busy(signal, line)
        np.add.at(self.busy, places, (phases & known).sum(axis=0))
        np.add.at(self.known, places, known.sum(axis=0))
        for kept, counts in ((self.whole, whole(phases) & known), (self.any, phases & known)):
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
        step_ns = int(per_cell * passage.interval_s * 1e9)
        self.times.append(passage.start_ns + np.arange(count) * step_ns)

    def _lay_out(self, fabric: Fabric) -> None:
        if self._version == (id(fabric), fabric.version):
            return
        self._version = (id(fabric), fabric.version)
        self._now = links(fabric, self._wanted)
        for link in self._now:
            place = self._places.setdefault(link.label, len(self._places))
            if place == len(self.links):
                self.links.append(link)
            else:
                self.links[place] = link
        new = len(self.links) - len(self.busy)
        self.busy, self.known = (np.pad(each, (0, new)) for each in (self.busy, self.known))
        self.rate = np.pad(self.rate, (0, new), constant_values=np.nan)

    def _count_time(self, passage: Passage, ticks: Indices) -> None:
        step_ns = passage.interval_s * 1e9
        first = passage.start_ns + int(ticks[0] * step_ns)
        last = passage.start_ns + int(ticks[-1] * step_ns)
        before = self.span or (first, last)
        self.span = (min(before[0], first), max(before[1], last))
        self.watched_s += len(ticks) * passage.interval_s

    def _jobs_of(
        self, passage: Passage, rates: Floats, line: Floats
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
                lengths = iterations(mean, passage.interval_s, top)
                if len(lengths):
                    self.jobs.found[number].lengths_s.append(lengths)
        return found, signal


def _trimmed(passage: Passage, ticks: int) -> Passage:
    """Without what lies before the first and after the last sample, in whole cells."""
    known = np.isfinite(passage.tx_bps).any(axis=1)
    inside = np.flatnonzero(known)
    if not len(inside):
        return passage
    begin, end = int(inside[0]) // ticks * ticks, int(inside[-1]) + 1
    return replace(
        passage,
        start_ns=passage.start_ns + int(begin * passage.interval_s * 1e9),
        tx_bps=passage.tx_bps[begin:end],
        rx_bps=passage.rx_bps[begin:end],
    )
