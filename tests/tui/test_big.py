"""1,024 hosts of 8 rails: 1,064 nodes, 16,896 ports."""

from __future__ import annotations

import pytest

from fabmon.tui.widgets.heatgrid import HeatGrid
from tests import work
from tests.tui.running import running
from tests.tui.worlds import big

BIG = big()


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (240, 70)])
async def test_it_is_painted_and_can_be_walked(size: tuple[int, int]) -> None:
    async with running(BIG, size=size) as run:
        assert "1064/1064" in run.lines[0]
        assert "leaf1 up5" in run.text
        await run.press("G", "g", "G", "enter", "enter", "escape")
        assert run.view in ("overview", "node", "port")
        for key in ("2", "3", "4", "1"):
            await run.press(key, "G")
        assert run.app.is_running


async def test_every_host_is_on_one_screen_and_the_collision_is_named_first() -> None:
    async with running(BIG, size=(160, 48)) as run:
        assert "32 leaves, 1024 hosts · 1 with findings first" in run.lines[2]
        assert run.lines[4].split()[:2] == ["▲", "leaf1"]
        assert "98.2 % up5" in run.lines[4]
        grid = run.app.screen.query_one(HeatGrid)
        assert grid.virtual_size.height <= grid.size.height


async def test_enter_expands_a_leaf_in_place_and_escape_collapses_it() -> None:
    async with running(BIG, size=(160, 48)) as run:
        await run.press("h")
        await run.send(BIG.scene(71))
        before = run.lines
        await run.press("enter")
        assert any("gpu032" in line for line in run.lines)
        assert run.view == "overview"
        await run.press("escape")
        assert run.lines[2:30] == before[2:30]


async def test_levels_are_one_key_apart() -> None:
    async with running(BIG, size=(160, 48)) as run:
        assert "enter expands" in run.lines[2]
        await run.press(".")
        await run.shows("gpu001")
        assert "enter expands" not in run.lines[2]
        await run.press(",", ",")
        await run.shows("leaf1-")
        await run.press("escape")
        assert "98.2 % up5" in run.lines[4]


async def test_rows_that_scroll_have_a_map_of_all_leaves_beside_them() -> None:
    async with running(BIG, size=(160, 48)) as run:
        assert " map│" not in run.text
        await run.press(".")
        assert " map│" in run.lines[2]
        assert run.lines[3].partition("│")[0].rstrip().endswith(" ▲██")


async def test_the_last_node_is_reached_by_scrolling() -> None:
    async with running(BIG, size=(240, 70)) as run:
        await run.press(".", "G")
        assert "spine8" in run.text
        grid = run.app.screen.query_one(HeatGrid)
        assert grid.scroll_offset.y > 0


async def test_a_heading_stays_in_sight_while_its_rows_pass() -> None:
    async with running(BIG, size=(80, 24)) as run:
        await run.press(".", ".")
        grid = run.app.screen.query_one(HeatGrid)
        grid.scroll_to(y=10, animate=False)
        await run.settle()
        assert run.lines[2].split()[:3] == ["rail", "0", "1"]


async def test_a_tick_is_drawn_without_a_look_at_each_port() -> None:
    """How long it takes, `make bench` measures."""
    async with running(BIG, size=(240, 70)) as run:
        scene = BIG.scene(71)
        with work.counted() as done:
            await run.app.take(scene)
        assert done.lines < 400_000


async def test_nodes_with_nothing_to_say_are_one_line_that_opens() -> None:
    async with running(BIG, size=(120, 40)) as run:
        await run.press("3")
        line = next(line for line in run.lines if "▸" in line and " up  " in line)
        assert "▸ ● 1064 up  leaf1, gpu001, gpu002 and 1061 more: probe CPU at most " in line
        assert "● up" not in run.text
        await run.press("j", "enter")
        assert "▾ ● 1064 up" in run.text
        assert run.text.count("● up ") > 20
