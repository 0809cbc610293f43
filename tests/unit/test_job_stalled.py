"""A job that iterated and falls silent: stalled while its queue pairs are open, or where there are
none while Slurm reports it as running; else ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fabmon.analysis.finding import Change, Finding
from fabmon.analysis.scene import Scene
from fabmon.fabric.jobs.job import Job, JobReport
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Frame
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import parse
from tests.builders import SECOND_NS, LeafSpine, Watched, new_pipeline

JOB = """
[topology]
kind = "rail"
hosts = 4
rails = 2
routing = "spray"
[[job]]
name = "train"
compute_s = 2.0
payload_gb = 40.0
demand = 0.7
qps = 2
"""
ITERATES_S, SILENT_S = 90, 60


class Stopped:
    """Counters that stand still from some second on, while clocks run: nothing is exchanged."""

    def __init__(self) -> None:
        self._last: dict[str, Frame] = {}

    def tick(self, tick: Tick, *, is_silent: bool) -> Tick:
        if not is_silent:
            self._last = dict(tick.frames)
            return tick
        frames = tuple((node, self._still(node, frame)) for node, frame in tick.frames)
        return msgspec.structs.replace(tick, frames=frames)

    def _still(self, node: str, frame: Frame) -> Frame:
        blocks = [
            None if block is None or before is None else [block[0], *before[1:]]
            for block, before in zip(frame.blocks, self._last[node].blocks, strict=True)
        ]
        return msgspec.structs.replace(frame, blocks=blocks)


def opened(text: str, *, stands_still: bool) -> list[tuple[int, str]]:
    """What opens, and at which second after the job fell silent."""
    feed = DemoFeed(parse(text))
    pipeline, stopped = new_pipeline(feed.hosts), Stopped()
    found = []
    for second in range(ITERATES_S + SILENT_S):
        is_silent = stands_still and second >= ITERATES_S
        scene = pipeline.accept(stopped.tick(feed.step(), is_silent=is_silent))
        found += [
            (second - ITERATES_S, finding.cause)
            for change, finding in scene.changes
            if change is Change.OPEN
        ]
    return found


def stalled_scene() -> Scene:
    """The scene at which the job is found stalled."""
    feed = DemoFeed(parse(JOB))
    pipeline, stopped = new_pipeline(feed.hosts), Stopped()
    for second in range(ITERATES_S + SILENT_S):
        scene = pipeline.accept(stopped.tick(feed.step(), is_silent=second >= ITERATES_S))
        if scene.findings:
            break
    return scene


def test_a_silent_job_whose_queue_pairs_are_open_is_stalled() -> None:
    ((after_s, cause),) = opened(JOB, stands_still=True)
    assert cause == "job_stalled"
    assert 28 <= after_s <= 45


def test_a_job_that_ends_closes_its_queue_pairs_and_is_not_stalled() -> None:
    assert opened(f"{JOB}stop = {ITERATES_S}.0\n", stands_still=False) == []


HOSTS, STEP_S, PERIOD_S, SILENT_AGAIN_S = 8, 6, 30, 80
RATE = 100e9
RUNS = Job(id="8801", name="llama", nodes=tuple(f"gpu{n:03}" for n in range(1, HOSTS + 1)))

Asked = Callable[[int], tuple[Job, ...] | None]
"""What Slurm reports when it is asked at a second; None where it does not answer."""


def found_with_slurm(
    asked: Asked, *, offset_s: int = 0, not_begun: tuple[int, ...] = (), clock_off_s: int = 0
) -> list[tuple[int, Finding]]:
    """What opens, and at which second after the job fell silent. It has no queue pairs.

    Slurm is asked every 30 s, `offset_s` after it. Where some hosts have not begun the last
    exchange, the others have begun it. The clock is set by `clock_off_s` as it falls silent.
    """
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))
    made, known = watched.fabric.step, list[tuple[Job, ...]]()

    def step() -> Tick:
        tick = made()
        if (tick.seq - ITERATES_S - offset_s) % PERIOD_S:
            return tick
        jobs = asked(tick.seq - ITERATES_S)
        if jobs is None:
            return tick
        is_new = known[-1:] != [jobs]
        known.append(jobs)
        report = JobReport(source="squeue", read_ns=tick.time_ns, jobs=jobs) if is_new else None
        return msgspec.structs.replace(tick, jobs=report, jobs_read_ns=tick.time_ns)

    watched.fabric.step = step  # type: ignore[method-assign]

    def traffic(second: int) -> None:
        watched.fabric.silence()
        watched.fabric.clock_off_ns = clock_off_s * SECOND_NS * (second >= ITERATES_S)
        is_last = second // STEP_S == ITERATES_S // STEP_S
        for number in range(1, HOSTS + 1):
            is_busy = second % STEP_S >= 3 and second < ITERATES_S
            if is_last and not_begun:
                is_busy = second % STEP_S == 3 and number not in not_begun
            util = 0.5 if is_busy else 0.0
            watched.fabric.send(util * RATE, f"gpu{number:03}/eth0", f"leaf1/up{number}")

    watched.seconds(ITERATES_S + SILENT_AGAIN_S, traffic)
    return [(seq - ITERATES_S, each) for seq, c, each in watched.changes if c is Change.OPEN]


@pytest.mark.parametrize("offset_s", [1, 29])
def test_a_silent_job_without_queue_pairs_that_slurm_reports_is_stalled(offset_s: int) -> None:
    ((after_s, finding),) = found_with_slurm(lambda _: (RUNS,), offset_s=offset_s)
    assert (finding.cause, finding.subject) == ("job_stalled", "job 8801 llama")
    assert finding.jobs == ("job 8801 llama",)
    assert 29 <= after_s <= 42
    assert "Slurm still reports it as running" in finding.text
    assert finding.unseen == "which rank stopped first"


@pytest.mark.parametrize("clock_off_s", [-7200, 7200])
def test_a_clock_that_is_set_neither_hides_a_stalled_job_nor_makes_one(clock_off_s: int) -> None:
    ((after_s, finding),) = found_with_slurm(lambda _: (RUNS,), clock_off_s=clock_off_s)
    assert finding.cause == "job_stalled"
    assert 29 <= after_s <= 72
    assert found_with_slurm(lambda s: (RUNS,) if s < 10 else None, clock_off_s=clock_off_s) == []


def test_the_host_that_moved_nothing_of_the_last_exchange_is_named() -> None:
    ((_, finding),) = found_with_slurm(lambda _: (RUNS,), not_begun=(3,))
    assert "gpu003 moved nothing of its last exchange" in finding.text


def test_no_host_is_named_where_several_moved_nothing_of_the_last_exchange() -> None:
    ((_, finding),) = found_with_slurm(lambda _: (RUNS,), not_begun=(3, 4))
    assert "of its last exchange" not in finding.text


@pytest.mark.parametrize("offset_s", [1, 29])
def test_a_job_that_slurm_reports_no_more_has_ended(offset_s: int) -> None:
    assert found_with_slurm(lambda s: (RUNS,) if s < 5 else (), offset_s=offset_s) == []


def test_a_job_that_slurm_was_not_asked_about_since_is_not_stalled() -> None:
    assert found_with_slurm(lambda s: (RUNS,) if s < 10 else None) == []


def test_a_job_of_which_nothing_is_known_is_not_stalled() -> None:
    assert found_with_slurm(lambda _: None) == []


@pytest.mark.parametrize("changed", [{"id": "8802"}, {"start_ns": 1}])
def test_another_job_on_the_hosts_and_one_that_started_anew_are_not_stalled(
    changed: dict[str, Any],
) -> None:
    now = msgspec.structs.replace(RUNS, **changed)
    assert found_with_slurm(lambda s: (now if s > 0 else RUNS,), offset_s=1) == []
