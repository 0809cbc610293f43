"""Recordings of simulated fabrics, and screens that replay them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fabmon.analysis.scene import Scene
from fabmon.fabric.fabric_builder import PortRows
from fabmon.fabric.tick import Tick
from fabmon.feeds.demo.feed import START_NS, DemoFeed
from fabmon.feeds.demo.scenario import parse
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.writer import Writer
from fabmon.scenes.pipeline import finding_notes
from fabmon.scenes.recorded_past import RecordedPast
from fabmon.scenes.recording_access import ReplayedRecording, ReplayStart, RunRecording
from fabmon.session.config import load
from fabmon.session.session import Session
from tests.tui.running import Running, running

COLLISION = """
title = "one collision"
[topology]
kind = "leaf-spine"
hosts = 4
rails = 2
routing = "spray"
[[job]]
name = "train"
compute_s = 1.0
payload_gb = 60.0
demand = 0.7
[[fault]]
kind = "ecmp_collision"
at = 20.0
for = 25.0
where = "leaf1/up3"
"""
"""Two NICs on one uplink, from 20 to 45 s."""

FAST = """
[topology]
kind = "fat-tree"
hosts = 8
rails = 4
[[job]]
name = "fast"
hosts = 0
payload_gb = 8
compute_s = 0.5
"""
"""Steps of some 1.2 s, which look as if they took 5 s where a sample is taken every second."""

BEGAN_S = 20
SECOND_NS = 1_000_000_000


class Watching:
    """Scenes of a simulated fabric, one after the other."""

    def __init__(self, scenario: str = COLLISION) -> None:
        self.feed = DemoFeed(parse(scenario))
        self._pipeline = session().pipeline(self.feed.hosts)
        self.rows = self._pipeline.history.rows

    @property
    def session(self) -> SessionRecord:
        """The session record of a recording of it."""
        return SessionRecord(
            started_ns=START_NS, interval_s=1.0, hosts=tuple(self.feed.hosts), title="pod7"
        )

    def record(self, path: Path, seconds: int) -> list[Scene]:
        """Record this many ticks into a complete file; returns their scenes."""
        writer = Writer.create(path, self.session)
        scenes = [self.write(writer) for _ in range(seconds)]
        writer.close()
        return scenes

    def next(self) -> Scene:
        """The scene of the next tick."""
        return self.judge(self.feed.step())

    def judge(self, tick: Tick) -> Scene:
        """The scene of a tick."""
        return self._pipeline.accept(tick)

    def write(self, writer: Writer) -> Scene:
        """Record the next tick; returns its scene."""
        tick = self.feed.step()
        scene = self.judge(tick)
        writer.write(tick, scene.snapshot, finding_notes(scene))
        return scene


def session(rows: PortRows | None = None) -> Session:
    """A session with the usual settings, and the port rows of another history."""
    return Session(load(None)) if rows is None else Session(load(None), rows=rows)


def past_of(*paths: Path) -> RecordedPast:
    """The reader of these files."""
    return RecordedPast(lambda: paths, session())


def recording_of(*paths: Path) -> RunRecording:
    """What the screen can do with these files."""
    return RunRecording(session(), lambda: paths, past_of(*paths))


def at(second: float) -> int:
    """The time of a tick."""
    return START_NS + int(second * SECOND_NS)


@asynccontextmanager
async def replaying(
    *paths: Path,
    size: tuple[int, int] = (120, 40),
    from_s: float | None = None,
    speed: float | None = None,
    follow: bool = False,
) -> AsyncIterator[Running]:
    """The screen of `fabmon replay` while it plays."""
    start = ReplayStart(None if from_s is None else at(from_s), speed, follow)
    with Timeline(paths) as timeline:
        recording = ReplayedRecording(session(), timeline)
        async with running(size=size, recording=recording, start=start, live=False) as run:
            yield run
