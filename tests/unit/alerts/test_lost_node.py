"""A node is lost: the service and the recorder send it, with --redact without its name."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirements import heeding_signals
from tests.unit.alerts.alertmanager import posts
from tests.unit.alerts.test_alertmanager import until

NODE = "gpu-secret-1"


@pytest.mark.parametrize(
    ("command", "is_named"),
    [("watch", True), ("watch --redact", False), ("record -o incident.fabrec", True)],
)
def test_a_lost_node_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, is_named: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # Its probe runs once, for some seconds.
    once = tmp_path / "once.sh"
    once.write_text('#!/bin/sh\n[ -e ran ] && exit 1\ntouch ran\nexec timeout 6 sh -c "$1"\n')
    once.chmod(0o755)
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(f'{NODE} via=exec command="{once} {{probe}}"\n')
    config = tmp_path / "fabmon.toml"
    with posts() as hook:
        config.write_text(
            '[alerts]\ncluster = "pod-secret-7"\n'
            f'[alerts.receivers.hook]\ntype = "webhook"\nurl = "{hook.url}"\n'
        )
        arguments = [*command.split(), "--hosts", str(hosts), "--config", str(config)]
        watch = subprocess.Popen(
            heeding_signals([sys.executable, "-m", "fabmon", *arguments]),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            until(lambda: hook.bodies, 60)
        finally:
            watch.send_signal(signal.SIGTERM)
            out, _ = watch.communicate(timeout=30)
        opened = hook.objects()[0]
    assert watch.returncode == 0
    assert (opened["change"], opened["finding"]["cause"]) == ("open", "node_lost")
    assert (opened["cluster"] == "pod-secret-7") == (opened["node"] == NODE) == is_named
    assert is_named or "secret" not in hook.bodies[0].decode() + out
    assert ("open   critical" in out) == command.startswith("watch")
