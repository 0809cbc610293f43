"""The screen on the lab, in a real terminal, with real keys."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator

import pytest

from tests.lab import Lab
from tests.lab.watching import FABMON
from tests.requirements import need_command
from tests.terminals import Tmux


def _open(lab: Lab) -> Tmux:
    """fabmon in a tmux of its own."""
    options = ["--hosts", str(lab.hosts_file), "--ssh-config", str(lab.ssh_config)]
    command = lab.console_argv([FABMON, *options])
    env = "TERM=xterm-256color COLORTERM=truecolor"
    return Tmux(f"{env} {shlex.join(command)}; echo left with $?; cat")


@pytest.fixture
def terminal(lab: Lab) -> Iterator[Tmux]:
    need_command("tmux", "tmux")
    opened = _open(lab)
    yield opened
    opened.close()


def test_a_collision_appears_with_its_link_and_is_explained(lab: Lab, terminal: Tmux) -> None:
    terminal.until(r"14/14 nodes")
    lab.collide("leaf1", "up3")
    overview = terminal.until(r"▲ ECMP collision")
    assert "▲ 1 finding" in overview
    assert "leaf1 up3" in overview
    terminal.keys("Tab")
    terminal.keys("Enter")
    terminal.until(r"(?s)spine3.*NCCL_IB_QPS_PER_CONNECTION|NCCL_IB_QPS_PER_CONNECTION.*spine3")


def test_a_frozen_screen_says_so_and_lets_go(terminal: Tmux) -> None:
    terminal.until(r"14/14 nodes")
    terminal.keys("Space")
    terminal.until(r"PAUSED")
    time.sleep(2.5)
    assert "LIVE" not in terminal.text()
    terminal.keys("Space")
    terminal.until(r"● LIVE")


def test_the_screen_goes_back_while_recording_goes_on(lab: Lab, terminal: Tmux) -> None:
    terminal.until(r"14/14 nodes")
    before = terminal.until(r"● LIVE [\d:]+Z +● REC")
    lab.collide("leaf1", "up3")
    terminal.until(r"▲ 1 finding")
    live = re.search(r"LIVE ([\d:]+)Z", before)
    assert live is not None
    terminal.keys("t")
    terminal.until(r"go to")
    terminal.keys(live[1], "Enter")
    then = terminal.until(rf"❚❚ PAUSED {live[1]}Z")
    assert re.search(r"▲ 0 (findings)?", then)
    terminal.until(r"PAUSED [\d:]+Z \(.00:[1-5]\d\)")
    terminal.keys("}")
    terminal.until(r"▲ 1 (finding)?")
    terminal.keys("`")
    terminal.until(r"● LIVE")


def test_from_the_fabric_to_the_node_to_the_port_and_back(terminal: Tmux) -> None:
    terminal.until(r"14/14 nodes")
    terminal.keys("Enter")
    terminal.until(r"netdev (eth0|swp1)")  # of a host or a switch, whichever is shown first
    terminal.keys("Enter")
    terminal.until(r"netdev_[rt]x_bytes")
    terminal.keys("Escape")
    terminal.keys("Escape")
    terminal.until(r"Fabric")


def test_quitting_gives_the_terminal_back(terminal: Tmux) -> None:
    terminal.until(r"14/14 nodes")
    terminal.keys("q")
    terminal.until(r"left with 0")
