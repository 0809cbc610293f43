"""The screen closed and opened again, in a real terminal."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.terminals import Pty

_MAIN = "from fabmon.cli.main import main; main()"
Start = Callable[..., Pty]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    opened: list[Pty] = []

    def start_(*arguments: str, main: str = _MAIN) -> Pty:
        mine = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "NO_COLOR": ""}
        homes = {f"XDG_{name}_HOME": str(tmp_path) for name in ("STATE", "CONFIG")}
        argv = [sys.executable, "-c", main, "demo", "--hosts", "4", *arguments]
        opened.append(Pty(argv, {**os.environ, **mine, **homes}))
        return opened[-1]

    yield start_
    for each in opened:
        each.close()


def test_units_of_one_run_are_those_of_the_next(start: Start, tmp_path: Path) -> None:
    first = start()
    first.until("LIVE")
    first.until("Gb/s")
    first.send(b"u")
    first.until("GB/s")
    first.send(b"q")
    assert first.wait() == 0
    state = tmp_path / "fabmon" / "screen.json"
    assert json.loads(state.read_text()) == {"units": "GB/s"}
    second = start()
    second.until("LIVE")
    second.until("GB/s")
    second.send(b"q")
    assert second.wait() == 0
    assert b"ignored" not in second.output


def test_a_directory_that_hangs_does_not_keep_the_screen(start: Start, tmp_path: Path) -> None:
    hanging = "import time, fabmon.session.preferences as p; p.keep = lambda new: time.sleep(1000)"
    screen = start(main=f"{hanging}; {_MAIN}")
    screen.until("LIVE")
    screen.send(b"q")
    assert screen.wait() == 0
    assert b"the choices of this run are not kept" in screen.output


def test_a_damaged_file_is_a_message_on_the_screen(start: Start, tmp_path: Path) -> None:
    state = tmp_path / "fabmon" / "screen.json"
    state.parent.mkdir()
    state.write_text("{")
    screen = start()
    screen.until("kept choices are ignored")
    screen.until("LIVE")
    screen.send(b"q")
    assert screen.wait() == 0
    assert state.read_text() == "{"


def test_a_mistake_in_the_keys_is_said_before_the_screen(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "fabmon" / "fabmon.toml"
    config.parent.mkdir()
    config.write_text('[keys]\nfreeze = "u"\n')
    screen = start()
    assert screen.wait() == 2
    assert "fabmon.toml:2: [keys] freeze = 'u': u is the key of units" in screen.output.decode()
    assert "\x1b[?1049h" not in screen.output.decode()


def test_a_screen_that_was_stopped_takes_every_key_and_gives_the_terminal_back(
    start: Start,
) -> None:
    """As after `kill -STOP`, a debugger or a suspended container: without SIGTSTP."""
    screen = start()
    screen.until("LIVE")
    screen.until("Gb/s")
    for _ in range(2):
        screen.process.send_signal(signal.SIGSTOP)
        screen.drain(0.3)
        screen.process.send_signal(signal.SIGCONT)
        screen.drain(0.3)
    screen.send(b"u")
    screen.until("GB/s")
    screen.send(b"q")
    assert screen.wait() == 0
    assert screen.modes == screen.modes_before


_CONTINUED_WHILE_WRITING = """
import signal
from textual.app import App
from fabmon.tui.terminal import TerminalDriver
class Writes(App):
    def on_mount(self):
        with self._driver._writer_thread._queue.mutex:
            signal.raise_signal(signal.SIGCONT)
        self.set_timer(0.2, self.exit)
Writes(driver_class=TerminalDriver).run()
"""


def test_a_screen_that_is_continued_in_the_middle_of_a_write_goes_on() -> None:
    """As where a terminal is closed: the kernel sends SIGHUP and SIGCONT."""
    terminal = Pty([sys.executable, "-c", _CONTINUED_WHILE_WRITING], os.environ)
    try:
        assert terminal.wait() == 0
    finally:
        terminal.close()
