"""Programs in real terminals: a tmux with a screen to read, a pty with bytes and modes."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import termios
import time
import tty
from collections.abc import Callable, Mapping, Sequence

PATIENCE_S = 240.0
"""For a program to start and to answer, on a machine that is busy with other tests."""


class Tmux:
    """A shell line in a tmux server of its own."""

    def __init__(self, line: str, width: int = 120, height: int = 32) -> None:
        self._server = f"fabmon-test-{os.getpid()}-{time.monotonic_ns()}"
        size = ["-x", str(width), "-y", str(height)]
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, line)

    def keys(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def text(self) -> str:
        return self._tmux("capture-pane", "-p")

    def escapes(self) -> str:
        """The screen with the escape sequences of its colours."""
        return self._tmux("capture-pane", "-p", "-e")

    @property
    def pid(self) -> int:
        """The process that was started."""
        return int(self._tmux("list-panes", "-F", "#{pane_pid}"))

    def until(self, pattern: str, timeout_s: float = PATIENCE_S) -> str:
        """The screen, once it shows `pattern`, however busy the machine is."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            text = self.text()
            if re.search(pattern, text):
                return text
            time.sleep(0.05)
        raise AssertionError(f"{pattern!r} did not appear in {timeout_s:g} s:\n{text}")

    def until_gone(self, part: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the screen does not show `part` any more."""
        deadline_s = time.monotonic() + timeout_s
        while part in self.text():
            assert time.monotonic() < deadline_s, f"{part!r} stayed for {timeout_s:g} s"
            time.sleep(0.05)

    def close(self) -> None:
        self._tmux("kill-server")

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-L", self._server, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Pty:
    """A program on a pseudo-terminal; `output` is what it has written so far."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._ours, self._theirs = pty.openpty()
        termios.tcsetwinsize(self._theirs, (32, 120))
        self.modes_before = termios.tcgetattr(self._theirs)
        self.process = subprocess.Popen(
            argv,
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env=dict(env),
            start_new_session=True,
        )
        self.output = b""

    @property
    def modes(self) -> list[object]:
        """What `tcgetattr` says of the terminal now."""
        return list(termios.tcgetattr(self._theirs))

    def send(self, data: bytes) -> None:
        os.write(self._ours, data)

    def until(self, text: str, timeout_s: float = PATIENCE_S) -> None:
        """Read until the program has written `text`."""
        self._read(lambda: text.encode() in self.output, timeout_s, repr(text))

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Read until the program has ended; its exit status."""
        self._read(lambda: self.process.poll() is not None, timeout_s, "its end")
        self.drain(0.2)
        return self.process.wait()

    def unread(self) -> bytes:
        """What was sent to the program and not read: after its end, the shell would read it."""
        tty.setraw(self._theirs, termios.TCSANOW)
        ready = select.poll()
        ready.register(self._theirs, select.POLLIN)
        return os.read(self._theirs, 65536) if ready.poll(200) else b""

    def hang_up(self) -> None:
        """Close our end, as a lost connection does."""
        os.close(self._theirs)
        os.close(self._ours)
        self._ours = self._theirs = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for end in (self._ours, self._theirs):
            if end >= 0:
                os.close(end)

    def _read(self, is_there: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not is_there():
            shown = self.output[-2000:].decode(errors="replace")
            assert time.monotonic() < deadline_s, f"no {what} in {timeout_s:g} s:\n{shown}"
            self.drain(0.05)

    def drain(self, wait_s: float) -> None:
        """Read until nothing was written for `wait_s`."""
        # poll, not select: a long test run has more than 1,024 descriptors open.
        ready = select.poll()
        ready.register(self._ours, select.POLLIN)
        while ready.poll(wait_s * 1000):
            try:
                self.output += os.read(self._ours, 65536)
            except OSError:
                return
