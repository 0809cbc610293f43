"""The probe as a process: its settings, and that it ends when the console is gone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional

import pytest


class Process:
    """A real probe in a process of its own, on the console's end of the pipes."""

    def __init__(self, *arguments: str, settings: Optional[Dict[str, Any]] = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "collectors", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        if settings is not None:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(settings).encode() + b"\n")
            self.process.stdin.flush()

    def line(self) -> List[Any]:
        assert self.process.stdout is not None
        said: List[Any] = json.loads(self.process.stdout.readline())
        return said

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def test_once_prints_a_hello_and_a_frame_of_a_tree(tmp_path: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "collectors", "--once", "--root", str(tmp_path)],
        capture_output=True,
        check=True,
        timeout=240,
    )
    assert [json.loads(line)[0] for line in done.stdout.splitlines()] == ["hello", "frame"]
    assert done.stderr == b""


def test_the_probe_ends_with_its_pipe() -> None:
    with Process("--control", settings={"interval_s": 30}) as probe:
        assert probe.line()[0] == "hello"
        assert probe.process.stdin is not None
        probe.process.stdin.close()
        assert probe.process.wait(timeout=240) == 0, "0.1 s where nothing else runs"


def test_the_probe_ends_although_its_writes_block() -> None:
    with Process("--control", settings={"interval_s": 0.05}) as probe:
        probe.line()
        time.sleep(0.5)
        assert probe.process.stdin is not None
        probe.process.stdin.close()
        assert probe.process.wait(timeout=240) == 0


def test_the_probe_ends_when_the_lease_runs_out() -> None:
    with Process("--control", settings={"lease_s": 2.0}) as probe:
        probe.line()
        assert probe.process.wait(timeout=240) == 0


def test_a_closed_pipe_is_noticed_at_any_descriptor() -> None:
    """select() refuses descriptors above 1,023."""
    program = """
import os, resource, time
from collectors.loop.requests import exit_with_console
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048))
exit_with_console(os.dup2(0, 1500), 0.0)
os.close(0)
time.sleep(60)
"""
    done = subprocess.run([sys.executable, "-c", program], stdin=subprocess.DEVNULL, timeout=240)
    assert done.returncode == 0


def test_a_sign_of_life_renews_the_lease() -> None:
    with Process("--control", settings={"lease_s": 3.0}) as probe:
        assert probe.process.stdin is not None
        for _ in range(8):
            time.sleep(0.5)
            probe.process.stdin.write(b"{}\n")
            probe.process.stdin.flush()
        assert probe.process.poll() is None


def test_the_probe_dies_with_a_console_that_is_killed() -> None:
    console = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys\n"
            "p = subprocess.Popen([sys.executable, '-m', 'collectors', '--control'],"
            " stdin=subprocess.PIPE)\n"
            "p.stdin.write(b'{}\\n'); p.stdin.flush(); print(p.pid, flush=True); p.wait()",
        ],
        stdout=subprocess.PIPE,
    )
    assert console.stdout is not None
    pid = int(console.stdout.readline())
    time.sleep(0.5)
    os.kill(console.pid, signal.SIGKILL)
    console.communicate()
    until = time.monotonic() + 240
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"interval_s": 0}, "interval_s must be 0.05 to 3600, not 0"),
        ({"interval_s": "fast"}, "interval_s must be"),
        ({"lease_s": -1}, "lease_s must be 0 or more"),
        ({"sources": ["netdev", "warp"]}, "no source 'warp'"),
        ({"sources": "netdev"}, "sources must be a list of names"),
        ([], "one JSON object"),
    ],
)
def test_bad_settings_are_refused_in_words(settings: Any, complaint: str) -> None:
    with Process("--control", settings=settings) as probe:
        _, stderr = probe.process.communicate(timeout=240)
        assert probe.process.returncode == 2
        assert complaint in stderr.decode()


def test_a_reader_that_disconnects_is_no_crash() -> None:
    with Process("--interval", "0.05") as probe:
        probe.line()
        assert probe.process.stdout is not None
        probe.process.stdout.close()
        assert probe.process.wait(timeout=240) == 0
        assert probe.process.stderr is not None
        assert probe.process.stderr.read() == b""
