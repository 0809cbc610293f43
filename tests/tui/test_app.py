"""The app: scenes that begin, end and fail, its messages, and how it quits."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from textual.events import Key
from textual.widgets import Input

from fabmon.analysis.scene import Scene
from fabmon.tui.app import FabmonApp
from fabmon.tui.drawings import SIGNAL, Drawings
from fabmon.tui.key_table import KEYS
from fabmon.tui.line import Line
from fabmon.tui.run_facts import RunFacts
from fabmon.tui.screen_app import ScreenApp
from fabmon.tui.screens.finding import FindingScreen, WaterfallScreen
from fabmon.tui.screens.fluctuation import FluctuationScreen
from fabmon.tui.screens.line_screens import JobsScreen, NodesScreen
from fabmon.tui.screens.overview import OverviewScreen
from fabmon.tui.typed_input import KeyParser
from fabmon.tui.widgets.choosers import JumpPrompt
from fabmon.tui.widgets.lines import LineView
from fabmon.tui.widgets.prompts import SaveMenu
from tests.tui.running import running
from tests.tui.scenes import World
from tests.tui.worlds import COLLISION, HEALTHY


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


async def test_messages_are_one_line_beside_the_end_of_the_footer() -> None:
    async with running(HEALTHY, size=(100, 30), toasts=True) as run:
        for text in ("first", "second", "third"):
            run.app.say(text, 60)
        await run.says("third")
        assert [note.message for note in run.app._notifications] == ["third"]
        await run.until(lambda: "third" in run.text)
        assert "third" in run.lines[-1]
        assert "first" not in run.text
        run.app.warn("while the third is shown")
        await run.until(lambda: "while the third is shown" in run.lines[-1])
        assert "? help  q quit" in run.lines[-1]


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

    app = FabmonApp(broken(), RunFacts("pod7", "none"))
    async with app.run_test() as pilot:
        await pilot.pause()
    assert isinstance(app.failure, ValueError)
    assert app.return_code == 1


@pytest.mark.parametrize("age_s", [0.0, 12.0])
async def test_silence_is_said(age_s: float) -> None:
    now = 0.0

    def clock() -> float:
        return now

    async def scenes() -> AsyncIterator[Scene]:
        yield COLLISION.scene(50)
        await asyncio.Event().wait()

    app = FabmonApp(scenes(), RunFacts("pod7", "none", age_s=lambda _: age_s), clock=clock)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        now = 12.0
        app._check_silence()
        await pilot.pause()
        assert app.screen_state.silent_s == 12.0
        strip = app.screen._compositor.render_strips()[0]
        assert "DELAYED 12 s" in strip.text
        assert "no tick for 12 s" in strip.text
        assert "LIVE" not in strip.text


async def test_what_is_late_is_not_called_live() -> None:
    """The console cannot keep up, then it can: the scene of a time is 4 s, later 0.2 s old."""
    late_s = 4.0

    async def scenes() -> AsyncIterator[Scene]:
        yield COLLISION.scene(50)
        await asyncio.Event().wait()

    app = FabmonApp(scenes(), RunFacts("pod7", "none", age_s=lambda _: late_s))

    def header() -> str:
        return app.screen._compositor.render_strips()[0].text

    async with app.run_test(size=(120, 40)) as pilot, asyncio.timeout(240):
        while "DELAYED 4 s" not in header():
            await pilot.pause(0.01)
        assert "LIVE" not in header()
        for usual_s in (0.2, 1.5):
            late_s = usual_s
            app._check_silence()
            while "LIVE" not in header():
                await pilot.pause(0.01)


async def test_the_age_of_data_from_a_server_is_beside_live() -> None:
    """Samples of a scrape every 15 s are older than the tick that shows them."""
    now, age_s = 0.0, 14.0

    async def scenes() -> AsyncIterator[Scene]:
        scene = COLLISION.scene(50)
        yield replace(scene, snapshot=replace(scene.snapshot, interval_s=15.0))
        await asyncio.Event().wait()

    app = FabmonApp(scenes(), RunFacts("pod7", "none", data_age_s=lambda: age_s), clock=lambda: now)

    def header() -> str:
        return app.screen._compositor.render_strips()[0].text

    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "LIVE" in header()
        assert "data 14 s old" in header()
        now, age_s = 5.0, 19.0
        app._check_silence()
        await pilot.pause()
        assert "data 19 s old" in header()


async def test_late_scenes_are_drawn_once_a_second() -> None:
    now = 0.0
    app = FabmonApp(None, RunFacts("pod7", "none", age_s=lambda _: 9.0), clock=lambda: now)
    drawn: list[Scene | None] = []
    async with app.run_test(size=(120, 40)):
        app.repaint = lambda: drawn.append(app.screen_state.live)  # type: ignore[method-assign]
        for seq in range(40, 50):
            now += 0.25
            await app.take(COLLISION.scene(seq))
        assert app.screen_state.live is not None
        assert app.screen_state.live.snapshot.seq == 49
        assert len(drawn) == 3


async def test_the_check_of_a_late_screen_does_not_draw_more_often() -> None:
    now = 0.0
    app = FabmonApp(None, RunFacts("pod7", "none", age_s=lambda _: 9.0), clock=lambda: now)
    drawn: list[float] = []
    async with app.run_test(size=(120, 40)):
        app.repaint = lambda: drawn.append(now)  # type: ignore[method-assign]
        for seq in range(40, 50):
            await app.take(COLLISION.scene(seq))
            for _ in range(2):
                now += 0.5
                app._check_silence()
        assert len(drawn) <= 11


async def test_new_findings_are_toasted_in_one_line() -> None:
    async with running(COLLISION, seq=32) as run:
        await run.send(COLLISION.scene(33))
        messages = [note.message for note in run.app._notifications]
        assert messages == ["▲ ECMP collision leaf1 up5 → spine3"]


@pytest.mark.parametrize("color", ["truecolor", "16", "none"])
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 18)])
async def test_a_toast_is_in_the_place_of_the_footer(size: tuple[int, int], color: str) -> None:
    async with running(COLLISION, seq=32, size=size, color=color, toasts=True) as run:
        await run.send(COLLISION.scene(33))
        said = " ▲ ECMP collision leaf1 up5 → spine3"
        await run.until(lambda: any(line.startswith(said) for line in run.lines))
        place = next(at for at, line in enumerate(run.lines) if line.startswith(said))
        assert place == size[1] - 1, "it covers a value"
        strip = run.app.screen._compositor.render_strips()[place]
        named = next(segment for segment in strip if "ECMP" in segment.text)
        palette = run.app.screen_state.palette
        assert named.style is not None
        assert named.style.reverse or named.style.bgcolor != palette.text.bgcolor


async def test_of_many_messages_only_the_last_one_is_kept() -> None:
    async with running(HEALTHY, size=(100, 30), toasts=True) as run:
        for number in range(20):
            run.app.say(f"message {number}")
            await run.pilot.pause()
        await run.until(lambda: "message 19" in run.text)
        await run.until(lambda: len(run.app.screen.query("ToastRack > *")) == 1)
        assert "message 18" not in run.text


async def test_a_toast_does_not_hide_what_is_typed() -> None:
    async with running(COLLISION, seq=32, size=(80, 24), toasts=True) as run:
        await run.send(COLLISION.scene(33))
        await run.press("t", *"abc")
        await run.until(lambda: any("go to" in line and "abc" in line for line in run.lines))


async def test_a_finding_that_opens_while_a_question_is_asked_is_toasted_after_it() -> None:
    async with running(COLLISION, seq=32, size=(80, 24)) as run:
        await run.press("t", *"abc")
        await run.send(COLLISION.scene(33))
        assert not list(run.app._notifications), "it would cover the timeline"
        await run.press("escape")
        await run.send(COLLISION.scene(34))
        messages = [note.message for note in run.app._notifications]
        assert messages == ["▲ ECMP collision leaf1 up5 → spine3"]


async def test_every_action_exists() -> None:
    async with running(COLLISION) as run:
        await run.press("l", "enter")
        lines = run.app.screen.query_one(LineView)
        pages = (FindingScreen, FluctuationScreen, WaterfallScreen)
        screens = (OverviewScreen, NodesScreen, JobsScreen, *pages, SaveMenu, JumpPrompt)
        targets = (run.app, run.app.screen, lines, *screens)
        for key in KEYS:
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


def _count_keys(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys that are handled from now on."""
    handled: list[str] = []
    handle = ScreenApp._handle_key

    async def counted(app: ScreenApp, key: Key) -> None:
        handled.append(key.key)
        await handle(app, key)

    monkeypatch.setattr(ScreenApp, "_handle_key", counted)
    return handled


async def test_escape_and_another_key_in_one_packet_are_two_keys() -> None:
    async with running(COLLISION) as run:
        await run.press("4", "slash", *"gpu002")
        run.app.post_message(Key("alt+1", "1"))
        await run.until(lambda: run.view == "overview")
        assert run.app.screen_state.choices.filter == ""


async def test_option_and_an_arrow_key_move_by_a_word_in_a_prompt() -> None:
    async with running(COLLISION) as run:
        await run.press("slash", *"gpu002")
        typed = run.app.focused
        assert isinstance(typed, Input)
        for data, cursor in (("\x1bb", 0), ("\x1bf", 6), ("\x1bd", 6)):
            for event in KeyParser().feed(data):
                run.app.post_message(event)
            await run.settle()
            assert (run.app.focused, typed.value) == (typed, "gpu002")
            assert typed.cursor_position == cursor


async def test_keys_that_nobody_typed_do_not_keep_those_that_follow_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(COLLISION) as run:
        handled = _count_keys(monkeypatch)
        for number in range(500):
            run.app.post_message(Key("jk"[number % 2], "jk"[number % 2]))
        run.app.post_message(Key("4", "4"))
        await run.until(lambda: run.view == "findings")
        assert len(handled) < 200


async def test_ctrl_c_overtakes_the_keys_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(COLLISION) as run:
        handled = _count_keys(monkeypatch)
        for _ in range(50):
            run.app.post_message(Key("j", "j"))
        run.app.post_message(Key("ctrl+c", None))
        await run.until(lambda: run.app.return_code == 130)
        assert len(handled) < 10


@pytest.mark.parametrize("key", ["q", "escape", "ctrl+c"])
async def test_a_key_is_heard_though_a_drawing_does_not_end(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(COLLISION) as run:
        drawings = run.app.drawings
        before = signal.signal(SIGNAL, drawings.end)
        monkeypatch.setattr(NodesScreen, "lines", _draws_without_end)
        pressed = threading.Thread(target=_press, args=(drawings, key))
        try:
            run.app.post_message(Key("n", "n"))
            run.app.post_message(Key(key, key if len(key) == 1 else None))
            pressed.start()
            await run.until(lambda: not drawings.is_awaited)
            await run.until(lambda: run.app._exit or (key == "escape" and run.view == "overview"))
        finally:
            pressed.join()
            signal.signal(SIGNAL, before)


async def test_escape_and_q_in_one_packet_end_each_drawing_that_keeps_them_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(COLLISION) as run:
        drawings = run.app.drawings
        before = signal.signal(SIGNAL, drawings.end)
        pressed = threading.Thread(target=_press, args=(drawings, "alt+q"))
        try:
            await run.press("7")
            assert run.view == "jobs"
            for view in (NodesScreen, JobsScreen):
                monkeypatch.setattr(view, "lines", _draws_without_end)
            run.app.post_message(Key("n", "n"))
            run.app.post_message(Key("alt+q", "q"))
            pressed.start()
            await run.until(lambda: run.app._exit)
            assert not drawings.is_awaited
        finally:
            pressed.join()
            signal.signal(SIGNAL, before)


def _draws_without_end(*_: object) -> list[Line]:
    for _number in range(10**9):
        pass
    raise AssertionError("nothing ended it")


def _press(drawings: Drawings, key: str) -> None:
    """What the thread that reads keys does."""
    drawings.pressed(key)
    while drawings.is_awaited:
        drawings.check()
        time.sleep(0.01)
