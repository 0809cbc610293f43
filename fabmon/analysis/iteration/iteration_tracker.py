"""Follows the iterations of every job, tick by tick, and reports when they change.

The tracker keeps the last minutes of traffic and spreads its work over the ticks: hosts are grouped
into jobs at every tenth tick, and one job is measured at each of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.iteration.host_groups import (
    MIN_SAMPLES,
    SAME_JOB,
    HostTraffic,
    group_hosts,
    host_similarity,
)
from fabmon.analysis.iteration.measurement import (
    MeasuredChange,
    MeasuredIteration,
    measure_iteration,
)
from fabmon.analysis.iteration.missed_iterations import MissedIterations
from fabmon.analysis.iteration.model_arithmetic import JobHints, expected_traffic
from fabmon.analysis.iteration.results import (
    IterationReport,
    JobIteration,
    PreviousValue,
    best_step_s,
)
from fabmon.analysis.iteration.signal_analysis import SHORTEST_INTERVALS
from fabmon.analysis.median import median
from fabmon.fabric.measures import known_mean
from fabmon.fabric.snapshot import Floats, Snapshot

_GROUP_EVERY_TICKS = 10
_GROUP_EVERY_TICKS_AT_FIRST = 2
_GROUP_TICKS = 90
"""Ticks of traffic by which hosts are grouped."""

_MEASURE_EVERY_TICKS = 2
_MAX_JOBS = 16
_MISSED_STEPS = 7
"""Steps for which the last result is kept when no iteration is measured any more, after the three
that `measure_iteration` waits for: ten in all (as sflow-rt/ai-metrics drops them)."""

_SHARE_KNOWN = 0.1
"""Width of the bounds of the share of communication below which it counts as one number."""

_MIN_LEVEL = 0.01
"""Share of line rate that a job must reach while it communicates: acknowledgements and monitoring
repeat too, and are not training."""

_REMEMBERED_S = 600.0
"""Time for which a previous value is reported."""

_SAME_CHANGE_STEPS = 3.0
"""A change that is measured within so many steps after the last one is the same change."""

_MIN_SHARE_CHANGE = 0.05


class _Value:
    """One number of a job, and its value before the last change.

    `factor` converts the measured number to the unit of `PreviousValue`, `text_factor` that to the
    unit of `text`, in which {} is the change: `4.4 → 6.2`.
    """

    def __init__(self, text: str, factor: float, text_factor: float = 1.0) -> None:
        self.previous: PreviousValue | None = None
        self._text = text
        self._factor = factor
        self._text_factor = text_factor

    def accept(self, change: MeasuredChange, at_ns: int, tolerance_ns: int) -> str:
        """Take the last change that was measured. Returns its text; "" for one that is known."""
        if self.previous is not None and at_ns <= self.previous.at_ns + tolerance_ns:
            return ""
        before, after = change.before * self._factor, change.after * self._factor
        self.previous = PreviousValue(before, at_ns)
        numbers = f"{before * self._text_factor:.3g} → {after * self._text_factor:.3g}"
        return self._text.format(numbers)

    def forget(self, before_ns: int) -> None:
        """Forget a change before a time."""
        if self.previous is not None and self.previous.at_ns < before_ns:
            self.previous = None


class IterationChanges:
    """The last changes of one job: `step` in seconds, `comm` as a share (0 to 1) and `bytes` that a
    rail sends in an iteration.

    Each is reported once: the same change is measured again for as long as it is in the window.
    None is known where the iterations may be aliases of shorter ones: what these seem to take and
    send changes with any change of theirs.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self.step = _Value("step time {} s", interval_s)
        self.comm = _Value("communication {} %", 1.0, text_factor=100)
        self.bytes = _Value("{} GB per rail and step", interval_s / 8, text_factor=1e-9)

    def accept(self, measured: MeasuredIteration, ticks: int, now_ns: int) -> list[str]:
        """Take what was measured over the last `ticks`. Returns a text for each new change."""
        interval_ns = self._interval_s * 1e9
        steps, shares = measured.steps, measured.shares
        longest = max(measured.period, steps.before if steps is not None else 0.0)
        tolerance_ns = int(_SAME_CHANGE_STEPS * longest * interval_ns)
        is_exact = measured.share.high - measured.share.low < _SHARE_KNOWN
        if shares is not None and not (
            is_exact and abs(shares.after - shares.before) > _MIN_SHARE_CHANGE
        ):
            shares = None
        texts = []
        changes = ((self.step, steps), (self.comm, shares), (self.bytes, measured.volumes))
        for value, change in changes:
            value.forget(now_ns - int(_REMEMBERED_S * 1e9))
            if change is not None and measured.is_resolved:
                at_ns = now_ns - int((ticks - change.at) * interval_ns)
                texts.append(value.accept(change, at_ns, tolerance_ns))
        return list(filter(None, texts))


@dataclass(slots=True)
class _Job:
    """A group of hosts by name, and what is known of it.

    `is_over`: its hosts are no group any more; its last result is kept for a while.
    """

    hosts: frozenset[str]
    changes: IterationChanges
    is_sure: bool = False
    is_over: bool = False
    iteration: JobIteration | None = None
    measured_seq: int = 0
    looked_seq: int = field(default=-_MEASURE_EVERY_TICKS)


class IterationTracker:
    """Takes the snapshots of a session; `hints` are the user's hints about the job, if any."""

    def __init__(self, hints: JobHints | None = None) -> None:
        self._hints = hints
        self._traffic = HostTraffic()
        self._jobs: list[_Job] = []
        self._missed = MissedIterations(_MIN_LEVEL)
        self._grouped_seq: int | None = None
        self._has_just_grouped = False

    def accept(self, snapshot: Snapshot) -> tuple[IterationReport, list[str]]:
        """The iterations at this snapshot, and a text for each change that is new."""
        traffic = self._traffic
        traffic.accept(snapshot)
        changes: list[str] = []
        # One task a tick, so that no tick is long: the job that was measured longest ago.
        job = min(self._jobs, key=lambda job: job.looked_seq, default=None)
        is_due = job is not None and snapshot.seq - job.looked_seq >= _MEASURE_EVERY_TICKS
        # Of ticks far apart, as on a slow console, every one would be time to group.
        if self._is_time_to_group(snapshot.seq) and not (self._has_just_grouped and is_due):
            self._grouped_seq, self._has_just_grouped = snapshot.seq, True
            self._group(snapshot.interval_s)
        elif job is not None and is_due:
            job.looked_seq, self._has_just_grouped = snapshot.seq, False
            changes = self._measure(job, snapshot)
        self._jobs = self._without_replaced()
        changes += self._missed.due(traffic, snapshot)
        jobs = [job.iteration for job in self._jobs if job.iteration is not None]
        jobs.sort(key=lambda job: (-len(job.hosts), job.hosts))
        report = IterationReport(
            shortest_s=SHORTEST_INTERVALS * snapshot.interval_s,
            hosts_watched=len(traffic.hosts),
            jobs=self._with_hints([_named(job, snapshot) for job in jobs]),
        )
        return report, changes

    def pass_over(self, snapshot: Snapshot) -> None:
        """Take the traffic of a tick, and measure nothing."""
        self._traffic.accept(snapshot)

    def _is_time_to_group(self, seq: int) -> bool:
        if self._traffic.ticks < MIN_SAMPLES:
            # So little traffic is known at the start, and after a jump in a recording.
            self._jobs, self._grouped_seq = [], None
            self._missed.clear()
            return False
        every = _GROUP_EVERY_TICKS if self._jobs else _GROUP_EVERY_TICKS_AT_FIRST
        return self._grouped_seq is None or not 0 <= seq - self._grouped_seq < every

    def _group(self, interval_s: float) -> None:
        """Group the hosts into jobs; a group that shares most hosts with a job is that job."""
        hosts = self._traffic.hosts
        left = list(self._jobs)
        jobs = []
        for group in group_hosts(self._traffic.of_hosts(_GROUP_TICKS).T)[:_MAX_JOBS]:
            names = frozenset(hosts[member] for member in group.members)
            job = max(left, key=lambda job: host_similarity(job.hosts, names), default=None)
            if job is None or host_similarity(job.hosts, names) < SAME_JOB:
                job = _Job(names, IterationChanges(interval_s))
            else:
                left.remove(job)
            job.hosts, job.is_sure, job.is_over = names, group.is_sure, False
            jobs.append(job)
        # A job without traffic keeps its last result until ten steps are missed.
        for job in left:
            job.is_over = True
        self._jobs = jobs + [job for job in left if job.iteration is not None]

    def _without_replaced(self) -> list[_Job]:
        """The jobs, without those that are over and most of whose hosts are in other jobs now."""
        active: frozenset[str] = frozenset().union(
            *(job.hosts for job in self._jobs if job.iteration is not None and not job.is_over)
        )
        return [
            job
            for job in self._jobs
            if not job.is_over or 2 * len(job.hosts & active) <= len(job.hosts)
        ]

    def _measure(self, job: _Job, snapshot: Snapshot) -> list[str]:
        """Measure one job again. Returns a text for what changed."""
        traffic = self._traffic
        members = np.array([name in job.hosts for name in traffic.hosts], np.bool_)
        rails = members[traffic.host_of] if len(members) else np.empty(0, np.bool_)
        rows = traffic.rails[rails]
        measured, line_rate_bps = None, None
        if len(rows):
            line_rate_bps = _mean_known(snapshot.line_rate_bps[rows])
            signal = _mean_rail(traffic.of_hosts(traffic.ticks), members, len(rows))
            measured = measure_iteration(signal, line_rate_bps or np.inf)
        if measured is None or (
            line_rate_bps and measured.share.level < _MIN_LEVEL * line_rate_bps
        ):
            self._miss(job, snapshot)
            return []
        texts = job.changes.accept(measured, traffic.ticks, snapshot.time_ns)
        job.measured_seq = snapshot.seq
        job.iteration = self._result(job, measured, members, rails, line_rate_bps, snapshot)
        named = _named(job.iteration, snapshot)
        again = self._missed.find(named)
        return [
            *([again] if again else []),
            *([f"{', '.join(texts)}: {named.name}"] if texts else []),
        ]

    def _miss(self, job: _Job, snapshot: Snapshot) -> None:
        """Drop the last result of a job without iterations after ten steps."""
        last = job.iteration
        passed_s = (snapshot.seq - job.measured_seq) * snapshot.interval_s
        if last is None or passed_s < _MISSED_STEPS * last.step_s:
            return
        job.iteration, job.changes = None, IterationChanges(snapshot.interval_s)
        self._missed.lose(_named(last, snapshot), snapshot)

    def _result(
        self,
        job: _Job,
        measured: MeasuredIteration,
        members: NDArray[np.bool_],
        rails: NDArray[np.bool_],
        line_rate_bps: float | None,
        snapshot: Snapshot,
    ) -> JobIteration:
        """What was measured of a job, in seconds and bytes."""
        interval_s, share = snapshot.interval_s, measured.share
        step_s, mean_bytes = measured.period * interval_s, measured.volume * interval_s / 8
        level = share.level if share.is_level_sure else None
        best_s = None
        if line_rate_bps is not None and share.high - share.low < _SHARE_KNOWN:
            best_s = best_step_s(step_s, (share.low + share.high) / 2, mean_bytes, line_rate_bps)
        names = self._traffic.hosts
        return JobIteration(
            hosts=tuple(name for name, here in zip(names, members, strict=True) if here),
            hosts_sure=job.is_sure,
            step_s=step_s,
            error_s=measured.error * interval_s,
            resolved=measured.is_resolved,
            strength=measured.strength,
            iterations=measured.iterations,
            comm_low=share.low,
            comm_high=share.high,
            rail_bytes=self._rail_bytes(rails, mean_bytes, snapshot),
            line_rate_bps=line_rate_bps,
            line_share=None if level is None or line_rate_bps is None else level / line_rate_bps,
            best_step_s=best_s,
            step_was=job.changes.step.previous,
            comm_was=job.changes.comm.previous,
            bytes_was=job.changes.bytes.previous,
        )

    def _rail_bytes(
        self, rails: NDArray[np.bool_], mean_bytes: float, snapshot: Snapshot
    ) -> tuple[float | None, ...]:
        """Bytes of each rail in an iteration, by what all rails sent in the last minute."""
        traffic = self._traffic
        mean_bps, index = traffic.of_rails()[rails], traffic.index_of[rails]
        known = np.isfinite(snapshot.column("tx_bps")[traffic.rails[rails]])
        overall_bps = float(mean_bps.mean())
        rail_bytes: list[float | None] = []
        for number in range(int(index.max()) + 1):
            ours = mean_bps[(index == number) & known]
            is_known = len(ours) > 0 and overall_bps > 0
            rail_bytes.append(median(ours) / overall_bps * mean_bytes if is_known else None)
        return tuple(rail_bytes)

    def _with_hints(self, jobs: list[JobIteration]) -> tuple[JobIteration, ...]:
        """The hints apply to the job with as many GPUs as they have, else to the largest."""
        hints = self._hints
        if hints is None or not jobs:
            return tuple(jobs)
        gpus = [len(job.hosts) * hints.gpus_per_node for job in jobs]
        index = gpus.index(hints.gpus) if hints.gpus in gpus else 0
        job = jobs[index]
        expected = expected_traffic(hints, job.line_rate_bps or 0.0, len(job.rail_bytes))
        jobs[index] = msgspec.structs.replace(job, expected=expected)
        return tuple(jobs)


def _named(iteration: JobIteration, snapshot: Snapshot) -> JobIteration:
    """The iterations with the job that runs on their hosts now."""
    job = snapshot.jobs.matching(iteration.hosts)
    return iteration if job is None else msgspec.structs.replace(iteration, job=job)


def _mean_rail(sent: Floats, members: NDArray[np.bool_], rails: int) -> Floats:
    """[ticks] bits/s of a rail, the mean over a job's hosts; a silent host counts as the others."""
    ours = sent[:, members]
    return known_mean(ours) * np.float32(ours.shape[1] / rails)


def _mean_known(values: Floats) -> float | None:
    known = values[np.isfinite(values) & (values > 0)]
    return float(known.mean()) if len(known) else None
