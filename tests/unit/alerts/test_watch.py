"""`fabmon watch` as a service runs it, and the settings of alerts."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fabmon.alerts.settings import (
    AlertmanagerReceiver,
    AlertsConfig,
    JournaldReceiver,
    WebhookReceiver,
    receivers_text,
)
from fabmon.session.config import load
from fabmon.session.errors import Exit, UsageError
from tests.requirements import heeding_signals
from tests.unit.alerts.test_alertmanager import until

HEAD = '[alerts.receivers.main]\ntype = "alertmanager"\nurl = "http://127.0.0.1:9"\n'


def test_it_watches_without_a_terminal_and_sigterm_ends_it_in_order(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("here via=local\n")
    watch = subprocess.Popen(
        heeding_signals([sys.executable, "-m", "fabmon", "watch", "--hosts", str(hosts)]),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    children = Path(f"/proc/{watch.pid}/task/{watch.pid}/children")
    until(lambda: watch.poll() is not None or children.read_text().strip(), 60)
    time.sleep(4)
    assert watch.poll() is None
    watch.send_signal(signal.SIGTERM)
    out, errors = watch.communicate(timeout=240)
    assert errors == (
        "fabmon: watching 1 node (hosts) every 1 s; no receiver in [alerts]: findings are only"
        " printed\n"
    )
    assert watch.returncode in (Exit.OK, Exit.NO_NODE)
    assert all(line[:4].isdigit() for line in out.splitlines())


def test_ctrl_c_as_soon_as_it_says_that_it_watches_is_its_usual_end(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("slow via=exec command=\"sh -c 'sleep 60' {probe}\"\n")
    watch = subprocess.Popen(
        heeding_signals([sys.executable, "-m", "fabmon", "watch", "--hosts", str(hosts)]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watch.stderr is not None
    assert "watching 1 node" in watch.stderr.readline()
    watch.send_signal(signal.SIGINT)
    _, errors = watch.communicate(timeout=240)
    assert (watch.returncode, errors) == (Exit.OK, "")


def test_it_does_not_say_that_it_watches_where_the_page_cannot_be_written(tmp_path: Path) -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "fabmon", "watch", "--page", str(tmp_path / "page")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == Exit.USAGE
    assert refused.stderr.startswith(f"fabmon: --page {tmp_path}/page: no such directory")


def test_at_its_start_it_names_receivers_without_what_may_be_secret() -> None:
    config = AlertsConfig(
        receivers={
            "am": AlertmanagerReceiver(url="http://am:9093/prefix"),
            "chat": WebhookReceiver(url="https://hooks.example/T0/SECRET"),
            "log": JournaldReceiver(),
        }
    )
    assert receivers_text(config) == (
        "alerts to am (alertmanager at am:9093), chat (webhook at hooks.example), log (journald)"
    )


def test_a_configuration_that_everyone_can_write_to_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fabmon.toml"
    path.touch()
    path.chmod(0o666)
    with pytest.raises(UsageError, match=f"everyone can write to it, .*: chmod o-w {path}"):
        load(path)
    path.chmod(0o664)
    load(path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[alerts]\ncauses = ["incats"]\n', "fabmon.toml:2: .*'incats': did you mean incast"),
        (HEAD + 'causes = ["no"]\n', "fabmon.toml:4: .*no cause 'no'"),
        (HEAD.replace("http:", "ftp:"), "fabmon.toml:3: .*begins with http"),
        (HEAD.replace("127", "me:hunter2@127"), "fabmon.toml:3: .*use password_file"),
        (HEAD + 'token_file = "a"\npassword_file = "b"\n', "fabmon.toml:4: .*at most one"),
        (
            HEAD.replace("127.0.0.1", "alerts") + 'token_file = "a"\n',
            "fabmon.toml:3: .*would be sent to alerts in clear text: use https, or insecure = true",
        ),
        (HEAD.replace("alertmanager", "pager"), "pager"),
        ("[alerts]\ngroup_above = 0\n", "fabmon.toml:2: .*1 to 1000 alerts"),
    ],
)
def test_a_mistake_is_refused_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "fabmon.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=complaint) as refused:
        load(path)
    assert "hunter2" not in str(refused.value)
