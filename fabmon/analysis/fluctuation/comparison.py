"""Two runs, or several of each kind: what changed, and whether that is more than the noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.fluctuation import significance
from fabmon.analysis.fluctuation.results import ALL, JOB, KINDS, Fluctuation
from fabmon.analysis.fluctuation.study import ProgressCallback, Study, ignore_progress
from fabmon.analysis.fluctuation.trends import CellSeries

BANDWIDTH, ITERATION = "bandwidth", "iteration"

LEVEL = 0.05
"""Chance to call any headline real where nothing changed; share of false ones among the links."""

LEAST = 0.005
"""Of the value before: a difference that is less is not called real, however sure it is."""

LEAST_RUNS = 3
"""Runs on either side from which on runs are compared, not the batches within them."""

_SAME_JOB = 0.5

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StudiedRun:
    """What was found in one run: for a comparison that is all that is needed of it."""

    name: str
    told: Fluctuation
    series: dict[tuple[str, str], CellSeries]
    lengths_s: dict[str, Values]

    @classmethod
    def of(cls, name: str, study: Study, told: ProgressCallback = ignore_progress) -> StudiedRun:
        """Of a finished study; `told` hears how far it is, 0 to 1."""
        found = study.result((ALL, JOB), told)
        return cls(name, found, study.series(), study.lengths_s())


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing in A and in B: `what` is BANDWIDTH (bits/s, means of 10 s of communication) or
    ITERATION (seconds). `before` and `after` are their medians; of several runs, the geometric
    mean of each run's.

    `change` is (B - A) / A, with its 95 % interval from `low` to `high`; `p` is the chance of such
    a difference where there is none. They are None where it could not be tested, and `untested`
    says why. `real` says that it is more than the noise. `batches` are the measurements of A and
    of B, `values` how many neighbouring values make one. The 5th percentile and the coefficient of
    variation of the same values are told as they are, untested.
    """

    what: str
    kind: str
    name: str
    before: float
    after: float
    change: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    real: bool = False
    batches: tuple[int, int] = (0, 0)
    values: int = 0
    untested: str = ""
    p5_before: float | None = None
    p5_after: float | None = None
    cov_before: float | None = None
    cov_after: float | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `headlines` are bandwidth and iterations of each job, or where there is none,
    bandwidth over all rails; `links` the rest. `unmatched` are links that only one
    side has. `by_runs` says that runs were compared.
    """

    a: tuple[str, ...]
    b: tuple[str, ...]
    a_s: float
    b_s: float
    by_runs: bool
    headlines: tuple[Difference, ...]
    links: tuple[Difference, ...]
    unmatched: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Job:
    """A job over the runs of one side: its means of 10 s, and its iterations."""

    name: str
    hosts: frozenset[str]
    seen: list[Values]
    lengths_s: list[Values]


def compare(a: Sequence[StudiedRun], b: Sequence[StudiedRun]) -> Comparison:
    """Runs of two kinds; links are matched by name, jobs by their hosts."""
    by_runs = min(len(a), len(b)) >= LEAST_RUNS
    subjects_a, subjects_b = _subjects(a), _subjects(b)
    found = [
        _tested(BANDWIDTH, *key, subjects_a[key], subjects_b[key], by_runs)
        for key in subjects_a
        if key in subjects_b
    ]
    headlines = _of_jobs(a, b, by_runs) or [each for each in found if each.kind == ALL]
    rest = _judged(
        [each for each in found if each not in headlines], significance.benjamini_hochberg
    )
    headlines = _judged(headlines, significance.holm)
    unmatched = [name for kind, name in subjects_a.keys() ^ subjects_b.keys() if kind == "link"]
    return Comparison(
        a=tuple(run.name for run in a),
        b=tuple(run.name for run in b),
        a_s=sum(run.told.watched_s for run in a),
        b_s=sum(run.told.watched_s for run in b),
        by_runs=by_runs,
        headlines=tuple(headlines),
        links=tuple(sorted(rest, key=lambda each: KINDS.index(each.kind))),
        unmatched=tuple(sorted(unmatched)),
        notes=tuple(_notes(a, b, by_runs)),
    )


def _judged(
    every: Sequence[Difference], passing: Callable[[Values, float], NDArray[np.bool_]]
) -> list[Difference]:
    """With what is real of them: what passes all tests together, and is large enough."""
    judged = list(every)
    tested = [number for number, each in enumerate(judged) if each.p is not None]
    ps = np.array([judged[number].p for number in tested], np.float64)
    for number, passes in zip(tested, passing(ps, LEVEL).tolist(), strict=True):
        is_large = abs(judged[number].change or 0.0) >= LEAST
        judged[number] = msgspec.structs.replace(judged[number], real=passes and is_large)
    return judged


def _subjects(runs: Sequence[StudiedRun]) -> dict[tuple[str, str], list[Values]]:
    """By kind and name, of those runs in which it communicated, with its means of 10 s."""
    found: dict[tuple[str, str], list[Values]] = {}
    for run in runs:
        for each in run.told.subjects:
            if each.spread is not None and each.kind != JOB:
                name = each.name if each.way in ("", "tx") else f"{each.name} {each.way}"
                key = (each.kind, name)
                found.setdefault(key, []).append(run.series[key].values)
    return found


def _of_jobs(a: Sequence[StudiedRun], b: Sequence[StudiedRun], by_runs: bool) -> list[Difference]:
    """Bandwidth and iterations of every job that both sides have, the largest first."""
    jobs, theirs = _jobs(a), _jobs(b)
    found = []
    for one in jobs:
        other = max(theirs, key=lambda each: _likeness(each.hosts, one.hosts), default=None)
        if other is not None and _likeness(other.hosts, one.hosts) >= _SAME_JOB:
            found.append(_tested(BANDWIDTH, JOB, one.name, one.seen, other.seen, by_runs))
            if any(map(len, one.lengths_s)) and any(map(len, other.lengths_s)):
                lengths = (one.lengths_s, other.lengths_s)
                found.append(_tested(ITERATION, JOB, one.name, *lengths, by_runs))
    return found


def _jobs(runs: Sequence[StudiedRun]) -> list[_Job]:
    """Jobs of one side, each once, the largest first."""
    found: list[_Job] = []
    for run in runs:
        for job in sorted(run.told.of(JOB), key=lambda each: -len(each.hosts)):
            if job.spread is None:
                continue
            hosts = frozenset(job.hosts)
            known = next(
                (each for each in found if _likeness(each.hosts, hosts) >= _SAME_JOB), None
            )
            if known is None:
                known = _Job(job.name, hosts, [], [])
                found.append(known)
            known.seen.append(run.series[JOB, job.name].values)
            if job.name in run.lengths_s:
                known.lengths_s.append(run.lengths_s[job.name])
    return found


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / max(len(one | other), 1)


def _tested(
    what: str, kind: str, name: str, a: Sequence[Values], b: Sequence[Values], by_runs: bool
) -> Difference:
    """Medians of both sides, and the test: of runs where there are enough, else of batches."""
    sides = [[each for each in side if len(each)] for side in (a, b)]
    a, b = sides
    if not a or not b:
        return Difference(
            what=what, kind=kind, name=name, before=np.nan, after=np.nan, untested="no samples"
        )
    one, other = (np.concatenate(side) for side in sides)
    told = Difference(
        what=what,
        kind=kind,
        name=name,
        before=float(np.median(one)),
        after=float(np.median(other)),
        p5_before=float(np.quantile(one, 0.05)),
        p5_after=float(np.quantile(other, 0.05)),
        cov_before=float(one.std() / one.mean()),
        cov_after=float(other.std() / other.mean()),
    )
    change = msgspec.structs.replace
    if by_runs and min(len(a), len(b)) >= LEAST_RUNS:
        one, other = (np.array([np.median(each) for each in side]) for side in sides)
        before, after = (float(np.exp(np.log(each).mean())) for each in (one, other))
        share, low, high, p = significance.welch(one, other)
        return change(
            told, before=before, after=after, change=share, low=low, high=high, p=p,
            batches=(len(a), len(b)), values=1,
        )  # fmt: skip
    found = significance.median_shift(one, other)
    if found is None:
        counts = f"{len(one)} and {len(other)} values"
        return change(told, untested=f"{counts} are too few: record longer")
    return change(
        told, change=found.share, low=found.low, high=found.high, p=found.p,
        batches=found.batches, values=found.values,
    )  # fmt: skip


def _notes(a: Sequence[StudiedRun], b: Sequence[StudiedRun], by_runs: bool) -> Iterable[str]:
    if by_runs:
        yield (
            f"Test: {len(a)} runs with {len(b)}, Welch's t on the logarithms of their medians. "
            "Assumed: runs are independent, and their medians about log-normal."
        )
    else:
        yield (
            "Test: the medians of A and B, of means of 10 s of communication or of iterations, by "
            "Welch's t; their errors by bootstrap of batches so long that neighbours are not "
            "alike. Assumed: the noise is steady within a run."
        )
        yield (
            "What differs from run to run whatever you do (placement, hashes, neighbours) is not "
            f"in this noise: {LEAST_RUNS} recordings or more of each kind have it judged too."
        )
    yield (
        f"Level: where nothing changed, the answer is yes in {LEVEL * 100:.0f} % at most (Holm); "
        f"of the rails, pairs and links that are called real, {LEVEL * 100:.0f} % may be wrong "
        f"(Benjamini-Hochberg). Less than {LEAST * 100:.1f} % is never called real. P5 and CoV are "
        "not tested."
    )
    for side, runs in (("A", a), ("B", b)):
        for note in sorted({note for run in runs for note in run.told.notes}):
            yield f"{side}: {note}"
        shown = [each for run in runs for each in run.told.of(JOB) or run.told.of(ALL)]
        moved = {each.name for each in shown if each.steps}
        if moved and not by_runs:
            yield (
                f"{side}: the level of {', '.join(sorted(moved))} changes within the run, which "
                "the test assumes it does not: fabmon fluctuate says when, fabmon cut takes a part."
            )
