"""Jobs are hosts whose traffic moves together; measured and followed on the simulator."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest

from fabmon.analysis.iteration.host_groups import group_hosts
from fabmon.analysis.iteration.iteration_tracker import IterationTracker
from fabmon.analysis.iteration.missed_iterations import MissedIterations
from fabmon.analysis.iteration.model_arithmetic import JobHints
from fabmon.analysis.iteration.results import (
    COMPUTE,
    MIXED,
    NETWORK,
    IterationReport,
    best_step_s,
    bound_by,
    exposed_at_most,
)
from fabmon.feeds.demo.scenario import parse
from fabmon.history.history import History
from fabmon.report.scene_report import JsonLines
from tests.builders import SECOND_NS, LeafSpine
from tests.goldens import check_golden
from tests.tui.recordings import FAST, Watching
from tests.unit.iteration.recorded_jobs import JOBS, Play
from tests.unit.iteration.waves import Wave

GOLDENS = Path(__file__).parents[1] / "goldens"
SCHEMA = Path(__file__).parents[3] / "docs" / "jsonl.schema.json"


def test_three_jobs_are_distinguished_and_measured() -> None:
    play = Play()
    iteration_report = play.scenes(110)[-1].iteration_report
    assert iteration_report.shortest_s == 3
    assert [set(job.hosts) for job in iteration_report.jobs] == [
        play.hosts_of(0),
        play.hosts_of(1),
        play.hosts_of(2),
    ]
    llama, moe, small = iteration_report.jobs
    for number, job in enumerate(iteration_report.jobs):
        assert job.step_s == pytest.approx(play.step_s(number, 10), rel=0.02)
        assert job.hosts_sure
        assert job.resolved
    # An all-reduce among n moves 2(n-1)/n of the payload, an all-to-all (n-1)/n.
    for job, payload in ((llama, 80e9 * 1.75), (moe, 40e9 * 0.75), (small, 12e9 * 1.5)):
        for count in job.rail_bytes:
            assert count == pytest.approx(payload, rel=0.02)
    assert llama.bound == NETWORK
    assert llama.line_share == pytest.approx(0.8, rel=0.02)
    assert small.bound == COMPUTE


def test_a_longer_step_is_one_event_and_its_previous_value_is_known() -> None:
    play = Play()
    scenes = play.scenes(200)
    llama = scenes[-1].iteration_report.jobs[0]
    assert llama.step_was is not None
    assert llama.step_was.was == pytest.approx(5.5, rel=0.02)
    at_s = (llama.step_was.at_ns - scenes[0].snapshot.time_ns) / 1e9
    assert at_s == pytest.approx(120, abs=11)
    assert llama.step_s == pytest.approx(10, rel=0.1)
    assert llama.line_share == pytest.approx(0.35, abs=0.05)
    assert llama.best_step_s == pytest.approx(5.5, rel=0.1)
    texts = [event.text for event in scenes[-1].events if event.kind == "iteration"]
    assert len([text for text in texts if text.startswith("step time 5.5")]) == 1
    assert all("8801 llama (anna)" in text for text in texts), texts
    assert len(texts) <= 2


def test_steps_that_may_be_aliases_have_no_event_of_a_change() -> None:
    """Steps of 1.2 s look like 5.2 s; what those seem to send changed from 98 to 52 GB."""
    watching = Watching(FAST)
    scenes = [watching.next() for _ in range(220)]
    assert {job.resolved for scene in scenes for job in scene.iteration_report.jobs} == {False}
    assert not [event for scene in scenes for event in scene.events]
    (job,) = scenes[-1].iteration_report.jobs
    assert (job.step_was, job.comm_was, job.bytes_was) == (None, None, None)
    assert job.step_words.endswith(" s or less")


def test_a_job_that_stops_is_reported_after_ten_steps() -> None:
    scenario = parse(JOBS)
    llama, moe, small = scenario.job
    stopping = msgspec.structs.replace(moe, stop=60.0)
    play = Play(msgspec.structs.replace(scenario, job=(llama, stopping, small)))
    scenes = play.scenes(110)
    texts = [event.text for event in scenes[-1].events if event.kind == "iteration"]
    assert texts == ["no iterations any more, the step time was 3.50 s: gpu005 +3"]
    assert len(scenes[-1].iteration_report.jobs) == 2


def test_a_job_that_is_only_disturbed_has_no_event_and_one_that_stops_has_two() -> None:
    """It sends all the time, and is measured again; then it pauses, the clock is set back, and it
    goes on."""
    fabric = LeafSpine(uplinks=2, hosts=4, rate_bps=100e6)
    history, iteration_tracker = History(fabric.hosts), IterationTracker()
    texts: list[str] = []
    steps = [0]

    def seconds(count: int, sends: Callable[[int], bool]) -> None:
        for _ in range(count):
            for server in fabric.servers:
                fabric.sent[f"{server}/eth0"] = 60e6 * sends(fabric.seq)
            report, new = iteration_tracker.accept(history.accept(fabric.step()))
            texts.extend(text for text in new if "iterations" in text)
            steps.append(len(report.jobs))

    def regular(seq: int) -> bool:
        return seq % 8 < 3

    noise = np.random.default_rng(4).random(1000) < 0.4
    seconds(120, regular)
    assert steps[-1] == 1
    seconds(150, lambda seq: bool(noise[seq]))
    assert steps[-1] == 0
    seconds(150, regular)
    assert steps[-1] == 1
    assert texts == []
    seconds(75, lambda _: False)
    fabric.clock_off_ns = -7200 * SECOND_NS
    seconds(75, lambda _: False)
    assert [text.partition(",")[0] for text in texts] == ["no iterations any more"]
    seconds(150, regular)
    assert [text.partition(",")[0] for text in texts[1:]] == ["iterations again"]
    assert "step time 7.9" in texts[1]


def test_jobs_that_become_one_are_no_longer_shown_beside_it() -> None:
    fabric = LeafSpine(uplinks=2, hosts=9)
    history, iteration_tracker = History(fabric.hosts), IterationTracker()

    def seconds(count: int, steps_s: tuple[int, int, int]) -> IterationReport:
        for _ in range(count):
            for number, server in enumerate(fabric.servers):
                step_s = steps_s[number // 3]
                sends = fabric.seq % step_s < step_s / 2
                fabric.sent[f"{server}/eth0"] = 60e6 * sends
            iteration_report, _ = iteration_tracker.accept(history.accept(fabric.step()))
        return iteration_report

    before = seconds(120, (8, 11, 14))
    assert [job.hosts[0] for job in before.jobs] == ["gpu001", "gpu004", "gpu007"]
    (after,) = seconds(150, (10, 10, 10)).jobs
    assert after.hosts == tuple(fabric.servers)


def test_acknowledgements_that_repeat_are_no_training() -> None:
    fabric = LeafSpine(uplinks=2, hosts=4, rate_bps=100e6)
    history, iteration_tracker = History(fabric.hosts), IterationTracker()
    changes: list[str] = []

    def seconds(count: int, bps: float) -> IterationReport:
        for _ in range(count):
            for server in fabric.servers:
                fabric.sent[f"{server}/eth0"] = bps * (fabric.seq % 8 < 3)
            iteration_report, new = iteration_tracker.accept(history.accept(fabric.step()))
            changes.extend(new)
        return iteration_report

    assert seconds(120, 0.5e6).jobs == ()
    assert seconds(120, 0.0).jobs == ()
    assert changes == []
    assert len(seconds(120, 60e6).jobs) == 1


def test_iterations_as_jsonl() -> None:
    play = Play(
        hints=JobHints(params=70e9, dp=8, tp=8, seq_len=8192, global_batch=32, peak_tflops=989)
    )
    lines = JsonLines()
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    records = []
    for scene in play.scenes(220):
        for line in lines.lines(scene, np.zeros(len(scene.snapshot.fabric.ports), bool)):
            record = json.loads(line)
            if record["type"] == "iteration":
                validator.validate(record)
                records.append(record)
    assert len(records) < 20
    check_golden(GOLDENS / "iterations.jsonl", "".join(json.dumps(each) + "\n" for each in records))


def test_hosts_that_move_together_are_grouped_whatever_their_level() -> None:
    rng = np.random.default_rng(0)
    jobs = [Wave(4.4, 0.6), Wave(6.2, 0.4), Wave(9.1, 0.5)]
    curves = [job.samples(90, rng)[0] for job in jobs]
    owner = rng.integers(0, 3, 60)
    level = rng.uniform(0.2, 2, 60)
    activity = np.stack([curves[who] for who in owner]) * level[:, None]
    activity *= 1 + 0.05 * rng.standard_normal(activity.shape)
    activity[3, 20:30] = np.nan
    groups = group_hosts(activity)
    assert all(group.is_sure for group in groups)
    seen = {frozenset(group.members) for group in groups}
    assert seen == {frozenset(np.flatnonzero(owner == who).tolist()) for who in range(3)}


def test_hosts_that_are_idle_or_steady_or_unknown_are_in_no_group() -> None:
    wave = Wave(4.4).samples(90, np.random.default_rng(0))[0]
    quiet = np.stack([wave, wave, np.zeros(90), np.full(90, 0.5), np.full(90, np.nan)])
    (group,) = group_hosts(quiet)
    assert group.members == (0, 1)
    assert group_hosts(quiet[2:]) == []
    assert group_hosts(np.empty((0, 90))) == []


def test_jobs_with_similar_traffic_are_not_certain() -> None:
    rng = np.random.default_rng(0)
    one = Wave(6.0, 0.5).samples(90, rng)[0]
    other = Wave(6.0, 0.5, phase=0.06).samples(90, rng)[0]
    groups = group_hosts(np.stack([one] * 4 + [other] * 4) + 0.3 * rng.standard_normal((8, 90)))
    assert not any(group.is_sure for group in groups)


def test_the_limit_of_a_job_is_empty_where_it_is_uncertain() -> None:
    assert bound_by(0.05, 0.15, 0.8) == COMPUTE
    assert bound_by(0.3, 0.4, 0.8) == MIXED
    assert bound_by(0.1, 0.6, 0.8) == ""
    assert best_step_s(10, 0.8, 140e9, 400e9) == pytest.approx(2 + 3.5)
    assert best_step_s(5, 0.6, 140e9, 400e9) == 5


def test_network_bound_are_rails_at_their_limit_while_computing_has_to_wait() -> None:
    assert bound_by(0.76, 0.76, 0.78) == NETWORK
    # The rails have room: computing that overlaps with communication paces it.
    assert bound_by(0.76, 0.76, 0.35) == ""
    assert bound_by(0.76, 0.76, None) == ""
    # Computing takes 55 % of the step at least, so that 45 % can wait at most.
    assert exposed_at_most(0.76, 0.55) == pytest.approx(0.45)
    assert bound_by(0.76, 0.76, 0.78, mfu=0.55) == ""
    assert bound_by(0.76, 0.76, 0.78, mfu=0.2) == NETWORK


def test_the_rate_that_hides_communication_is_between_what_the_step_and_its_pauses_need() -> None:
    job = Play().scenes(110)[-1].iteration_report.jobs[0]
    least, most = job.needed_bps
    # 140 GB in 5.5 s, 2.0 s of which are computing alone.
    assert least == pytest.approx(140e9 * 8 / 5.5, rel=0.03)
    assert most == pytest.approx(140e9 * 8 / 2.0, rel=0.03)
    always = msgspec.structs.replace(job, comm_high=1.0)
    assert always.needed_bps[1] is None


def test_a_job_whose_hosts_are_not_read_is_not_said_to_have_no_iterations() -> None:
    """Their connections are lost; nobody knows whether it goes on."""
    last: Any = SimpleNamespace(
        hosts=("a", "b"),
        step_s=2.0,
        step_words="2.00 s",
        line_rate_bps=400e9,
        rail_bytes=(1,),
        name="job 1",
    )
    rates = np.full((30, 2), np.nan, np.float32)
    traffic: Any = SimpleNamespace(hosts=("a", "b"), of_hosts=lambda ticks: rates[-ticks:])

    def at(second: int) -> Any:
        return SimpleNamespace(seq=second, interval_s=1.0)

    missed = MissedIterations(0.03)
    missed.lose(last, at(0))
    assert missed.due(traffic, at(60)) == []
    rates[:] = 0
    assert missed.due(traffic, at(61)) == [
        "no iterations any more, the step time was 2.00 s: job 1"
    ]
