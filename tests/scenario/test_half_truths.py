"""Nodes that leave counters out, fall silent and return: no detector fails on them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest

from fabmon.analysis.analyst import Analyst
from fabmon.analysis.causes import detectors
from fabmon.analysis.detectors.link_down import links_down
from fabmon.analysis.detectors.pause_deadlock import pause_deadlocks
from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.senders_place import LastSeen
from fabmon.analysis.fabric_structure import build_structure
from fabmon.analysis.finding import Change, Condition
from fabmon.analysis.model.bottlenecks import BottleneckModel
from fabmon.analysis.root_cause import keep_root_causes
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Frame
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.history.history import History
from fabmon.session.config import load
from tests.scenario.test_scenarios import HERE, SCENARIOS, read

THRESHOLDS = load(Path("/dev/null")).thresholds
SECONDS = 30


class IncompleteFeed:
    """Removes data from ticks: counters that a node never has, single values, whole nodes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._never = self._random.choice((0.0, 0.1, 0.4))
        self._silent: dict[str, int] = {}
        self._lacks: dict[tuple[str, int], bool] = {}
        self._seed = seed

    def __call__(self, tick: Tick) -> Tick:
        frames = [(n, self._without_some(n, f)) for n, f in tick.frames if not self._is_silent(n)]
        return msgspec.structs.replace(tick, frames=tuple(frames))

    def _is_silent(self, node: str) -> bool:
        left = self._silent.get(node, 0)
        if not left and self._random.random() < 0.03:
            left = self._random.randrange(1, 8)
        self._silent[node] = max(0, left - 1)
        return left > 0

    def _without_some(self, node: str, frame: Frame) -> Frame:
        blocks = [
            None
            if block is None
            else [block[0], *(self._or_none(node, *each) for each in enumerate(block[1:]))]
            for block in frame.blocks
        ]
        return msgspec.structs.replace(frame, blocks=blocks)

    def _or_none(self, node: str, place: int, value: int | float | None) -> int | float | None:
        if (never := self._lacks.get((node, place))) is None:
            never = random.Random(f"{self._seed} {node} {place}").random() < self._never
            self._lacks[node, place] = never
        return None if never or self._random.random() < 0.02 else value


@pytest.mark.parametrize("path", SCENARIOS[::5], ids=lambda path: path.stem)
def test_no_detector_raises_or_reports_what_is_not_a_number(path: Path) -> None:
    scenario, _ = read(path)
    feed = DemoFeed(scenario)
    history, incomplete = History(feed.hosts), IncompleteFeed(SCENARIOS.index(path))
    judges = detectors(THRESHOLDS, BottleneckModel(THRESHOLDS.model))
    open_findings: dict[str, Condition] = {}
    for _ in range(SECONDS):
        snapshot = history.accept(incomplete(feed.step()))
        inputs = DetectorInput(snapshot, build_structure(snapshot.fabric))
        conditions = [condition for detect in judges for condition in detect(inputs)]
        kept, _ = keep_root_causes(conditions, open_findings.values(), inputs.structure)
        open_findings = {each.key: each for each in kept}
        for each in conditions:
            assert 0 <= each.lost <= 1, each
            assert 0 <= each.confidence <= 1, each
            assert " nan" not in each.text, each.text
            numbers = [e.value for e in each.evidence if isinstance(e.value, float)]
            assert np.isfinite(numbers).all(), each.evidence


@pytest.mark.parametrize("name", ["slow_receiver", "pause_storm", "pcie_limit"])
def test_a_finding_about_a_host_that_falls_silent_is_still_reported(name: str) -> None:
    scenario, _ = read(HERE / f"{name}.toml")
    feed = DemoFeed(scenario)
    history = History(feed.hosts)
    found = []
    for second in range(SECONDS):
        tick = feed.step()
        if second > 20:
            heard = tuple(each for each in tick.frames if each[0] != "gpu005")
            tick = msgspec.structs.replace(tick, frames=heard)
        snapshot = history.accept(tick)
        inputs = DetectorInput(snapshot, build_structure(snapshot.fabric))
        found += [
            each
            for detect in detectors(THRESHOLDS, BottleneckModel(THRESHOLDS.model))
            for each in detect(inputs)
        ]
    assert found
    # What it moves is known by its switch; it was 0.
    assert not any(" at 0 b/s" in each.text or " moves 0 b/s" in each.text for each in found)


def test_a_detector_that_fails_is_logged_once_and_the_others_continue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(inputs: DetectorInput) -> Iterator[Condition]:
        raise ZeroDivisionError(inputs.snapshot.seq)

    scenario, expected = read(HERE / "pause_deadlock.toml")
    feed = DemoFeed(scenario)
    history = History(feed.hosts)
    analyst = Analyst(
        THRESHOLDS,
        judged_by=[
            links_down,
            broken,
            partial(pause_deadlocks, seen=LastSeen(), t=THRESHOLDS.model),
        ],
    )
    opened = []
    for _ in range(expected.seconds):
        for change, finding in analyst.accept(history.accept(feed.step())).changes:
            if change is Change.OPEN:
                opened.append(finding.cause)
    assert opened == ["pause_deadlock"]
    (record,) = caplog.records
    assert record.getMessage() == "detector broken failed: its findings are missing from this tick"
    assert record.exc_info is not None
