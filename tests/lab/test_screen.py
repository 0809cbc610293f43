"""The screen on the lab, in a real terminal, with real keys."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.lab import Lab
from tests.lab.watching import FABMON
from tests.requirements import need_command


class Terminal:
    """fabmon in a tmux of its own."""

    def __init__(self, lab: Lab, width: int = 120, height: int = 32) -> None:
        self._server = f"fabmon-test-{os.getpid()}-{time.monotonic_ns()}"
        options = ["--hosts", str(lab.hosts_file), "--ssh-config", str(lab.ssh_config)]
        command = lab.console_argv([FABMON, *options])
        line = (
            f"TERM=xterm-256color COLORTERM=truecolor {shlex.join(command)}; echo left with $?; cat"
        )
        self._tmux("new-session", "-d", "-x", str(width), "-y", str(height), line)

    def keys(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def text(self) -> str:
        return self._tmux("capture-pane", "-p")

    def until(self, pattern: str, timeout_s: float = 60) -> str:
        """The screen, once it shows `pattern`, however busy the machine is."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            text = self.text()
            if re.search(pattern, text):
                return text
            time.sleep(0.05)
        raise AssertionError(f"{pattern!r} did not appear in {timeout_s:g} s:\n{text}")

    def close(self) -> None:
        self._tmux("kill-server")

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-L", self._server, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def terminal(lab: Lab) -> Iterator[Terminal]:
    need_command("tmux", "tmux")
    opened = Terminal(lab)
    yield opened
    opened.close()


def test_a_collision_appears_with_its_link_and_is_explained(lab: Lab, terminal: Terminal) -> None:
    terminal.until(r"14/14 nodes")
    lab.collide("leaf1", "up3", mbps=80)
    overview = terminal.until(r"▲ ECMP collision")
    assert "▲ 1 hot" in overview
    assert "leaf1 up3" in overview
    terminal.keys("Tab")
    terminal.keys("Enter")
    terminal.until(r"(?s)spine3.*NCCL_IB_QPS_PER_CONNECTION|NCCL_IB_QPS_PER_CONNECTION.*spine3")


def test_a_frozen_screen_says_so_and_lets_go(terminal: Terminal) -> None:
    terminal.until(r"14/14 nodes")
    terminal.keys("Space")
    terminal.until(r"PAUSED")
    time.sleep(2.5)
    assert "LIVE" not in terminal.text()
    terminal.keys("Space")
    terminal.until(r"● LIVE")


def test_the_screen_goes_back_while_recording_goes_on(lab: Lab, terminal: Terminal) -> None:
    terminal.until(r"14/14 nodes")
    before = terminal.until(r"● LIVE [\d:]+Z +● REC")
    lab.collide("leaf1", "up3", mbps=80)
    terminal.until(r"▲ 1 hot")
    live = re.search(r"LIVE ([\d:]+)Z", before)
    assert live is not None
    terminal.keys("t")
    terminal.until(r"go to")
    terminal.keys(live[1], "Enter")
    then = terminal.until(rf"❚❚ PAUSED {live[1]}Z")
    assert "▲ 0 hot" in then
    terminal.until(r"PAUSED [\d:]+Z \(.00:[1-5]\d\)")
    terminal.keys("}")
    terminal.until(r"▲ 1 hot")
    terminal.keys("`")
    terminal.until(r"● LIVE")


def test_from_the_fabric_to_the_node_to_the_port_and_back(terminal: Terminal) -> None:
    terminal.until(r"14/14 nodes")
    terminal.keys("Enter")
    terminal.until(r"netdev eth0")
    terminal.keys("Enter")
    terminal.until(r"netdev_[rt]x_bytes")
    terminal.keys("Escape")
    terminal.keys("Escape")
    terminal.until(r"Fabric")


def test_quitting_gives_the_terminal_back(terminal: Terminal) -> None:
    terminal.until(r"14/14 nodes")
    terminal.keys("q")
    terminal.until(r"left with 0")
