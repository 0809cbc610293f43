"""A console that is too slow judges fewer ticks; it shows and records all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from fabmon.analysis.analyst import Analyst
from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import Condition
from fabmon.recording.reading.reader import Recording
from fabmon.session.config import load
from fabmon.session.recorder_setup import recorder_for
from fabmon.session.session import AnalysisTime, Pipeline, Session
from tests.builders import LeafSpine

TICKS = 60


class SlowDetector:
    """Takes some seconds of a clock for each tick; `seen` are the ticks that it judged."""

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


def test_a_slow_analysis_judges_fewer_ticks_and_all_are_shown_and_recorded(tmp_path: Path) -> None:
    detector = SlowDetector(takes_s=1.4)
    shown = _run(detector, tmp_path / "run.fabmon")
    assert len(shown) == TICKS
    apart = {after - before for before, after in pairwise(detector.seen[8:])}
    assert apart == {3}
    with Recording(tmp_path / "run.fabmon") as recording:
        assert sum(1 for _ in recording.ticks()) == TICKS


def test_a_fast_analysis_judges_every_tick(tmp_path: Path) -> None:
    detector = SlowDetector(takes_s=0.1)
    shown = _run(detector, tmp_path / "run.fabmon")
    assert detector.seen == shown


def test_one_slow_tick_changes_nothing() -> None:
    detector = SlowDetector(0.0)
    limit = AnalysisTime(1.0, detector.clock)
    judged = []
    for tick in range(20):
        with limit.judging() as is_judged:
            detector.now_s += 5.0 if tick == 6 else 0.1
            judged.append(is_judged)
    assert all(judged)
