"""One tick of the whole house, for screens and reports: the moment, and what is wrong in it."""

from __future__ import annotations

from dataclasses import dataclass

from fabmon.analysis.finding import Change, Finding
from fabmon.analysis.iteration.results import NO_ITERATIONS, IterationReport
from fabmon.fabric.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Event:
    """Something with a time on the timeline; `kind` is `finding`, `node`, `link` or
    `rhythm`."""

    time_ns: int
    seq: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Scene:
    """What there is to show at one tick.

    `findings` are those open now, the costliest first; `changes` those that opened, changed or
    closed at this tick; `events` the last ones on the timeline, oldest first. `beats` are the jobs'
    iterations, as far as they can be told.
    """

    snapshot: Snapshot
    findings: tuple[Finding, ...]
    changes: tuple[tuple[Change, Finding], ...]
    events: tuple[Event, ...]
    iteration_report: IterationReport = NO_ITERATIONS
