"""Recordings made by the simulator, and screens that go through them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fabmon.analysis.analyst import Analyst
from fabmon.analysis.scene import Scene
from fabmon.fabric.tick import Tick
from fabmon.feeds.demo.feed import START_NS, DemoFeed
from fabmon.feeds.demo.scenario import parse
from fabmon.history.history import History
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.writer import Writer
from fabmon.session.config import load
from fabmon.session.recorded_past import RecordedPast
from fabmon.session.recorder_setup import finding_notes
from fabmon.tui.time.time_keys import Travel
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
kind = "collision"
at = 20.0
for = 25.0
where = "leaf1/up3"
"""
"""Two NICs on one uplink, from 20 to 45 s."""

BEGAN_S = 20
SECOND_NS = 1_000_000_000


class Watching:
    """A simulated fabric that is watched: its scenes, one after the other."""

    def __init__(self, scenario: str = COLLISION) -> None:
        self.feed = DemoFeed(parse(scenario))
        self.history = History(self.feed.hosts)
        self._analyst = analyst()

    @property
    def session(self) -> SessionRecord:
        """What a recorder is told of it."""
        return SessionRecord(
            started_ns=START_NS, interval_s=1.0, hosts=tuple(self.feed.hosts), title="pod7"
        )

    def record(self, path: Path, seconds: int) -> list[Scene]:
        """So many ticks in a file that is whole."""
        writer = Writer.create(path, self.session)
        scenes = [self.write(writer) for _ in range(seconds)]
        writer.close()
        return scenes

    def next(self) -> Scene:
        """The next tick."""
        return self.judge(self.feed.step())

    def judge(self, tick: Tick) -> Scene:
        """A tick through the house."""
        return self._analyst.accept(self.history.accept(tick))

    def write(self, writer: Writer) -> Scene:
        """The next tick, recorded."""
        tick = self.feed.step()
        scene = self.judge(tick)
        writer.write(tick, scene.snapshot, finding_notes(scene))
        return scene


def analyst() -> Analyst:
    """One with the usual thresholds."""
    return Analyst(load(None).thresholds)


def history_like(other: History) -> Callable[[Timeline], History]:
    """Histories of recordings that call ports by the same rows as another."""
    return lambda timeline: History(timeline.hosts, timeline.interval_s, rows=other.rows)


def past_of(*paths: Path) -> RecordedPast:
    """The past that these files hold."""
    return RecordedPast(lambda: paths, history_like(History([])), analyst)


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
    """The screen of `fabmon replay`, playing."""
    travel = Travel(
        past=past_of(*paths),
        keep_note=lambda _: "a recording is not changed",
        plays=True,
        from_ns=None if from_s is None else at(from_s),
        speed=speed,
        follow=follow,
    )
    async with running(size=size, travel=travel, live=False) as run:
        yield run
