"""Comparison of two runs, or of several of each kind: what changed by more than the noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.fluctuation import significance
from fabmon.analysis.fluctuation.results import ALL, JOB, KINDS, LINK, PAIR, RAIL, Fluctuation
from fabmon.analysis.fluctuation.study import ProgressCallback, Study, ignore_progress
from fabmon.analysis.fluctuation.trends import CellSeries
from fabmon.analysis.iteration.host_groups import SAME_JOB, host_similarity
from fabmon.fabric.jobs.job import Job

BANDWIDTH, ITERATION = "bandwidth", "iteration"

LEVEL = 0.05
"""Chance to call any headline real where nothing changed; share of false ones among the links."""

MIN_CHANGE = 0.005
"""Share of the value before: a smaller difference is not called real, however certain it is."""

MIN_RUNS = 3
"""Runs on either side from which on runs are compared, not the batches within them."""

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StudiedRun:
    """What a comparison needs of one run: results, means of 10 s of each subject by kind and name,
    and lengths of iterations by job."""

    name: str
    result: Fluctuation
    series: dict[tuple[str, str], CellSeries]
    lengths_s: dict[str, Values]

    @classmethod
    def of(
        cls, name: str, study: Study, on_progress: ProgressCallback = ignore_progress
    ) -> StudiedRun:
        """The run of a finished study."""
        result = study.result((ALL, JOB), on_progress)
        return cls(name, result, study.series(), study.lengths_s())


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One subject in A and in B: `what` is BANDWIDTH (bits/s, means of 10 s of communication) or
    ITERATION (seconds). `before` and `after` are their medians; of several runs, the geometric
    mean of the medians of the runs.

    `change` is (B - A) / A, with its 95 % interval from `low` to `high`; `p` is the chance of such
    a difference where there is none. They are None where it could not be tested; `untested` is the
    reason. `real`: the difference is more than the noise. `batches` is the number of measurements
    of A and of B, `values` the number of neighbouring values in each. The 5th percentile and the
    coefficient of variation of the same values are not tested.
    """

    what: str
    kind: str
    name: str
    display_name: str = ""
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

    @property
    def label(self) -> str:
        """The name by which it is shown."""
        return self.display_name or self.name


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All differences. `headlines` are bandwidth and iterations of each job, or where there is no
    job, bandwidth over all rails; `links` are the others. `unmatched` are links that only one side
    has, `unmatched_labels` their display names. `by_runs`: runs were compared, not batches.
    `identical`: A and B are the same measurements, value by value.
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
    unmatched_labels: tuple[str, ...] = ()
    identical: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """A job over the runs of one side: its means of 10 s and lengths of iterations, by run. `job`
    is the scheduler's, None of hosts whose traffic moves together."""

    name: str
    job: Job | None
    hosts: frozenset[str]
    bandwidth_bps: list[Values]
    lengths_s: list[Values]


def compare(a: Sequence[StudiedRun], b: Sequence[StudiedRun]) -> Comparison:
    """Compare runs of two kinds; links are matched by name, jobs by what the scheduler
    calls them where both sides know that, else by their hosts.

    Of identical measurements every difference is 0, from 0 to 0: a test assumes that the noise of A
    and of B is independent.
    """
    by_runs = min(len(a), len(b)) >= MIN_RUNS
    subjects_a, subjects_b = _subjects(a), _subjects(b)
    labels = {(each.kind, each.key): each.label for run in (*b, *a) for each in run.result.subjects}
    differences = [
        msgspec.structs.replace(
            _tested(BANDWIDTH, *key, subjects_a[key], subjects_b[key], by_runs),
            display_name=labels[key],
        )
        for key in subjects_a
        if key in subjects_b
    ]
    headlines = _of_jobs(a, b, by_runs) or [each for each in differences if each.kind == ALL]
    others = [each for each in differences if each not in headlines]
    others = _judged(others, significance.benjamini_hochberg)
    headlines = _judged(headlines, significance.holm)
    identical = _are_identical(a, b)
    if identical:
        headlines, others = (list(map(_none, side)) for side in (headlines, others))
    unmatched = sorted(key for kind, key in subjects_a.keys() ^ subjects_b.keys() if kind == LINK)
    return Comparison(
        a=tuple(run.name for run in a),
        b=tuple(run.name for run in b),
        a_s=sum(run.result.watched_s for run in a),
        b_s=sum(run.result.watched_s for run in b),
        by_runs=by_runs,
        headlines=tuple(headlines),
        links=tuple(sorted(others, key=lambda each: KINDS.index(each.kind))),
        unmatched=tuple(unmatched),
        unmatched_labels=tuple(labels[LINK, key] for key in unmatched),
        notes=() if identical else tuple(_notes(a, b, by_runs)),
        identical=identical,
    )


def _are_identical(a: Sequence[StudiedRun], b: Sequence[StudiedRun]) -> bool:
    """Whether both sides are the same values of the same subjects, in the same order."""
    return len(a) == len(b) and all(
        bool(one.series)
        and one.series.keys() == other.series.keys()
        and all(
            np.array_equal(each.values, other.series[key].values)
            for key, each in one.series.items()
        )
        for one, other in zip(a, b, strict=True)
    )


def _none(each: Difference) -> Difference:
    """A subject of identical measurements: no difference."""
    return msgspec.structs.replace(
        each, change=0.0, low=0.0, high=0.0, p=1.0, real=False, untested=""
    )


def _judged(
    every: Sequence[Difference], passing: Callable[[Values, float], NDArray[np.bool_]]
) -> list[Difference]:
    """The differences, `real` where they pass all tests together and are large enough."""
    judged = list(every)
    tested = [number for number, each in enumerate(judged) if each.p is not None]
    ps = np.array([judged[number].p for number in tested], np.float64)
    for number, passes in zip(tested, passing(ps, LEVEL).tolist(), strict=True):
        is_large = abs(judged[number].change or 0.0) >= MIN_CHANGE
        judged[number] = msgspec.structs.replace(judged[number], real=passes and is_large)
    return judged


def _subjects(runs: Sequence[StudiedRun]) -> dict[tuple[str, str], list[Values]]:
    """By kind and name, the means of 10 s of each run in which the subject communicated."""
    subjects: dict[tuple[str, str], list[Values]] = {}
    for run in runs:
        for each in run.result.subjects:
            if each.spread is not None and each.kind in (ALL, RAIL, PAIR, LINK):
                key = (each.kind, each.key)
                subjects.setdefault(key, []).append(run.series[key].values)
    return subjects


def _of_jobs(a: Sequence[StudiedRun], b: Sequence[StudiedRun], by_runs: bool) -> list[Difference]:
    """Bandwidth and iterations of every job that both sides have, the largest first."""
    ones, others = _jobs(a), _jobs(b)
    same = _same_jobs(ones, others)
    differences = []
    for index, one in enumerate(ones):
        if index not in same:
            continue
        other = others[same[index]]
        bandwidths = (one.bandwidth_bps, other.bandwidth_bps)
        differences.append(_tested(BANDWIDTH, JOB, one.name, *bandwidths, by_runs))
        if any(map(len, one.lengths_s)) and any(map(len, other.lengths_s)):
            lengths = (one.lengths_s, other.lengths_s)
            differences.append(_tested(ITERATION, JOB, one.name, *lengths, by_runs))
    return differences


def _jobs(runs: Sequence[StudiedRun]) -> list[_Job]:
    """The jobs of one side, each once, the largest first."""
    jobs: list[_Job] = []
    for run in runs:
        subjects = sorted(run.result.of(JOB), key=lambda each: -len(each.hosts))
        own = [
            _Job(
                name=each.name,
                job=each.job,
                hosts=frozenset(each.hosts),
                bandwidth_bps=[run.series[JOB, each.name].values],
                lengths_s=[run.lengths_s[each.name]] if each.name in run.lengths_s else [],
            )
            for each in subjects
            if each.spread is not None
        ]
        # Two jobs of one run are two, whatever their names.
        same = _same_jobs(own, jobs)
        for index, each in enumerate(own):
            if index in same:
                known = jobs[same[index]]
                known.bandwidth_bps.extend(each.bandwidth_bps)
                known.lengths_s.extend(each.lengths_s)
            else:
                jobs.append(each)
    return jobs


def _same_jobs(ones: Sequence[_Job], others: Sequence[_Job]) -> dict[int, int]:
    """The places of the same jobs in two lists, each once; the most similar are matched first."""
    scored = [
        (-similarity, place, other_place)
        for place, one in enumerate(ones)
        for other_place, other in enumerate(others)
        if (similarity := _similarity(one, other)) >= 0
    ]
    found: dict[int, int] = {}
    for _, place, other_place in sorted(scored):
        if place not in found and other_place not in found.values():
            found[place] = other_place
    return found


def _similarity(one: _Job, other: _Job) -> float:
    """How sure it is that two jobs are the same, 0 to 3; negative where they are not."""
    similarity = host_similarity(one.hosts, other.hosts)
    identity = None if one.job is None or other.job is None else _identity(one.job, other.job)
    if identity is None:
        return similarity if similarity >= SAME_JOB else -1.0
    return identity + similarity if identity else -1.0


def _identity(one: Job, other: Job) -> int | None:
    """How sure it is that two jobs of a scheduler are the same: 2 by their number, 1 by name, user
    and partition, as when it was submitted again, 0 where they are different jobs.

    None where that is not known: hosts decide then. Numbers without names are not compared: those
    of redacted recordings are pseudonyms.
    """
    name, other_name = _name(one), _name(other)
    if not name and not other_name:
        return None
    if name and other_name and name != other_name:
        return 0
    if one.scheduler == other.scheduler and one.id and one.id == other.id:
        return 2
    if not name or not other_name:
        return None
    same = ("scheduler", "user", "partition")
    return int(all(getattr(one, key) == getattr(other, key) for key in same))


def _name(job: Job) -> str:
    """The name of a job, which Kubernetes has in the id (`research/llama-70b`); empty: unknown."""
    return job.name or (job.id if "/" in job.id else "")


def _tested(
    what: str, kind: str, name: str, a: Sequence[Values], b: Sequence[Values], by_runs: bool
) -> Difference:
    """Medians of both sides, and the test: of runs where there are enough, else of batches."""
    sides = [[each for each in side if len(each)] for side in (a, b)]
    if not all(sides):
        return Difference(
            what=what, kind=kind, name=name, before=np.nan, after=np.nan, untested="no samples"
        )
    one, other = (np.concatenate(side) for side in sides)
    difference = Difference(
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
    if by_runs and min(map(len, sides)) >= MIN_RUNS:
        medians = (np.array([np.median(each) for each in side]) for side in sides)
        shift = significance.shift_of_runs(*medians)
    else:
        found = significance.median_shift(one, other)
        if found is None:
            reason = _too_few(what, len(one), len(other))
            return msgspec.structs.replace(difference, untested=reason)
        shift = found
    return msgspec.structs.replace(
        difference,
        before=shift.before,
        after=shift.after,
        change=shift.share,
        low=shift.low,
        high=shift.high,
        p=shift.p,
        batches=shift.batches,
        values=shift.values,
    )


def _too_few(what: str, one: int, other: int) -> str:
    """Why two sides are not tested, and how much longer they must be recorded."""
    each = "10 s of communication" if what == BANDWIDTH else "an iteration"
    needed = " and ".join(
        f"{side} at least {-(-significance.MIN_BATCHES // count)} times as long"
        for side, count in (("A", one), ("B", other))
        if count < significance.MIN_BATCHES
    )
    return (
        f"{one} and {other} values, of {significance.MIN_BATCHES} that each side needs (a value is"
        f" {each}): record {needed}"
    )


def _notes(a: Sequence[StudiedRun], b: Sequence[StudiedRun], by_runs: bool) -> Iterable[str]:
    if by_runs:
        yield (
            f"Test: {len(a)} runs against {len(b)}, Welch's t on the logarithms of their medians. "
            "Assumed: runs are independent, and their medians have a log-normal distribution."
        )
    else:
        yield (
            "Test: the medians of A and B, of means of 10 s of communication or of iterations, by "
            "Welch's t; their errors by bootstrap of batches so long that neighbouring batches are "
            "not correlated. Assumed: the noise is stationary within a run."
        )
        yield (
            "Differences between any two runs (placement, hashes, other traffic) are not part of "
            f"this noise: with {MIN_RUNS} recordings or more of each kind they are."
        )
    yield (
        f"Level: where nothing changed, the answer is yes in {LEVEL * 100:.0f} % of cases at most "
        f"(Holm); of the rails, pairs and links that are called real, {LEVEL * 100:.0f} % may be "
        f"wrong (Benjamini-Hochberg). Less than {MIN_CHANGE * 100:.1f} % is never called real. P5 "
        "and CoV are not tested."
    )
    for side, runs in (("A", a), ("B", b)):
        for note in sorted({note for run in runs for note in run.result.notes}):
            yield f"{side}: {note}"
        headlines = [each for run in runs for each in run.result.of(JOB) or run.result.of(ALL)]
        unsteady = {each.name for each in headlines if each.steps}
        if unsteady and not by_runs:
            yield (
                f"{side}: the level of {', '.join(sorted(unsteady))} changes within the run, which "
                "the test assumes it does not. fabmon fluctuate shows when; fabmon cut extracts a "
                "part."
            )
