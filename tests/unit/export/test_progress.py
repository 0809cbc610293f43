"""Progress is shown on a terminal after one second."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

_SLOW = """
import sys, time
from fabmon.session.printing import progress
began = time.monotonic()
total, unit = (600.0, "s") if len(sys.argv) < 3 else (1.0, sys.argv[2])
with progress("exporting pod7", total, unit) as tell:
    while time.monotonic() - began < float(sys.argv[1]):
        tell(total / 2 * min(1.0, (time.monotonic() - began) / 2))
        time.sleep(0.05)
"""


def on_a_terminal(seconds: float, *unit: str) -> str:
    """The standard error of work that takes some time."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        [sys.executable, "-c", _SLOW, str(seconds), *unit], stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        output = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:
                break
            if not part:
                break
            output += part
        assert process.wait() == 0
    os.close(ours)
    return output.decode("utf-8", "replace")


def test_slow_work_shows_pace_and_time_left() -> None:
    output = on_a_terminal(2.5)
    assert "exporting pod7" in output
    assert "of 0:10:00" in output
    assert "x real time" in output
    assert "0:00:0" in output


def test_work_without_a_length_shows_percent() -> None:
    assert " 50%" in on_a_terminal(3.5, "share")


def test_quick_work_shows_nothing() -> None:
    assert on_a_terminal(0.2) == ""


def test_nothing_is_shown_without_a_terminal() -> None:
    done = subprocess.run([sys.executable, "-c", _SLOW, "1.5"], capture_output=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, b"")
