"""What a person meets in the first minutes: real keys and signals in a real terminal."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.requirements import need_command
from tests.terminals import Pty, Tmux

_MAIN = "from fabmon.cli.main import main; main()"
_VIEWS = {
    "1": "overview",
    "2": "switches",
    "3": "nodes",
    "4": "findings",
    "5": "matrix",
    "6": "fluctuation",
    "7": "jobs",
}
_RESTORED = ("\x1b[?1049l", "\x1b[?1000l", "\x1b[?1003l", "\x1b[?1006l", "\x1b[?2004l", "\x1b[?25h")

Open = Callable[..., Tmux]
OpenPty = Callable[..., Pty]


def _env(state: Path) -> dict[str, str]:
    mine = {"TERM": "xterm-256color", "XDG_STATE_HOME": str(state), "HOME": str(state)}
    return {**os.environ, **mine, "COLORTERM": "truecolor"}


def _argv(*arguments: str, before: str = "") -> list[str]:
    return [sys.executable, "-c", f"{before}\n{_MAIN}", *arguments]


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Open]:
    need_command("tmux", "tmux")
    opened: list[Tmux] = []

    def open_(*arguments: str, before: str = "", size: tuple[int, int] = (120, 32)) -> Tmux:
        names = ("TERM", "XDG_STATE_HOME", "HOME", "COLORTERM")
        env = [f"{name}={_env(tmp_path)[name]}" for name in names]
        command = shlex.join(
            ["env", "-u", "COLUMNS", "-u", "LINES", *env, *_argv(*arguments, before=before)]
        )
        opened.append(Tmux(f"{command}; echo left with $?; cat", *size))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[OpenPty]:
    opened: list[Pty] = []

    def open_(*arguments: str, before: str = "") -> Pty:
        argv = ["env", "--default-signal", *_argv(*arguments, before=before)]
        opened.append(Pty(argv, _env(tmp_path)))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


def _is_restored(terminal: Pty) -> None:
    output = terminal.output.decode(errors="replace")
    for sequence in _RESTORED:
        on = sequence.replace("l", "h") if sequence.endswith("l") else sequence.replace("h", "l")
        assert output.rindex(sequence) > output.rindex(on), repr(sequence)
    assert terminal.modes == terminal.modes_before


# Help.


def test_every_view_has_help(tmux: Open) -> None:
    screen = tmux("demo")
    screen.until(r"LIVE")
    for key, view in _VIEWS.items():
        screen.keys(key)
        screen.keys("?")
        screen.until(rf"▸ help: {view}")
        screen.keys("Escape")
        screen.until_gone(f"help: {view}")
    screen.keys("q")
    screen.until(r"left with 0")


def test_a_screen_on_which_no_node_was_ever_up_ends_as_other_commands_do(
    tmux: Open, tmp_path: Path
) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("gpu1 address=127.0.0.1 port=1\n")
    screen = tmux("--hosts", str(hosts))
    screen.until(r"NO NODE UP")
    screen.keys("q")
    screen.until(r"left with 3")


# The 3 a.m. recipe.


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (120, 32)])
def test_tab_and_enter_open_the_first_finding(tmux: Open, size: tuple[int, int]) -> None:
    screen = tmux("demo", "--speed", "8", size=size)
    screen.until(r"Findings 1")
    screen.keys("Tab")
    screen.keys("Enter")
    screen.until(r"(?s)overview ▸ ECMP collision leaf1 up5.*since")


def test_a_finding_that_comes_after_tab_is_selected(tmux: Open) -> None:
    screen = tmux("demo", "--speed", "8")
    screen.until(r"Busiest")
    screen.keys("Tab")
    screen.until(r"Findings 1")
    screen.keys("Enter")
    screen.until(r"(?s)▸.*Advice")


_FAULTS = {
    "ecmp_collision": ("leaf2/up3", "ECMP collision"),
    "degraded_link": ("leaf2/up3", "Degraded link"),
    "slow_receiver": ("gpu{:0{width}d}/r3", "Slow receiver"),
    "incast": ("gpu{:0{width}d}/r1", "Incast"),
    "node_lost": ("gpu{:0{width}d}", "Node lost"),
}
"""Where each fault is, and the title of what must be found."""


@pytest.mark.parametrize(
    ("kind", "hosts"), [*((kind, 16) for kind in _FAULTS), ("ecmp_collision", 1024)]
)
def test_one_key_from_a_cold_start_to_the_cause(
    tmux: Open, tmp_path: Path, kind: str, hosts: int
) -> None:
    where, title = _FAULTS[kind]
    scenario = tmp_path / "fault.toml"
    scenario.write_text(
        f"""
        seed = 1
        [topology]
        hosts = {hosts}
        routing = "spray"
        [[job]]
        payload_gb = 60.0
        [[fault]]
        kind = "{kind}"
        at = 12.0
        where = "{where.format(6, width=len(str(hosts)) if hosts > 999 else 3)}"
        """
    )
    screen = tmux("demo", "--scenario", str(scenario), "--speed", "4")
    screen.until(rf"◉. {title}", timeout_s=500)
    screen.keys("Enter")
    text = screen.until(rf"overview ▸ {title}[\s\S]*Advice", timeout_s=240)
    assert "since" in text


# Errors stay where they happen.

_BROKEN_VIEW = """
import fabmon.tui.text.pages.switches as page
def broken(*_):
    secret = "value of a variable"
    raise KeyError("broken view")
page.page = broken
"""
_BROKEN_KEY = """
from fabmon.tui.app import FabmonApp
def broken(self, what):
    raise KeyError("broken key")
FabmonApp.action_display = broken
"""
_BROKEN_START = """
from fabmon.tui.app import FabmonApp
def broken(self):
    secret = "value of a variable"
    raise KeyError("broken start")
FabmonApp.on_mount = broken
"""


def test_an_error_in_a_view_is_a_message_in_that_view(tmux: Open, tmp_path: Path) -> None:
    screen = tmux("demo", before=_BROKEN_VIEW)
    screen.until(r"LIVE")
    screen.keys("2")
    text = screen.until(r"This view failed")
    assert "KeyError: 'broken view'" in text
    assert "secret" not in text
    screen.until(r"LIVE")
    screen.keys("4")
    screen.until(r"No finding|Findings")
    screen.keys("1")
    screen.until(r"Busiest")
    screen.keys("q")
    screen.until(r"left with 0")
    log = (tmp_path / "fabmon" / "errors.log").read_text()
    assert log.count("broken view") == 1
    assert "value of a variable" not in log


def test_an_error_in_a_key_is_a_message(tmux: Open) -> None:
    screen = tmux("demo", before=_BROKEN_KEY)
    screen.until(r"Busiest")
    screen.keys("u")
    screen.until(r"failed: KeyError: 'broken key'")
    screen.keys("2")
    screen.until(r"(?m)switches")
    screen.keys("q")
    screen.until(r"left with 0")


def test_an_error_that_gets_out_is_one_line(terminal: OpenPty, tmp_path: Path) -> None:
    opened = terminal("demo", before=_BROKEN_START)
    assert opened.wait() == 1
    last = opened.output.decode().rpartition("\x1b")[2]
    line = f"fabmon: unexpected error: KeyError: 'broken start'; traceback in {tmp_path}"
    assert line in last
    assert "value of a variable" not in opened.output.decode()
    assert "broken start" in (tmp_path / "fabmon" / "errors.log").read_text()
    _is_restored(opened)


# Signals.

_SLOW_CLOSE = """
import sys, time
from fabmon.recording.writing.recorder import Recorder
close = Recorder.close
def slow_close(self):
    print("closing", file=sys.stderr, flush=True)
    time.sleep(0.5)
    return close(self)
Recorder.close = slow_close
"""
_EARLY_SIGNAL = """
import os, signal
import fabmon.session.watched_feed as run
made = run.recorder_for
def recorder_for(*arguments, **options):
    recorder = made(*arguments, **options)
    os.kill(os.getpid(), signal.SIGTERM)
    return recorder
run.recorder_for = recorder_for
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT])
def test_a_signal_restores_the_terminal(terminal: OpenPty, number: signal.Signals) -> None:
    opened = terminal("demo")
    opened.until("LIVE")
    assert opened.modes != opened.modes_before
    opened.process.send_signal(number)
    assert opened.wait() == 128 + number
    _is_restored(opened)


def test_signals_in_a_row_leave_a_recording_that_is_intact(
    terminal: OpenPty, tmp_path: Path
) -> None:
    path = tmp_path / "cut.fabrec"
    opened = terminal("--record", str(path), before=_SLOW_CLOSE)
    opened.until("LIVE")
    opened.process.send_signal(signal.SIGTERM)
    opened.until("closing")
    for _ in range(3):
        opened.process.send_signal(signal.SIGTERM)
        time.sleep(0.03)
    assert opened.wait() == 128 + signal.SIGTERM
    _is_restored(opened)
    verify = terminal("verify", str(path))
    assert verify.wait() == 0
    assert "intact" in verify.output.decode()


def test_a_signal_before_the_screen_is_there_closes_the_recording(
    terminal: OpenPty, tmp_path: Path
) -> None:
    path = tmp_path / "early.fabrec"
    opened = terminal("--record", str(path), before=_EARLY_SIGNAL)
    assert opened.wait() == 128 + signal.SIGTERM
    assert opened.modes == opened.modes_before
    verify = terminal("verify", str(path))
    assert verify.wait() == 0
    assert "intact" in verify.output.decode()


def test_a_terminal_that_hangs_up_ends_the_program(terminal: OpenPty, tmp_path: Path) -> None:
    opened = terminal("demo")
    opened.until("LIVE")
    opened.hang_up()
    assert opened.process.wait(240) == 128 + signal.SIGHUP
    assert not (tmp_path / "fabmon" / "errors.log").exists()


# Bytes.


@pytest.mark.parametrize(
    "data",
    [b"\xe9", b"caf\xe9", b"\x1b[M \xe9\xf1", b"\xff\xfe\x80", b"\xc3"],
    ids=["latin-1", "word", "x10-mouse", "never-utf-8", "half-a-character"],
)
def test_bytes_that_are_not_utf8_are_ignored(terminal: OpenPty, data: bytes) -> None:
    opened = terminal("demo")
    opened.until("LIVE")
    opened.send(data)
    # In a read of its own, as when a person types it.
    time.sleep(0.3)
    opened.send(data)
    time.sleep(0.3)
    opened.send(b"2")
    opened.until("switches")
    opened.send(b"q")
    assert opened.wait() == 0


def test_after_a_demo_replay_without_a_file_plays_what_the_demo_showed(
    terminal: OpenPty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    nothing = terminal("replay")
    nothing.until("no screen was recorded on this machine")
    assert nothing.wait() == 2
    demo = terminal("demo", "--hosts", "4", "--seed", "3")
    demo.until("REC")
    demo.until("s ")
    demo.send(b"q")
    assert demo.wait() == 0
    replay = terminal("replay", "--speed", "max")
    replay.until("SIMULATED")
    replay.until("leaf1")
    replay.send(b"q")
    assert replay.wait() == 0
    table = terminal("replay", "--format", "table")
    table.until("SIMULATED: nothing in this report is real")
    table.until("gpu001")
    assert table.wait() == 0
