"""The sizes of the overview's panels, and what the footer offers in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabmon.tui.screens.overview_panels import OverviewPanels
from fabmon.tui.widgets.heatgrid import HeatGrid
from fabmon.tui.widgets.lines import TimelineView
from tests.tui.running import Running, running
from tests.tui.worlds import COLLISION, HEALTHY


def _overview(run: Running) -> OverviewPanels:
    screen = run.app.screen
    assert isinstance(screen, OverviewPanels)
    return screen


@pytest.mark.parametrize("size", [(80, 50), (100, 50), (120, 60)], ids=str)
async def test_lines_that_the_heatmap_does_not_need_go_to_another_panel(
    size: tuple[int, int],
) -> None:
    async with running(COLLISION, size=size) as run:
        heat = run.app.screen.query_one(HeatGrid)
        lent = _overview(run).lent_lines()
        assert 0 < lent <= 12
        assert lent == 12 or heat.size.height - heat.virtual_size.height <= 2


async def test_lent_lines_are_returned_when_a_panel_is_maximised() -> None:
    async with running(COLLISION, size=(80, 24)) as run:
        before = run.lines
        await run.press("tab", "z")
        assert run.app.screen.query_one("#right").size.height == 22
        await run.press("z")
        assert run.app.screen.query_one("#right").size.height < 15
        assert len(before) == len(run.lines)


async def test_a_timeline_of_another_height_is_drawn_in_it() -> None:
    async with running(HEALTHY, size=(80, 24)) as run:
        strip = run.app.screen.query_one(TimelineView)
        strip.styles.height = 6
        await run.settle()
        assert len(strip._lines) == 6


async def test_the_footer_says_what_enter_does_and_offers_no_key_without_effect() -> None:
    async with running(COLLISION, size=(80, 24)) as run:
        assert "enter explain" in run.lines[-1]
        assert ": go to" in run.lines[-1]
        await run.press("j")
        assert "enter open" in run.lines[-1]
        await run.press("tab")
        assert "enter explain" in run.lines[-1]
    async with running(HEALTHY, size=(80, 24)) as run:
        assert "enter open" in run.lines[-1]
    async with running(COLLISION, size=(60, 18)) as run:
        assert "detail" not in run.lines[-1]
        assert "panel" not in run.lines[-1]
        assert "▲ 1 finding " in run.lines[0]


async def test_where_a_detector_failed_the_screen_does_not_say_that_nothing_is_wrong() -> None:
    failed = replace(HEALTHY.scene(70), failed_detectors=("ecmp_collisions",))
    async with running(HEALTHY, size=(160, 48)) as run:
        assert "No findings: no link is flagged or down" in run.text
        await run.send(failed)
        for view in ("1", "4"):
            await run.press(view)
            words = " ".join(run.text.split())
            assert "No findings" in words
            assert "no link is flagged" not in words
            assert "A detector failed: findings may be missing" in words
