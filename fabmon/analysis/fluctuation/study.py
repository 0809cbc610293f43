"""A study of variability: takes rate chunks, returns the results; also of the last live minutes."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.fluctuation import trends
from fabmon.analysis.fluctuation.accumulator import Accumulator, SampleTotals
from fabmon.analysis.fluctuation.jobs import TrackedJob
from fabmon.analysis.fluctuation.links import PortFilter, TrafficLink, all_ports, links_by_group
from fabmon.analysis.fluctuation.results import (
    ALL,
    JOB,
    KINDS,
    LINK,
    PAIR,
    RAIL,
    Fluctuation,
    Iterations,
    Spread,
    Subject,
)
from fabmon.analysis.fluctuation.samples import CELL_S, Bools, PooledSamples
from fabmon.analysis.fluctuation.trends import CellSeries, cell_series, hours, weekdays
from fabmon.fabric.hosts.nodesets import fold
from fabmon.fabric.measures import known_mean
from fabmon.fabric.model import FABRIC
from fabmon.fabric.port_arrays import grown
from fabmon.fabric.snapshot import RING_TICKS, Floats, Snapshot
from fabmon.fabric.time_wording import interval
from fabmon.fabric.wording import plural
from fabmon.history.chunk_rates import CHUNK_S, RateChunk

SCREEN_KINDS = (ALL, JOB, RAIL, PAIR)
"""Kinds whose steps and drift are searched for a screen: those of thousands of links take long."""

MAX_RECENT_PORTS = 2048
"""Ports of a study of the last minutes; to copy more would delay a tick visibly."""

_ENOUGH_WHOLE = 0.1
"""Share of the samples in phases that must be entirely in a phase for only these to count."""

ProgressCallback = Callable[[float], None]
"""Called with the share of the work that is done, 0 to 1. What it raises ends the work."""


def ignore_progress(_: float) -> None:
    """The callback that does nothing."""


class Study:
    """Takes rate chunks in order of time (`accept`), then returns the results.

    `wanted` selects the links that are studied, `mine` are our hosts (None: all that are watched),
    `zone` is the time zone of hours and weekdays.
    """

    def __init__(
        self,
        wanted: PortFilter = all_ports,
        mine: Collection[str] | None = None,
        zone: datetime.tzinfo = datetime.UTC,
    ) -> None:
        self._data = Accumulator(wanted, mine)
        self._zone = zone
        self.accept = self._data.accept

    @property
    def links(self) -> list[TrafficLink]:
        """The links that were found so far."""
        return self._data.links

    def lengths_s(self) -> dict[str, NDArray[np.float64]]:
        """By name of the job, the length of each iteration in seconds, where it has any."""
        return {
            name: np.concatenate(job.lengths_s) for name, job in self._named_jobs() if job.lengths_s
        }

    def result(
        self, stepped: Collection[str] = KINDS, on_progress: ProgressCallback = ignore_progress
    ) -> Fluctuation:
        """All results of what was accepted.

        Steps and drift are searched in the kinds of `stepped`, at 10 ms a subject.
        """
        data = self._data
        whole_links = self._whole_links()
        subjects = [self._group(*group, whole_links) for group in self._groups()]
        rails: dict[str, list[int]] = {}
        for index, link in enumerate(data.links):
            if link.rail:
                rails.setdefault(link.node, []).append(index)
        subjects += [
            self._job(number, name, job, rails)
            for number, (name, job) in enumerate(self._named_jobs())
        ]
        for number, series in enumerate(self.series().values()):
            if subjects[number].spread is not None:
                is_stepped = subjects[number].kind in stepped
                subjects[number] = self._with_trends(subjects[number], series, is_stepped)
            on_progress((number + 1) / len(subjects))
        begin, end = data.span or (0, 0)
        return Fluctuation(
            from_ns=begin,
            until_ns=end,
            watched_s=data.watched_s,
            interval_s=data.interval_s,
            cell_s=data.cell_s if data.interval_s else CELL_S,
            zone=str(self._zone),
            subjects=tuple(subjects),
            foreign=data.foreign.results(),
            notes=tuple(self._notes(whole_links)),
        )

    def series(self) -> dict[tuple[str, str], CellSeries]:
        """By kind and name, the means of 10 s of which steps and comparisons are made."""
        data = self._data
        at_ns = np.concatenate(data.times) if data.times else np.empty(0, np.int64)
        cells = self._cells()
        series = {
            (kind, name): cell_series(at_ns, _mean_of_links(cells[:, links]))
            for kind, name, links in self._groups()
        }
        for number, (name, job) in enumerate(self._named_jobs()):
            series[job.kind, name] = self._job_series(number)
        return series

    def _named_jobs(self) -> list[tuple[str, TrackedJob]]:
        """The jobs, users and partitions with their names."""
        registry = self._data.registry
        return list(zip(registry.names(), registry.jobs, strict=True))

    def _groups(self) -> list[tuple[str, str, list[int]]]:
        """Kind, name and links of all subjects but jobs, whose hosts change."""
        links = self._data.links
        if not links:
            return []
        rails = [index for index, link in enumerate(links) if link.rail]
        everything = list(range(len(links)))
        groups = [(ALL, "all rails", rails) if rails else (ALL, "all links", everything)]
        groups += [(RAIL, name, own) for name, own in links_by_group(links, "rail").items()]
        groups += [(PAIR, name, own) for name, own in links_by_group(links, "pair").items()]
        return groups + [(LINK, link.key, [n]) for n, link in enumerate(links)]

    def _whole_links(self) -> Bools:
        """[links]: where enough samples are entirely in a phase for only these to count."""
        count = len(self._data.links)
        whole, any_ = (each.links.counts(count) for each in (self._data.whole, self._data.any))
        return whole >= np.maximum(_ENOUGH_WHOLE * any_, 1)

    def _job_totals(self, number: int) -> tuple[SampleTotals, bool]:
        """The samples of a job that count, and whether these are only those entirely in a phase."""
        data = self._data
        whole, any_ = (each.jobs.count(number) for each in (data.whole, data.any))
        is_whole = whole >= max(_ENOUGH_WHOLE * any_, 1)
        return (data.whole if is_whole else data.any), is_whole

    def _cells(self) -> Floats:
        """[cells, links] means of 10 s of the samples that count."""
        count = len(self._data.links)
        whole, any_ = (_joined(each.cells, count) for each in (self._data.whole, self._data.any))
        return np.where(self._whole_links(), whole, any_)

    def _job_series(self, number: int) -> CellSeries:
        """Means of 10 s of the samples of a job that count."""
        totals, _ = self._job_totals(number)
        cells = totals.job_cells.get(number, [])
        at_ns = [self._data.times[place] for place, _ in cells]
        return cell_series(
            np.concatenate(at_ns or [np.empty(0, np.int64)]),
            np.concatenate([means for _, means in cells] or [np.empty(0, np.float32)]),
        )

    def _group(self, kind: str, name: str, links: list[int], whole_links: Bools) -> Subject:
        """A rail, pair or link, or all rails."""
        data = self._data
        is_whole = bool(whole_links[links].all())
        sums = (data.whole if is_whole else data.any).links
        known = float(data.known[links].sum())
        share = float(data.busy[links].sum()) / known if known else 0.0
        first = data.links[links[0]]
        return Subject(
            kind=kind,
            name=first.name if kind == LINK else name,
            display_name=first.display_name if kind == LINK else name,
            way=first.way if kind == LINK else "",
            links=len(links),
            line_rate_bps=self._line_rate(links),
            spread=_spread(sums.pooled(np.array(links, np.intp)), share, is_whole),
        )

    def _job(
        self, number: int, name: str, job: TrackedJob, rails_of: Mapping[str, Sequence[int]]
    ) -> Subject:
        """A job, a user or a partition; `rails_of` are the links of the rails of each host."""
        totals, is_whole = self._job_totals(number)
        iterations = None
        if job.lengths_s:
            lengths_s = np.concatenate(job.lengths_s)
            low, median, high = (float(np.quantile(lengths_s, q)) for q in (0.05, 0.5, 0.95))
            iterations = Iterations(median, low, high, len(lengths_s))
        rails = sorted(rail for host in job.hosts for rail in rails_of.get(host, ()))
        sums = totals.jobs.pooled(np.array([number], np.intp))
        return Subject(
            kind=job.kind,
            name=name,
            display_name=name,
            job=job.job,
            links=len(rails),
            line_rate_bps=self._line_rate(rails),
            spread=_spread(sums, job.busy / max(job.known, 1.0), is_whole),
            iterations=iterations,
            hosts=tuple(sorted(job.hosts)),
        )

    def _line_rate(self, links: Sequence[int]) -> float | None:
        """The median line rate of some links, bits/s."""
        rates = self._data.rate[list(links)]
        return float(np.nanmedian(rates)) if np.isfinite(rates).any() else None

    def _with_trends(self, subject: Subject, series: CellSeries, is_stepped: bool) -> Subject:
        """The subject, with everything that is computed from its series."""
        cell_s = self._data.cell_s
        steps, drift = trends.steps_and_drift(series, cell_s) if is_stepped else ((), None)
        return msgspec.structs.replace(
            subject,
            steps=steps,
            drift=drift,
            hours=trends.slot_statistics(hours(series.at_ns, self._zone), series.values),
            weekdays=trends.slot_statistics(weekdays(series.at_ns, self._zone), series.values),
            strip=trends.strip_parts(series, self._data.span or (0, 1), cell_s),
        )

    def _notes(self, whole_links: Bools) -> Iterable[str]:
        data = self._data
        if not data.links:
            yield "no rail and no link between switches was found"
            return
        busy = data.busy > 0
        short = int((busy & ~whole_links).sum())
        if short:
            yield (
                f"{short} of {plural(int(busy.sum()), 'direction')} of links that communicated:"
                " phases of communication are shorter than"
                f" three samples of {interval(data.interval_s)}; the bandwidth is a lower bound (≥)"
            )
        if data.registry.cut:
            nodes = fold(data.registry.cut)
            yield f"all jobs of {nodes}: its processes report more than can be studied"
        silent = int((data.known == 0).sum())
        if silent:
            of = plural(len(data.links), "direction")
            yield f"no counter of bytes for {silent} of {of} of links"


def _mean_of_links(cells: Floats) -> Floats:
    """[cells]: the mean over links."""
    return cells[:, 0] if cells.shape[1] == 1 else known_mean(cells)


def _joined(parts: Sequence[Floats], links: int) -> Floats:
    """[cells, links] of all chunks; an earlier chunk may have fewer links."""
    wide = [grown(part, links, np.nan) for part in parts]
    return np.concatenate(wide) if wide else np.empty((0, links), np.float32)


def _spread(samples: PooledSamples, share: float, is_whole: bool) -> Spread | None:
    """Statistics of samples; None without any."""
    count = int(samples.hist.sum())
    if not count:
        return None
    mean = samples.total / count
    deviation = max(samples.squares / count - mean * mean, 0.0) ** 0.5
    return Spread(
        median_bps=samples.quantile(0.5),
        p5_bps=samples.quantile(0.05),
        p95_bps=samples.quantile(0.95),
        mean_bps=mean,
        cov=None if count < 2 else deviation / mean if mean > 0 else 0.0,
        samples=count,
        share=share,
        whole=is_whole,
    )


@dataclass(frozen=True, slots=True)
class RecentTraffic:
    """A copy of the last minutes: traffic [rows, ticks] of some ports, up to a snapshot.

    `left_out` is the number of ports that were wanted and are not among them.
    """

    snapshot: Snapshot
    rows: tuple[int, ...]
    left_out: int
    tx_bps: Floats
    rx_bps: Floats

    def studied(self, on_progress: ProgressCallback = ignore_progress) -> Fluctuation:
        """The results. It takes a second for a large fabric: not for an event loop."""
        snapshot, study = self.snapshot, Study()
        ticks = self.tx_bps.shape[1]
        step = max(1, round(CHUNK_S / snapshot.interval_s))
        for begin in range(0, ticks, step):
            on_progress(0.0)
            span = slice(begin, begin + step)
            start_ns = snapshot.time_ns - int((ticks - 1 - begin) * snapshot.interval_s * 1e9)
            tx_bps, rx_bps = (
                self._of_all_ports(each[:, span]) for each in (self.tx_bps, self.rx_bps)
            )
            study.accept(
                RateChunk(
                    start_ns,
                    snapshot.interval_s,
                    snapshot.fabric,
                    tx_bps,
                    rx_bps,
                    snapshot.line_rate_bps,
                    ((0, snapshot.jobs),),
                )
            )
        result = study.result(SCREEN_KINDS, on_progress)
        if not self.left_out:
            return result
        note = f"{self.left_out} of {self.left_out + len(self.rows)} ports: a filter chooses which"
        return msgspec.structs.replace(result, notes=(*result.notes, note))

    def _of_all_ports(self, values: Floats) -> Floats:
        """[ticks, ports] of [rows, ticks]; NaN for other ports."""
        wide = np.full((values.shape[1], len(self.snapshot.up)), np.nan, np.float32)
        wide[:, list(self.rows)] = values.T
        return wide


def recent_traffic(snapshot: Snapshot, wanted: Collection[int] | None = None) -> RecentTraffic:
    """A copy of the last minutes of the fabric's ports: those of rows `wanted`, None for all."""
    rows = [
        port.row
        for port in snapshot.fabric.ports
        if port.role in FABRIC and port.node and (wanted is None or port.row in wanted)
    ]
    chosen = rows[:MAX_RECENT_PORTS]
    tx, rx = (snapshot.window(way, chosen, RING_TICKS) for way in ("tx_bps", "rx_bps"))
    return RecentTraffic(snapshot, tuple(chosen), len(rows) - len(chosen), tx, rx)
