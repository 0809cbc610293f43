"""What is typed after `/`, and what it leaves in every view."""

from __future__ import annotations

import re

import pytest
from textual.widgets import Input

from fabmon.tui.cells import DOWN, FLAGGED, MUTED, SELECTED, STALE, Look, scale
from fabmon.tui.choices import Choices
from fabmon.tui.metrics import heat_metric
from fabmon.tui.palette import Depth, palette
from fabmon.tui.widgets import prompts
from fabmon.tui.widgets.heatgrid import HeatGrid
from tests.tui.running import Running, running
from tests.tui.worlds import COLLISION, big, troubled


async def test_a_filter_works_while_it_is_typed_and_stays_on_enter() -> None:
    async with running(COLLISION) as run:
        grid = run.app.screen.query_one(HeatGrid)
        rows = _rows(run)
        await run.press("slash", *"gpu002")
        await run.shows("8 ports of 1 node ")
        assert _rows(run) == rows, "nothing moves"
        assert _muted(grid, "gpu003")
        assert not _muted(grid, "gpu002")
        assert "8 ports of 1 node " in run.text
        await run.press("enter")
        assert "filter: gpu002" in run.lines[1]
        assert run.app.focused is grid
        await run.press("escape")
        assert "filter" not in run.lines[1]
        assert not _muted(grid, "gpu003")


def _rows(run: Running) -> list[str]:
    """The rows of the hosts; a muted cell has no mark of the selection."""
    return [line[:70].replace("◉", "█") for line in run.lines if " gpu0" in line[:12]]


def _muted(grid: HeatGrid, node: str) -> bool:
    """Whether all cells of a node are muted; they have one state."""
    row = next(y for y, row in enumerate(grid._rows) if any(n[2] == node for n in row.names))
    codes = grid._codes[row, :8]
    (muted,) = {bool(code & MUTED) for code in codes}
    return muted


async def test_a_filter_is_applied_when_typing_rests_not_at_each_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    applied: list[str] = []
    with_filter = Choices.with_filter

    def counted(choices: Choices, text: str) -> Choices:
        applied.append(text)
        return with_filter(choices, text)

    monkeypatch.setattr(Choices, "with_filter", counted)
    monkeypatch.setattr(prompts, "REST_S", 3600)
    async with running(COLLISION) as run:
        await run.press("slash", *"gpu002")
        assert applied == []
        await run.press("enter")
        assert applied == ["gpu002"]
        await run.press("escape", "colon", *"matrix", "enter")
        assert run.view == "matrix", "what was typed counts, though it was not listed yet"


async def test_a_leaf_without_a_match_has_no_value_and_no_mark_of_its_own() -> None:
    async with running(COLLISION, size=(80, 24)) as run:
        await run.press(",")
        assert " max uplink " in run.lines[3]
        await run.press("slash", *"gpu005", "enter")
        assert " max match " in run.lines[3]
        other, own = (
            next(line for line in run.lines if line.lstrip(" ▲").startswith(name))
            for name in ("leaf1 ", "leaf2 ")
        )
        assert "%" not in other
        assert "ECMP" not in other
        assert not other.startswith(" ▲")
        assert re.search(r"[\d.]+ % gpu005 r\d", own)


async def test_among_many_leaves_those_that_match_come_first() -> None:
    async with running(big(), size=(80, 24)) as run:
        await run.press("slash", *"gpu777", "enter")
        assert "1 with matches first" in run.lines[2]
        assert run.lines[4].lstrip(" ▲").startswith("leaf25 ")
        await run.press("escape")
        assert "1 with findings first" in run.lines[2]
        assert run.lines[4].lstrip(" ▲").startswith("leaf1 ")


async def test_in_help_it_searches_help() -> None:
    async with running(COLLISION, size=(80, 24)) as run:
        await run.press("question_mark", "slash", *"bookm", "enter")
        assert "search: bookm" in run.lines[1]
        assert "bookmark this tick" in run.text
        assert "next metric" not in run.text
        assert not run.app.screen_state.choices.filter
        await run.press("slash", *"util>>", "enter")
        assert "no key and no word of help contains that" in run.text
        await run.press("escape", "question_mark")
        assert "search" not in run.lines[1]
        assert "next metric" in run.text or "Every link" in run.text


async def test_a_port_that_does_not_match_has_no_colour_of_its_own() -> None:
    look = Look(palette(Depth.TRUECOLOR), scale(heat_metric("util"), Depth.TRUECOLOR, False))
    for code in (30, 30 | FLAGGED, 30 | STALE, DOWN, 30 | SELECTED):
        plain, muted = look.picture(code & ~SELECTED, 3), look.picture(code | MUTED, 3)
        assert muted == (plain[0], look.palette.rule)


async def test_the_keys_of_matches_go_around_them() -> None:
    async with running(COLLISION) as run:
        await run.press("a")
        await run.says("no filter is set")
        await run.press("slash", *"node:gpu003 rail:2", "enter", "a")
        assert any(line.startswith(" gpu003 r2 ") for line in run.lines)
        await run.press("escape", "slash", *"rail:5 group:leaf2", "enter", "a")
        assert any(line.startswith(" gpu005 r5 ") for line in run.lines)
        await run.press("a")
        assert any(line.startswith(" gpu006 r5 ") for line in run.lines)
        await run.press("A", "A")
        assert any(line.startswith(" gpu008 r5 ") for line in run.lines), "around the start"
        await run.press("4", "a")
        assert run.view == "findings"


async def test_escape_takes_the_filter_away_while_it_is_typed() -> None:
    async with running(COLLISION) as run:
        await run.press("slash", *"gpu002", "escape")
        assert run.app.screen_state.choices.filter == ""
        assert not run.app.screen.query_one(Input).has_focus
        assert run.view == "overview"


async def test_a_wrong_filter_says_what_would_be_right_and_changes_nothing() -> None:
    async with running(COLLISION) as run:
        await run.press("slash", *"rack:3")
        await run.shows("unknown key 'rack': keys are state role")
        assert "gpu001" in run.text


async def test_an_unfinished_filter_says_which_one_is_applied() -> None:
    async with running(COLLISION, size=(120, 40)) as run:
        await run.press("slash", *"util")
        await run.until(lambda: run.app.screen_state.choices.filter == "util")
        await run.press(">")
        await run.shows("util>: > needs a number; the filter is still util")
        await run.press(*"80")
        await run.until(lambda: "needs a number" not in run.text)
        await run.press("escape", "slash", "!")
        await run.shows("nothing after !; no filter is applied")


async def test_a_wrong_filter_is_said_in_full_and_not_taken() -> None:
    async with running(COLLISION, size=(80, 24)) as run:
        await run.press("slash", *"foo>3", "enter")
        assert run.app.screen.query_one(Input).has_focus
        assert "! foo: compare one of util tx rx" in run.text
        assert "drops" in "\n".join(run.lines[-4:])
        await run.press("escape")
        assert "compare one of" not in run.text


async def test_a_filter_that_leaves_nothing_says_how_to_get_out() -> None:
    async with running(COLLISION, size=(80, 24)) as run:
        await run.press("slash", *"zebra")
        await run.until(lambda: "no port matches; esc clears the filter" in run.lines[-3])
        await run.press("enter")
        assert "no port matches; esc clears the filter" in run.lines[1]
        await run.press("escape")
        assert "no port matches" not in run.text


async def test_while_the_past_is_being_read_no_match_is_not_final() -> None:
    async with running(COLLISION, size=(80, 24)) as run:
        state = run.app.screen_state
        state.show(COLLISION.scene(20))
        state.cursor.is_settled = False
        await run.press("slash", *"zebra")
        await run.until(lambda: "no port matches yet: the past is being" in run.lines[-3])
        state.cursor.is_settled = True
        run.app.repaint()
        await run.shows("no port matches; esc clears the filter")
        state.cursor.is_settled = False
        await run.press("enter")
        assert "no port matches yet: the past is being read" in run.lines[1]


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 18)])
async def test_a_long_filter_that_leaves_nothing_says_so_at_every_size(
    size: tuple[int, int],
) -> None:
    async with running(COLLISION, size=size) as run:
        await run.press("slash", *"util>99 role:switch group:leaf2", "enter")
        assert "no port matches; esc clears the filter" in run.text


async def test_what_is_typed_takes_the_place_of_the_old_filter() -> None:
    async with running(COLLISION) as run:
        await run.press("slash", *"gpu002", "enter", "slash", *"gpu003")
        await run.until(lambda: run.app.screen_state.choices.filter == "gpu003")
        await run.press("enter", "slash", "enter")
        assert run.app.screen_state.choices.filter == "gpu003"


async def test_keys_that_mean_something_are_text_while_a_filter_is_typed() -> None:
    async with running(COLLISION) as run:
        await run.press("slash", "q", "u", "m", "space", "1")
        assert run.app.screen.query_one(Input).value == "qum 1"
        assert not run.app.screen_state.paused


async def test_the_filter_reaches_every_view() -> None:
    async with running(troubled()) as run:
        state = run.app.screen_state
        state.choices = state.choices.with_filter("leaf2")
        await run.press("2")
        assert "leaf2" in run.text
        assert "leaf1 " not in run.text
        await run.press("3")
        assert "gpu001" not in run.text
        await run.press("4")
        assert "none in the filter" not in run.text
        assert "ECMP collision" not in "\n".join(run.lines[2:6])
        state.choices = state.choices.with_filter("leaf1")
        await run.press("1", "4")
        assert "   1 finding does not match the filter" in run.text


async def test_words_of_the_filter_choose_counters() -> None:
    async with running(COLLISION) as run:
        await run.press("l", "enter", "slash", *"tx_bytes", "enter")
        assert "netdev_tx_bytes" in run.text
        assert "netdev_rx_bytes" not in run.text


async def test_escape_takes_the_filter_away_before_the_level_that_was_chosen() -> None:
    async with running(COLLISION) as run:
        await run.press("slash", *"gpu002", "enter", "full_stop", "escape")
        assert run.app.screen_state.choices.filter == ""
