"""Files that a user names, or has in the home, which are none: pipes, devices, directories."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fabmon.alerts.alert import Alert
from fabmon.alerts.delivery import Alerts
from fabmon.alerts.notifier import load_template
from fabmon.alerts.settings import AlertsConfig, ExecReceiver, SettingError
from fabmon.analysis.earlier_findings import EarlierFinding
from fabmon.cli.main import main
from fabmon.error_log import log_error
from fabmon.fabric.hosts.host_line import Bad, Word
from fabmon.fabric.hosts.nodesets import expand
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.feeds.demo import scenario
from fabmon.feeds.errors import BadTrust
from fabmon.feeds.http_client import client_tls_context
from fabmon.feeds.transports.ssh_credentials import config_files
from fabmon.session import slow_files
from fabmon.session.config import load
from fabmon.session.errors import Exit, UsageError
from fabmon.session.live_page import LivePage
from fabmon.session.log_files import read_files
from fabmon.session.node_selection import selected_hosts
from fabmon.session.preferences import load_kept
from fabmon.session.session import Session, scenes_of
from fabmon.state_file import StateFile
from fabmon.trusted_certificates import context_trusting
from tests.builders import LeafSpine
from tests.unit.alerts.test_alert_book import finding, scene
from tests.unit.alerts.test_alertmanager import until

_WARNING = b"[0] transport/net_ib.cc:1 NCCL WARN NET/IB : Got completion from peer 10.0.0.1 with\n"


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A named pipe without a writer."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (os.mkdir, "a directory: name the files in it"),
        (_socket, "No such device or address"),
        (lambda path: path.symlink_to("/dev/zero"), "a device: name a file or a pipe"),
    ],
)
def test_a_log_that_is_no_file_is_refused(
    make: Callable[[Path], None], why: str, tmp_path: Path
) -> None:
    make(tmp_path / "log")
    with pytest.raises(UsageError, match=why):
        read_files([tmp_path / "log"])


def test_a_pipe_without_a_writer_is_an_empty_log(pipe: Path) -> None:
    assert not read_files([pipe]).log.nccl_lines


def test_a_pipe_is_read_to_its_end_however_slowly_it_is_written() -> None:
    """`fabmon explain <(kubectl logs job)`."""
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(0.3); print('x NCCL WARN y')"],
        stdout=subprocess.PIPE,
    ) as writer:
        assert writer.stdout is not None
        assert read_files([Path(f"/dev/fd/{writer.stdout.fileno()}")]).log.nccl_lines == 1


def test_ctrl_c_ends_a_pipe_that_does_not_end(pipe: Path) -> None:
    writer = os.open(pipe, os.O_RDWR)
    reader = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from pathlib import Path\nimport sys\n"
            "from fabmon.session.log_files import read_files\n"
            "print(1, flush=True); read_files([Path(sys.argv[1])])",
            str(pipe),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert reader.stdout is not None
        reader.stdout.readline()
        # A signal that comes just before Python begins to wait is seen with the next one.
        for _ in range(20):
            time.sleep(0.2)
            reader.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                reader.wait(2)
                break
        assert reader.poll() == -signal.SIGINT
    finally:
        reader.kill()
        reader.communicate()
        os.close(writer)


def test_no_other_file_that_is_named_is_waited_for(pipe: Path) -> None:
    for wait in (str(pipe), "/dev/zero", str(pipe.parent)):
        with pytest.raises(SettingError, match="template"):
            load_template(wait)
        with pytest.raises(OSError, match=r"PEM|MiB|directory"):
            context_trusting(wait)
        with pytest.raises(BadTrust, match="tls= is yes"):
            client_tls_context(wait, "192.0.2.1")


def test_a_file_without_certificates_trusts_nobody(tmp_path: Path) -> None:
    """Without any, Python takes the certificates of this machine."""
    for content in (b"", b"\n", b"none", b"-----BEGIN CERTIFICATE-----\nAAAA\n"):
        (tmp_path / "ca.pem").write_bytes(content)
        with pytest.raises(OSError, match="no PEM certificate"):
            context_trusting(tmp_path / "ca.pem")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_pipe_as_configuration_is_refused_and_a_link_to_nothing_is_none(home: Path) -> None:
    path = home / ".config" / "fabmon" / "fabmon.toml"
    path.parent.mkdir(parents=True)
    path.symlink_to(os.devnull)
    assert load(None) == load(Path(os.devnull))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UsageError, match=r"fabmon\.toml: not a file"):
        load(None)


def test_toml_as_windows_saves_it_is_read(tmp_path: Path) -> None:
    """With a byte order mark: it was an invalid statement at line 1."""
    path = tmp_path / "x.toml"
    path.write_text("interval_s = 3.0\r\n", "utf-8-sig")
    assert load(path).interval_s == 3.0
    path.write_text('title = "x"\r\n', "utf-8-sig")
    assert scenario.read(path).title == "x"


def test_a_home_that_cannot_be_read_is_said_with_what_to_do(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `sudo -u`, which may leave HOME as it was."""

    def refused(self: Path, **_: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "stat", refused)
    with pytest.raises(UsageError, match="Permission denied; --config names another file"):
        load(None)


def test_a_user_without_a_home_has_the_root_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 987654)
    monkeypatch.setattr(sys, "argv", ["fabmon", "config", "--format", "json"])
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code, os.environ["HOME"]) == (Exit.OK, "/")


def test_an_ssh_config_that_is_a_pipe_is_not_opened_where_it_is_looked_for(home: Path) -> None:
    """It is in a thread that may wait: tests/unit/feeds/test_ssh_files.py."""
    path = home / ".ssh" / "config"
    path.parent.mkdir()
    os.mkfifo(path)
    assert str(path) in config_files(None)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    """File systems that do not answer for a second; fabmon is patient for 0.1 s."""
    opened = os.open

    def slow(path: str | Path, *arguments: int, **rest: int) -> int:
        if str(path).endswith((".toml", ".txt")):
            time.sleep(1.0)
        return opened(path, *arguments, **rest)

    monkeypatch.setattr(slow_files, "_AFTER_S", 0.1)
    monkeypatch.setattr(os, "open", slow)


@pytest.mark.usefixtures("hanging")
def test_what_is_waited_for_is_said(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = home / ".config" / "fabmon" / "fabmon.toml"
    path.parent.mkdir(parents=True)
    path.write_text("")
    Session.load(None)
    assert capfd.readouterr().err == (
        f"fabmon: waiting for {path}: does its file system answer? ctrl+\\ ends fabmon\n"
    )
    hosts = home / "hosts.txt"
    hosts.write_text("gpu1")
    assert selected_hosts(hosts, [])
    assert f"waiting for {hosts}" in capfd.readouterr().err


@pytest.fixture
def no_answer(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The state directory is on a file system that does not answer until the event."""
    released, opened, made = threading.Event(), os.open, Path.mkdir

    def hangs(path: object) -> None:
        if "state" in Path(str(path)).parts:
            released.wait(30)

    def slow_open(path: str | Path, *arguments: int, **rest: int) -> int:
        hangs(path)
        return opened(path, *arguments, **rest)

    def slow_make(path: Path, *arguments: Any, **rest: Any) -> None:
        hangs(path)
        made(path, *arguments, **rest)

    for folder in ("findings", "alerts"):
        (home / "state" / "fabmon" / folder).mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setattr(os, "open", slow_open)
    monkeypatch.setattr(Path, "mkdir", slow_make)
    for name in ("kept_findings", "preferences", "live_page"):
        monkeypatch.setattr(f"fabmon.session.{name}.START_S", 0.1)
    for name in ("error_log", "alerts.delivery"):
        monkeypatch.setattr(f"fabmon.{name}.START_S", 0.1)
    yield released
    released.set()


@pytest.mark.usefixtures("no_answer")
@pytest.mark.timeout(20)
def test_a_state_directory_that_does_not_answer_keeps_nothing_from_starting(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = Session.load(None)
    kept = session.kept_findings("pod7")
    assert session.pipeline([], kept=kept) is not None
    (said,) = caplog.messages
    assert ".json: its file system does not answer: open findings" in said
    choices = home / "state" / "fabmon" / "screen.json"
    why = f"kept choices are ignored: {choices}: its file system does not answer"
    assert load_kept() == ({}, why)
    LivePage(home, "pod7")
    assert log_error(ValueError(), "here") == (
        "the traceback could not be written: its file system does not answer"
    )


@pytest.mark.parametrize("then", ["answers", "no answer", "is another's"])
@pytest.mark.timeout(60)
async def test_alerts_are_sent_from_where_the_state_directory_does_not_answer(
    no_answer: threading.Event,
    then: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What an earlier run, or another process, keeps there is not lost."""
    monkeypatch.setattr("fabmon.alerts.delivery._LOCK_RETRY_S", 0.1)
    sent, kept = tmp_path / "sent", StateFile(Alert, "alerts", "pod7", "pager").path
    before = Alert(id="incast:gpu009", kind="incast", severity="warning", finding=finding("gpu009"))
    kept.write_bytes(msgspec.json.encode([before]))

    def subjects() -> set[str]:
        alerts = msgspec.json.decode(kept.read_bytes(), type=list[Alert])
        return {each.finding.subject for each in alerts}

    receiver = ExecReceiver(command=("sh", "-c", f"cat > {sent}.new; mv {sent}.new {sent}"))
    config = AlertsConfig(receivers={"pager": receiver})
    with kept.with_suffix(".lock").open("w") as lock:
        if then == "is another's":
            fcntl.flock(lock, fcntl.LOCK_EX)
        async with Alerts(config, "pod7", "pod7") as alerts:
            alerts.accept(scene(finding("gpu001"), time_s=1))
            await asyncio.to_thread(until, sent.exists, 20)
            if then != "no answer":
                no_answer.set()
            if then == "answers":
                await asyncio.to_thread(until, lambda: len(subjects()) == 2, 20)
            if then == "is another's":
                await asyncio.to_thread(until, lambda: "another fabmon" in caplog.text, 20)
                sent.unlink()
            alerts.accept(scene(finding("gpu001"), finding("gpu002"), time_s=2))
            await asyncio.sleep(0.5)
    no_answer.set()
    mine = {"gpu001", "gpu002"} if then == "answers" else set[str]()
    assert subjects() == {"gpu009"} | mine
    assert sent.exists() == (then != "is another's")
    silent = f"{kept}: its file system does not answer: alerts to pager may be sent twice"
    another = "alerts to pager are not sent from here: another fabmon sends them"
    assert caplog.messages == [silent, another][: 1 + (then == "is another's")]


async def test_findings_of_a_state_directory_that_answers_late_are_taken_up(
    no_answer: threading.Event,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """That run kept none, and resolved the alerts of those that were open before it."""
    sent, session = home / "sent", Session.load(None)
    before = finding("gpu009", cause="link_down")
    findings = StateFile(EarlierFinding, "findings", "pod7").path
    findings.write_bytes(msgspec.json.encode([EarlierFinding(before, ("gpu009/eth0",))]))
    alert = Alert(id=before.key, kind="link_down", severity="warning", finding=before)
    alerts_file = StateFile(Alert, "alerts", "pod7", "pager").path
    alerts_file.write_bytes(msgspec.json.encode([alert]))
    receiver = ExecReceiver(command=("sh", "-c", f"cat >> {sent}"))
    alerts = Alerts(AlertsConfig(receivers={"pager": receiver}), "pod7", "pod7")
    kept, nodes = session.kept_findings("pod7"), LeafSpine()
    connecting = NodeStatus("gpu009", NodeState.CONNECTING, 0)

    async def ticks() -> AsyncIterator[Tick]:
        for number in range(40):
            if number == 10:
                no_answer.set()
            await asyncio.sleep(0.05)
            made = nodes.step()
            yield msgspec.structs.replace(made, statuses=(*made.statuses, connecting))

    pipeline = session.pipeline(nodes.hosts, kept=kept)
    made = [scene async for scene in scenes_of(pipeline, ticks(), None, alerts, kept)]
    subjects = [[each.subject for each in scene.findings] for scene in made]
    assert subjects[9] == []
    assert subjects[-1] == ["gpu009"]
    assert not sent.exists(), sent.read_text()
    (stored,) = StateFile(EarlierFinding, "findings", "pod7").load()
    assert stored.finding.since_ns == before.since_ns
    said = [each for each in caplog.messages if str(findings) in each]
    assert said == [
        f"{findings}: its file system does not answer: open findings of the last run are not"
        " known, and those of this one are not kept until they are",
        f"{findings}: read: the last run left 1 finding open",
    ]


def test_a_file_that_is_parsed_for_long_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As a topology of a large fabric, which was said to be on a file system that hangs."""
    monkeypatch.setattr(slow_files, "_AFTER_S", 0.2)
    until_s = time.thread_time() + 1
    with slow_files.said_if_slow(Path("fabric.csv")):
        while time.thread_time() < until_s:
            pass
    assert not capfd.readouterr().err


def test_settings_of_clustershell_that_are_damaged_are_named(home: Path) -> None:
    assert expand(Word("gpu[1-2]", 1)) == ["gpu1", "gpu2"]
    path = home / ".config" / "clustershell" / "defaults.conf"
    path.parent.mkdir(parents=True)
    path.write_text("noise\n")
    done = subprocess.run(
        [sys.executable, "-m", "fabmon", "--once", "--host", "gpu[1-2]"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == Exit.USAGE
    assert "ClusterShell's settings cannot be read" in done.stderr
    assert "defaults.conf" in done.stderr
    with pytest.raises(Bad):
        expand(Word("gpu[1-", 1))
