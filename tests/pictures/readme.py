"""The pictures of the README: views in dark and light, a report, and a cast of 20 seconds."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fabmon.feeds.demo.feed import START_NS
from fabmon.recording.reading.timeline import Timeline
from fabmon.scenes.recording_access import ReplayedRecording, ReplayStart
from fabmon.session.recorder_setup import DEMO_MARK
from fabmon.tui.choices import Choices, Preferences
from fabmon.tui.palette import Theme
from tests.pictures.cast import cast
from tests.pictures.frame import Frame, frame_of
from tests.pictures.report import report_picture
from tests.pictures.shots import COLLISION_S, Play, shot, shown
from tests.pictures.svg import animated, svg
from tests.tui.recordings import session
from tests.tui.running import Running, running

SIZE, CAST_SIZE = (132, 40), (100, 30)
RECORDED_S = 430
"""Length of the recording that is replayed: a collision, a slow receiver, a lost node."""

_LEAD_S = 240
"""Healthy traffic before the tour, so that the timeline has a past."""

_REPLAYED_S = _LEAD_S + 75
_BEFORE_S = 3
"""The cast begins with these many seconds of healthy traffic before the fault."""


async def make(directory: Path) -> None:
    """Write all of them."""
    scenes = list(Play(lead_s=_LEAD_S).scenes(_LEAD_S + COLLISION_S))
    with tempfile.TemporaryDirectory() as temporary:
        recording = Path(temporary) / "incident.fabrec"
        Play(lead_s=_LEAD_S).record(recording, RECORDED_S)
        page = report_picture(recording, Path(temporary) / "report.html")
        (directory / "report.svg").write_text(page, "utf-8")
        for theme in Theme:
            made: dict[str, Frame] = {}
            async with shown(scenes, SIZE, theme) as run:
                made["overview"] = await shot(run, theme)
                made["explain"] = await shot(run, theme, "tab", "enter")
                made["waterfall"] = await shot(run, theme, "w")
            async with replayed(recording, theme) as run:
                made["replay"] = await shot(run, theme)
            for name, frame in made.items():
                (directory / f"{name}-{theme}.svg").write_text(svg(frame), "utf-8")
    frames, seconds = await tour()
    text = cast(frames, seconds, "fabmon demo: an ECMP collision", START_NS // 10**9)
    (directory / "tour.cast").write_text(text, "utf-8")
    (directory / "tour.svg").write_text(animated(frames, seconds), "utf-8")


@asynccontextmanager
async def replayed(path: Path, theme: Theme) -> AsyncIterator[Running]:
    """The screen of `fabmon replay`, paused within the second incident."""
    begin_ns = START_NS + _REPLAYED_S * 10**9
    preferences = Preferences(choices=Choices(theme=theme))
    with Timeline((path,)) as timeline:
        async with running(
            size=SIZE,
            mark=DEMO_MARK,
            recording=ReplayedRecording(session(), timeline),
            start=ReplayStart(begin_ns, 1.0, False),
            live=False,
            preferences=preferences,
        ) as run:
            await run.until(lambda: run.app.screen_state.scene is not None)
            await run.press("space")
            await run.until(lambda: run.app.screen_state.cursor.is_settled)
            await run.until(lambda: any(_is_known(line) for line in run.lines[-16:]))
            yield run


def _is_known(line: str) -> bool:
    """Whether it is that of the busiest link in the timeline, with what it carried."""
    return line.lstrip().startswith("busiest") and any(each in line for each in "▃▄▅▆▇█")


async def tour() -> tuple[list[Frame], list[float]]:
    """20 seconds: healthy, a collision, its explanation, its waterfall; with durations."""
    play = Play(lead_s=_LEAD_S)
    scenes = list(play.scenes(_LEAD_S + COLLISION_S + 4))
    first = _LEAD_S + 10 - _BEFORE_S
    found = next(n for n, each in enumerate(scenes) if each.findings)
    frames, seconds = [], []

    def keep(frame: Frame, lasts: float) -> None:
        frames.append(frame)
        seconds.append(lasts)

    async with shown(scenes[:first], CAST_SIZE, Theme.DARK, tips=play.tips) as run:
        for number in range(first, found + 3):
            await run.send(scenes[number])
            keep(frame_of(run.app, Theme.DARK), 1.0)
        keep(await shot(run, Theme.DARK, "tab"), 1.0)
        keep(await shot(run, Theme.DARK, "enter"), 1.0)
        rest = scenes[found + 3 :]
        for scene in rest[:3]:
            await run.send(scene)
            keep(frame_of(run.app, Theme.DARK), 1.0)
        keep(await shot(run, Theme.DARK, "w"), 1.0)
        for scene in rest[3:5]:
            await run.send(scene)
            keep(frame_of(run.app, Theme.DARK), 1.0)
        keep(await shot(run, Theme.DARK, "escape", "escape"), 1.0)
        for scene in rest[5:7]:
            await run.send(scene)
            keep(frame_of(run.app, Theme.DARK), 1.0)
    scale = 20.0 / sum(seconds)
    return frames, [round(each * scale, 3) for each in seconds]
