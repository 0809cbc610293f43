"""A node is lost: whoever watches it sends that, and says once that its receiver is dead."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.requirements import heeding_signals, need_command
from tests.terminals import Tmux
from tests.unit.alerts.alertmanager import posts
from tests.unit.alerts.test_alertmanager import until
from tests.unit.feeds.prometheus_servers import free_port

NODE = "gpu-secret-1"
DEAD = "alerts to hook are not sent: Connection refused; retrying"
FOUND = "alerts to hook are sent again"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a hosts file; the probe of its node runs once, for some seconds."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    once = tmp_path / "once.sh"
    once.write_text('#!/bin/sh\n[ -e ran ] && exit 1\ntouch ran\nexec timeout 6 sh -c "$1"\n')
    once.chmod(0o755)
    (tmp_path / "hosts.txt").write_text(f'{NODE} via=exec command="{once} {{probe}}"\n')
    return tmp_path


def arguments(files: Path, command: str, url: str) -> list[str]:
    config = files / "fabmon.toml"
    config.write_text(
        '[alerts]\ncluster = "pod-secret-7"\n'
        f'[alerts.receivers.hook]\ntype = "webhook"\nurl = "{url}"\n'
    )
    words = [*command.split(), "--hosts", str(files / "hosts.txt"), "--config", str(config)]
    return [sys.executable, "-m", "fabmon", *words]


@contextmanager
def started(files: Path, command: str, url: str) -> Iterator[subprocess.Popen[str]]:
    """fabmon, which is ended in order; its output is in `out` and `errors`."""
    with (files / "out").open("w") as out, (files / "errors").open("w") as errors:
        argv = heeding_signals(arguments(files, command, url))
        process = subprocess.Popen(argv, cwd=files, stdout=out, stderr=errors, text=True)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(240)


@pytest.mark.parametrize(
    ("command", "is_named"),
    [("watch", True), ("watch --redact", False), ("record -o incident.fabrec", True)],
)
def test_a_lost_node_is_sent(files: Path, command: str, is_named: bool) -> None:
    with posts() as hook:
        with started(files, command, hook.url) as watch:
            until(lambda: hook.bodies, 60)
        opened = hook.objects()[0]
    out = (files / "out").read_text()
    assert watch.returncode == 0
    assert (opened["change"], opened["finding"]["cause"]) == ("open", "node_lost")
    assert (opened["cluster"] == "pod-secret-7") == (opened["node"] == NODE) == is_named
    assert is_named or "secret" not in hook.bodies[0].decode() + out
    assert ("open   critical" in out) == command.startswith("watch")


@pytest.mark.parametrize("command", ["watch", "record -o incident.fabrec"])
def test_a_dead_receiver_is_a_line_and_so_is_its_recovery(files: Path, command: str) -> None:
    port, errors = free_port(), files / "errors"
    with started(files, command, f"http://127.0.0.1:{port}"):
        until(lambda: DEAD in errors.read_text(), 60)
        time.sleep(4)  # It is tried again after 1 and 3 s.
        with posts(port=port) as hook:
            until(lambda: FOUND in errors.read_text(), 60)
    about = [line for line in errors.read_text().splitlines() if "alerts to hook are" in line]
    assert about == [f"fabmon: {DEAD}", f"fabmon: {FOUND}"]
    assert [each["change"] for each in hook.objects()] == ["open"]


def test_the_screen_says_once_that_a_receiver_is_dead_and_that_it_recovered(files: Path) -> None:
    need_command("tmux", "tmux")
    port = free_port()
    argv = arguments(files, "", f"http://127.0.0.1:{port}")
    terminal = Tmux(f"cd {shlex.quote(str(files))}; exec {shlex.join(argv)}")
    try:
        terminal.until(DEAD)
        terminal.until_gone(DEAD)
        assert "✖ ALERTS" in terminal.text()
        shown_again_s = time.monotonic() + 10
        while time.monotonic() < shown_again_s:
            assert DEAD not in terminal.text()
            time.sleep(0.2)
        with posts(port=port) as hook:
            shown = terminal.until(FOUND)
            assert "not sent" not in shown
            terminal.until_gone("✖ ALERTS")
        assert [each["change"] for each in hook.objects()] == ["open"]
        assert NODE in terminal.text(), "the screen is whole"
    finally:
        terminal.close()
