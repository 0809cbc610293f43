"""Frozen, the screen shows one moment and does everything; scenes keep coming; nothing is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabmon.analysis.scene import Event, Scene
from fabmon.recording.format.records import Note
from fabmon.scenes.recording_contents import RecordingContents
from tests.tui.running import running
from tests.tui.scenes import START_NS
from tests.tui.worlds import COLLISION


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (120, 40)])
async def test_it_is_unmistakable(size: tuple[int, int]) -> None:
    async with running(COLLISION, size=size) as run:
        await run.heads("● LIVE 14:07:50Z")
        assert "═" not in run.text
        await run.press("space")
        await run.heads("❚❚ PAUSED 14:07:50Z")
        assert "LIVE" not in run.text
        await run.shows("═")
        await run.press("space")
        await run.heads("● LIVE")
        assert "═" not in run.text


async def test_scenes_keep_coming_and_the_lag_grows() -> None:
    async with running(COLLISION, seq=60) as run:
        await run.press("space")
        before = run.lines[2:24]
        await run.send(*[COLLISION.scene(seq) for seq in range(61, 192)])
        await run.heads("PAUSED 14:07:40Z (\N{MINUS SIGN}02:11)")
        assert run.lines[2:24] == before
        assert run.app.screen_state.live is not None
        assert run.app.screen_state.live.snapshot.seq == 191
        await run.press("space")
        await run.heads("● LIVE 14:09:51Z")


async def test_drilling_filtering_and_units_work_on_the_frozen_moment() -> None:
    async with running(COLLISION, seq=70) as run:
        await run.press("space")
        await run.send(COLLISION.scene(73))
        await run.press("colon", *"gpu001", "enter")
        await run.shows("344 Gb/s 86.0 %")
        await run.press("u")
        await run.shows("43.0 GB/s 86.0 %")
        await run.press("enter")
        assert run.view == "port"
        await run.shows("43.0 GB/s")
        await run.press("1", "slash", *"gpu002", "enter")
        assert "filter: gpu002" in run.text
        await run.heads("PAUSED 14:07:50Z")


async def test_a_finding_that_opens_meanwhile_is_not_in_the_frozen_moment() -> None:
    async with running(COLLISION, seq=20) as run:
        await run.press("space")
        await run.send(COLLISION.scene(40))
        await run.heads("▲ 0 findings")
        await run.press("space")
        await run.heads("▲ 1 finding")


async def test_nothing_to_freeze_is_no_freeze() -> None:
    async with running() as run:
        await run.press("space")
        assert not run.app.screen_state.paused


def with_measured_steps(seq: int) -> Scene:
    """A scene of the collision, with an event of a job at tick 50."""
    scene = COLLISION.scene(seq)
    event = Event(START_NS + 50 * 10**9, 50, "iteration", "train: communication 59.5 → 36.2 %")
    return replace(scene, events=(*scene.events, event)) if seq >= 50 else scene


async def test_events_that_have_no_number_are_no_stops() -> None:
    async with running() as run:
        await run.send(*[with_measured_steps(seq) for seq in range(30, 61)])
        await run.press("{")
        await run.says("Opened: ECMP collision leaf1 up5")
        await run.heads("PAUSED 14:07:13Z")
        await run.press("{")
        await run.says("no earlier event")


@pytest.mark.parametrize("is_live", [True, False])
async def test_an_event_is_one_after_the_clock_was_set_back(is_live: bool) -> None:
    """The analysis moves its events with the clock; those that were recorded stay at their time. An
    event of an earlier run is another one."""
    scene = with_measured_steps(60)
    (opened, *_) = [each for each in scene.events if each.kind == "finding"]
    noted = [
        Note(
            kind="finding",
            time_ns=time_ns,
            seq=opened.seq,
            text="",
            change="open",
            finding=dict(zip(("cause", "subject"), opened.text.split(" ")[1:], strict=True)),
        )
        for time_ns in (START_NS - 10**12, opened.time_ns)
    ]
    moved = replace(opened, time_ns=opened.time_ns - 3 * 10**9)
    async with running() as run:
        state = run.app.screen_state
        shown = replace(scene, events=(moved,))
        state.live, state.shown = (shown, None) if is_live else (None, shown)
        runs_ns = (START_NS - 2 * 10**12, START_NS)
        state.cursor.recorded = RecordingContents(
            START_NS, scene.snapshot.time_ns, (*noted,), runs_ns
        )
        times_ns = [each.time_ns for each in state.events()]
        own_ns = moved.time_ns if is_live else opened.time_ns
        assert times_ns == [noted[0].time_ns, own_ns]


async def test_the_line_of_an_event_goes_with_its_time() -> None:
    async with running(toasts=True) as run:
        await run.send(*[with_measured_steps(seq) for seq in range(30, 61)])
        await run.press("{")
        await run.shows("Opened: ECMP collision leaf1 up5")
        await run.press("]")
        await run.heads("PAUSED 14:07:14Z")
        await run.until(lambda: "Opened: ECMP" not in run.text)
        await run.press("i", "]")
        await run.heads("PAUSED 14:07:15Z")
        await run.shows("i again clears it")


async def test_the_speed_is_said_while_nothing_plays() -> None:
    async with running() as run:
        await run.send(*[COLLISION.scene(seq) for seq in range(30, 61)])
        await run.press("space", "[", ">")
        await run.says("playback speed \N{MULTIPLICATION SIGN}2; paused: space plays")
        await run.press("<", "<")
        await run.says("playback speed \N{MULTIPLICATION SIGN}½; paused: space plays")
