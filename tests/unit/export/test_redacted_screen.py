"""Files that `x` saves from a screen with --redact have no names."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fabmon.recording.format.errors import RecordingError
from fabmon.recording.reading.reader import Recording
from tests.unit.export.test_redaction import leaks, plain, recording

LONGEST_S = 240


class Screen:
    """fabmon in a terminal: takes keys and collects what is drawn."""

    def __init__(self, keys: int) -> None:
        self._keys = keys
        self.drawn = b""

    def press(self, key: str) -> None:
        os.write(self._keys, key.encode())

    def until(self, wanted: Callable[[], object]) -> None:
        """Read what it draws until it is so."""
        until_s = time.monotonic() + LONGEST_S
        while not wanted():
            assert time.monotonic() < until_s, self.drawn[-3000:]
            ready = select.poll()
            ready.register(self._keys, select.POLLIN)
            if ready.poll(100):
                # Linux reports an error when the other end is closed.
                with suppress(OSError):
                    self.drawn += os.read(self._keys, 65536)

    def until_there(self, directory: Path, pattern: str) -> None:
        """Wait until there is such a file."""
        self.until(lambda: [*directory.glob(pattern)])

    def until_drawn(self, text: str) -> None:
        """Wait until this is drawn, from now on."""
        begin = len(self.drawn)
        self.until(lambda: text.encode() in self.drawn[begin:])


def is_whole(path: Path) -> bool:
    """Whether a cut is done."""
    with suppress(RecordingError), Recording(path) as cut:
        return cut.is_closed
    return False


@contextmanager
def screen(cwd: Path, *arguments: str) -> Iterator[tuple[Screen, subprocess.Popen[bytes]]]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    program = subprocess.Popen(
        [str(Path(sys.executable).with_name("fabmon")), *arguments],
        cwd=cwd,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    try:
        yield Screen(ours), program
    finally:
        program.kill()
        program.wait()
        os.close(ours)


@pytest.mark.parametrize("view", ["1", "3", "4"])
def test_files_saved_from_a_redacted_replay_have_no_names(tmp_path: Path, view: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    named = recording(tmp_path / "in" / "acme.fabrec")
    out = tmp_path / "out"
    with screen(out, "replay", str(named), "--redact", "--from", "+20s") as (shown, program):
        shown.until_drawn("host-1")
        shown.press(view)
        for key, suffix in (("p", ".svg"), ("t", ".csv"), ("c", ".fabrec")):
            shown.press("x")
            shown.until_drawn("Save into")
            shown.press(key)
            shown.until_there(out, f"*{suffix}")
        shown.until(lambda: is_whole(next(out.glob("*.fabrec"))))
        shown.press("\x11")
        shown.until(lambda: program.poll() is not None)
    saved = {path.suffix: path for path in out.iterdir()}
    assert set(saved) == {".svg", ".csv", ".fabrec"}
    assert leaks(shown.drawn) == []
    assert leaks("".join(path.name for path in saved.values()).encode()) == []
    for path in (saved[".svg"], saved[".csv"]):
        assert leaks(path.read_bytes()) == []
        assert b"host-1" in path.read_bytes()
    assert leaks(plain(saved[".fabrec"])) == []
    with Recording(saved[".fabrec"]) as cut:
        assert {host.name for host in cut.hosts} == {"host-1", "host-2", "switch-1"}


def test_redacted_watching_prints_and_records_no_names(tmp_path: Path) -> None:
    hosts, kept = tmp_path / "hosts.txt", tmp_path / "kept.fabrec"
    hosts.write_text("acme-gpu17 via=local group=acme-rack\n")
    fabmon = str(Path(sys.executable).with_name("fabmon"))
    watch = [fabmon, "--hosts", str(hosts), "--redact", "--record", str(kept)]
    lines = subprocess.run(
        [*watch, "--format", "jsonl", "--duration", "3", "--interval", "0.5"],
        capture_output=True,
        check=True,
        timeout=LONGEST_S,
    ).stdout
    assert b'"host-1"' in lines
    assert b"acme" not in lines
    with Recording(kept) as recording:
        assert [(host.name, host.group) for host in recording.hosts] == [("host-1", "group-1")]
        events = [each for tick in recording.ticks() for each in (*tick.hellos, *tick.statuses)]
        session = recording.sessions[0]
    assert events
    assert "acme" not in str(events)
    assert (session.recorder, session.title) == ("", "without names")


def test_files_saved_from_a_redacted_live_screen_have_no_names(tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("acme-gpu17 via=local group=acme-rack\n")
    arguments = ("--hosts", str(tmp_path / "hosts.txt"), "--redact", "--interval", "0.5")
    with screen(tmp_path, *arguments) as (shown, _):
        shown.until_drawn("host-1")
        for key, pattern in (("p", "*.svg"), ("t", "*.csv")):
            shown.press("x")
            shown.until_drawn("picture")
            shown.press(key)
            shown.until_there(tmp_path, pattern)
        assert b"acme" not in shown.drawn
    (picture,) = tmp_path.glob("*.svg")
    (table,) = tmp_path.glob("*.csv")
    assert "host-1" in picture.read_text()
    assert "acme" not in picture.read_text() + table.read_text()
