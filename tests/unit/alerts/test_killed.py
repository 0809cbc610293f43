"""`fabmon watch` is killed at any moment, again and again, while a link is down."""

from __future__ import annotations

import json
import random
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collectors import wire
from tests.builders import METRICS, neighbour, port
from tests.requirements import heeding_signals
from tests.unit.alerts.alertmanager import Alertmanager, posts
from tests.unit.alerts.test_alertmanager import states, until
from tests.unit.feeds.prometheus_servers import free_port
from tests.unit.test_trace_queue_pairs import SCRIPTED_NODE

ENDS = {"gpu001": ("eth0", "leaf1-down1"), "leaf1": ("down1", "gpu001-eth0")}
_DOWN = 'fabmon_watch_findings{cause="link_down",severity="critical"}'
_KILLS = 8
_LONGEST_S = 7.0
"""Of a run that is killed: from before it has read anything to after all was sent again. One that
knows nothing of what was open closes it when both nodes have answered, after two seconds."""
_RESEND_S = 300
"""Alertmanager ends what was not sent for five times as long: not before the last run."""
_PATIENCE_S = 240.0


def write_nodes(directory: Path, *, up: bool | None) -> None:
    """What both ends of a cable report from now on; None: the nodes end."""
    for node, (device, far) in ENDS.items():
        objects = [port(device, f"{node}-{device}"), neighbour(device, far)]
        hello = wire.hello([wire.BlockLayout("netdev", 1, objects)], {"interval_s": 0.5})
        said = {"hello": hello.decode(), "values": len(METRICS), "hops": []}
        values = [] if up is None else [int(up), *[0] * (len(METRICS) - 1)]
        for name, content in ((f"{node}.json", said), (f"{node}.values", values)):
            new = directory / f"{name}.new"
            new.write_text(json.dumps(content))
            new.replace(directory / name)


class Site:
    """Two scripted nodes, and a watch of them that sends to three receivers."""

    def __init__(self, directory: Path, hook: str, alertmanager: str) -> None:
        self.directory, self.sent = directory, directory / "sent"
        self._port = free_port()
        node = shlex.join([sys.executable, str(SCRIPTED_NODE), str(directory)])
        (directory / "hosts.txt").write_text(
            "".join(f'{name} via=exec command="{node} {name}"\n' for name in ENDS)
        )
        (directory / "fabmon.toml").write_text(
            f"[alerts]\nkeep_open_s = 0\nresend_s = {_RESEND_S}\n"
            f'[alerts.receivers.am]\ntype = "alertmanager"\nurl = "{alertmanager}"\n'
            f'[alerts.receivers.hook]\ntype = "webhook"\nurl = "{hook}"\n'
            '[alerts.receivers.command]\ntype = "exec"\n'
            f'command = ["sh", "-c", "cat >> {self.sent}; echo >> {self.sent}"]\n'
        )

    def started(self) -> subprocess.Popen[bytes]:
        argv = [
            *(sys.executable, "-m", "fabmon", "watch", f"--metrics=127.0.0.1:{self._port}"),
            *("--hosts", str(self.directory / "hosts.txt")),
            *("--config", str(self.directory / "fabmon.toml")),
        ]
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(heeding_signals(argv), stdout=log, stderr=log)

    def metrics(self) -> dict[str, str]:
        """What the watch serves; nothing before it does."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics") as page:
                lines = page.read().decode().splitlines()
        except OSError:
            return {}
        return dict(line.rsplit(" ", 1) for line in lines if line.startswith("fabmon_"))

    def are_up(self) -> bool:
        """Whether the watch has read both nodes."""
        return self.metrics().get('fabmon_watch_nodes{state="up"}') == "2"

    def commands(self) -> list[str]:
        """The changes for which the command was run."""
        lines = self.sent.read_text().splitlines() if self.sent.exists() else []
        return [json.loads(line)["change"] for line in lines if line]


@contextmanager
def running(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A watch, which is killed in the end if it has not been."""
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(600)
def test_killed_again_and_again_while_a_link_is_down_it_is_one_alert_for_every_receiver(
    tmp_path: Path,
) -> None:
    moments_s = [_LONGEST_S * (kill + 1) / _KILLS for kill in range(_KILLS)]
    random.Random(1).shuffle(moments_s)
    with (
        posts() as hook,
        posts() as notified,
        Alertmanager(tmp_path / "am", notified.url) as alertmanager,
    ):
        site = Site(tmp_path, hook.url, alertmanager.url)

        def changes() -> list[list[str]]:
            sent = [each["change"] for each in hook.objects()]
            return [sent, site.commands(), states(notified)]

        write_nodes(tmp_path, up=True)
        first = site.started()
        with running(first):
            until(site.are_up, _PATIENCE_S)
            write_nodes(tmp_path, up=False)
            opened = [["open"], ["open"], ["firing"]]
            until(lambda: changes() == opened, _PATIENCE_S)
            until(lambda: len(list((tmp_path / "state/fabmon/alerts").glob("*.json"))) == 3)
        for number, moment_s in enumerate(moments_s):
            # In every fourth run neither node answers.
            write_nodes(tmp_path, up=None if number % 4 == 3 else False)
            watch = site.started()
            with running(watch):
                time.sleep(moment_s)
            assert changes() == opened, f"kill {number}"
        write_nodes(tmp_path, up=False)
        last = site.started()
        with running(last):
            until(site.are_up, _PATIENCE_S)
            time.sleep(5)
            assert site.metrics()[_DOWN] == "1", "it is still known to be down"
            assert changes() == opened
            write_nodes(tmp_path, up=True)
            until(
                lambda: changes() == [["open", "close"], ["open", "close"], ["firing", "resolved"]]
            )
            last.send_signal(signal.SIGTERM)
            last.wait(60)
    lines = (tmp_path / "log").read_text().splitlines()
    assert len([line for line in lines if " close " in line]) == 1
