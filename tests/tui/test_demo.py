"""A simulated fabric is marked in every view, and explained until the user hides the tips."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fabmon.analysis.scene import Scene
from fabmon.fabric.time_window import TimeWindow
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import Caption as Line
from fabmon.feeds.demo.scenario import Scenario, tour
from fabmon.session.recorder_setup import DEMO_MARK
from fabmon.tui.metrics import heat_metric
from fabmon.tui.run_facts import Tip, Tips
from tests.builders import new_pipeline
from tests.tui.running import Running, running


class Play:
    """The scenes of a scenario, as many as are asked for."""

    def __init__(self, scenario: Scenario) -> None:
        self._feed = DemoFeed(scenario)
        self._pipeline = new_pipeline(self._feed.hosts)

    def scenes(self, count: int) -> list[Scene]:
        return [self._pipeline.accept(self._feed.step()) for _ in range(count)]


@asynccontextmanager
async def playing(
    ticks: int, size: tuple[int, int] = (120, 40), captions: tuple[Line, ...] | None = None
) -> AsyncIterator[tuple[Running, Play]]:
    scenario = tour("leaf-spine")
    shown = scenario.caption if captions is None else captions
    play = Play(scenario)
    lines = [Tip(each.at, each.duration, each.text) for each in shown]
    async with running(size=size, mark=DEMO_MARK, captions=lines) as run:
        await run.send(*play.scenes(ticks))
        yield run, play


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (120, 40), (240, 70)])
async def test_every_screen_says_that_it_is_simulated(size: tuple[int, int]) -> None:
    async with playing(3, size) as (run, _):
        for key in ("1", "2", "3", "4", "1", "enter", "question_mark"):
            await run.press(key)
            await run.heads(f" {DEMO_MARK} ")


async def test_the_tour_of_a_collision() -> None:
    async with playing(20) as (run, _):
        await run.shows("large flows share leaf1 up5")
        await run.shows("▲ ECMP collision")
        await run.looks_like("demo-collision")


async def test_the_row_of_a_leaf_names_the_host_of_a_finding() -> None:
    async with playing(70, (80, 24)) as (run, play):
        await run.shows("█ ▲ gpu006 r3")
        await run.send(*play.scenes(45))
        await run.shows("█ ✖ gpu014")


async def test_a_filter_by_load_matches_what_the_cells_show() -> None:
    async with playing(28, (160, 48)) as (run, _):
        state = run.app.screen_state
        assert state.scene is not None
        snapshot = state.scene.snapshot
        seen = state.seen(state.scene)
        now, shown = (heat_metric("util").values(each) > 0.5 for each in (snapshot, seen))
        assert shown.sum() > now.sum()
        await run.press("slash", *"util>50", "enter")
        matched = state.matched(state.scene)
        assert matched is not None
        assert (matched.ports == shown).all()
        await run.press("escape")
        while state.choices.window is not TimeWindow.TICK:
            await run.press("p")
        await run.press("slash", *"util>50", "enter")
        matched = state.matched(state.scene)
        assert matched is not None
        assert (matched.ports == now).all()


async def test_captions_come_and_go_with_the_time_of_the_scenes() -> None:
    async with playing(3, captions=(Line(1, "look here", 3),)) as (run, play):
        await run.shows("look here")
        height = run.lines.index(next(line for line in run.lines if "look here" in line))
        assert height == len(run.lines) - 2
        await run.send(*play.scenes(3))
        await run.until(lambda: "look here" not in run.text)


async def test_escape_ends_the_captions_for_good() -> None:
    async with playing(2) as (run, play):
        await run.shows("Simulated: three jobs")
        await run.press("escape")
        await run.until(lambda: "Simulated: three jobs" not in run.text)
        await run.send(*play.scenes(12))
        await run.until(lambda: "large flows" not in run.text)
        await run.heads(f" {DEMO_MARK} ")


def test_the_last_caption_that_began_is_shown() -> None:
    tips = Tips((Tip(0, 10, "one"), Tip(5, 2, "two")))
    assert [tips.at(s * 1_000_000_000) for s in (0, 4, 5, 8, 11)] == [
        "one",
        "one",
        "two",
        "one",
        "",
    ]
