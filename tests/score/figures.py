"""The figures of a set of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import mean, median

from tests.score.match import Score, is_of_its_link
from tests.world.job_mixes import DAY_S
from tests.world.plans import HOSTS_ONLY
from tests.world.runs import FAULT_AT_S
from tests.world.transport import TCP

COLLISION = "ecmp_collision"
SURE = 0.9
"""The confidence from which on a finding has to be right nine times in ten."""
CLOSE = 0.1
"""How far a collision's lost bandwidth may be from the simulator's, and an upper bound below it."""

Runs = Sequence[Score]

Scores = Mapping[str, Runs]
"""The same runs as each commit judged them, by its name."""

AXES: dict[str, Callable[[Score], str]] = {
    "Topology": lambda s: s.played.plan.topology,
    "Transport": lambda s: s.played.plan.transport,
    "Marks": lambda s: f"{s.played.plan.marks:.1%}",
    "Skew": lambda s: f"{s.played.plan.skew_s:g} s",
}
"""The value of a run on each axis."""


def workload(run: Score) -> str:
    """The workload of a run."""
    return run.played.plan.workload


def by_value(scores: Runs, of: Callable[[Score], str]) -> dict[str, list[Score]]:
    """The runs with each value of an axis."""
    return {v: [s for s in scores if of(s) == v] for v in sorted({of(s) for s in scores})}


def watched(scores: Runs) -> list[Score]:
    """The runs whose switches are watched."""
    return [s for s in scores if s.played.plan.topology != HOSTS_ONLY]


def hosts_alone(scores: Runs) -> list[Score]:
    """The runs in which no switch is watched."""
    return [s for s in scores if s.played.plan.topology == HOSTS_ONLY]


def with_rdma_counters(scores: Runs) -> list[Score]:
    """The runs whose hosts count what RDMA does."""
    return [s for s in scores if s.played.plan.transport != TCP]


def causes(scores: Runs) -> list[str]:
    """Every cause that was found, missed or reported."""
    true = chain.from_iterable([*s.missed, *(truth for truth, _ in s.found)] for s in scores)
    said = chain.from_iterable([*s.wrong, *(finding for finding, _ in s.right)] for s in scores)
    return sorted({truth.cause for truth in true} | {finding.cause for finding in said})


@dataclass(frozen=True)
class Figures:
    """How well a set of runs was judged. Shares are 0 to 1; None: there is nothing to judge."""

    runs: int
    findings: int
    right: int
    faults: int
    found: int
    by_run: float | None
    """The mean over the runs of the share of faults found: one run counts as much as another."""
    median_s: float | None
    p90_s: float | None

    @property
    def precision(self) -> float | None:
        """Right findings of all."""
        return share(self.right, self.findings)

    @property
    def recall(self) -> float | None:
        """Faults found of all."""
        return share(self.found, self.faults)


def figures(scores: Runs, cause: str = "") -> Figures:
    """Those of some runs, or of one cause in them."""

    def counts(name: str) -> bool:
        return not cause or name == cause

    right = sum(counts(finding.cause) for s in scores for finding, _ in s.right)
    wrong = sum(counts(finding.cause) for s in scores for finding in s.wrong)
    times: list[float] = []
    faults, shares = 0, []
    for s in scores:
        found = [after for truth, after in s.found if counts(truth.cause)]
        all_of_run = len(found) + sum(counts(truth.cause) for truth in s.missed)
        times += found
        faults += all_of_run
        if all_of_run:
            shares.append(len(found) / all_of_run)
    times.sort()
    return Figures(
        len(scores),
        right + wrong,
        right,
        faults,
        len(times),
        mean(shares) if shares else None,
        median(times) if times else None,
        times[int(len(times) * 0.9)] if times else None,
    )


def injected(scores: Runs) -> list[float]:
    """Seconds from when injected faults showed until they were flagged, sorted.

    Overloads that nobody injected begin and end with the bursts of their jobs: the time from the
    first moment of one says little.
    """
    return sorted(
        after
        for s in scores
        for truth, after in s.found
        if not truth.natural
        or (truth.cause == s.played.plan.fault and truth.start_s >= FAULT_AT_S - 1)
    )


@dataclass(frozen=True)
class Calibration:
    """What confidence is worth."""

    sure: int
    """Findings that say SURE or more."""
    sure_right: int
    right: int

    @property
    def kept(self) -> float | None:
        """The share of the sure findings that are right."""
        return share(self.sure_right, self.sure)

    @property
    def said(self) -> float | None:
        """The share of the right findings that are sure."""
        return share(self.sure_right, self.right)


def calibration(scores: Runs) -> Calibration:
    """That of some runs."""
    right = [finding.confidence for s in scores for finding, _ in s.right]
    wrong = [finding.confidence for s in scores for finding in s.wrong]
    sure_right = sum(c >= SURE for c in right)
    return Calibration(sure_right + sum(c >= SURE for c in wrong), sure_right, len(right))


def confidences(scores: Runs) -> list[tuple[float, bool]]:
    """The confidence of each finding, and whether it is right."""
    right = [(finding.confidence, True) for s in scores for finding, _ in s.right]
    return right + [(finding.confidence, False) for s in scores for finding in s.wrong]


def brier_score(pairs: Sequence[tuple[float, bool]]) -> float | None:
    """The mean of the squares of confidence less outcome (1: right, 0: wrong), 0 to 1; 0 is best.

    Brier, Verification of forecasts expressed in terms of probability, 1950.
    """
    return mean((confidence - right) ** 2 for confidence, right in pairs) if pairs else None


@dataclass(frozen=True)
class Health:
    """What was reported in runs in which nothing was wrong."""

    runs: int
    hours: float
    alarmed: int
    """Runs with a wrong finding."""
    false: int
    critical_runs: int
    """Runs with a critical finding, right or wrong."""

    @property
    def per_hour(self) -> float | None:
        """Wrong findings per fabric-hour."""
        return self.false / self.hours if self.hours else None


def health(scores: Runs) -> Health:
    """That of the healthy ones of some runs."""
    mine = [s for s in scores if s.healthy]
    return Health(
        len(mine),
        sum(s.played.plan.seconds for s in mine) / 3600,
        sum(bool(s.wrong) for s in mine),
        sum(len(s.wrong) for s in mine),
        sum(any(r.critical for r in s.played.reported) for s in mine),
    )


def is_training_hour(run: Score) -> bool:
    """Whether a run is an hour of healthy training."""
    return run.played.plan.seconds == DAY_S


@dataclass(frozen=True)
class Losses:
    """How much more lost bandwidth right collisions say than the simulator has, in shares of 1: of
    each that is `measured`, and of each that is said as an upper bound (`up_to`). `not_given`
    collisions say none."""

    measured: list[float]
    up_to: list[float]
    not_given: int

    @property
    def close(self) -> float | None:
        """The share of the measured ones that are right."""
        return share(sum(abs(more) <= CLOSE for more in self.measured), len(self.measured))

    @property
    def held(self) -> float | None:
        """The share of the upper bounds that hold."""
        return share(sum(more >= -CLOSE for more in self.up_to), len(self.up_to))


def losses(scores: Runs) -> Losses:
    """Those of some runs, against what the flows lose in all the time in which it is full."""
    found = [
        (finding, finding.lost - truth.lost_while_full)
        for s in scores
        for finding, truth in s.right
        if finding.cause == COLLISION and is_of_its_link(finding, truth)
    ]
    given = [(finding, more) for finding, more in found if finding.lost > 0]
    return Losses(
        [more for finding, more in given if not finding.is_upper_bound],
        [more for finding, more in given if finding.is_upper_bound],
        len(found) - len(given),
    )


def points_more(more: Sequence[float]) -> str:
    """`3 points more in the median`; `-` of none."""
    return f"{median(more) * 100:+.0f} points in the median" if more else "-"


def share(part: float, whole: float) -> float | None:
    """A quotient; None without anything to divide by."""
    return part / whole if whole else None
