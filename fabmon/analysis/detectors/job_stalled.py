"""A job that iterated exchanges nothing any more, and its queue pairs are still open.

A job that ends destroys its queue pairs; one that hangs keeps them. Where hosts report none, a hung
job and one that has ended look the same, and no finding is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import FabricStructure, Rows
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence
from fabmon.fabric.flows.flow_table import Connections
from fabmon.fabric.time_wording import duration

CAUSE = Cause(
    name="job_stalled",
    title="Job stalled",
    meaning="a job exchanges nothing any more, and its queue pairs are still open",
    severity=WARNING,
    picture="last_traffic",
    advice=(
        "Look at the ranks: a crashed or stopped process, a collective that one rank did not enter"
        " (NCCL flight recorder, py-spy dump); the fabric carries nothing of this job."
    ),
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


@dataclass(slots=True)
class _Job:
    """A job as it was last seen iterating; `connections` are those of its last exchange, when its
    rails were `rows_then`."""

    name: str
    hosts: tuple[str, ...]
    rows: Rows
    step_s: float
    moved_seq: int
    connections: Connections
    rows_then: Rows


class StalledJobs:
    """Remembers the jobs that iterated, until they end."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, ...], _Job] = {}
        self._structure: FabricStructure | None = None

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition for each stalled job."""
        snapshot = inputs.snapshot
        if inputs.structure is not self._structure:
            self._structure = inputs.structure
            for known in self._jobs.values():
                known.rows = _rails(inputs, known.hosts)
        for job in inputs.iterations.jobs:
            if job.hosts not in self._jobs:
                rows = _rails(inputs, job.hosts)
                self._jobs[job.hosts] = _Job(
                    job.name,
                    job.hosts,
                    rows,
                    job.step_s,
                    snapshot.seq,
                    snapshot.connections,
                    rows,
                )
            self._jobs[job.hosts].step_s = job.step_s
        for hosts, known in list(self._jobs.items()):
            rows = known.rows
            if not len(rows):
                del self._jobs[hosts]
                continue
            if float(np.fmax(inputs.sent[rows, -1], inputs.received_filled[rows, -1]).max()) > (
                _SILENT_UTIL
            ):
                known.moved_seq, known.rows_then = snapshot.seq, rows
                known.connections = snapshot.connections
                continue
            silent_s = (snapshot.seq - known.moved_seq) * snapshot.interval_s
            if silent_s < max(_LEAST_S, _STEPS * known.step_s):
                continue
            before = _queue_pairs(known.connections, known.rows_then)
            now = _queue_pairs(snapshot.connections, rows)
            if before and now >= _OPEN_SHARE * before:
                yield _condition(known, silent_s, now, before)
            else:
                del self._jobs[hosts]


def _rails(inputs: DetectorInput, hosts: tuple[str, ...]) -> Rows:
    """The rails of some hosts; none of hosts that are not in the fabric."""
    nodes = inputs.structure.fabric.nodes
    wanted = [number for number, node in enumerate(nodes) if node.name in hosts]
    rails: Rows = np.flatnonzero(inputs.structure.is_rail & np.isin(inputs.structure.node, wanted))
    return rails


def _queue_pairs(connections: Connections, rows: Rows) -> int:
    """The number of flows that the hosts report for some rails; 0 where it is not known."""
    table = connections.flows_if_quick
    return 0 if table is None else int(np.isin(table.src, rows).sum())


def _condition(job: _Job, silent_s: float, open_pairs: int, before: int) -> Condition:
    return Condition(
        cause=CAUSE.name,
        severity=CRITICAL if silent_s >= _LONG_S else CAUSE.severity,
        subject=job.name,
        rows=tuple(job.rows.tolist()),
        text=(
            f"job {job.name} has exchanged nothing for {duration(silent_s)}; its steps took"
            f" {job.step_s:.1f} s, and {open_pairs} of its queue pairs are still open"
        ),
        evidence=(
            Evidence("silent", round(silent_s), "s"),
            Evidence("step time before", round(job.step_s, 2), "s"),
            Evidence("open queue pairs", open_pairs, f"of {before}"),
            Evidence("hosts", len(job.hosts), "hosts"),
        ),
        advice=CAUSE.advice,
        confidence=0.9,
        lost=1.0,
        unseen="which rank stopped first",
    )
