"""The clock of the console is set while `fabmon watch` and `fabmon record` run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import msgspec

from fabmon.recording.reading.timeline import Timeline
from tests.builders import SECOND_NS, hello
from tests.builders import port as port_of
from tests.unit.feeds.prometheus_servers import free_port

SCRIPTED_NODE = Path(__file__).parents[2] / "fixtures" / "scripted_node.py"
STEP = """
import runpy, sys, time
from pathlib import Path
clock, real = Path(sys.argv.pop(1)), time.time_ns
time.time_ns = lambda: real() + int(clock.read_text()) * 10**9
time.time = lambda: time.time_ns() / 1e9
runpy.run_module("fabmon", run_name="__main__", alter_sys=True)
"""
"""fabmon with the wall clock of this machine, moved by what a file says, in seconds."""
DAY_S = 86_400
STEPS = (-1, 3, -5)
"""Days between the clock and the true time, one after the other."""


def put(path: Path, text: str, mode: int = 0o600) -> Path:
    """Write a file at once: others read it meanwhile."""
    part = path.with_suffix(".part")
    part.write_text(text)
    part.chmod(mode)
    return part.rename(path)


class Machine:
    """A node with two links, what fabmon is started with, and its clock."""

    def __init__(self, home: Path) -> None:
        self.home = home
        said = hello(port_of("eth0", "02:00:00:00:00:01"), port_of("eth1", "02:00:00:00:00:02"))
        line = msgspec.json.encode(["hello", said]).decode()
        put(home / "gpu1.json", json.dumps({"hello": f"{line}\n", "values": 8, "hops": []}))
        self.set_second_link(1)
        command = f"{sys.executable} {SCRIPTED_NODE} {home} gpu1"
        put(home / "hosts.txt", f'gpu1 via=exec command="{command}"\n')
        put(home / "alert.sh", f"#!/bin/sh\ncat >> {home}/alerts; echo >> {home}/alerts\n", 0o700)
        settings = f'[alerts.receivers.log]\ntype = "exec"\ncommand = ["{home}/alert.sh"]\n'
        put(home / "fabmon.toml", settings)
        self.set_clock(0)

    def set_second_link(self, is_up: int) -> None:
        put(self.home / "gpu1.values", json.dumps([1, 0, 0, 0, is_up, 0, 0, 0]))

    def set_clock(self, by_s: int) -> None:
        put(self.home / "clock", str(by_s))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        clock, hosts = str(self.home / "clock"), str(self.home / "hosts.txt")
        return subprocess.Popen(
            [sys.executable, "-c", STEP, clock, *arguments, "--hosts", hosts],
            env={**os.environ, "XDG_STATE_HOME": str(self.home / "state")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def alerts(self) -> list[str]:
        path = self.home / "alerts"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line)["change"] for line in lines if line]


def has_node_up(port: int) -> bool:
    """Whether the watch whose metrics are at a port has a tick with its node."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
            return 'fabmon_watch_nodes{state="up"} 1' in page.read().decode()
    except OSError:
        return False


def until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.2)


def test_times_follow_nothing_is_removed_and_no_alert_is_resolved(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    machine, recording, port = Machine(tmp_path), tmp_path / "a.fabrec", free_port()
    settings = str(tmp_path / "fabmon.toml")
    watch = machine.start("watch", "--metrics", f"127.0.0.1:{port}", "--config", settings)
    record = machine.start("record", "-o", str(recording), "--config", os.devnull)
    # The alert is of a link that the watch has seen up.
    until(lambda: recording.exists() and has_node_up(port))
    machine.set_second_link(0)
    until(lambda: machine.alerts == ["open"])
    for days in STEPS:
        machine.set_clock(days * DAY_S)
        time.sleep(4)
    for each in (watch, record):
        each.send_signal(signal.SIGINT)
    printed, problems = watch.communicate(timeout=60)
    record.communicate(timeout=60)
    assert machine.alerts == ["open"]
    assert [line.split()[2] for line in printed.splitlines() if line] == ["open"]
    for moved in ("back by 1 d", "forward by 4 d", "back by 8 d"):
        assert f"the clock of this machine moved {moved}" in problems
    with Timeline([recording]) as timeline:
        ticks = list(timeline.ticks(timeline.start_ns, 1 << 62))
    today = time.time_ns() // (DAY_S * SECOND_NS)
    days_recorded = {round(each.time_ns / (DAY_S * SECOND_NS) - today - 0.5) for each in ticks}
    assert days_recorded >= set(STEPS)
    assert len(ticks) >= 12
