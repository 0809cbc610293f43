"""A job that iterated exchanges nothing any more, and has not ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import FabricStructure, Rows
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.iteration.results import JobIteration
from fabmon.fabric.flows.flow_table import Connections
from fabmon.fabric.jobs.job import SLURM
from fabmon.fabric.jobs.job_table import JobTable
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.fabric.time_wording import duration

CAUSE = Cause(
    name="job_stalled",
    title="Job stalled",
    meaning="a job exchanges nothing any more, and has not ended",
    severity=WARNING,
    other_severity="critical after five minutes, where queue pairs are open",
    rule=(
        "A job whose iterations were found exchanges nothing for 30 seconds and for four of its"
        " steps, and at least half of the queue pairs of its last exchange are open: a job that"
        " ends destroys them. Where the hosts report none, as with TCP, Slurm must report the same"
        " job as running ten seconds or more after its last exchange. A host is named that moved"
        " nothing of the last exchange, which all others had begun."
    ),
    inputs="The hosts, with their queue pairs; else squeue, asked every 30 seconds",
    not_observable=(
        "Which rank stopped first, where all had begun the exchange. Of jobs with neither queue"
        " pairs nor Slurm, one that hangs and one that has ended look the same"
    ),
    picture="last_traffic",
    advice=(
        "Look at the ranks: a crashed or stopped process, a collective that one rank did not enter"
        " (NCCL flight recorder, py-spy dump); the fabric carries nothing of this job."
    ),
    traits=(Trait.OF_NO_PLACE,),
)

_SILENT_UTIL = 0.005
"""Share of line rate, 0 to 1, below which a rail carries only keepalives."""

_LEAST_S, _STEPS = 30.0, 4.0
"""A job is stalled after so many seconds without an exchange, and after so many of its steps:
evaluation and checkpoints take longer than a step."""

_LONG_S = 300.0
"""Seconds without an exchange from which on it is critical: few evaluations and checkpoints take
longer."""

_OPEN_SHARE = 0.5
"""Share of the queue pairs of its last exchange, 0 to 1, that must still be open."""


_ASKED_AFTER_S = 10.0
"""Seconds of silence after which Slurm must have reported the job: one that has ended is reported
as running for some seconds more."""

_BEGUN, _NOT_BEGUN = 0.03, 0.25
"""Seconds of line rate that every other host has moved of an exchange, and the share of what each
of these has, 0 to 1, below which a host has moved nothing of it."""


@dataclass(slots=True)
class _Exchange:
    """What each host has moved since all were silent last, in seconds of the line rate of a rail:
    `moved` [hosts] is in the order of `hosts`; None until all were silent once."""

    hosts: tuple[str, ...]
    moved: Floats | None = None
    is_over: bool = False

    def accept(self, used: Floats, host_of: Rows, interval_s: float, *, is_silent: bool) -> None:
        """Take a tick: `used` [rails] is the share of line rate, `host_of` the places of hosts."""
        if is_silent:
            self.is_over = True
            return
        if self.is_over:
            self.moved, self.is_over = np.zeros(len(self.hosts), np.float32), False
        if self.moved is not None:
            moved = np.bincount(host_of, used, len(self.hosts)).astype(np.float32)
            self.moved += moved * np.float32(interval_s)

    def not_begun(self) -> str:
        """The only host that has moved nothing while all others have; empty where there is none."""
        if self.moved is None or len(self.moved) < 3:
            return ""
        least, next_least = np.partition(self.moved, 1)[:2]
        is_alone = next_least >= _BEGUN and least < _NOT_BEGUN * next_least
        return self.hosts[int(self.moved.argmin())] if is_alone else ""


@dataclass(slots=True)
class _Job:
    """A job as it was last seen iterating; `connections` and `jobs` are those of its last exchange,
    at the tick `moved_seq`, when its rails were `rows_then`. `host_of` is the host of each of its
    rails."""

    name: str
    hosts: tuple[str, ...]
    rows: Rows
    host_of: Rows
    iteration: JobIteration
    moved_seq: int
    connections: Connections
    jobs: JobTable
    rows_then: Rows
    exchange: _Exchange

    def moves(self, snapshot: Snapshot) -> None:
        """It exchanges data at this tick."""
        self.moved_seq = snapshot.seq
        self.connections, self.jobs, self.rows_then = snapshot.connections, snapshot.jobs, self.rows


class StalledJobs:
    """Remembers the jobs that iterated, until they end."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, ...], _Job] = {}
        self._structure: FabricStructure | None = None
        self._read_ns, self._read_seq = 0, -1
        """The last report of Slurm, and the tick that had it first: clocks may be set."""

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition for each stalled job."""
        snapshot = inputs.snapshot
        if inputs.structure is not self._structure:
            self._structure = inputs.structure
            for known in self._jobs.values():
                known.rows, known.host_of = _rails(inputs, known.hosts)
        self._note_iterations(inputs)
        if snapshot.jobs_read_ns != self._read_ns:
            self._read_ns, self._read_seq = snapshot.jobs_read_ns, snapshot.seq
        for hosts, known in list(self._jobs.items()):
            if not len(known.rows):
                del self._jobs[hosts]
                continue
            if not np.isfinite(inputs.window("tx_bps")[known.rows, -1]).any():
                known.moved_seq = snapshot.seq  # Not observable.
                continue
            used = _used(inputs, known.rows)
            is_silent = _is_silent(used)
            known.exchange.accept(used, known.host_of, snapshot.interval_s, is_silent=is_silent)
            if not is_silent:
                known.moves(snapshot)
                continue
            silent_s = (snapshot.seq - known.moved_seq) * snapshot.interval_s
            if silent_s < max(_LEAST_S, _STEPS * known.iteration.step_s):
                continue
            before = _queue_pairs(known.connections, known.rows_then)
            now = _queue_pairs(snapshot.connections, known.rows)
            if before and now >= _OPEN_SHARE * before:
                yield _with_queue_pairs(known, silent_s, now, before)
            elif before or not _runs_on(known, snapshot):
                del self._jobs[hosts]
            elif (self._read_seq - known.moved_seq) * snapshot.interval_s >= _ASKED_AFTER_S:
                asked_s = (snapshot.seq - self._read_seq) * snapshot.interval_s
                yield _with_slurm(known, silent_s, asked_s)

    def _note_iterations(self, inputs: DetectorInput) -> None:
        """Add the jobs that iterate now, in place of those that their hosts were in before."""
        jobs = inputs.iterations.jobs
        for job in jobs:
            known = self._jobs.get(job.hosts)
            if known is None:
                known = _new_job(job, inputs)
                # The iterations of one that has ended are remembered for a while.
                if not len(known.rows) or _is_silent(_used(inputs, known.rows)):
                    continue
                self._jobs[job.hosts] = known
            known.iteration, known.name = job, job.name
        busy = {host for job in jobs for host in job.hosts}
        now = {job.hosts for job in jobs}
        for hosts in [each for each in self._jobs if each not in now and busy.intersection(each)]:
            del self._jobs[hosts]


def _new_job(job: JobIteration, inputs: DetectorInput) -> _Job:
    rows, host_of = _rails(inputs, job.hosts)
    snapshot = inputs.snapshot
    return _Job(
        name=job.name,
        hosts=job.hosts,
        rows=rows,
        host_of=host_of,
        iteration=job,
        moved_seq=snapshot.seq,
        connections=snapshot.connections,
        jobs=snapshot.jobs,
        rows_then=rows,
        exchange=_Exchange(job.hosts),
    )


def _used(inputs: DetectorInput, rows: Rows) -> Floats:
    """[rails]: share of line rate, sent or received, the larger."""
    used: Floats = np.fmax(inputs.sent[rows, -1], inputs.received_filled[rows, -1])
    return used


def _is_silent(used: Floats) -> bool:
    return float(used.max()) <= _SILENT_UTIL


def _rails(inputs: DetectorInput, hosts: tuple[str, ...]) -> tuple[Rows, Rows]:
    """The rails of some hosts, and the place of each one's host among these; none of hosts that are
    not in the fabric."""
    structure = inputs.structure
    place_of = {host: place for place, host in enumerate(hosts)}
    places = np.array([place_of.get(each.name, -1) for each in structure.fabric.nodes], np.intp)
    host_of = np.where(structure.is_rail, places[structure.node], -1)
    rails: Rows = np.flatnonzero(host_of >= 0)
    return rails, host_of[rails]


def _queue_pairs(connections: Connections, rows: Rows) -> int:
    """The number of flows that the hosts report for some rails; 0 where it is not known."""
    table = connections.flows_if_quick
    return 0 if table is None else int(np.isin(table.src, rows).sum())


def _runs_on(job: _Job, snapshot: Snapshot) -> bool:
    """Whether Slurm has the job now that ran on these hosts at its last exchange, not another one,
    and not the same one started anew."""
    before, now = (jobs.matching(job.hosts) for jobs in (job.jobs, snapshot.jobs))
    return (
        before is not None
        and now is not None
        and before.scheduler == now.scheduler == SLURM
        and (before.id, before.start_ns) == (now.id, now.start_ns)
    )


def _with_queue_pairs(job: _Job, silent_s: float, open_pairs: int, before: int) -> Condition:
    return _condition(
        job,
        silent_s,
        f"{open_pairs} of its queue pairs are still open",
        Evidence("open queue pairs", open_pairs, f"of {before}"),
        severity=CRITICAL if silent_s >= _LONG_S else WARNING,
        confidence=0.9,
    )


def _with_slurm(job: _Job, silent_s: float, asked_s: float) -> Condition:
    return _condition(
        job,
        silent_s,
        "Slurm still reports it as running",
        Evidence("Slurm asked", round(asked_s), "s ago"),
        # A job that waits in its allocation for a next program is silent, too.
        severity=WARNING,
        confidence=0.7,
    )


def _condition(
    job: _Job, silent_s: float, reason: str, shown: Evidence, *, severity: str, confidence: float
) -> Condition:
    host, steps = job.exchange.not_begun(), job.iteration
    first = f"; {host} moved nothing of its last exchange, which all others had begun"
    return Condition(
        cause=CAUSE.name,
        severity=severity,
        subject=job.name,
        rows=tuple(job.rows.tolist()),
        text=(
            f"job {job.name.removeprefix('job ')} has exchanged nothing for {duration(silent_s)};"
            f" its steps took {steps.step_words}, and {reason}{first if host else ''}"
        ),
        evidence=(
            Evidence("silent", round(silent_s), "s"),
            Evidence(
                f"step time before{'' if steps.resolved else ', at most'}",
                round(steps.step_s, 2),
                "s",
            ),
            shown,
            Evidence("hosts", len(job.hosts), "hosts"),
            *([Evidence("moved nothing of the last exchange", host)] if host else ()),
        ),
        advice=CAUSE.advice,
        confidence=confidence,
        lost=1.0,
        unseen="why it stopped" if host else "which rank stopped first",
    )
