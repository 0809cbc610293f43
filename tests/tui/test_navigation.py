"""What keys do: views and pages, the cursor, the focus, how values are shown."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from textual import events
from textual.app import App
from textual.screen import Screen
from textual.widgets import Input

from fabmon.analysis.causes import sentence
from fabmon.analysis.finding import Change
from fabmon.fabric.time_wording import SECOND_NS, time_of_day
from fabmon.tui.app import FabmonApp
from fabmon.tui.line import PortTarget
from fabmon.tui.palette import RAMPS
from fabmon.tui.screen_app import ScreenApp
from fabmon.tui.screens.base import ViewScreen
from fabmon.tui.typed_input import InputDecoder, KeyParser, typed_or_pasted
from fabmon.tui.widgets.heatgrid import HeatGrid
from fabmon.tui.widgets.lines import LineView, OpenRequested, Painted
from tests.tui.fabrics import fabric
from tests.tui.running import running
from tests.tui.scenes import World
from tests.tui.worlds import COLLISION, HEALTHY, connecting, troubled


@pytest.mark.parametrize(
    ("key", "view"),
    [
        ("1", "overview"),
        ("2", "switches"),
        ("3", "nodes"),
        ("n", "nodes"),
        ("4", "findings"),
        ("6", "fluctuation"),
        ("7", "jobs"),
    ],
)
@pytest.mark.parametrize("size", [(60, 18), (120, 40)])
async def test_views_are_one_key_away_from_anywhere(
    key: str, view: str, size: tuple[int, int]
) -> None:
    async with running(COLLISION, size=size) as run:
        await run.press("enter", "question_mark", key)
        assert run.view == view


async def test_the_switches_are_scrolled_to_the_selected_finding() -> None:
    """On a small terminal its leaf would be below the end of the screen."""
    scene = World(fabric(leaves=4), collides=30).scene(70)
    row = scene.snapshot.fabric.groups[2].rows[4]
    finding = msgspec.structs.replace(scene.findings[0], subject="leaf3/swp37", rows=(row,))
    async with running(size=(80, 24)) as run:
        await run.send(replace(scene, findings=(finding,)))
        await run.press("2")
        assert "leaf3" in run.text
        assert "▲" in "".join(run.lines[2:-1])


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


async def test_the_page_of_a_finding_that_closes_while_it_is_read_says_when_it_ended() -> None:
    now_ns = HEALTHY.scene(85).snapshot.time_ns
    (finding,) = COLLISION.scene(70).findings
    ended = msgspec.structs.replace(finding, until_ns=now_ns - 15 * SECOND_NS)
    span = f"{time_of_day(finding.since_ns)} to {time_of_day(now_ns - 15 * SECOND_NS)}"
    async with running(COLLISION, size=(120, 40)) as run:
        await run.press("4", "enter")
        await run.send(replace(HEALTHY.scene(85), changes=((Change.CLOSE, ended),)))
        assert f"{span} (37 s), closed" in run.text
        assert sentence(ended) in " ".join(run.text.split())
        for seq in (86, 120):
            await run.send(HEALTHY.scene(seq))
            assert f"{span} (37 s), closed" in run.text


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
    """It begins at the full one, up5."""
    async with running(COLLISION) as run:
        await run.press("2", "h", "h", "enter")
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


async def test_escape_until_nothing_is_left_to_clear_selects_the_first_finding() -> None:
    async with running(COLLISION) as run:
        await run.press("escape", "escape", "escape", "enter")
        assert run.view == "finding"
        await run.press("escape", "right", "escape", "escape", "escape", "enter")
        assert run.view == "finding"


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
        await run.until(lambda: run.app.screen_state.choices.filter == "g2")


@pytest.mark.parametrize("more", [0, 30, 60])
@pytest.mark.parametrize("keys", [("up",), ("escape",), ("up", "down"), ("j",), ("q",)])
async def test_behind_a_flood_of_keys_few_are_handled_before_q(
    keys: tuple[str, ...], more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of up to 64 took 10 ms, and q was left out where it was the one too many."""
    handled: list[str] = []
    original = ScreenApp._handle_key

    async def counted(app: ScreenApp, key: events.Key) -> None:
        handled.append(key.key)
        await original(app, key)

    async with running(COLLISION) as run:
        monkeypatch.setattr(ScreenApp, "_handle_key", counted)
        for number in range(1 + 65 * 4 + more):
            key = keys[number % len(keys)]
            run.app.post_message(events.Key(key, key if len(key) == 1 else None))
        run.app.post_message(events.Key("q", "q"))
        await run.until(lambda: run.app._exit)
    assert len(handled) <= 1 + 16 + 1


@pytest.mark.parametrize("opens", ["slash", "colon"])
@pytest.mark.parametrize("text", ["ab" * 30, "q" * 8 + "x", "-" * 40 + "x"])
async def test_all_of_a_line_that_came_at_once_is_typed(opens: str, text: str) -> None:
    """Of `q` four were, of another character 16: as many as count of a key that is held."""
    async with running(COLLISION) as run:
        await run.press_at_once(opens, *text)
        await run.until(lambda: typed_in(run.app) == text)


@pytest.mark.parametrize("opens", [b"/", b":"])
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "opening"])
@pytest.mark.parametrize(
    "reads",
    [
        (b"a" * 49,),
        (b"a" * 500 + b"b" * 500 + b"c",),
        (b"a" * 4096,) * 3,
        (b"ab" * 300 + b"c",),
        (b"qwertyuiop[]asdfghjkl", b"\x1b[200~pasted text\x1b[201~", b"zxcvbnm"),
        (hashlib.sha512(b"").hexdigest().encode(), b"q"),
    ],
    ids=lambda reads: f"{len(reads)} of {reads[0][:4]}",
)
async def test_no_character_of_a_paste_into_an_input_is_lost(
    opens: bytes, is_open: bool, reads: tuple[bytes, ...]
) -> None:
    """Of equal ones 48 were kept, or 64 pairs, and a paste overtook the keys before it."""
    decoder, parser = InputDecoder(), KeyParser()
    async with running(COLLISION) as run:
        for number, data in enumerate((opens, *reads)):
            for event in typed_or_pasted([*parser.feed(decoder.feed(data)), *parser.tick()]):
                run.app.post_message(event)
            if is_open and not number:
                await run.settle()
        text = b"".join(reads).decode()
        text = text.replace("\x1b[200~", "").replace("\x1b[201~", "")
        await run.until(lambda: len(typed_in(run.app)) >= len(text))
        assert typed_in(run.app) == text


async def test_what_is_pasted_where_there_is_no_input_presses_no_key() -> None:
    async with running(COLLISION) as run:
        run.app.post_message(events.Key("j", "j"))
        run.app.post_message(events.Paste("qqq"))
        run.app.post_message(events.Key("3", "3"))
        await run.goes_to("nodes")


def typed_in(app: FabmonApp) -> str:
    """The text of the input in focus."""
    return app.focused.value if isinstance(app.focused, Input) else ""


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


async def test_a_page_that_closes_shows_the_present_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The view below is drawn before it is seen, not with what it showed when it was left; it is
    drawn once, which takes most of the time of the key."""
    async with running(COLLISION, seq=60) as run:
        await run.press("2")
        await run.press("question_mark")
        await run.send(COLLISION.scene(61), COLLISION.scene(62))
        below = run.app.screen_stack[-2]
        assert isinstance(below, ViewScreen)
        header, shown, drawn = below.query_one("#header", Painted), [], []
        assert "14:07:40Z" in header.render_line(0).text
        display, paint = App._display, ViewScreen._paint

        def note_display(app: App[None], screen: Screen[None], update: Any) -> None:
            if screen is below and not app._batch_count:
                shown.append(header.render_line(0).text)
            display(app, screen, update)

        def note_paint(screen: ViewScreen) -> None:
            drawn.append(screen)
            paint(screen)

        monkeypatch.setattr(App, "_display", note_display)
        monkeypatch.setattr(ViewScreen, "_paint", note_paint)
        run.app.action_close()
        await run.settle()
        assert shown
        assert all("14:07:42Z" in each for each in shown)
        assert drawn == [below]


async def test_enter_on_the_page_of_a_port_does_not_open_it_again() -> None:
    async with running(COLLISION, seq=60) as run:
        await run.press("colon", *"gpu001 r0", "enter")
        deep = len(run.app.screen_stack)
        run.app.post_message(OpenRequested(PortTarget(run.app.screen.port.row)))  # type: ignore[attr-defined]
        await run.press("j")
        assert len(run.app.screen_stack) == deep
