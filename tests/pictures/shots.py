"""The app without a terminal, fed with the tour of the demo, and what it shows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from fabmon.analysis.scene import Scene
from fabmon.feeds.demo import scenario as scenarios
from fabmon.feeds.demo.feed import START_NS, DemoFeed
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.writing.writer import Writer
from fabmon.scenes.pipeline import Pipeline, finding_notes
from fabmon.session.config import load
from fabmon.session.recorder_setup import DEMO_MARK
from fabmon.session.session import Session
from fabmon.tui.choices import Choices, Preferences
from fabmon.tui.palette import Theme
from fabmon.tui.run_facts import Tip
from tests.pictures.frame import Frame, frame_of
from tests.tui.running import Running, running

_Part = TypeVar("_Part", scenarios.Fault, scenarios.Caption)

COLLISION_S = 24
"""Seconds into the tour: its ECMP collision is a finding, with iterations to look at."""


@dataclass(slots=True)
class Play:
    """The tour on so many hosts, `healthy` without its faults; its jobs run `lead_s` before it."""

    hosts: int = 16
    healthy: bool = False
    lead_s: int = 0

    def scenario(self) -> scenarios.Scenario:
        """The tour."""
        made = scenarios.resized(scenarios.tour("leaf-spine"), self.hosts, None)
        return msgspec.structs.replace(
            made,
            fault=() if self.healthy else tuple(self._later(each) for each in made.fault),
            caption=() if self.healthy else tuple(self._later(each) for each in made.caption),
        )

    def _later(self, part: _Part) -> _Part:
        return msgspec.structs.replace(part, at=part.at + self.lead_s)

    def scenes(self, seconds: int) -> Iterator[Scene]:
        """A scene a second."""
        feed = DemoFeed(self.scenario())
        pipeline = _pipeline(feed)
        for _ in range(seconds):
            yield pipeline.accept(feed.step())

    def record(self, path: Path, seconds: int) -> None:
        """Write a recording of the first seconds."""
        feed = DemoFeed(self.scenario())
        pipeline = _pipeline(feed)
        about = SessionRecord(
            started_ns=START_NS, interval_s=1.0, hosts=tuple(feed.hosts), title="demo"
        )
        writer = Writer.create(path, about)
        for _ in range(seconds):
            tick = feed.step()
            scene = pipeline.accept(tick)
            writer.write(tick, scene.snapshot, finding_notes(scene))
        writer.close()

    @property
    def tips(self) -> list[Tip]:
        """The captions of the tour."""
        return [Tip(each.at, each.duration, each.text) for each in self.scenario().caption]


def _pipeline(feed: DemoFeed) -> Pipeline:
    return Session(load(Path("/dev/null"))).pipeline(feed.hosts)


@asynccontextmanager
async def shown(
    scenes: Sequence[Scene],
    size: tuple[int, int],
    theme: Theme,
    color: str = "truecolor",
    tips: Sequence[Tip] = (),
) -> AsyncIterator[Running]:
    """The screen after these scenes."""
    preferences = Preferences(choices=Choices(theme=theme))
    async with running(
        size=size, color=color, mark=DEMO_MARK, captions=tips, preferences=preferences
    ) as run:
        await run.send(*scenes)
        yield run


async def shot(run: Running, theme: Theme, *keys: str) -> Frame:
    """What is on the screen after these keys."""
    await run.press(*keys)
    await run.settle()
    return frame_of(run.app, theme)
