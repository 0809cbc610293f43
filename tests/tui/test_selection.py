"""The finding under the cursor lights its links in every view, until it is let go."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from fabmon.analysis.finding import Change
from fabmon.analysis.scene import Scene
from fabmon.tui.cells import FLAGGED, SELECTED, scale
from fabmon.tui.line import FindingTarget, PortTarget
from fabmon.tui.metrics import heat_metric
from fabmon.tui.palette import Depth
from fabmon.tui.run_facts import RunFacts
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.widgets.heatgrid import HeatGrid
from fabmon.tui.widgets.lines import LineView, TimelineView
from tests import work
from tests.tui import golden
from tests.tui.running import Running, running
from tests.tui.worlds import COLLISION, HEALTHY, big, troubled

SIZES = ((60, 18), (80, 24), (120, 40))
BIG = big()
VIEWS = {"overview": "1", "switches": "2", "nodes": "3", "findings": "4", "matrix": "5"}


async def test_until_the_user_moves_the_first_finding_is_selected_and_no_cell_marked() -> None:
    async with running(COLLISION) as run:
        grid = run.app.screen.query_one(HeatGrid)
        assert "◉▲ ECMP collision" in run.text
        assert not np.count_nonzero(grid._codes & SELECTED)
        assert grid.cursor is not None
        assert grid._codes[grid.cursor] & FLAGGED
        await run.press("enter")
        assert run.view == "finding"
        await run.press("escape", "enter")
        assert run.view == "finding"
        await run.press("escape", "h", "enter")
        assert run.view == "port"


async def test_enter_in_the_timeline_opens_the_selected_finding() -> None:
    async with running(COLLISION, size=(120, 40)) as run:
        await run.press("shift+tab")
        assert isinstance(run.app.screen.focused, TimelineView)
        await run.until(lambda: "▸ Last" in run.text and "enter explain" in run.lines[-1])
        await run.press("enter")
        assert run.view == "finding"


async def test_enter_in_the_timeline_is_not_offered_without_a_finding() -> None:
    async with running(HEALTHY, size=(120, 40)) as run:
        assert "enter" in run.lines[-1]
        await run.press("shift+tab")
        await run.until(lambda: "▸ Last" in run.text and "enter" not in run.lines[-1])
        await run.press("enter")
        assert run.view == "overview"


async def test_the_finding_under_the_cursor_is_in_the_middle_of_the_heatmap() -> None:
    hot = next(node for node in BIG.fabric.nodes if node.name == "gpu512").ports[0].row
    scene = BIG.scene(70)
    finding = msgspec.structs.replace(scene.findings[0], rows=(hot,))
    async with running(BIG, seq=20, size=(120, 40)) as run:
        await run.send(replace(BIG.scene(71), findings=(finding,)))
        await run.press("full_stop", "full_stop", "tab")
        grid = run.app.screen.query_one(HeatGrid)
        assert grid.cursor is not None
        assert grid.cursor[0] > grid.size.height / 2
        line = grid.cursor[0] - grid.scroll_offset.y
        assert abs(line - grid.size.height / 2) <= 2


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("view", VIEWS)
async def test_its_links_are_marked_in_every_view(view: str, size: tuple[int, int]) -> None:
    async with running(COLLISION, size=size) as run:
        await _choose_the_first(run)
        await run.press(VIEWS[view])
        marked = [line for line in run.lines if "◉" in line]
        assert marked
        golden.check(f"selection-{view}-{size[0]}x{size[1]}", "\n".join(marked))


@pytest.mark.parametrize("color", ["256", "16", "none"])
async def test_the_mark_works_in_every_colour_mode(color: str) -> None:
    async with running(COLLISION, size=(120, 40), color=color) as run:
        await _choose_the_first(run)
        mark = "*" if color == "none" else "◉"
        assert mark in run.lines[4]
        golden.check(f"selection-{color}", "\n".join(line for line in run.lines if mark in line))


async def test_escape_lets_go_and_then_clears_the_filter() -> None:
    async with running(COLLISION) as run:
        await run.press("slash", *"leaf1", "enter", "tab")
        assert "◉" in run.text
        await run.press("escape")
        assert "◉" not in run.text
        assert "filter: leaf1" in run.text
        await run.press("escape")
        assert "filter" not in run.lines[1]


async def test_the_mark_moves_with_the_cursor_and_stays_when_the_finding_is_read() -> None:
    async with running(troubled(), size=(120, 40)) as run:
        await run.press("4", "j", "k")
        first = run.app.screen_state.selected_key
        await run.press("j")
        second = run.app.screen_state.selected_key
        assert first
        assert first != second
        await run.press("enter", "escape", "1", "4")
        assert run.app.screen_state.selected_key == second
        await run.press("enter")
        assert second.partition(":")[2].partition("/")[0] in run.lines[1]


async def test_a_finding_that_closes_marks_nothing() -> None:
    async with running(COLLISION) as run:
        await _choose_the_first(run)
        await run.send(HEALTHY.scene(71))
        assert "◉" not in run.text


async def test_a_finding_whose_cause_changes_stays_chosen_and_has_the_new_title() -> None:
    scene = HEALTHY.scene(70)
    found = COLLISION.scene(70).findings[0]
    before = msgspec.structs.replace(found, cause="error_burst")
    now = msgspec.structs.replace(before, cause="degraded_link", opened_as="error_burst")
    async with running(HEALTHY, size=(120, 40)) as run:
        await run.send(replace(scene, findings=(before,)))
        await run.press("4", "j", "g", "enter")
        assert "Error burst" in run.lines[1]
        await run.send(replace(HEALTHY.scene(71), findings=(now,)))
        assert run.app.screen_state.selected_key == before.key
        assert "Degraded link" in run.lines[1]
        assert "Error burst" not in run.text
        await run.press("escape")
        assert "▲ Degraded link" in run.text


async def test_the_strip_shows_since_when() -> None:
    async with running(COLLISION, size=(240, 70)) as run:
        await _choose_the_first(run)
        strip = next(line for line in run.lines if "Last 2 min" in line)
        # 37 of the last 120 s, in the columns behind the names; times are written over it.
        begin = next(line.index("leaf2 up") for line in run.lines[-20:] if "leaf2 up" in line)
        columns = 240 - begin - len("leaf2 up18 ")
        assert strip.index("◉") == pytest.approx(239 - 37 / 120 * columns, abs=2)
        assert strip.endswith("━━━━")


async def test_the_heatmap_scrolls_to_what_is_chosen() -> None:
    async with running(BIG, size=(80, 24)) as run:
        await run.press(".", ".", "G")
        assert not any("leaf1 " in line for line in run.lines[2:12])
        await run.press("tab")
        assert any("▲ leaf1 " in line or "◉▲ leaf1 " in line for line in run.lines[2:12])


async def _choose_the_first(run: Running) -> None:
    await run.press("4", "j", "g", "1")


def test_choosing_and_marking_cost_little_at_8192_rails() -> None:
    scene, screen_state = _wide(BIG.scene(70)), ScreenState(RunFacts("pod7"), Depth.TRUECOLOR)
    screen_state.take(scene)
    levels = scale(heat_metric("util"), Depth.TRUECOLOR, False)
    screen_state.draw_context(scene, 120).codes(levels)  # makes what is kept
    with work.counted() as done:
        screen_state.select("")
        screen_state.select(scene.findings[0].key)
        codes = screen_state.draw_context(scene, 120).codes(levels)
    assert (codes & SELECTED).any()
    assert done.lines < 50_000


def _wide(scene: Scene) -> Scene:
    """The scene with a finding that is about a thousand ports."""
    finding = msgspec.structs.replace(scene.findings[0], rows=tuple(range(1000)))
    return replace(scene, findings=(finding, *scene.findings[1:]))


async def test_an_event_that_is_opened_is_gone_to() -> None:
    async with running(COLLISION, seq=32, size=(80, 24)) as run:
        await run.send(*(COLLISION.scene(seq) for seq in range(33, 41)))
        await run.press("4", "down")
        row = next(line for line in run.lines if "Opened: ECMP collision" in line)
        time = row.split()[0]
        await run.press("enter")
        await run.heads(f"PAUSED {time}")


async def test_a_finding_that_closed_is_opened_from_the_list() -> None:
    before, after = COLLISION.scene(60), COLLISION.scene(61)
    finding = msgspec.structs.replace(before.findings[0], until_ns=before.snapshot.time_ns)
    closed = replace(after, findings=(), changes=((Change.CLOSE, finding),))
    async with running(COLLISION, seq=59, size=(100, 30)) as run:
        await run.send(before, closed)
        await run.press("4")
        row = next(n for n, line in enumerate(run.lines) if "Closed, latest first" in line)
        assert "ECMP collision  leaf1 up5 → spine3" in run.lines[row + 1]
        assert run.lines[row + 1].rstrip().endswith("14:07:13Z to 14:07:40Z, 27 s")
        await run.press("enter")
        assert run.view == "finding"
        assert "14:07:13Z to 14:07:40Z: leaf1 up5 sends at " in run.text
        assert "14:07:13Z to 14:07:40Z (27 s), closed, " in run.text
        assert "If it happens again: " in run.text
        assert "Advice: " not in run.text
        await run.press("escape")
        await run.send(replace(COLLISION.scene(62)))
        assert "Closed, latest first" not in run.text


def test_of_two_closures_the_last_is_shown_after_a_look_at_the_first() -> None:
    finding = COLLISION.scene(60).findings[0]

    def closes(seq: int) -> Scene:
        scene = COLLISION.scene(seq)
        ended = msgspec.structs.replace(finding, until_ns=scene.snapshot.time_ns)
        return replace(scene, findings=(), changes=((Change.CLOSE, ended),))

    screen_state, now = ScreenState(RunFacts("pod7"), Depth.NONE), closes(80)
    screen_state.take(closes(61))
    screen_state.take(now)
    screen_state.show(closes(61))
    screen_state.follow()
    (shown,) = screen_state.closed(now)
    assert shown.until_ns == now.snapshot.time_ns


async def test_the_first_finding_is_selected_until_the_user_moves() -> None:
    async with running(HEALTHY) as run:
        findings = run.app.screen.query_one("#findings", LineView)
        before = findings.selected
        assert isinstance(before, PortTarget), "the busiest link"
        await run.send(COLLISION.scene(71))
        first = findings.selected
        assert isinstance(first, FindingTarget)
        await run.press("tab")
        await run.send(troubled().scene(72))
        assert findings.selected == first, "a finding that was highlighted stays selected"
