"""Files that a user names, or has in the home, which are none: pipes, devices, directories."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fabmon.alerts.notifier import load_template
from fabmon.alerts.settings import SettingError
from fabmon.cli.main import main
from fabmon.fabric.hosts.host_line import Bad, Word
from fabmon.fabric.hosts.nodesets import expand
from fabmon.feeds.errors import BadTrust
from fabmon.feeds.http_client import client_tls_context
from fabmon.feeds.transports.ssh_credentials import config_files
from fabmon.session import slow_files
from fabmon.session.config import load
from fabmon.session.errors import Exit, UsageError
from fabmon.session.log_files import read_logs
from fabmon.session.node_selection import selected_hosts
from fabmon.session.session import Session
from fabmon.trusted_certificates import context_trusting

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
        (os.mkdir, "Is a directory"),
        (_socket, "No such device or address"),
        (lambda path: path.symlink_to("/dev/zero"), "a device: name a file or a pipe"),
    ],
)
def test_a_log_that_is_no_file_is_refused(
    make: Callable[[Path], None], why: str, tmp_path: Path
) -> None:
    make(tmp_path / "log")
    with pytest.raises(UsageError, match=why):
        read_logs([tmp_path / "log"])


def test_a_pipe_without_a_writer_is_an_empty_log(pipe: Path) -> None:
    assert not read_logs([pipe])[0].nccl_lines


def test_a_pipe_is_read_to_its_end_however_slowly_it_is_written() -> None:
    """`fabmon explain <(kubectl logs job)`."""
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(0.3); print('x NCCL WARN y')"],
        stdout=subprocess.PIPE,
    ) as writer:
        assert writer.stdout is not None
        assert read_logs([Path(f"/dev/fd/{writer.stdout.fileno()}")])[0].nccl_lines == 1


def test_ctrl_c_ends_a_pipe_that_does_not_end(pipe: Path) -> None:
    writer = os.open(pipe, os.O_RDWR)
    reader = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from pathlib import Path; import sys; from fabmon.session.log_files import read_logs\n"
            "print(1, flush=True); read_logs([Path(sys.argv[1])])",
            str(pipe),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert reader.stdout is not None
        reader.stdout.readline()
        time.sleep(0.2)
        reader.send_signal(signal.SIGINT)
        assert reader.wait(20) == -signal.SIGINT
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


def test_settings_of_clustershell_that_are_damaged_are_named(home: Path) -> None:
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
    assert expand(Word("gpu[1-2]", 1)) == ["gpu1", "gpu2"]
    with pytest.raises(Bad):
        expand(Word("gpu[1-", 1))
