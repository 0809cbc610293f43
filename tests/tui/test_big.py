"""1,024 hosts of 8 rails: 1,064 nodes, 16,896 ports."""

from __future__ import annotations

import time

import pytest

from fabmon.tui.widgets.heatgrid import HeatGrid
from tests.tui.running import running
from tests.tui.worlds import big

BIG = big()


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (240, 70)])
async def test_it_is_painted_and_can_be_walked(size: tuple[int, int]) -> None:
    async with running(BIG, size=size) as run:
        assert "1064/1064" in run.lines[0]
        assert "leaf1 up5" in run.text
        await run.press("G", "g", "G", "enter")
        assert run.view in ("node", "port")
        for key in ("2", "3", "4", "1"):
            await run.press(key, "G")
        assert run.app.is_running


async def test_the_last_node_is_reached_by_scrolling() -> None:
    async with running(BIG, size=(240, 70)) as run:
        await run.press("G")
        assert "spine8" in run.text
        grid = run.app.screen.query_one(HeatGrid)
        assert grid.scroll_offset.y > 0


async def test_a_heading_stays_in_sight_while_its_rows_pass() -> None:
    async with running(BIG, size=(80, 24)) as run:
        grid = run.app.screen.query_one(HeatGrid)
        grid.scroll_to(y=10, animate=False)
        await run.settle()
        assert run.lines[2].split()[:3] == ["leaf1", "r0", "r1"]


async def test_a_tick_is_drawn_in_time() -> None:
    """A guard with much slack; the heatmap itself is measured by `make bench`."""
    async with running(BIG, size=(240, 70)) as run:
        taken = []
        for seq in range(71, 77):
            scene = BIG.scene(seq)
            start = time.process_time()
            await run.app.take(scene)
            taken.append(time.process_time() - start)
        assert min(taken) < 0.15
