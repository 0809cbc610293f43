"""A console that is too slow analyses fewer ticks; it shows and records all of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from itertools import count, pairwise
from pathlib import Path

import msgspec
import pytest

from fabmon.analysis.analyst import Analyst
from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import Condition
from fabmon.analysis.scene import Scene
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.recording.reading.reader import Recording
from fabmon.scenes.pipeline import AnalysisTime, Pipeline
from fabmon.session.config import load
from fabmon.session.recorder_setup import recorder_for
from fabmon.session.session import Session
from tests import work
from tests.bench.analysis import FROM, HELLOS, seconds
from tests.builders import START_NS, LeafSpine

TICKS = 60


class SlowDetector:
    """Takes some seconds of a clock for each tick; `seen` are the ticks that it analysed."""

    def __init__(self, takes_s: float) -> None:
        self.now_s = 0.0
        self.takes_s = takes_s
        self.seen: list[int] = []

    def clock(self) -> float:
        return self.now_s

    def __call__(self, inputs: DetectorInput) -> Sequence[Condition]:
        self.now_s += self.takes_s
        self.seen.append(inputs.snapshot.seq)
        return ()


def _run(detector: SlowDetector, path: Path) -> list[int]:
    """The ticks of the scenes of a run that is recorded."""
    fabric = LeafSpine()
    thresholds = load(Path("/dev/null")).thresholds
    recorder = recorder_for(path, fabric.hosts, 1.0, "pod7")
    pipeline = Pipeline(
        Session(load(Path("/dev/null"))).history(fabric.hosts),
        Analyst(thresholds, judged_by=[detector]),
        recorder,
        AnalysisTime(1.0, detector.clock),
    )
    scenes = [pipeline.accept(fabric.step()) for _ in range(TICKS)]
    assert recorder.close().ticks == TICKS
    return [scene.snapshot.seq for scene in scenes]


def test_a_slow_analysis_analyses_fewer_ticks_and_all_are_shown_and_recorded(
    tmp_path: Path,
) -> None:
    detector = SlowDetector(takes_s=1.4)
    shown = _run(detector, tmp_path / "run.fabmon")
    assert len(shown) == TICKS
    apart = {after - before for before, after in pairwise(detector.seen[8:])}
    assert apart == {3}
    with Recording(tmp_path / "run.fabmon") as recording:
        assert sum(1 for _ in recording.ticks()) == TICKS


def test_a_fast_analysis_analyses_every_tick(tmp_path: Path) -> None:
    detector = SlowDetector(takes_s=0.1)
    shown = _run(detector, tmp_path / "run.fabmon")
    assert detector.seen == shown


def test_one_slow_tick_changes_nothing() -> None:
    detector = SlowDetector(0.0)
    limit = AnalysisTime(1.0, detector.clock)
    analysed = []
    for tick in range(20):
        with limit.analysing() as is_analysed:
            detector.now_s += 5.0 if tick == 6 else 0.1
            analysed.append(is_analysed)
    assert all(analysed)


def test_a_load_that_comes_and_goes_is_not_said_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    detector = SlowDetector(0.0)
    limit = AnalysisTime(0.05, detector.clock)
    for tick in range(4000):
        with limit.analysing():
            # 20 s in all: for 2 s it takes longer than half of the time, for 2 s it does not.
            detector.now_s += 0.04 if tick // 40 % 2 else 0.002
    assert len(caplog.messages) == 2
    assert "only one in 2 is analysed" in caplog.messages[0]
    assert "every tick is analysed again" in caplog.messages[1]


class BusyConsole:
    """A leaf and its hosts, watched by a console that analyses every tenth tick."""

    def __init__(self, hosts: int = 2) -> None:
        self.fabric = LeafSpine(hosts=hosts)
        session = Session(load(Path("/dev/null")))
        limit = AnalysisTime(1.0, partial(next, count(0.0, 4.9)))
        history = session.history(self.fabric.hosts)
        self._pipeline = Pipeline(history, session.analyst(), analysis_time=limit)

    def second(self, *statuses: NodeStatus) -> Scene:
        tick = self.fabric.step()
        return self._pipeline.accept(
            msgspec.structs.replace(tick, statuses=(*tick.statuses, *statuses))
        )


def test_a_node_that_was_lost_between_two_analysed_ticks_is_an_event() -> None:
    console = BusyConsole()
    for _ in range(31):
        console.second()
    console.second(NodeStatus("gpu001", NodeState.LOST, START_NS, "connection reset", "ended"))
    scene = console.second(NodeStatus("gpu001", NodeState.UP, START_NS))
    events = [(event.seq, event.text) for event in scene.events if event.kind == "node"]
    assert events[-2:] == [(31, "gpu001 lost"), (32, "gpu001 up")]


def test_a_finding_closes_as_late_as_when_every_tick_is_analysed() -> None:
    console = BusyConsole()
    for _ in range(30):
        console.second()
    console.fabric.down.add("leaf1/up2")
    while not console.second().findings:
        pass
    console.fabric.down.clear()
    last = console.fabric.seq
    while console.second().findings:
        pass
    # 15 s, up to a analysed tick after the link is up, and up to one at the end.
    assert console.fabric.seq - last <= 15 + 10 + 10


def test_the_iterations_of_a_job_are_measured() -> None:
    console = BusyConsole(hosts=4)
    for seq in range(200):
        console.fabric.sent = {
            f"{host}/eth0": 60e6 * (seq % 10 < 5) for host in console.fabric.servers
        }
        scene = console.second()
    (job,) = scene.iteration_report.jobs
    assert set(job.hosts) == set(console.fabric.servers)
    assert job.step_s == pytest.approx(10, rel=0.05)


@pytest.mark.usefixtures("unchanged_collector")
def test_a_large_fabric_in_trouble_is_analysed_at_a_few_lines_a_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """10 ms is the target, docs/performance.md."""
    lines: list[int] = []
    accept = Analyst.accept

    def counted(analyst: Analyst, snapshot: Snapshot) -> Scene:
        with work.counted() as done:
            scene = accept(analyst, snapshot)
        lines.append(done.lines)
        return scene

    monkeypatch.setattr(Analyst, "accept", counted)
    *_, last = list(seconds("64 of 64", HELLOS, FROM + 4))
    assert last.ports == 12_288
    assert last.found
    assert statistics.median(lines[FROM:]) < 8 * last.ports
