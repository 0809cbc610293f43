"""What a watch prints, where standard output is a full disk or a pipe that nobody reads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fabmon.cli.main import _crashed
from fabmon.session import printing, slow_files
from fabmon.session.errors import Exit
from fabmon.session.event_loop import EndSignals


async def scenes_of(count: int) -> AsyncIterator[Any]:
    for number in range(count):
        yield number
        await asyncio.sleep(0.02)


async def printed(monkeypatch: pytest.MonkeyPatch, descriptor: int, count: int) -> list[Any]:
    """Scenes that were published while a line of each is printed to a descriptor."""
    published: list[Any] = []
    monkeypatch.setattr(printing.NodesReached, "accept", lambda self, scene: None)
    monkeypatch.setattr(printing, "finding_lines", lambda scene: [f"finding {scene}\n"])
    with os.fdopen(descriptor, "w") as stream, EndSignals() as signals:
        monkeypatch.setattr(sys, "stdout", stream)
        status = await printing.print_findings(scenes_of(count), None, published.append, signals)
    assert status is Exit.NO_NODE
    return published


async def test_a_full_disk_does_not_end_a_watch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = await asyncio.to_thread(os.open, "/dev/full", os.O_WRONLY)
    assert await printed(monkeypatch, full, 5) == [0, 1, 2, 3, 4]
    why = "findings are not printed: standard output: No space left on device"
    assert caplog.messages == [why]


async def test_a_watch_ends_with_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours = os.pipe()
    os.close(theirs)
    assert 0 < len(await printed(monkeypatch, ours, 10_000)) < 10_000


async def test_a_reader_that_does_not_read_delays_no_alert(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs, ours = os.pipe()
    os.set_blocking(ours, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(ours, b"x" * 4096)
    os.set_blocking(ours, True)
    reader = threading.Timer(30.0, os.close, [theirs])
    reader.start()
    try:
        async with asyncio.timeout(20):
            assert await printed(monkeypatch, ours, 5) == [0, 1, 2, 3, 4]
    finally:
        reader.cancel()
        os.close(theirs)


@pytest.mark.parametrize("variable", ["XDG_STATE_HOME", "XDG_RUNTIME_DIR"])
def test_no_name_on_standard_error_is_a_command_of_the_terminal(
    variable: str, tmp_path: Path
) -> None:
    name = tmp_path / "\x1b]0;title\x07"
    name.write_text("a file in the place of a directory")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "fabmon",
            "watch",
            "--duration",
            "1s",
            "--host",
            "x",
        ],
        env={**os.environ, variable: str(name)},
        capture_output=True,
        timeout=120,
    )
    text = done.stderr.decode()
    assert text.startswith("fabmon: ")
    assert all(line.isprintable() for line in text.splitlines()), text


def test_no_directory_of_the_agent_is_a_command_of_the_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fabmon", "agent", "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "\x1b]0;title\x07")}
    agent = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    with agent:
        assert agent.stderr is not None
        line = agent.stderr.readline().removesuffix("\n")
        agent.terminate()
    assert "token in" in line
    assert line.isprintable(), line


def test_no_message_of_an_error_is_a_command_of_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    _crashed(KeyError("title"))
    _crashed(ValueError("\x1b]0;title\x07"))
    monkeypatch.setattr(slow_files, "_AFTER_S", 0.01)
    with slow_files.said_if_slow(Path("\x1b]0;title\x07")):
        time.sleep(0.5)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines), lines


@pytest.mark.parametrize(
    ("command", "expected"),
    [(("ras", "--host"), "no address for"), (("config", "check"), "unexpected extra arguments")],
)
def test_no_argument_is_a_command_of_the_terminal(command: tuple[str, ...], expected: str) -> None:
    argv = [sys.executable, "-m", "fabmon", *command, "\x1b]0;title\x07"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert all(line.isprintable() for line in done.stderr.splitlines()), done.stderr
    assert expected in done.stderr
