"""Every key, mouse target and name of the list, in every view: nothing fails, and esc goes back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.widget import Widget

from fabmon.tui import keys
from fabmon.tui.choices import Choices
from fabmon.tui.key_table import KEYS
from fabmon.tui.line import NodeTarget, PortTarget
from fabmon.tui.names import Entry
from fabmon.tui.widgets.choosers import JumpPrompt, MetricMenu
from fabmon.tui.widgets.prompts import Prompt, SaveMenu
from tests.tui.running import Running, running
from tests.tui.worlds import troubled

VIEWS: dict[str, tuple[str, ...]] = {
    "overview": (),
    "strip": ("shift+tab",),
    "switches": ("2",),
    "nodes": ("3",),
    "findings": ("4",),
    "matrix": ("5",),
    "fluctuation": ("6",),
    "jobs": ("7",),
    "pair": ("5", "right", "right", "enter"),
    "node": ("3", "j", "enter"),
    "port": ("l", "enter"),
    "finding": ("enter",),
    "waterfall": ("enter", "w"),
    "help": ("question_mark",),
}
MENUS: dict[str, tuple[str, str, type]] = {
    "save": ("x", keys.SAVE, SaveMenu),
    "go to": ("colon", keys.JUMP, JumpPrompt),
    "metrics": ("v", keys.METRICS, MetricMenu),
}
_QUIT = ("quit", "interrupt")
_MOST_ESCAPES = 8
WORLD = troubled()


@pytest.fixture(autouse=True)
def _files_go_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class _Visit:
    """A view that is visited again and again, each time with nothing selected or filtered.

    Most of what is pressed there leads nowhere else: then it is not opened anew."""

    def __init__(self, run: Running, view: str) -> None:
        self._run, self._view, self._place = run, view, ""

    async def open(self) -> None:
        """Open the view as at the start, live; from elsewhere by esc alone."""
        run, state = self._run, self._run.app.screen_state
        if self._place != self._where():
            await _escape(run)
        state.choices, state.follows_first = replace(Choices(), ramp=state.choices.ramp), True
        if self._place == self._where():
            return
        run.app.action_view("overview")
        run.app.screen.query_one("#heat").focus()
        await run.press("grave_accent", *VIEWS[self._view])
        self._place = self._where()

    def _where(self) -> str:
        """What shows where one is: the screens, their arrangement, the focus, the live header."""
        app = self._run.app
        focus = app.focused.id if app.focused else None
        is_live = "LIVE" in self._run.header
        return repr((app.screen_stack, sorted(app.screen.classes), focus, is_live))


async def _escape(run: Running) -> None:
    """Press esc until the overview is there and has its whole arrangement."""
    for _ in range(_MOST_ESCAPES):
        special = {"-max-grid", "-max-findings", "-typing"}
        if run.view == "overview" and special.isdisjoint(run.app.screen.classes):
            return
        await run.press("escape")
    raise AssertionError(f"esc does not lead out of {run.view or run.app.screen}:\n{run.text}")


def _nothing_failed(run: Running, after: str) -> None:
    assert not run.app.contained, f"{after}: {run.app.contained}"
    assert run.app.failure is None, after
    assert run.app.is_running, f"{after} ended the program"
    assert "This view failed" not in run.text, after


@pytest.mark.parametrize("view", VIEWS)
async def test_every_key_in_every_view(view: str) -> None:
    async with running(WORLD) as run:
        pressed = {
            part: key.action
            for key in KEYS
            if key.scope not in (keys.SAVE, keys.JUMP, keys.METRICS)
            # What else a key is called by, is the same everywhere.
            for part in key.keys.split(",")[: None if view == "overview" else 1]
        }
        visit = _Visit(run, view)
        for part, action in pressed.items():
            if action in _QUIT:
                continue
            await visit.open()
            if action == "close" and len(run.app.screen_stack) <= 2:
                continue
            await run.press(part)
            _nothing_failed(run, f"{part} in {view}")


@pytest.mark.parametrize("menu", MENUS)
async def test_every_key_in_every_menu(menu: str) -> None:
    key, scope, kind = MENUS[menu]
    async with running(WORLD) as run:
        for own in (each for each in KEYS if each.scope == scope):
            for part in own.keys.split(","):
                await _escape(run)
                await run.press(key)
                assert type(run.app.screen) is kind
                await run.press(part)
                _nothing_failed(run, f"{part} in {menu}")


async def test_a_question_is_left_with_esc() -> None:
    async with running(WORLD) as run:
        await run.press("t")
        assert isinstance(run.app.screen, Prompt)
        await run.press(*"nonsense", "enter", "escape")
        _nothing_failed(run, "a wrong time")
        assert run.view == "overview"


@pytest.mark.parametrize("menu", MENUS)
async def test_ctrl_c_ends_the_program_from_a_menu_too(menu: str) -> None:
    async with running(WORLD) as run:
        await run.press(MENUS[menu][0], "ctrl+c")
        assert run.app.return_code == 130


@pytest.mark.parametrize("view", VIEWS)
async def test_every_mouse_target_in_every_view(view: str) -> None:
    async with running(WORLD, size=(80, 24)) as run:
        visit = _Visit(run, view)
        await visit.open()
        places = sorted({*_footer_keys(run), *_corners(run)})
        for x, y in places:
            await visit.open()
            for _ in range(2):
                if run.app.is_running and y < run.app.size.height:
                    await run.click(x, y)
            _nothing_failed(run, f"click at {x}, {y} in {view}")


def _footer_keys(run: Running) -> set[tuple[int, int]]:
    """Where each part of the screen is that does something by itself; without the exit."""
    found: dict[str, tuple[int, int]] = {}
    for y, strip in enumerate(run.app.screen._compositor.render_strips()):
        x = 0
        for segment in strip:
            action = segment.style.meta.get("@click") if segment.style else None
            if action and "close" not in str(action):
                found.setdefault(str(action), (x, y))
            x += segment.cell_length
    return set(found.values())


def _corners(run: Running) -> set[tuple[int, int]]:
    """The first lines, the middle and the last line of every widget."""
    places = set()
    for widget in run.app.screen.query(Widget).results(Widget):
        region = widget.region
        if region.area and widget.display and not widget.children and widget.id != "footer":
            right, bottom = region.right - 2, region.bottom - 1
            middle = (region.x + region.width // 2, region.y + region.height // 2)
            names = [(region.x + 5, min(region.y + y, bottom)) for y in range(4)]
            cells = [(region.x + 16, min(region.y + y, bottom)) for y in range(4)]
            places |= {*names, *cells, middle, (right, bottom)}
    width, height = run.app.size
    return {(x, y) for x, y in places if 0 <= x < width and 0 <= y < height}


@pytest.mark.parametrize("view", VIEWS)
async def test_every_name_of_the_list_in_every_view(view: str) -> None:
    async with running(WORLD, size=(80, 24)) as run:
        names = run.app._searchable().search("")
        node, port = run.app._searchable().search("gpu002")[:2]
        assert isinstance(node.opens, NodeTarget)
        assert isinstance(port.opens, PortTarget)
        kinds = {each.kind for each in names}
        assert {"view", "command", "metric", "finding"} <= kinds
        if view != "overview":  # Of a kind all are opened in the same way; commands are keys.
            names = list({each.kind: each for each in reversed(names)}.values())
        visit = _Visit(run, view)
        for entry in (*names, node, port):
            if entry.opens in _QUIT:
                continue
            await visit.open()
            await _choose(run, entry)
            _nothing_failed(run, f"{entry.name} in {view}")


async def _choose(run: Running, entry: Entry) -> None:
    await run.press("colon")
    prompt = run.app.screen
    assert isinstance(prompt, JumpPrompt)
    prompt.dismiss(entry)
    await run.settle()
