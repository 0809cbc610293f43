"""What keys and mouse do."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from textual import events

from fabmon.analysis.scene import Scene
from fabmon.tui import keys
from fabmon.tui.app import FabmonApp
from fabmon.tui.palette import RAMPS
from fabmon.tui.screens.finding import FindingScreen, WaterfallScreen
from fabmon.tui.screens.fluctuation import FluctuationScreen
from fabmon.tui.screens.overview import OverviewScreen
from fabmon.tui.widgets.choosers import JumpPrompt
from fabmon.tui.widgets.heatgrid import HeatGrid
from fabmon.tui.widgets.lines import LineView
from fabmon.tui.widgets.prompts import SaveMenu
from tests.tui.running import running
from tests.tui.scenes import World
from tests.tui.worlds import COLLISION, HEALTHY, connecting, troubled


async def test_before_the_first_scene_it_says_that_it_waits() -> None:
    async with running() as run:
        assert "WAITING" in run.lines[0]
        await run.press("question_mark")
        assert run.view == "help"
        assert "Everywhere" in run.text


async def test_the_heatmap_comes_by_itself_with_the_first_frame() -> None:
    world = World(connecting=tuple(node.name for node in HEALTHY.fabric.nodes))
    async with running(world, seq=1) as run:
        assert run.view == "nodes"
        assert "0/14 up" in run.text
        await run.send(HEALTHY.scene(2))
        assert run.view == "overview"
        await run.press("n")
        await run.send(HEALTHY.scene(3))
        assert run.view == "nodes"


async def test_who_has_gone_elsewhere_is_not_called_back() -> None:
    world = World(connecting=tuple(node.name for node in HEALTHY.fabric.nodes))
    async with running(world, seq=1) as run:
        await run.press("4")
        await run.send(HEALTHY.scene(2))
        assert run.view == "findings"


@pytest.mark.parametrize(
    ("key", "view"),
    [
        ("1", "overview"),
        ("2", "switches"),
        ("3", "nodes"),
        ("n", "nodes"),
        ("4", "findings"),
        ("6", "fluctuation"),
    ],
)
@pytest.mark.parametrize("size", [(60, 18), (120, 40)])
async def test_views_are_one_key_away_from_anywhere(
    key: str, view: str, size: tuple[int, int]
) -> None:
    async with running(COLLISION, size=size) as run:
        await run.press("enter", "question_mark", key)
        assert run.view == view


async def test_drilling_down_and_back() -> None:
    async with running(COLLISION) as run:
        await run.press("enter")
        assert run.view == "finding"
        assert "overview ▸ ECMP collision leaf1 up5" in run.lines[1]
        await run.press("enter")
        assert run.view == "port"
        assert "overview ▸ ECMP collision leaf1 up5 ▸ leaf1 up5" in run.lines[1]
        await run.press("escape")
        assert run.view == "finding"
        await run.press("escape", "escape", "escape")
        assert run.view == "overview"


async def test_a_cell_opens_its_port_and_a_name_its_node() -> None:
    async with running(HEALTHY) as run:
        await run.press("l", "l", "l", "enter")
        assert "overview ▸ gpu001 r3" in run.lines[1]
        await run.press("escape", *["h"] * 4)
        assert "gpu001  host, up, " in run.text
        await run.press("enter")
        assert run.view == "node"
        assert "overview ▸ gpu001" in run.lines[1]
        await run.press("escape", "k", "enter")
        assert "overview ▸ leaf1" in run.lines[1], "the name of the switch"


async def test_up_and_down_keep_to_their_column() -> None:
    async with running(COLLISION) as run:
        grid = run.app.screen.query_one(HeatGrid)
        await run.press("l")
        before = grid.cursor
        await run.press("j", "j", "k", "k")
        assert grid.cursor == before


async def test_a_finding_opens_and_its_ports_open_from_there() -> None:
    async with running(COLLISION) as run:
        await run.press("tab", "enter")
        assert run.view == "finding"
        assert "leaf1 → spines, 8 links" in run.text
        await run.press("enter")
        assert run.view == "port"
        assert "leaf1 up5" in run.lines[1]


async def test_a_finding_that_closes_while_it_is_read_stays_and_says_so() -> None:
    async with running(COLLISION) as run:
        await run.press("4", "enter")
        await run.send(HEALTHY.scene(71))
        assert "closed; open since" in run.text
        assert "ECMP collision" in run.text


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (120, 40)])
async def test_the_cursor_moves_with_letters_and_with_arrows(size: tuple[int, int]) -> None:
    for down, up in (
        ("j", "k"),
        ("down", "up"),
        ("G", "g"),
        ("end", "home"),
        ("pagedown", "pageup"),
    ):
        async with running(troubled(), size=size) as run:
            first = run.app.focused
            assert isinstance(first, HeatGrid | LineView)
            await run.press("g")
            place = _cursor(first)
            await run.press(down)
            assert _cursor(first) != place
            await run.press(up)
            assert _cursor(first) == place


def _cursor(widget: HeatGrid | LineView) -> object:
    return widget.cursor if isinstance(widget, HeatGrid) else widget.selected


async def test_the_cursor_moves_from_uplink_to_uplink() -> None:
    async with running(COLLISION) as run:
        await run.press("2", "j", "l", "l", "enter")
        assert "leaf1 up3" in run.lines[1]


async def test_the_cursor_stays_on_its_port_when_a_filter_is_set() -> None:
    async with running(HEALTHY) as run:
        await run.press("j", "j", "l")
        assert any(line.startswith(" gpu003 r1 ") for line in run.lines)
        state = run.app.screen_state
        state.choices = state.choices.with_filter("gpu003")
        run.app.repaint()
        await run.settle()
        await run.press("enter")
        assert "gpu003 r1" in run.lines[1]


async def test_units_are_everywhere() -> None:
    async with running(HEALTHY) as run:
        assert "344 Gb/s" in run.text
        await run.press("u")
        assert "u GB/s" in run.lines[0]
        assert "43.0 GB/s" in run.text
        await run.press("u")
        assert "u %" in run.lines[0]
        await run.press("2")
        assert "%" in run.text
        assert "Gb/s" not in run.lines[5]


async def test_colours_change_and_come_back() -> None:
    async with running(COLLISION) as run:
        names = []
        for _ in RAMPS:
            names.append(run.app.screen_state.palette.ramp)
            await run.press("c")
        assert names == [ramp.name for ramp in RAMPS]
        assert run.app.screen_state.palette.ramp == RAMPS[0].name


async def test_digits() -> None:
    async with running(HEALTHY, size=(80, 24)) as run:
        await run.press("C")
        assert "gpu001[86]86" in run.text
        await run.press("C")
        assert "gpu001[██]██" in run.text


async def test_failures_that_are_alike_unfold() -> None:
    async with running(connecting(), seq=5) as run:
        await run.press("n")
        assert "▸ ✖ 7 failed, refused  gpu005, gpu006, gpu007 and 4 more" in run.text
        assert "gpu009" not in run.text
        await run.press("enter")
        assert "▾" in run.text
        assert "gpu009" in run.text
        await run.press("enter")
        assert "gpu009" not in run.text


async def test_the_focused_panel_takes_the_whole_screen() -> None:
    async with running(COLLISION) as run:
        await run.press("z")
        assert "Findings" not in run.text
        await run.press("z")
        assert "Findings" in run.text
        await run.press("tab", "z")
        assert "Fabric" not in run.text
        await run.press("z")
        assert "Fabric" in run.text


async def test_the_charts_zoom() -> None:
    async with running(COLLISION) as run:
        await run.press("enter", "enter")
        assert "last 5 min" in run.text
        await run.press("minus")
        assert "last 10 min" in run.text
        await run.press("plus", "plus", "plus", "plus")
        assert "last 1 min" in run.text


async def test_the_list_of_names_has_our_actions() -> None:
    async with running(COLLISION) as run:
        await run.press("colon")
        assert "Freeze or resume" in run.text
        await run.press(*"switches", "enter")
        await run.goes_to("switches")


async def test_the_mouse_selects_then_opens() -> None:
    async with running(HEALTHY) as run:
        grid = run.app.screen.query_one(HeatGrid)
        y = next(y for y, line in enumerate(run.lines) if "gpu002" in line)
        x = run.lines[y - 1].index("[") + 7
        await run.pilot.click(grid, offset=(x, y - 2))
        await run.settle()
        assert run.view == "overview"
        assert grid.cursor == (y - 2, 1)
        await run.pilot.click(grid, offset=(x, y - 2))
        await run.settle()
        assert run.view == "port"
        assert "gpu002 r1" in run.lines[1]


async def test_a_click_on_a_name_selects_then_opens_the_node() -> None:
    async with running(COLLISION) as run:
        grid = run.app.screen.query_one(HeatGrid)
        y = next(n for n, line in enumerate(run.lines) if " gpu002" in line[:12])
        for view in ("overview", "node"):
            await run.pilot.click(grid, offset=(5, y - grid.region.y))
            await run.settle()
            assert run.view == view
        assert "gpu002" in run.lines[1]


async def test_after_a_click_in_the_timeline_the_keys_go_where_they_went_before() -> None:
    async with running(COLLISION) as run:
        await run.pilot.click("#time", offset=(100, 1))
        await run.settle()
        await run.heads("PAUSED")
        await run.press("`")
        await run.heads("LIVE")
        grid = run.app.screen.query_one(HeatGrid)
        assert grid.has_focus
        before = grid.cursor
        await run.press("j")
        assert grid.cursor != before


async def test_the_focused_panel_is_marked_in_its_title() -> None:
    async with running(COLLISION) as run:
        assert "▸ Fabric" in run.lines[1]
        assert "▸ Findings" not in run.lines[1]
        await run.press("tab")
        assert "▸ Findings" in run.lines[1]
        assert "▸ Fabric" not in run.lines[1]


async def test_the_focus_comes_back_where_it_was_lost() -> None:
    async with running(COLLISION) as run:
        run.app.screen.set_focus(None)
        await run.send(COLLISION.scene(71))
        assert run.app.screen.query_one(HeatGrid).has_focus


async def test_escape_goes_back_through_the_views_and_stays_in_the_overview() -> None:
    async with running(COLLISION) as run:
        await run.press("4", "6", "2")
        for view in ("fluctuation", "findings", "overview", "overview", "overview"):
            await run.press("escape")
            assert run.view == view
        assert run.app.is_running


async def test_escape_restores_a_maximised_panel() -> None:
    async with running(COLLISION) as run:
        await run.press("z", "escape")
        assert "Findings" in run.text


async def test_what_is_typed_right_after_the_key_of_an_input_goes_there() -> None:
    async with running(COLLISION) as run:
        for key, char in (("colon", ":"), ("g", "g"), ("2", "2"), ("r", "r"), ("1", "1")):
            run.app.post_message(events.Key(key, char))
        await run.settle()
        await run.press("enter")
        await run.goes_to("port")
        assert "gpu002 r1" in run.lines[1]
        await run.press("escape")
        for key, char in (("slash", "/"), ("g", "g"), ("2", "2")):
            run.app.post_message(events.Key(key, char))
        await run.settle()
        assert run.app.screen_state.choices.filter == "g2"


async def test_messages_are_one_line_above_the_footer() -> None:
    async with running(HEALTHY, size=(100, 30), toasts=True) as run:
        for text in ("first", "second", "third"):
            run.app.say(text, 60)
        await run.says("third")
        assert [note.message for note in run.app._notifications] == ["third"]
        await run.until(lambda: "third" in run.text)
        assert "third" in run.lines[-2]
        assert "first" not in run.text
        assert "? help  q quit" in run.lines[-1]


async def test_hovering_shows_a_port_and_leaving_shows_the_cursors_again() -> None:
    async with running(COLLISION) as run:
        grid = run.app.screen.query_one(HeatGrid)
        y = next(y for y, line in enumerate(run.lines) if "gpu003" in line)
        await run.pilot.hover(grid, offset=(11, y - 2))
        await run.settle()
        assert "gpu003 r0" in run.text
        await run.pilot.hover("#findings")
        await run.settle()
        assert "gpu003 r0" not in run.text


async def test_a_finding_is_clicked_open() -> None:
    async with running(COLLISION) as run:
        await run.pilot.click("#findings", offset=(5, 1))
        await run.settle()
        assert run.view == "finding"


async def test_a_key_in_the_footer_is_clicked() -> None:
    async with running(COLLISION) as run:
        x = run.lines[-1].index("freeze")
        await run.pilot.click("#footer", offset=(x, 0))
        await run.settle()
        assert run.app.screen_state.paused


async def test_a_click_on_the_views_in_the_footer_goes_through_them() -> None:
    async with running(COLLISION, size=(80, 24)) as run:
        await run.press("enter")
        for view in ("switches", "nodes", "findings", "matrix", "fluctuation", "overview"):
            await run.pilot.click("#footer", offset=(run.lines[-1].index("views"), 0))
            await run.goes_to(view)


async def test_the_way_back_in_the_footer_is_clicked() -> None:
    async with running(COLLISION, size=(80, 24)) as run:
        await run.press("enter", "enter")
        for view in ("finding", "overview"):
            await run.pilot.click("#footer", offset=(run.lines[-1].index("back"), 0))
            await run.goes_to(view)


async def test_q_goes_back_from_a_page_and_quits_from_a_view() -> None:
    async with running(COLLISION) as run:
        await run.press("enter", "enter", "question_mark")
        assert run.view == "help"
        for view in ("port", "finding", "overview"):
            await run.press("q")
            assert run.view == view
            assert run.app._exit is False
        await run.press("q")
        assert run.app._exit


async def test_ctrl_q_quits_from_anywhere() -> None:
    async with running(COLLISION) as run:
        await run.press("enter", "question_mark", "ctrl+q")
        assert run.app._exit


async def test_ctrl_c_leaves_as_it_leaves_any_program() -> None:
    async with running(HEALTHY) as run:
        await run.press("ctrl+c")
        assert run.app.return_code == 130


async def test_ctrl_c_leaves_while_a_filter_is_typed() -> None:
    async with running(HEALTHY) as run:
        await run.press("slash", "ctrl+c")
        assert run.app.return_code == 130


async def test_the_end_of_the_scenes_is_said() -> None:
    async with running(COLLISION) as run:
        run.queue.put_nowait(None)
        await run.settle()
        assert "■ ENDED 14:07:50Z" in run.lines[0]


async def test_a_failure_of_the_scenes_ends_the_app_and_is_kept() -> None:
    async def broken() -> AsyncIterator[Scene]:
        yield COLLISION.scene(1)
        raise ValueError("the feed broke")

    app = FabmonApp(broken(), title="pod7", color="none")
    async with app.run_test() as pilot:
        await pilot.pause()
    assert isinstance(app.failure, ValueError)
    assert app.return_code == 1


async def test_silence_is_said() -> None:
    now = 0.0

    def clock() -> float:
        return now

    async def scenes() -> AsyncIterator[Scene]:
        yield COLLISION.scene(50)
        import asyncio

        await asyncio.Event().wait()

    app = FabmonApp(scenes(), title="pod7", color="none", clock=clock)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        now = 12.0
        app._check_silence()
        await pilot.pause()
        assert app.screen_state.silent_s == 12.0
        strip = app.screen._compositor.render_strips()[0]
        assert "no tick for 12 s" in strip.text


async def test_new_findings_are_toasted_in_one_line() -> None:
    async with running(COLLISION, seq=32) as run:
        await run.send(COLLISION.scene(33))
        messages = [note.message for note in run.app._notifications]
        assert messages == ["▲ ECMP collision leaf1 up5 → spine3"]


@pytest.mark.parametrize("color", ["truecolor", "16", "none"])
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 18)])
async def test_a_toast_has_a_line_to_itself(size: tuple[int, int], color: str) -> None:
    async with running(COLLISION, seq=32, size=size, color=color, toasts=True) as run:
        await run.send(COLLISION.scene(33))
        said = " ▲ ECMP collision leaf1 up5 → spine3"
        await run.until(lambda: said in [line.rstrip() for line in run.lines])
        place = [line.rstrip() for line in run.lines].index(said)
        strip = run.app.screen._compositor.render_strips()[place]
        named = next(segment for segment in strip if "ECMP" in segment.text)
        palette = run.app.screen_state.palette
        assert named.style is not None
        assert named.style.reverse or named.style.bgcolor != palette.text.bgcolor


async def test_a_toast_does_not_hide_what_is_typed() -> None:
    async with running(COLLISION, seq=32, size=(80, 24), toasts=True) as run:
        await run.send(COLLISION.scene(33))
        await run.press("t", *"abc")
        await run.until(lambda: any("go to" in line and "abc" in line for line in run.lines))


async def test_every_action_exists() -> None:
    async with running(COLLISION) as run:
        await run.press("l", "enter")
        lines = run.app.screen.query_one(LineView)
        pages = (FindingScreen, FluctuationScreen, WaterfallScreen)
        screens = (OverviewScreen, *pages, SaveMenu, JumpPrompt)
        targets = (run.app, run.app.screen, lines, *screens)
        for key in keys.KEYS:
            name = key.action.partition("(")[0].removeprefix("app.")
            assert any(hasattr(target, f"action_{name}") for target in targets), key


async def test_an_error_at_every_tick_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: FabmonApp, __: Scene) -> None:
        raise KeyError("every tick")

    monkeypatch.setattr(FabmonApp, "_toast", fails)
    monkeypatch.setattr("fabmon.tui.containment.log_error", lambda *_: "")
    async with running(HEALTHY) as run:
        await run.send(*(HEALTHY.scene(seq) for seq in range(71, 76)))
        shown = [each.message for each in run.app._notifications]
        run.app.contained.clear()
    assert len(shown) == 1
    assert "KeyError: 'every tick'" in shown[0]
