"""From passages to what is told."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.fluctuation import trends
from fabmon.analysis.fluctuation.accumulator import Accumulator
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
from fabmon.analysis.fluctuation.samples import Bools, SampleSums, nanmean, quantile
from fabmon.analysis.fluctuation.trends import CellSeries, hours, weekdays
from fabmon.fabric.model import FABRIC
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.history.chunk_rates import CHUNK_S, RateChunk
from fabmon.history.history import RING_TICKS

_WHOLE_ENOUGH = 0.1

Values = NDArray[np.float64]
ProgressCallback = Callable[[float], None]


def ignore_progress(_: float) -> None:
    """Nobody hears it."""


class Study:
    """`accept` passages by time, then ask for `result`.

    `wanted` says which links are looked at, `mine` who our hosts are (None: all that are watched),
    `zone` by whose clocks hours and weekdays are.
    """

    def __init__(
        self,
        wanted: PortFilter = all_ports,
        mine: Collection[str] | None = None,
        zone: datetime.tzinfo = datetime.UTC,
    ) -> None:
        self._all = Accumulator(wanted, mine)
        self._zone = zone
        self._stepped = frozenset(KINDS)

    def accept(self, rate_chunk: RateChunk) -> None:
        """Take a passage."""
        self._all.accept(rate_chunk)

    @property
    def links(self) -> list[TrafficLink]:
        """Those that were found so far."""
        return self._all.links

    def lengths_s(self) -> dict[str, Values]:
        """Seconds of each iteration, by job, where it has a rhythm."""
        jobs = self._all.jobs
        return {
            name: np.concatenate(job.lengths_s)
            for name, job in zip(jobs.names(), jobs.found, strict=True)
            if job.lengths_s
        }

    def result(
        self, stepped: Collection[str] = KINDS, told: ProgressCallback = ignore_progress
    ) -> Fluctuation:
        """All that there is to tell of what was accepted.

        Steps and drift are looked for in the kinds of `stepped`: 10 ms of work for each subject.
        `told` hears how much of it is done, 0 to 1.
        """
        self._stepped = frozenset(stepped)
        at_ns = np.concatenate(self._all.times) if self._all.times else np.empty(0, np.int64)
        kept, wholly = self._cells()
        groups, jobs = self._groups(), self._all.jobs.names()
        subjects: list[Subject] = []
        for kind, name, places in groups:
            subjects.append(self._told(kind, name, places, at_ns, kept, wholly))
            told(len(subjects) / (len(groups) + len(jobs)))
        for number, name in enumerate(jobs):
            subjects.append(self._told_job(number, name, at_ns))
            told(len(subjects) / (len(groups) + len(jobs)))
        begin, end = self._all.span or (0, 0)
        return Fluctuation(
            from_ns=begin,
            until_ns=end,
            watched_s=self._all.watched_s,
            interval_s=self._all.interval_s,
            zone=str(self._zone),
            subjects=tuple(subjects),
            foreign=self._all.shares.found(),
            notes=tuple(self._notes(wholly)),
        )

    def series(self) -> dict[tuple[str, str], CellSeries]:
        """By kind and name: what steps and comparisons are made of."""
        at_ns = np.concatenate(self._all.times) if self._all.times else np.empty(0, np.int64)
        kept, _ = self._cells()
        found = {
            (kind, name): trends.cell_series(at_ns, _across(kept[:, places]))
            for kind, name, places in self._groups()
        }
        for number, name in enumerate(self._all.jobs.names()):
            found[JOB, name] = trends.cell_series(at_ns, self._job_cells(number)[0])
        return found

    def _groups(self) -> list[tuple[str, str, list[int]]]:
        """Kind, name and places of everything that is made of the same links all the time."""
        rails = [place for place, link in enumerate(self._all.links) if link.rail]
        everything = list(range(len(self._all.links)))
        groups = [(ALL, "all rails", rails) if rails else (ALL, "all links", everything)]
        groups = groups if self._all.links else []
        groups += [
            (RAIL, name, own) for name, own in links_by_group(self._all.links, "rail").items()
        ]
        groups += [
            (PAIR, name, own) for name, own in links_by_group(self._all.links, "pair").items()
        ]
        return groups + [(LINK, link.label, [n]) for n, link in enumerate(self._all.links)]

    def _cells(self) -> tuple[Floats, Bools]:
        """[cells, links], and of which links they are of samples wholly in a phase."""
        count = len(self._all.links)
        sizes = [_sizes(kept.links, count) for kept in (self._all.whole, self._all.any)]
        wholly = sizes[0] >= np.maximum(_WHOLE_ENOUGH * sizes[1], 1)
        return np.where(
            wholly, _joined(self._all.whole.cells, count), _joined(self._all.any.cells, count)
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
        sums = (self._all.whole if is_whole else self._all.any).links
        known = float(self._all.known[places].sum())
        share = float(self._all.busy[places].sum()) / known if known else 0.0
        inside = [place for place in places if place < len(sums.hist)]
        spread = _spread(*sums.pooled(np.array(inside, np.intp)), share, is_whole)
        first = self._all.links[places[0]]
        return self._subject(
            Subject(
                kind=kind,
                name=first.name if kind == LINK else name,
                way=first.way if kind == LINK else "",
                links=len(places),
                line_rate_bps=self._rate(places),
                spread=spread,
            ),
            at_ns,
            _across(kept[:, places]),
        )

    def _told_job(self, number: int, name: str, at_ns: NDArray[np.int64]) -> Subject:
        job = self._all.jobs.found[number]
        values, is_whole = self._job_cells(number)
        sums = (self._all.whole if is_whole else self._all.any).jobs
        spread = None
        if number < len(sums.hist):
            busy_, known = self._all.job_busy[number]
            spread = _spread(*sums.pooled(slice(number, number + 1)), busy_ / known, is_whole)
        lengths = np.concatenate(job.lengths_s) if job.lengths_s else np.empty(0)
        kept = None
        if len(lengths):
            low, middle, high = (float(np.quantile(lengths, q)) for q in (0.05, 0.5, 0.95))
            kept = Iterations(middle, low, high, len(lengths))
        rails = [
            n for n, link in enumerate(self._all.links) if link.rail and link.node in job.hosts
        ]
        subject = Subject(
            kind=JOB,
            name=name,
            links=len(rails),
            line_rate_bps=self._rate(rails),
            spread=spread,
            iterations=kept,
            hosts=tuple(sorted(job.hosts)),
        )
        return self._subject(subject, at_ns, values)

    def _rate(self, places: Sequence[int]) -> float | None:
        """The usual line rate of some links."""
        rates = self._all.rate[list(places)]
        return float(np.nanmedian(rates)) if np.isfinite(rates).any() else None

    def _job_cells(self, number: int) -> tuple[Floats, bool]:
        sizes = [_sizes(kept.jobs, number + 1)[number] for kept in (self._all.whole, self._all.any)]
        is_whole = bool(sizes[0] >= max(_WHOLE_ENOUGH * sizes[1], 1))
        kept = self._all.whole if is_whole else self._all.any
        parts = [
            made.get(number, np.full(len(times), np.nan, np.float32))
            for made, times in zip(kept.job_cells, self._all.times, strict=True)
        ]
        return (np.concatenate(parts) if parts else np.empty(0, np.float32)), is_whole

    def _subject(self, subject: Subject, at_ns: NDArray[np.int64], values: Floats) -> Subject:
        """With what its cells tell by time."""
        if subject.spread is None:
            return subject
        own = trends.cell_series(at_ns, values)
        step_s = self._all.cell_s
        is_wanted = subject.kind in self._stepped
        found, slope = trends.steps_and_drift(own, step_s) if is_wanted else ((), None)
        return msgspec.structs.replace(
            subject,
            steps=found,
            drift=slope,
            hours=trends.slot_statistics(hours(own.at_ns, self._zone), own.values),
            weekdays=trends.slot_statistics(weekdays(own.at_ns, self._zone), own.values),
            strip=trends.strip_medians(own, self._all.span or (0, 1), step_s),
        )

    def _notes(self, wholly: Bools) -> Iterable[str]:
        if not self._all.links:
            yield "no rail and no link between switches was found"
            return
        busy_ = self._all.busy > 0
        short = int((busy_ & ~wholly).sum())
        if short:
            yield (
                f"{short} of {int(busy_.sum())} links: phases of communication are shorter than "
                f"three samples of {self._all.interval_s:g} s; their bandwidth is a lower bound"
            )
        silent = int((self._all.known == 0).sum())
        if silent:
            yield f"{silent} of {len(self._all.links)} links have no counter of bytes"


def _across(values: Floats) -> Floats:
    """[cells]: the mean over links."""
    return values[:, 0] if values.shape[1] == 1 else nanmean(values)


def _sizes(sums: SampleSums, count: int) -> Values:
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


# The last minutes as the screen keeps them, studied as a recording is.


MOST_PORTS = 2048
"""Ports that are looked at; with more, the copy would be felt."""


@dataclass(frozen=True, slots=True)
class RecentTraffic:
    """A copy of what is kept: traffic [rows, ticks] of some ports up to a moment."""

    snapshot: Snapshot
    rows: tuple[int, ...]
    left_out: int
    tx_bps: Floats
    rx_bps: Floats

    def studied(self) -> Fluctuation:
        """What it tells. It takes a second for a large fabric: not for an event loop."""
        snapshot, study = self.snapshot, Study()
        ticks = self.tx_bps.shape[1]
        each = max(1, round(CHUNK_S / snapshot.interval_s))
        for begin in range(0, ticks, each):
            end = min(ticks, begin + each)
            start_ns = snapshot.time_ns - int((ticks - 1 - begin) * snapshot.interval_s * 1e9)
            tx, rx = (self._wide(each[:, begin:end]) for each in (self.tx_bps, self.rx_bps))
            rate = snapshot.line_rate_bps
            study.accept(RateChunk(start_ns, snapshot.interval_s, snapshot.fabric, tx, rx, rate))
        told = study.result(stepped=(ALL, JOB, RAIL, PAIR))
        if not self.left_out:
            return told
        note = f"{self.left_out} of {self.left_out + len(self.rows)} ports: a filter chooses which"
        return msgspec.structs.replace(told, notes=(*told.notes, note))

    def _wide(self, values: Floats) -> Floats:
        """[ticks, ports] of [rows, ticks]."""
        wide = np.full((values.shape[1], len(self.snapshot.up)), np.nan, np.float32)
        wide[:, list(self.rows)] = values.T
        return wide


def recent_traffic(snapshot: Snapshot, wanted: Collection[int] | None = None) -> RecentTraffic:
    """A copy of the last minutes of the fabric's ports, those in `wanted` (None: of all)."""
    rows = [
        port.row
        for port in snapshot.fabric.ports
        if port.role in FABRIC and port.node and (wanted is None or port.row in wanted)
    ]
    chosen = rows[:MOST_PORTS]
    tx, rx = (snapshot.window(way, chosen, RING_TICKS) for way in ("tx_bps", "rx_bps"))
    return RecentTraffic(snapshot, tuple(chosen), len(rows) - len(chosen), tx, rx)
