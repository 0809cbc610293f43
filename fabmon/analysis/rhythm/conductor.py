"""Follows the rhythm of every job, tick by tick, and says when one changed.

It keeps the last minutes of traffic and spreads its work over the ticks: who belongs together every
tenth of them, one job in each of the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.middle import median
from fabmon.analysis.rhythm import arithmetic
from fabmon.analysis.rhythm.beat import Beat, measure
from fabmon.analysis.rhythm.changes import Changes
from fabmon.analysis.rhythm.period import SHORTEST_INTERVALS
from fabmon.analysis.rhythm.rhythm import Beats, Rhythm
from fabmon.analysis.rhythm.together import LEAST_SAMPLES, together
from fabmon.analysis.rhythm.traffic import Traffic
from fabmon.fabric.moment import Floats, Moment

_GROUP_EVERY = 10
_GROUP_EVERY_AT_FIRST = 2
_GROUP_TICKS = 90
_LOOK_EVERY = 2
_MOST_JOBS = 16
_SAME_JOB = 0.5
_MISSED_STEPS = 7
"""Steps for which a rhythm is kept that is seen no more, after the three that `measure` waits for:
ten in all (as sflow-rt/ai-metrics drops them)."""
_SHARE_KNOWN = 0.1
_LEAST_LEVEL = 0.01
"""Share of line rate that a job reaches while it communicates: acknowledgements and monitoring beat
too, and are no training."""


@dataclass(slots=True)
class _Job:
    """A group of hosts by name, and what is known of it."""

    hosts: frozenset[str]
    is_sure: bool
    changes: Changes
    rhythm: Rhythm | None = None
    is_over: bool = False
    """Whether its hosts are no group any more; its rhythm is kept for a while."""
    seen_ns: int = 0
    looked_seq: int = -_LOOK_EVERY


class Conductor:
    """One a session. `hints` are what a person said of the job, None for nothing."""

    def __init__(self, hints: arithmetic.Hints | None = None) -> None:
        self._hints = hints
        self._traffic = Traffic()
        self._jobs: list[_Job] = []
        self._grouped_seq: int | None = None

    def accept(self, moment: Moment) -> tuple[Beats, list[str]]:
        """The rhythms at this moment, and what has just changed, a line each."""
        traffic = self._traffic
        traffic.accept(moment)
        news: list[str] = []
        # One thing a tick, so that no tick is long: the job that was looked at longest ago.
        job = min(self._jobs, key=lambda job: job.looked_seq, default=None)
        if self._is_time_to_group(moment.seq):
            self._grouped_seq = moment.seq
            self._group(moment.interval_s)
        elif job is not None and moment.seq - job.looked_seq >= _LOOK_EVERY:
            job.looked_seq = moment.seq
            news = self._look(job, moment)
        self._jobs = self._without_replaced()
        rhythms = [job.rhythm for job in self._jobs if job.rhythm is not None]
        rhythms.sort(key=lambda rhythm: (-len(rhythm.hosts), rhythm.hosts))
        beats = Beats(
            shortest_s=SHORTEST_INTERVALS * moment.interval_s,
            hosts_watched=len(traffic.hosts),
            watching_s=traffic.ticks * moment.interval_s,
            rhythms=self._with_hints(rhythms),
        )
        return beats, news

    def _is_time_to_group(self, seq: int) -> bool:
        if self._traffic.ticks < LEAST_SAMPLES:
            # So short: a new session, or somebody has gone elsewhere in a recording.
            self._jobs, self._grouped_seq = [], None
            return False
        every = _GROUP_EVERY if self._jobs else _GROUP_EVERY_AT_FIRST
        return self._grouped_seq is None or not 0 <= seq - self._grouped_seq < every

    def _group(self, interval_s: float) -> None:
        """Who belongs together now; a group that shares most hosts with a job is that job."""
        hosts = self._traffic.hosts
        left = list(self._jobs)
        jobs = []
        for group in together(self._traffic.of_hosts(_GROUP_TICKS).T)[:_MOST_JOBS]:
            names = frozenset(hosts[member] for member in group.members)
            job = max(left, key=lambda job: _likeness(job.hosts, names), default=None)
            if job is None or _likeness(job.hosts, names) < _SAME_JOB:
                job = _Job(names, group.is_sure, Changes(interval_s))
            else:
                left.remove(job)
            job.hosts, job.is_sure, job.is_over = names, group.is_sure, False
            jobs.append(job)
        # What does not move any more keeps its rhythm until ten steps are missed.
        for job in left:
            job.is_over = True
        self._jobs = jobs + [job for job in left if job.rhythm is not None]

    def _without_replaced(self) -> list[_Job]:
        """The jobs, but for those that are over and most of whose hosts beat in others now."""
        beating: frozenset[str] = frozenset().union(
            *(job.hosts for job in self._jobs if job.rhythm is not None and not job.is_over)
        )
        return [
            job
            for job in self._jobs
            if not job.is_over or 2 * len(job.hosts & beating) <= len(job.hosts)
        ]

    def _look(self, job: _Job, moment: Moment) -> list[str]:
        """Measure one job anew."""
        traffic = self._traffic
        members = np.array([name in job.hosts for name in traffic.hosts], np.bool_)
        rails = members[traffic.host_of] if len(members) else np.empty(0, np.bool_)
        rows = traffic.rails[rails]
        beat, line_bps = None, None
        if len(rows):
            line_bps = _mean_known(moment.line_rate_bps[rows])
            signal = _mean_rail(traffic.of_hosts(traffic.ticks), members, len(rows))
            beat = measure(signal, np.inf if line_bps is None else line_bps)
        if beat is None or (line_bps and beat.share.level < _LEAST_LEVEL * line_bps):
            return self._forget(job, moment)
        changed = job.changes.accept(beat, traffic.ticks, moment.time_ns)
        job.seen_ns = moment.time_ns
        job.rhythm = self._rhythm(job, beat, members, rails, line_bps, moment)
        return [f"{', '.join(changed)}: {job.rhythm.name}"] if changed else []

    def _forget(self, job: _Job, moment: Moment) -> list[str]:
        """A job without a beat: it is kept for ten steps, then told."""
        rhythm = job.rhythm
        if rhythm is None or moment.time_ns - job.seen_ns < _MISSED_STEPS * rhythm.step_s * 1e9:
            return []
        job.rhythm, job.changes = None, Changes(moment.interval_s)
        return [f"no step any more, was {rhythm.step_s:.3g} s: {rhythm.name}"]

    def _rhythm(
        self,
        job: _Job,
        beat: Beat,
        members: NDArray[np.bool_],
        rails: NDArray[np.bool_],
        line_bps: float | None,
        moment: Moment,
    ) -> Rhythm:
        dt_s, share = moment.interval_s, beat.share
        step_s, mean_bytes = beat.period * dt_s, beat.volume * dt_s / 8
        level = share.level if share.is_level_sure else None
        best_s = None
        if line_bps is not None and share.high - share.low < _SHARE_KNOWN:
            middle = (share.low + share.high) / 2
            best_s = arithmetic.best_step_s(step_s, middle, mean_bytes, line_bps)
        names = self._traffic.hosts
        return Rhythm(
            hosts=tuple(name for name, here in zip(names, members, strict=True) if here),
            hosts_sure=job.is_sure,
            step_s=step_s,
            error_s=beat.error * dt_s,
            resolved=beat.is_resolved,
            strength=beat.strength,
            iterations=beat.iterations,
            comm_low=share.low,
            comm_high=share.high,
            rail_bytes=self._rail_bytes(rails, mean_bytes, moment),
            line_rate_bps=line_bps,
            line_share=None if level is None or line_bps is None else level / line_bps,
            bound=arithmetic.bound(share.low, share.high),
            best_step_s=best_s,
            step_was=job.changes.step,
            comm_was=job.changes.comm,
            bytes_was=job.changes.bytes,
        )

    def _rail_bytes(
        self, rails: NDArray[np.bool_], mean_bytes: float, moment: Moment
    ) -> tuple[float | None, ...]:
        """What each rail sends in an iteration: its part of what all did in the last minute."""
        traffic = self._traffic
        mean_bps, index = traffic.of_rails()[rails], traffic.index_of[rails]
        known = np.isfinite(moment.column("tx_bps")[traffic.rails[rails]])
        overall = float(mean_bps.mean())
        told: list[float | None] = []
        for number in range(int(index.max()) + 1):
            ours = mean_bps[(index == number) & known]
            has = len(ours) > 0 and overall > 0
            told.append(median(ours) / overall * mean_bytes if has else None)
        return tuple(told)

    def _with_hints(self, rhythms: list[Rhythm]) -> tuple[Rhythm, ...]:
        """The hints go to the job that has as many rails as they have GPUs, else to the largest."""
        hints = self._hints
        if hints is None or not rhythms:
            return tuple(rhythms)
        wanted = hints.gpus
        index = next(
            (
                n
                for n, each in enumerate(rhythms)
                if len(each.hosts) * len(each.rail_bytes) == wanted
            ),
            0,
        )
        chosen = rhythms[index]
        due = arithmetic.expected(hints, chosen.line_rate_bps or 0.0)
        rhythms[index] = msgspec.structs.replace(chosen, expected=due)
        return tuple(rhythms)


def _mean_rail(sent: Floats, members: NDArray[np.bool_], rails: int) -> Floats:
    """[ticks] bits/s of a rail, the mean over a job's hosts; who is silent is like the others."""
    ours = sent[:, members]
    known = np.isfinite(ours)
    heard = known.sum(axis=1)
    total = np.where(known, ours, np.float32(0.0)).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: Floats = np.where(heard > 0, total / heard, np.nan) * (ours.shape[1] / rails)
    return mean


def _mean_known(values: Floats) -> float | None:
    known = values[np.isfinite(values) & (values > 0)]
    return float(known.mean()) if len(known) else None


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard's: what both have, of what either has."""
    return len(one & other) / max(len(one | other), 1)
