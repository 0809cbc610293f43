"""Comparisons of simulated runs on shared uplinks: is a change of 8 % real?"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from fabmon.analysis.fluctuation.comparison import (
    BANDWIDTH,
    ITERATION,
    Comparison,
    StudiedRun,
    compare,
)
from fabmon.analysis.fluctuation.results import JOB
from fabmon.analysis.fluctuation.study import Study
from fabmon.analysis.fluctuation.trends import CellSeries
from fabmon.fabric.jobs.job import KUBERNETES, Job
from fabmon.fabric.model import RAIL
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.history.chunk_rates import RateChunk
from fabmon.history.history import History
from tests.unit.fluctuation.recorded_runs import shared

SECONDS = 300


@pytest.fixture(scope="module")
def runs() -> Callable[[int, float], StudiedRun]:
    """Runs of the simulated fabric by seed and demand, each played once."""
    known: dict[tuple[int, float], StudiedRun] = {}

    def run(seed: int, demand: float = 0.8) -> StudiedRun:
        if (seed, demand) not in known:
            known[seed, demand] = _played(seed, demand)
        return known[seed, demand]

    return run


def _played(seed: int, demand: float) -> StudiedRun:
    """Five minutes as a rate chunk, without a file."""
    feed = DemoFeed(shared(seed, demand))
    history = History(feed.hosts)
    tx, rx = [], []
    for _ in range(SECONDS):
        snapshot = history.accept(feed.step())
        tx.append(snapshot.column("tx_bps"))
        rx.append(snapshot.column("rx_bps"))
    study = Study()
    for begin in range(0, SECONDS, 300):
        part = slice(begin, begin + 300)
        study.accept(
            RateChunk(
                begin * 10**9, 1.0, snapshot.fabric, np.stack(tx[part]), np.stack(rx[part]),
                snapshot.line_rate_bps,
            )
        )  # fmt: skip
    assert any(port.role == RAIL for port in snapshot.fabric.ports)
    return StudiedRun.of(f"seed {seed}", study)


def _answers(found: Comparison, what: str) -> list[bool]:
    return [each.real for each in found.headlines if each.what == what]


def test_healthy_runs_of_other_seeds_differ_no_more_often_than_the_level(
    runs: Callable[[int, float], StudiedRun],
) -> None:
    """15 pairs of 6 runs: 5 % is 0.75 a question; more than 3 comes once in 200 times."""
    seeds = range(1, 7)
    alarms = {BANDWIDTH: 0, ITERATION: 0}
    for a in seeds:
        for b in range(a + 1, 7):
            found = compare([runs(a, 0.8)], [runs(b, 0.8)])
            for what in alarms:
                answers = _answers(found, what)
                assert answers
                alarms[what] += answers[0]
    assert alarms[BANDWIDTH] <= 3
    assert alarms[ITERATION] <= 3


def test_eight_percent_less_is_real(runs: Callable[[int, float], StudiedRun]) -> None:
    for seed in (1, 2):
        found = compare([runs(seed, 0.8)], [runs(seed + 10, 0.736)])
        bandwidth, iteration = found.headlines[:2]
        assert (bandwidth.what, iteration.what) == (BANDWIDTH, ITERATION)
        assert iteration.real
        assert iteration.low is not None
        assert iteration.low > 0
        assert bandwidth.change is not None
        assert bandwidth.change < 0


def test_three_runs_of_each_are_compared_as_runs(runs: Callable[[int, float], StudiedRun]) -> None:
    a = [runs(seed, 0.8) for seed in (1, 2, 3)]
    b = [runs(seed, 0.736) for seed in (11, 12, 13)]
    found = compare(a, b)
    assert found.by_runs
    assert _answers(found, ITERATION)[0]
    assert found.headlines[0].batches == (3, 3)


def test_a_run_that_is_too_short_says_how_long_it_must_be(
    runs: Callable[[int, float], StudiedRun],
) -> None:
    whole = runs(1, 0.8)
    short = replace(
        whole,
        series={key: CellSeries(s.at_ns[:3], s.values[:3]) for key, s in whole.series.items()},
        lengths_s={name: lengths[:5] for name, lengths in whole.lengths_s.items()},
    )
    bandwidth, iteration = compare([short], [runs(2, 0.8)]).headlines[:2]
    assert bandwidth.untested.startswith("3 and ")
    assert bandwidth.untested.endswith(
        "of 8 that each side needs (a value is 10 s of communication): record A at least 3 times"
        " as long"
    )
    assert iteration.untested.endswith(
        "(a value is an iteration): record A at least 2 times as long"
    )


def test_a_comparison_is_json(runs: Callable[[int, float], StudiedRun]) -> None:
    found = compare([runs(1, 0.8)], [runs(2, 0.8)])
    decoded = json.loads(msgspec.json.encode(found))
    assert decoded["headlines"][0]["what"] == BANDWIDTH
    assert {each["kind"] for each in decoded["links"]} == {"all", "rail", "pair", "link"}
    assert msgspec.json.decode(msgspec.json.encode(found), type=Comparison) == found


LLAMA = Job(id="8801", name="llama-70b", user="anna", partition="train")
FIRST, SECOND = [f"gpu{n:03}" for n in range(1, 5)], [f"gpu{n:03}" for n in range(5, 9)]


def _with_job(run: StudiedRun, job: Job | None, hosts: list[str]) -> StudiedRun:
    """The run with one job, whose traffic is that of the first of its jobs."""
    first = run.result.of(JOB)[0]
    name = job.label if job is not None else f"{hosts[0]} +{len(hosts) - 1}"
    subject = msgspec.structs.replace(first, name=name, job=job, hosts=tuple(hosts))
    others = tuple(each for each in run.result.subjects if each.kind != JOB)
    result = msgspec.structs.replace(run.result, subjects=(*others, subject))
    series = {**run.series, (JOB, name): run.series[JOB, first.name]}
    return replace(run, result=result, series=series, lengths_s={})


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        ((LLAMA, FIRST), (LLAMA, SECOND), True),
        ((LLAMA, FIRST), (msgspec.structs.replace(LLAMA, id="8915"), SECOND), True),
        ((LLAMA, FIRST), (msgspec.structs.replace(LLAMA, id="8915", name="vit"), FIRST), False),
        ((LLAMA, FIRST), (msgspec.structs.replace(LLAMA, id="8915", user="ben"), FIRST), False),
        ((LLAMA, FIRST), (msgspec.structs.replace(LLAMA, name="vit"), FIRST), False),
        ((LLAMA, FIRST), (Job(id="8801"), SECOND), True),
        ((LLAMA, FIRST), (Job(id="8915"), FIRST), True),
        ((LLAMA, FIRST), (Job(id="8915"), SECOND), False),
        ((LLAMA, FIRST), (None, FIRST), True),
        ((LLAMA, FIRST), (None, SECOND), False),
        ((None, FIRST), (None, FIRST), True),
        ((Job(id="1"), FIRST), (Job(id="1"), SECOND), False),
        (
            (Job(scheduler=KUBERNETES, id="a/x"), FIRST),
            (Job(scheduler=KUBERNETES, id="a/x"), SECOND),
            True,
        ),
        (
            (Job(scheduler=KUBERNETES, id="a/x"), FIRST),
            (Job(scheduler=KUBERNETES, id="a/y"), FIRST),
            False,
        ),
    ],
)
def test_jobs_are_those_of_the_scheduler_where_both_know_them_else_those_of_their_hosts(
    runs: Callable[[int, float], StudiedRun],
    before: tuple[Job | None, list[str]],
    after: tuple[Job | None, list[str]],
    is_same: bool,
) -> None:
    a, b = _with_job(runs(1, 0.8), *before), _with_job(runs(2, 0.8), *after)
    found = [each.name for each in compare([a], [b]).headlines if each.kind == JOB]
    assert found == ([a.result.of(JOB)[0].name] if is_same else [])


def _with_both(one: StudiedRun, two: StudiedRun) -> StudiedRun:
    """The first run, with the job of the second too."""
    (other,) = two.result.of(JOB)
    subjects = (*one.result.subjects, other)
    result = msgspec.structs.replace(one.result, subjects=subjects)
    return replace(one, result=result, series={**one.series, **two.series})


def test_two_jobs_of_one_name_in_a_run_are_two(runs: Callable[[int, float], StudiedRun]) -> None:
    one = _with_job(runs(1, 0.8), LLAMA, FIRST)
    two = _with_job(runs(1, 0.8), msgspec.structs.replace(LLAMA, id="8802"), SECOND)
    both = _with_both(one, two)
    found = compare([both], [both]).headlines
    assert {each.name for each in found} == {LLAMA.label, two.result.of(JOB)[0].name}


def test_a_job_that_runs_on_is_not_taken_for_another_of_its_name(
    runs: Callable[[int, float], StudiedRun],
) -> None:
    """8801 and 8802 run; then 8802, on other hosts, and 8803."""
    second, third = (msgspec.structs.replace(LLAMA, id=each) for each in ("8802", "8803"))
    before = _with_both(
        _with_job(runs(1, 0.8), LLAMA, FIRST), _with_job(runs(1, 0.8), second, SECOND)
    )
    elsewhere = [f"gpu{n:03}" for n in range(9, 13)]
    after = _with_both(
        _with_job(runs(1, 0.8), second, elsewhere), _with_job(runs(2, 0.8), third, ["gpu013"] * 4)
    )
    found = {each.name: each for each in compare([before], [after]).headlines}
    assert found[second.label].change == pytest.approx(0), "the same values"
    assert found[LLAMA.label].change != pytest.approx(0)


def test_runs_with_nothing_in_common(
    tmp_path: Path, runs: Callable[[int, float], StudiedRun]
) -> None:
    nothing = StudiedRun.of("empty", Study())
    one = runs(1, 0.8)
    for found in (compare([one], [nothing]), compare([nothing], [one])):
        assert found.headlines == ()
        assert len(found.unmatched) > 8
        assert len(found.unmatched_labels) == len(found.unmatched)
        assert "gpu001 r0" in found.unmatched_labels
        assert not any("/" in label for label in found.unmatched_labels)
