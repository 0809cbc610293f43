"""journald and syslog as receivers: a real journald, what `logger` writes, and sockets."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fabmon.alerts.alert import Alert
from fabmon.alerts.settings import (
    AlertsConfig,
    DeliveryError,
    JournaldReceiver,
    SettingError,
    SyslogReceiver,
    check,
)
from fabmon.alerts.system_log import JournaldTransport, SyslogTransport
from fabmon.analysis.finding import Change
from tests.requirements import need, need_command, need_root
from tests.unit.alerts.test_alert_book import finding
from tests.unit.alerts.test_alertmanager import until

ALERT = Alert(
    id="incast:leaf1/swp1",
    kind="incast",
    severity="critical",
    finding=finding('leaf1/swp1 "quoted" ] \\ é\nFABMON_NODE=forged', severity="critical"),
    node="leaf1",
    port="swp1",
)
JOURNALD = "/lib/systemd/systemd-journald"


@contextmanager
def local_socket(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(60)
        yield listener


@pytest.fixture
def journal() -> Iterator[str]:
    """The name of a journal of its own, with a journald."""
    need_root()
    has_journald = Path(JOURNALD).exists() and Path("/etc/machine-id").exists()
    need("systemd-journald", has_journald, "apt-get install systemd")
    name = f"fabmon{uuid.uuid4().hex[:8]}"
    daemon = subprocess.Popen([JOURNALD, name], stderr=subprocess.DEVNULL)
    directory = Path(f"/run/systemd/journal.{name}")
    try:
        sockets = [directory / "dev-log", directory / "socket"]
        until(lambda: all(each.exists() for each in sockets))
        yield name
    finally:
        daemon.terminate()
        daemon.wait()
        machine = Path("/etc/machine-id").read_text().strip()
        for home in ("/var/log/journal", "/run/log/journal"):
            shutil.rmtree(f"{home}/{machine}.{name}", ignore_errors=True)
        shutil.rmtree(directory, ignore_errors=True)


def entries(name: str, count: int) -> list[dict[str, Any]]:
    """What fabmon wrote to a journal, as soon as it has `count` entries."""
    until_s = time.monotonic() + 240
    while True:
        command = ["journalctl", f"--namespace={name}", "-t", "fabmon", "-o", "json", "--no-pager"]
        done = subprocess.run(command, capture_output=True, text=True)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        if len(found) >= count or time.monotonic() > until_s:
            return found
        time.sleep(0.1)


async def test_a_real_journald_has_the_alert_and_its_fields(journal: str) -> None:
    receiver = JournaldReceiver(socket=f"/run/systemd/journal.{journal}/socket")
    transport = JournaldTransport(receiver, "pod7")
    await transport.send([(Change.OPEN, ALERT), (Change.CLOSE, ALERT)])
    opened, closed = entries(journal, 2)
    assert opened["MESSAGE"].startswith("open critical Incast: leaf1/swp1")
    assert (opened["PRIORITY"], closed["PRIORITY"]) == ("2", "6")
    assert (opened["FABMON_ID"], opened["FABMON_CLUSTER"]) == ("incast:leaf1/swp1", "pod7")
    # A newline in a name makes no field.
    assert (opened["FABMON_NODE"], opened["FABMON_PORT"]) == ("leaf1", "swp1")
    assert closed["FABMON_CHANGE"] == "close"


async def test_a_real_journald_reads_the_syslog_line(journal: str) -> None:
    receiver = SyslogReceiver(address=f"/run/systemd/journal.{journal}/dev-log", facility="local3")
    await SyslogTransport(receiver, "pod7").send([(Change.OPEN, ALERT)])
    (entry,) = entries(journal, 1)
    assert (entry["SYSLOG_IDENTIFIER"], entry["SYSLOG_FACILITY"]) == ("fabmon", "19")
    assert (entry["PRIORITY"], entry["SYSLOG_PID"]) == ("2", str(os.getpid()))
    assert entry["MESSAGE"].startswith("open critical Incast: leaf1/swp1")


def log_with_logger(path: Path) -> None:
    """Write a line with the command of the system."""
    options = ["--socket", str(path), "--id", "-p", "daemon.crit", "-t", "fabmon"]
    subprocess.run(["logger", *options, "a text"], check=True)


async def test_the_line_is_like_that_of_logger(tmp_path: Path) -> None:
    need_command("logger", "bsdutils")
    path = tmp_path / "log"
    with local_socket(path) as listener:
        await SyslogTransport(SyslogReceiver(address=str(path)), "pod7").send(
            [(Change.OPEN, ALERT)]
        )
        ours = listener.recv(65536).decode()
        log_with_logger(path)
        theirs = listener.recv(65536).decode()
    shape = re.compile(r"<26>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d fabmon\[\d+\]: ")
    assert shape.match(theirs)
    assert shape.match(ours)
    assert "\n" not in ours


async def test_a_datagram_as_rfc_5424_has_it() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(60)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        transport = SyslogTransport(SyslogReceiver(address=address, facility="local7"), "pod7")
        long = msgspec.structs.replace(ALERT, others=("gpu001 é" * 300,))
        await transport.send([(Change.OPEN, ALERT), (Change.UPDATE, long)])
        body = listener.recv(65536)
        cut = listener.recv(65536)
    text = body.decode()
    head, _, rest = text.partition(" [fabmon@32473 ")
    assert re.fullmatch(r"<186>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \S+ fabmon \d+ alert", head)
    values = re.match(r'(?: ?\w+="(?:[^"\\\]]|\\["\\\]])*")+\] ', rest)
    assert values is not None
    assert 'subject="leaf1/swp1 \\"quoted\\" \\] \\\\ é?FABMON_NODE=forged"' in values[0]
    assert rest[values.end() :].startswith("open critical Incast")
    assert len(cut) <= 2048
    assert cut.decode()


@pytest.mark.parametrize("kind", ["journald", "syslog"])
async def test_a_log_that_is_not_there_is_an_error_that_is_retried(
    tmp_path: Path, kind: str
) -> None:
    path = str(tmp_path / "none")
    transport = (
        JournaldTransport(JournaldReceiver(socket=path), "")
        if kind == "journald"
        else SyslogTransport(SyslogReceiver(address=path), "")
    )
    with pytest.raises(DeliveryError, match="No such file"):
        await transport.send([(Change.OPEN, ALERT)])


async def test_a_log_that_reads_nothing_does_not_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabmon.alerts.system_log._SEND_S", 0.2)
    path = tmp_path / "log"
    transport = SyslogTransport(SyslogReceiver(address=str(path)), "")
    changes = [(Change.OPEN, ALERT)] * 5000
    with local_socket(path), pytest.raises(DeliveryError, match="not accepted"):
        await transport.send(changes)


@pytest.mark.parametrize("address", ["loghost", "loghost:", ":514", "loghost:x", "", "a/b:514"])
def test_addresses_that_are_none(address: str) -> None:
    config = AlertsConfig(receivers={"log": SyslogReceiver(address=address)})
    with pytest.raises(SettingError, match="HOST:PORT"):
        check(config, ())


def test_addresses_that_may_be_used() -> None:
    for address in ("/dev/log", "loghost:514", "[2001:db8::1]:514", "192.0.2.1:6514"):
        check(AlertsConfig(receivers={"log": SyslogReceiver(address=address)}), ())
