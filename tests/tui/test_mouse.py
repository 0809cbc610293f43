"""What clicks and hovering do."""

from __future__ import annotations

from textual import events

from fabmon.tui.widgets.heatgrid import HeatGrid
from tests.tui.running import running
from tests.tui.worlds import COLLISION, HEALTHY


async def test_the_mouse_selects_then_opens() -> None:
    async with running(HEALTHY) as run:
        grid = run.app.screen.query_one(HeatGrid)
        y = next(y for y, line in enumerate(run.lines) if "gpu002" in line)
        x = run.lines[y - 1].index("[") + 7
        await run.click(x, y - 2, on=grid)
        assert run.view == "overview"
        assert grid.cursor == (y - 2, 1)
        await run.click(x, y - 2, on=grid)
        assert run.view == "port"
        assert "gpu002 r1" in run.lines[1]


async def test_a_click_on_a_name_selects_then_opens_the_node() -> None:
    async with running(COLLISION) as run:
        grid = run.app.screen.query_one(HeatGrid)
        y = next(n for n, line in enumerate(run.lines) if " gpu002" in line[:12])
        for view in ("overview", "node"):
            await run.click(5, y - grid.region.y, on=grid)
            assert run.view == view
        assert "gpu002" in run.lines[1]


async def test_after_a_click_in_the_timeline_the_keys_go_where_they_went_before() -> None:
    async with running(COLLISION) as run:
        await run.click(100, 1, on="#time")
        await run.heads("PAUSED")
        await run.press("`")
        await run.heads("LIVE")
        grid = run.app.screen.query_one(HeatGrid)
        assert grid.has_focus
        before = grid.cursor
        await run.press("j")
        assert grid.cursor != before


async def test_a_drag_over_the_timeline_marks_a_range_and_goes_nowhere() -> None:
    async with running(COLLISION) as run:
        cursor = run.app.screen_state.cursor
        await run.drag((110, 2), (90, 2), on="#time")
        await run.says("marked ")
        window = run.app.screen_state.timeline_window()
        assert window is not None
        assert cursor.range_ns is not None
        assert window[0] < cursor.range_ns[0] < cursor.range_ns[1] < window[1]
        assert "LIVE" in run.header
        await run.drag((110, 2), (119, 2), on="#time")
        await run.until(lambda: cursor.mark_out_ns == window[1])


async def test_a_drag_beside_the_time_marks_nothing() -> None:
    """Over the value right of a timeline of one line it marked a range of no length."""
    async with running(COLLISION, size=(80, 16)) as run:
        cursor = run.app.screen_state.cursor
        await run.drag((74, 0), (78, 0), on="#time")
        assert cursor.mark_in_ns is cursor.mark_out_ns is None
        await run.drag((60, 0), (78, 0), on="#time")
        window = run.app.screen_state.timeline_window()
        assert window is not None
        await run.until(lambda: cursor.mark_out_ns == window[1])


async def test_a_button_that_was_pressed_elsewhere_marks_nothing_and_goes_nowhere() -> None:
    """A press whose release another screen got was ended by the next release here."""
    async with running(COLLISION) as run:
        await run.mouse(events.MouseDown, 100, 2, on="#time")
        await run.press("2")
        await run.mouse(events.MouseUp, 10, 10)
        await run.press("1")
        for column in (90, 100):
            await run.mouse(events.MouseDown, 5, 1, on="#findings")
            await run.mouse(events.MouseUp, column, 2, on="#time")
        assert run.app.screen_state.cursor.mark_in_ns is None
        assert "LIVE" in run.header


async def test_the_wheel_zooms_the_timeline() -> None:
    async with running(COLLISION) as run:
        span_s = run.app.screen_state.cursor.span_s
        before_s = span_s(has_now=True)
        for event, differs in ((events.MouseScrollDown, 1), (events.MouseScrollUp, 0)):
            await run.mouse(event, 100, 2, on="#time")
            assert (span_s(has_now=True) > before_s) == bool(differs)


async def test_hovering_shows_a_port_and_leaving_shows_the_cursors_again() -> None:
    async with running(COLLISION) as run:
        grid = run.app.screen.query_one(HeatGrid)
        y = next(y for y, line in enumerate(run.lines) if "gpu003" in line)
        await run.pilot.hover(grid, offset=(11, y - 2))
        await run.settle()
        assert any("gpu003 r0" in line and " tx " in line for line in run.lines)
        await run.pilot.hover("#findings")
        await run.settle()
        assert not any("gpu003 r0" in line and " tx " in line for line in run.lines)


async def test_a_finding_is_clicked_open() -> None:
    async with running(COLLISION) as run:
        await run.click(5, 1, on="#findings")
        assert run.view == "finding"


async def test_a_key_in_the_footer_is_clicked() -> None:
    async with running(COLLISION) as run:
        x = run.lines[-1].index("freeze")
        await run.click(x, 0, on="#footer")
        assert run.app.screen_state.paused


async def test_a_key_of_the_cursor_is_clicked_where_nothing_has_the_cursor() -> None:
    """A click beside the screen, as one that was under way while the terminal shrank, takes it."""
    async with running(HEALTHY) as run:
        await run.click(500, 0)
        assert run.app.focused is None
        await run.click(run.lines[-1].index("enter"), 0, on="#footer")
        assert run.view == "overview"
        await run.press("tab")
        await run.click(run.lines[-1].index("enter"), 0, on="#footer")
        assert run.view == "port"


async def test_what_comes_of_a_cell_that_a_smaller_heatmap_has_not_is_nothing() -> None:
    async with running(HEALTHY) as run:
        grid = run.app.screen.query_one(HeatGrid)
        for message in (HeatGrid.Moved, HeatGrid.Hovered, HeatGrid.Opened):
            for cell in ((500, 0), (0, 500)):
                grid.post_message(message(cell))
        await run.settle()
        assert run.view == "overview"


async def test_a_click_on_the_views_in_the_footer_goes_through_them() -> None:
    async with running(COLLISION, size=(80, 24)) as run:
        await run.press("enter")
        for view in ("switches", "nodes", "findings", "matrix", "fluctuation", "jobs", "overview"):
            await run.click(run.lines[-1].index("views"), 0, on="#footer")
            await run.goes_to(view)


async def test_the_way_back_in_the_footer_is_clicked() -> None:
    async with running(COLLISION, size=(80, 24)) as run:
        await run.press("enter", "enter")
        for view in ("finding", "overview"):
            await run.click(run.lines[-1].index("back"), 0, on="#footer")
            await run.goes_to(view)
