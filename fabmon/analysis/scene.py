"""One tick of the whole fabric, for screens and reports: its snapshot and what was found in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fabmon.analysis.evidence.doubtful_rates import DoubtfulRate, doubts_by_row
from fabmon.analysis.finding import Change, Finding
from fabmon.analysis.iteration.results import NO_ITERATIONS, IterationReport
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.time_window import Span, TimeWindow, over, span
from fabmon.fabric.wording import name_list

_MOST_NAMED = 40


@dataclass(frozen=True, slots=True)
class Event:
    """Something with a time on the timeline; `seq` is that of the tick at which it was known.

    `kind` is `finding`, `node`, `link`, `log` (a message of a node's kernel) or `iteration` (of a
    job).
    """

    time_ns: int
    seq: int
    kind: str
    text: str


def missing_findings(failed_detectors: Sequence[str]) -> list[str]:
    """What every output says where detectors failed; empty where none did."""
    names = name_list(failed_detectors, _MOST_NAMED)
    return [f"A detector failed: findings may be missing ({names})."] if failed_detectors else []


@dataclass(frozen=True, slots=True)
class Scene:
    """What there is to show at one tick.

    `findings` are those open now, most severe first; `changes` those that opened, changed
    or closed at this tick; `events` the last ones on the timeline, in the order in
    which they were known.
    `iteration_report` has the iterations of jobs, as far as they are observable. `doubtful` are
    the rates that cannot be. `failed_detectors` are the names of those that failed at this tick or
    an earlier one: findings may be missing. `why_unflagged` says by row why a full link is no
    bottleneck.
    """

    snapshot: Snapshot
    findings: tuple[Finding, ...]
    changes: tuple[tuple[Change, Finding], ...]
    events: tuple[Event, ...]
    iteration_report: IterationReport = NO_ITERATIONS
    doubtful: tuple[DoubtfulRate, ...] = ()
    failed_detectors: tuple[str, ...] = ()
    why_unflagged: Mapping[int, str] = field(default_factory=dict)

    @property
    def step_s(self) -> float:
        """The longest iteration of the jobs; 0 where none is known."""
        return max((job.step_s for job in self.iteration_report.jobs), default=0.0)

    def span(self, window: TimeWindow) -> Span:
        """A window that ends with this tick."""
        return span(window, self.snapshot, self.step_s)

    def seen(self, window: TimeWindow) -> Snapshot:
        """The snapshot over a window: the one place where what is shown of a port is computed."""
        return over(self.snapshot, self.span(window))

    @property
    def doubts(self) -> dict[int, str]:
        """Why the rates of a port cannot be, by row: the port that shows it, and how."""
        return doubts_by_row(self.snapshot, self.doubtful)

    @property
    def doubtful_rows(self) -> set[int]:
        """The ports whose rates may be wrong."""
        return {row for each in self.doubtful for row in each.rows}
