"""The terminal's background: a terminal that answers OSC 11 late, in parts, wrongly or never."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fabmon.tui.palette import Depth, Theme, palette
from fabmon.tui.terminal_background import QUERY, theme_of, theme_without_answer
from fabmon.tui.typed_input import InputDecoder
from tests.requirements import need_command
from tests.terminals import Pty, Tmux

_MAIN = "from fabmon.cli.main import main; main()"
_PATIENT = f"from fabmon.tui import terminal; terminal._ANSWER_WITHIN_S = 30.0; {_MAIN}"
"""A busy machine may take longer than a second from the question to the answer."""
_WHITE = b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\"


def _paper(theme: Theme) -> str:
    """The escape sequence of the background of a theme."""
    colour = palette(Depth.TRUECOLOR, theme=theme).text.bgcolor
    assert colour is not None
    return "48;2;" + ";".join(map(str, colour.get_truecolor()))


DARK, LIGHT = _paper(Theme.DARK), _paper(Theme.LIGHT)


@pytest.mark.parametrize(
    ("answer", "theme"),
    [
        ("rgb:ffff/ffff/ffff", Theme.LIGHT),
        ("rgb:fd/f6/e3", Theme.LIGHT),
        ("rgb:0000/2b2b/3636", Theme.DARK),
        ("rgb:f/f/f", Theme.LIGHT),
        ("rgba:1e1e/1e1e/2e2e/ffff", Theme.DARK),
        ("#ffffff", Theme.LIGHT),
        ("#fff", Theme.LIGHT),
        ("#000000000000", Theme.DARK),
        ("rgb:0000/0000/ffff", Theme.DARK),
        ("rgb:ffff/ffff/0000", Theme.LIGHT),
        ("white", None),
        ("rgb:fffff/0/0", None),
        ("#ffff", None),
        ("?", None),
        ("", None),
    ],
)
def test_an_answer_is_light_dark_or_no_colour(answer: str, theme: Theme | None) -> None:
    assert theme_of(answer) is theme


@pytest.mark.parametrize(
    ("value", "theme"),
    [
        ("15;0", Theme.DARK),
        ("0;15", Theme.LIGHT),
        ("0;default;7", Theme.LIGHT),
        ("0;default", Theme.DARK),
        ("", Theme.DARK),
    ],
)
def test_without_an_answer_the_environment_decides(value: str, theme: Theme) -> None:
    assert theme_without_answer({"COLORFGBG": value}) is theme


def test_the_answer_is_no_input_wherever_it_is_cut() -> None:
    for answer in (_WHITE, b"\x1b]11;rgb:ffff/ffff/ffff\x07"):
        for cut in range(len(answer) + 1):
            decoder = InputDecoder()
            text = decoder.feed(b"a" + answer[:cut], awaits_answer=True)
            text += decoder.feed(answer[cut:] + b"b", awaits_answer=True)
            assert text == "ab"
            assert decoder.take_answers() == ["rgb:ffff/ffff/ffff"]
            assert decoder.take_answers() == []


def test_escape_is_a_key_again_when_no_answer_is_awaited() -> None:
    decoder = InputDecoder()
    assert decoder.feed(b"\x1b", awaits_answer=True) == ""
    assert decoder.feed(b"", awaits_answer=False) == "\x1b"
    assert decoder.feed(b"\x1b", awaits_answer=False) == "\x1b"


def test_other_sequences_that_begin_like_an_answer_are_input() -> None:
    decoder = InputDecoder()
    assert decoder.feed(b"\x1b]") + decoder.feed(b"x") == ""
    assert decoder.feed(b"") + decoder.feed(b"") == "\x1b]x", "nothing followed: they were typed"
    assert decoder.feed(b"\x1b[A", awaits_answer=True) == "\x1b[A"


# In a real terminal.

Start = Callable[..., Pty]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    opened: list[Pty] = []

    def start_(*arguments: str, program: str = _MAIN, **environ: str) -> Pty:
        mine = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "NO_COLOR": ""}
        homes = {"XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}
        argv = [sys.executable, "-c", program, "demo", "--hosts", "4", *arguments]
        opened.append(Pty(argv, {**os.environ, **mine, **homes, **environ}))
        return opened[-1]

    yield start_
    for each in opened:
        each.close()


def _shown(terminal: Pty) -> str:
    """What was written after the last clear drawing: the colours of the latest screen."""
    terminal.drain(0.5)
    terminal.output = b""
    terminal.send(b"4")
    terminal.until("No finding")
    return terminal.output.decode(errors="replace")


@pytest.mark.parametrize("parts", [(_WHITE,), (_WHITE[:1], _WHITE[1:]), (_WHITE[:9], _WHITE[9:])])
def test_a_light_terminal_gets_light_colours(start: Start, parts: tuple[bytes, ...]) -> None:
    terminal = start(program=_PATIENT)
    terminal.until(QUERY)
    for part in parts:
        terminal.send(part)
        time.sleep(0.15)
    terminal.until("LIVE")
    shown = _shown(terminal)
    assert LIGHT in shown
    assert DARK not in shown


def test_a_terminal_that_never_answers_gets_dark_colours(start: Start) -> None:
    terminal = start()
    terminal.until("LIVE")
    shown = _shown(terminal)
    assert DARK in shown
    assert LIGHT not in shown


def test_an_answer_that_comes_too_late_changes_nothing_and_presses_no_key(start: Start) -> None:
    terminal = start()
    terminal.until(QUERY)
    terminal.until("LIVE")
    time.sleep(1.2)
    # As keys, its characters would open the matrix, change the unit and the filter.
    terminal.send(_WHITE)
    terminal.drain(0.5)
    shown = _shown(terminal)
    assert DARK in shown
    assert LIGHT not in shown
    assert "findings" in shown
    assert "matrix" not in shown
    terminal.send(b"q")
    assert terminal.wait() == 0


_QUITS_AT_ONCE = """
from textual.app import App
from fabmon.tui import terminal
from fabmon.tui.terminal import TerminalDriver
terminal._ANSWER_WITHIN_S = 30.0
class Asks(App):
    def on_mount(self):
        self._driver.ask_background(lambda theme: None)
        self.exit()
Asks(driver_class=TerminalDriver).run()
"""


def test_a_person_who_quits_at_once_finds_no_answer_on_the_command_line() -> None:
    terminal = Pty([sys.executable, "-c", _QUITS_AT_ONCE], os.environ)
    try:
        terminal.until(QUERY)
        answering = threading.Timer(0.6, terminal.send, [_WHITE])
        answering.start()
        assert terminal.wait() == 0
        answering.join()
        assert terminal.unread() == b""
    finally:
        terminal.close()


@pytest.mark.parametrize(("colour", "paper"), [("#ffffff", LIGHT), ("#1e1e2e", DARK)])
def test_in_tmux_the_background_of_its_windows_decides(
    tmp_path: Path, colour: str, paper: str
) -> None:
    need_command("tmux", "tmux")
    command = shlex.join([sys.executable, "-c", _MAIN, "demo", "--hosts", "4"])
    homes = f"env COLORTERM=truecolor XDG_STATE_HOME={tmp_path} HOME={tmp_path}"
    screen = Tmux(f"tmux set -g window-style 'bg={colour}'; {homes} {command}; cat")
    try:
        screen.until("LIVE")
        assert paper in screen.escapes()
    finally:
        screen.close()


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        (("--theme", "light"), {}),
        ((), {"NO_COLOR": "1"}),
        (("--color", "16"), {}),
        (("--color", "none"), {}),
    ],
)
def test_a_terminal_is_not_asked_where_the_answer_has_no_effect(
    start: Start, arguments: tuple[str, ...], environ: dict[str, str]
) -> None:
    terminal = start(*arguments, **environ)
    terminal.until("LIVE")
    assert QUERY not in terminal.output.decode(errors="replace")


def test_the_option_wins_over_the_terminal(start: Start) -> None:
    terminal = start("--theme", "light")
    terminal.until("LIVE")
    assert LIGHT in _shown(terminal)
