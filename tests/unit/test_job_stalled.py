"""A job that iterated and falls silent: stalled while its queue pairs are open, else ended."""

from __future__ import annotations

import msgspec

from fabmon.analysis.finding import Change
from fabmon.analysis.scene import Scene
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Frame
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import parse
from tests.builders import new_pipeline

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
