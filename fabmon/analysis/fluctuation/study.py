"""From passages to what is told: takes each once, keeps sums and means of ten seconds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.fluctuation import overtime
from fabmon.analysis.fluctuation.foreign import Shares
from fabmon.analysis.fluctuation.jobs import Jobs, iterations
from fabmon.analysis.fluctuation.links import Link, links, members
from fabmon.analysis.fluctuation.overtime import HOUR_S, Series
from fabmon.analysis.fluctuation.phases import Bools, busy, whole
from fabmon.analysis.fluctuation.records import (
    ALL,
    JOB,
    LINK,
    PAIR,
    RAIL,
    Fluctuation,
    Iterations,
    Spread,
    Subject,
)
from fabmon.analysis.fluctuation.tally import Sums, cell_ticks, cells, nanmean, quantile
from fabmon.fabric.model import Fabric
from fabmon.fabric.moment import Floats
from fabmon.history.passage import Passage

_WHOLE_ENOUGH = 0.1

Values = NDArray[np.float64]
Indices = NDArray[np.intp]


class _Kept:
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


class Study:
    """`accept` passages by time, then ask for `result`.

    `wanted` are patterns of links, `mine` our hosts (None: all that are watched), `offset_s` what
    to add to UTC for hours and weekdays.
    """

    def __init__(
        self,
        wanted: Sequence[str] = (),
        mine: Collection[str] | None = None,
        offset_s: int = 0,
    ) -> None:
        self._wanted = tuple(wanted)
        self._offset_s = offset_s
        self._places: dict[str, int] = {}
        self.links: list[Link] = []
        self._now: list[Link] = []
        self._version: tuple[int, int] | None = None
        self._whole, self._any = _Kept(), _Kept()
        self._busy, self._known = np.zeros(0), np.zeros(0)
        self._job_busy: dict[int, tuple[float, float]] = {}
        self._rate: Floats = np.empty(0, np.float32)
        self._times: list[NDArray[np.int64]] = []
        self.jobs = Jobs()
        self._shares = Shares(mine)
        self._watched_s = 0.0
        self._interval_s = 0.0
        self._span: tuple[int, int] | None = None
        self._chosen: Bools | None = None

    def accept(self, passage: Passage) -> None:
        """Take a passage."""
        self._lay_out(passage.fabric)
        self._interval_s = passage.interval_s
        self._shares.accept(passage.fabric, passage.tx_bps, passage.rx_bps, passage.interval_s)
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
        self._rate[places] = line
        jobs, signal = self._jobs_of(passage, rates, line)
        phases = busy(signal, line)
        np.add.at(self._busy, places, (phases & known).sum(axis=0))
        np.add.at(self._known, places, known.sum(axis=0))
        for kept, counts in ((self._whole, whole(phases) & known), (self._any, phases & known)):
            made = kept.add(rates, counts, places, per_cell)
            for number, ours in jobs:
                mask = counts[:, ours]
                kept.job_cells[-1][number] = nanmean(made[:, ours])
                own = rates[:, ours][mask]
                kept.jobs.add(np.full(len(own), number), own)
        for number, ours in jobs:
            now = (float((phases & known)[:, ours].sum()), float(known[:, ours].sum()))
            before = self._job_busy.get(number, (0.0, 0.0))
            self._job_busy[number] = (before[0] + now[0], before[1] + now[1])
        count = -(-len(rates) // per_cell)
        step_ns = int(per_cell * passage.interval_s * 1e9)
        self._times.append(passage.start_ns + np.arange(count) * step_ns)

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
        new = len(self.links) - len(self._busy)
        self._busy, self._known = (np.pad(each, (0, new)) for each in (self._busy, self._known))
        self._rate = np.pad(self._rate, (0, new), constant_values=np.nan)

    def _count_time(self, passage: Passage, ticks: Indices) -> None:
        step_ns = passage.interval_s * 1e9
        first = passage.start_ns + int(ticks[0] * step_ns)
        last = passage.start_ns + int(ticks[-1] * step_ns)
        before = self._span or (first, last)
        self._span = (min(before[0], first), max(before[1], last))
        self._watched_s += len(ticks) * passage.interval_s

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

    # What is told.

    def result(self) -> Fluctuation:
        """All that there is to tell of what was accepted."""
        at_ns = np.concatenate(self._times) if self._times else np.empty(0, np.int64)
        kept, wholly = self._cells()
        told = [self._told(kind, name, places, at_ns, kept, wholly)
                for kind, name, places in self._groups()]  # fmt: skip
        told += [self._told_job(number, at_ns) for number in range(len(self.jobs.found))]
        begin, end = self._span or (0, 0)
        return Fluctuation(
            from_ns=begin,
            until_ns=end,
            watched_s=self._watched_s,
            interval_s=self._interval_s,
            offset_s=self._offset_s,
            subjects=tuple(told),
            foreign=self._shares.found(),
            notes=tuple(self._notes(wholly)),
        )

    def series(self) -> dict[tuple[str, str], Series]:
        """By kind and name: what steps and comparisons are made of."""
        at_ns = np.concatenate(self._times) if self._times else np.empty(0, np.int64)
        kept, _ = self._cells()
        found = {
            (kind, name): overtime.series(at_ns, _across(kept[:, places]))
            for kind, name, places in self._groups()
        }
        for number, job in enumerate(self.jobs.found):
            found[JOB, job.name] = overtime.series(at_ns, self._job_cells(number)[0])
        return found

    def _groups(self) -> list[tuple[str, str, list[int]]]:
        """Kind, name and places of everything that is made of the same links all the time."""
        rails = [place for place, link in enumerate(self.links) if link.rail]
        everything = list(range(len(self.links)))
        groups = [(ALL, "all rails", rails) if rails else (ALL, "all links", everything)]
        groups = groups if self.links else []
        groups += [(RAIL, name, own) for name, own in members(self.links, "rail").items()]
        groups += [(PAIR, name, own) for name, own in members(self.links, "pair").items()]
        return groups + [(LINK, link.label, [n]) for n, link in enumerate(self.links)]

    def _cells(self) -> tuple[Floats, Bools]:
        """[cells, links], and of which links they are of samples wholly in a phase."""
        count = len(self.links)
        sizes = [_sizes(kept.links, count) for kept in (self._whole, self._any)]
        wholly = sizes[0] >= np.maximum(_WHOLE_ENOUGH * sizes[1], 1)
        return np.where(
            wholly, _joined(self._whole.cells, count), _joined(self._any.cells, count)
        ), wholly

    def _told(
        self,
        kind: str,
        name: str,
        places: list[int],
        at_ns: NDArray[np.int64],
        kept: Floats,
        wholly: Bools,
    ) -> Subject:
        is_whole = bool(wholly[places].all())
        sums = (self._whole if is_whole else self._any).links
        known = float(self._known[places].sum())
        share = float(self._busy[places].sum()) / known if known else 0.0
        inside = [place for place in places if place < len(sums.hist)]
        spread = _spread(*sums.pooled(np.array(inside, np.intp)), share, is_whole)
        rates = self._rate[places]
        rate = float(np.nanmean(rates)) if np.isfinite(rates).any() else None
        first = self.links[places[0]]
        return self._subject(
            Subject(
                kind=kind,
                name=first.name if kind == LINK else name,
                way=first.way if kind == LINK else "",
                links=len(places),
                line_rate_bps=rate,
                spread=spread,
            ),
            at_ns,
            _across(kept[:, places]),
        )

    def _told_job(self, number: int, at_ns: NDArray[np.int64]) -> Subject:
        job = self.jobs.found[number]
        values, is_whole = self._job_cells(number)
        sums = (self._whole if is_whole else self._any).jobs
        spread = None
        if number < len(sums.hist):
            busy_, known = self._job_busy[number]
            spread = _spread(*sums.pooled(slice(number, number + 1)), busy_ / known, is_whole)
        lengths = np.concatenate(job.lengths_s) if job.lengths_s else np.empty(0)
        kept = None
        if len(lengths):
            low, middle, high = (float(np.quantile(lengths, q)) for q in (0.05, 0.5, 0.95))
            kept = Iterations(middle, low, high, len(lengths))
        rails = [n for n, link in enumerate(self.links) if link.rail and link.node in job.hosts]
        subject = Subject(
            kind=JOB,
            name=job.name,
            links=len(rails),
            spread=spread,
            iterations=kept,
            hosts=tuple(sorted(job.hosts)),
        )
        return self._subject(subject, at_ns, values)

    def _job_cells(self, number: int) -> tuple[Floats, bool]:
        sizes = [_sizes(kept.jobs, number + 1)[number] for kept in (self._whole, self._any)]
        is_whole = bool(sizes[0] >= max(_WHOLE_ENOUGH * sizes[1], 1))
        kept = self._whole if is_whole else self._any
        parts = [
            made.get(number, np.full(len(times), np.nan, np.float32))
            for made, times in zip(kept.job_cells, self._times, strict=True)
        ]
        return (np.concatenate(parts) if parts else np.empty(0, np.float32)), is_whole

    def _subject(self, subject: Subject, at_ns: NDArray[np.int64], values: Floats) -> Subject:
        """With what its cells tell by time."""
        if subject.spread is None:
            return subject
        own = overtime.series(at_ns, values)
        step_s = (at_ns[1] - at_ns[0]) / 1e9 if len(at_ns) > 1 else self._interval_s
        found, slope = overtime.over_time(own, step_s)
        seconds = own.at_ns // 1_000_000_000 + self._offset_s
        days = seconds // (24 * HOUR_S)
        return Subject(
            **{
                **{name: getattr(subject, name) for name in subject.__struct_fields__},
                "steps": found,
                "drift": slope,
                "hours": overtime.slots(seconds // HOUR_S % 24, own.values),
                # Day 0 of Unix time was a Thursday.
                "weekdays": overtime.slots((days + 3) % 7, own.values),
                "strip": overtime.strip(own, self._span or (0, 1)),
            }
        )

    def _notes(self, wholly: Bools) -> Iterable[str]:
        if not self.links:
            yield "no rail and no link between switches was found"
            return
        busy_ = self._busy > 0
        short = int((busy_ & ~wholly).sum())
        if short:
            yield (
                f"{short} of {int(busy_.sum())} links: phases of communication are shorter than "
                f"three samples of {self._interval_s:g} s; their bandwidth is a lower bound"
            )
        silent = int((self._known == 0).sum())
        if silent:
            yield f"{silent} of {len(self.links)} links have no counter of bytes"


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


def _across(values: Floats) -> Floats:
    """[cells]: the mean over links."""
    return values[:, 0] if values.shape[1] == 1 else nanmean(values)


def _sizes(sums: Sums, count: int) -> Values:
    own = sums.hist.sum(axis=1, dtype=np.float64)[:count]
    return np.pad(own, (0, count - len(own)))


def _joined(parts: Sequence[Floats], count: int) -> Floats:
    wide = [
        np.pad(part, ((0, 0), (0, count - part.shape[1])), constant_values=np.nan) for part in parts
    ]
    return np.concatenate(wide) if wide else np.empty((0, count), np.float32)


def _spread(
    hist: NDArray[np.uint64], total: float, squares: float, share: float, is_whole: bool
) -> Spread | None:
    count = int(hist.sum())
    if not count:
        return None
    mean = total / count
    deviation = max(squares / count - mean * mean, 0.0) ** 0.5
    return Spread(
        median_bps=quantile(hist, 0.5),
        p5_bps=quantile(hist, 0.05),
        p95_bps=quantile(hist, 0.95),
        mean_bps=mean,
        cov=deviation / mean if mean > 0 else 0.0,
        samples=count,
        share=share,
        whole=is_whole,
    )
