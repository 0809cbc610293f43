"""What changed in a rhythm, told once: the same change is found anew as long as it is in inputs."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.iteration import results
from fabmon.analysis.iteration.host_groups import MIN_SAMPLES, HostTraffic, group_hosts
from fabmon.analysis.iteration.measurement import (
    MeasuredChange,
    MeasuredIteration,
    measure_iteration,
)
from fabmon.analysis.iteration.results import IterationReport, JobIteration, PreviousValue
from fabmon.analysis.iteration.signal_analysis import SHORTEST_INTERVALS
from fabmon.analysis.median import median
from fabmon.fabric.snapshot import Floats, Snapshot

_REMEMBERED_S = 600.0
_SAME_STEPS = 3.0
_LEAST_SHARE = 0.05
_NARROW = 0.1


class _Last:
    """The last change of one number.

    `factor` makes its unit of what is measured, `shown` that of the text.
    """

    def __init__(self, factor: float, shown: float = 1.0) -> None:
        self.moved: PreviousValue | None = None
        self._factor = factor
        self._shown = shown

    def take(self, change: MeasuredChange, at_ns: int, room_ns: int) -> str:
        """`4.4 → 6.2`, or nothing for what was known."""
        if self.moved is not None and at_ns <= self.moved.at_ns + room_ns:
            return ""
        before, after = change.before * self._factor, change.after * self._factor
        self.moved = PreviousValue(before, at_ns)
        return f"{before * self._shown:.3g} → {after * self._shown:.3g}"

    def forget(self, before_ns: int) -> None:
        if self.moved is not None and self.moved.at_ns < before_ns:
            self.moved = None


class IterationChanges:
    """The last changes of one job's step, share of communication and bytes."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._step = _Last(interval_s)
        self._comm = _Last(1.0, shown=100)
        self._bytes = _Last(interval_s / 8, shown=1e-9)

    @property
    def step(self) -> PreviousValue | None:
        """The step before, in seconds, for ten minutes."""
        return self._step.moved

    @property
    def comm(self) -> PreviousValue | None:
        """The share of communication before, 0 to 1."""
        return self._comm.moved

    @property
    def bytes(self) -> PreviousValue | None:
        """The bytes that a rail sent in an iteration before."""
        return self._bytes.moved

    def accept(self, beat: MeasuredIteration, ticks: int, now_ns: int) -> list[str]:
        """Take a beat measured over the last `ticks`; what is new in it."""
        interval_ns = self._interval_s * 1e9
        for last in (self._step, self._comm, self._bytes):
            last.forget(now_ns - int(_REMEMBERED_S * 1e9))

        def said(last: _Last, change: MeasuredChange | None) -> str:
            if change is None:
                return ""
            longest = max(beat.period, beat.steps.before if beat.steps is not None else 0.0)
            at_ns = now_ns - int((ticks - change.at) * interval_ns)
            return last.take(change, at_ns, int(_SAME_STEPS * longest * interval_ns))

        shares = beat.shares
        clear = beat.share.high - beat.share.low < _NARROW
        if shares is not None and not (clear and abs(shares.after - shares.before) > _LEAST_SHARE):
            shares = None
        told = []
        if text := said(self._step, beat.steps):
            told.append(f"step {text} s")
        if text := said(self._comm, shares):
            told.append(f"comm {text} %")
        if text := said(self._bytes, beat.volumes):
            told.append(f"{text} GB a rail and step")
        return told


# Follows the rhythm of every job, tick by tick, and says when one changed.
#
# It keeps the last minutes of traffic and spreads its work over the ticks: who belongs together
# every tenth of them, one job in each of the others.


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
    changes: IterationChanges
    rhythm: JobIteration | None = None
    is_over: bool = False
    """Whether its hosts are no group any more; its rhythm is kept for a while."""
    seen_ns: int = 0
    looked_seq: int = -_LOOK_EVERY


class IterationTracker:
    """One a session. `hints` are what a person said of the job, None for nothing."""

    def __init__(self, hints: results.JobHints | None = None) -> None:
        self._hints = hints
        self._traffic = HostTraffic()
        self._jobs: list[_Job] = []
        self._grouped_seq: int | None = None

    def accept(self, snapshot: Snapshot) -> tuple[IterationReport, list[str]]:
        """The rhythms at this moment, and what has just changed, a line each."""
        traffic = self._traffic
        traffic.accept(snapshot)
        news: list[str] = []
        # One thing a tick, so that no tick is long: the job that was looked at longest ago.
        job = min(self._jobs, key=lambda job: job.looked_seq, default=None)
        if self._is_time_to_group(snapshot.seq):
            self._grouped_seq = snapshot.seq
            self._group(snapshot.interval_s)
        elif job is not None and snapshot.seq - job.looked_seq >= _LOOK_EVERY:
            job.looked_seq = snapshot.seq
            news = self._look(job, snapshot)
        self._jobs = self._without_replaced()
        rhythms = [job.rhythm for job in self._jobs if job.rhythm is not None]
        rhythms.sort(key=lambda rhythm: (-len(rhythm.hosts), rhythm.hosts))
        iteration_report = IterationReport(
            shortest_s=SHORTEST_INTERVALS * snapshot.interval_s,
            hosts_watched=len(traffic.hosts),
            watching_s=traffic.ticks * snapshot.interval_s,
            rhythms=self._with_hints(rhythms),
        )
        return iteration_report, news

    def _is_time_to_group(self, seq: int) -> bool:
        if self._traffic.ticks < MIN_SAMPLES:
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
        for group in group_hosts(self._traffic.of_hosts(_GROUP_TICKS).T)[:_MOST_JOBS]:
            names = frozenset(hosts[member] for member in group.members)
            job = max(left, key=lambda job: _likeness(job.hosts, names), default=None)
            if job is None or _likeness(job.hosts, names) < _SAME_JOB:
                job = _Job(names, group.is_sure, IterationChanges(interval_s))
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

    def _look(self, job: _Job, snapshot: Snapshot) -> list[str]:
        """Measure one job anew."""
        traffic = self._traffic
        members = np.array([name in job.hosts for name in traffic.hosts], np.bool_)
        rails = members[traffic.host_of] if len(members) else np.empty(0, np.bool_)
        rows = traffic.rails[rails]
        beat, line_bps = None, None
        if len(rows):
            line_bps = _mean_known(snapshot.line_rate_bps[rows])
            signal = _mean_rail(traffic.of_hosts(traffic.ticks), members, len(rows))
            beat = measure_iteration(signal, np.inf if line_bps is None else line_bps)
        if beat is None or (line_bps and beat.share.level < _LEAST_LEVEL * line_bps):
            return self._forget(job, snapshot)
        changed = job.changes.accept(beat, traffic.ticks, snapshot.time_ns)
        job.seen_ns = snapshot.time_ns
        job.rhythm = self._rhythm(job, beat, members, rails, line_bps, snapshot)
        return [f"{', '.join(changed)}: {job.rhythm.name}"] if changed else []

    def _forget(self, job: _Job, snapshot: Snapshot) -> list[str]:
        """A job without a beat: it is kept for ten steps, then told."""
        rhythm = job.rhythm
        if rhythm is None or snapshot.time_ns - job.seen_ns < _MISSED_STEPS * rhythm.step_s * 1e9:
            return []
        job.rhythm, job.changes = None, IterationChanges(snapshot.interval_s)
        return [f"no step any more, was {rhythm.step_s:.3g} s: {rhythm.name}"]

    def _rhythm(
        self,
        job: _Job,
        beat: MeasuredIteration,
        members: NDArray[np.bool_],
        rails: NDArray[np.bool_],
        line_bps: float | None,
        snapshot: Snapshot,
    ) -> JobIteration:
        dt_s, share = snapshot.interval_s, beat.share
        step_s, mean_bytes = beat.period * dt_s, beat.volume * dt_s / 8
        level = share.level if share.is_level_sure else None
        best_s = None
        if line_bps is not None and share.high - share.low < _SHARE_KNOWN:
            middle = (share.low + share.high) / 2
            best_s = results.best_step_s(step_s, middle, mean_bytes, line_bps)
        names = self._traffic.hosts
        return JobIteration(
            hosts=tuple(name for name, here in zip(names, members, strict=True) if here),
            hosts_sure=job.is_sure,
            step_s=step_s,
            error_s=beat.error * dt_s,
            resolved=beat.is_resolved,
            strength=beat.strength,
            iterations=beat.iterations,
            comm_low=share.low,
            comm_high=share.high,
            rail_bytes=self._rail_bytes(rails, mean_bytes, snapshot),
            line_rate_bps=line_bps,
            line_share=None if level is None or line_bps is None else level / line_bps,
            bound=results.bound_by(share.low, share.high),
            best_step_s=best_s,
            step_was=job.changes.step,
            comm_was=job.changes.comm,
            bytes_was=job.changes.bytes,
        )

    def _rail_bytes(
        self, rails: NDArray[np.bool_], mean_bytes: float, snapshot: Snapshot
    ) -> tuple[float | None, ...]:
        """What each rail sends in an iteration: its part of what all did in the last minute."""
        traffic = self._traffic
        mean_bps, index = traffic.of_rails()[rails], traffic.index_of[rails]
        known = np.isfinite(snapshot.column("tx_bps")[traffic.rails[rails]])
        overall = float(mean_bps.mean())
        told: list[float | None] = []
        for number in range(int(index.max()) + 1):
            ours = mean_bps[(index == number) & known]
            has = len(ours) > 0 and overall > 0
            told.append(median(ours) / overall * mean_bytes if has else None)
        return tuple(told)

    def _with_hints(self, rhythms: list[JobIteration]) -> tuple[JobIteration, ...]:
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
        due = results.expected_traffic(hints, chosen.line_rate_bps or 0.0)
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
