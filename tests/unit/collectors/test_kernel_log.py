"""The kernel's messages: the texts of the catalog, the real /dev/kmsg, a real journal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors import wire
from collectors.catalog.kernel_log import FATAL, PATTERNS, RECOVERED, XIDS, describe
from collectors.loop.probe import Probe
from collectors.source import Denied, Logged, NoData
from collectors.sources import kernel_log
from collectors.sources.kernel_log import (
    LOST,
    KernelLog,
    find_message,
    journal_entries,
    record_text,
)
from tests.fixtures.reading import ask, source
from tests.requirements import need, need_command, need_path, need_root

ROOT = Path(__file__).parents[3]

LINES = (
    # line of the kernel, name, device, severity
    (
        "mlx5_core 0000:41:00.0: poll_health:852:(pid 0): device's health compromised - "
        "reached miss count",
        "mlx5_health",
        "0000:41:00.0",
        "fatal",
    ),
    (
        "mlx5_core 0000:41:00.0: print_health_info:458:(pid 0): synd 0x8: unrecoverable "
        "hardware error",
        "mlx5_syndrome",
        "0000:41:00.0",
        "error",
    ),
    (
        "mlx5_core 0000:86:00.1: poll_health:907:(pid 0): Fatal error 1 detected",
        "mlx5_fatal",
        "0000:86:00.1",
        "fatal",
    ),
    (
        "mlx5_core 0000:86:00.1: mlx5_health_try_recover:343:(pid 4711): health recovery flow "
        "aborted, PCI reads still not working",
        "mlx5_recovery_failed",
        "0000:86:00.1",
        "fatal",
    ),
    (
        "mlx5_core 0000:03:00.0: wait_func:964:(pid 112): ENABLE_HCA(0x104) timeout. Will cause "
        "a leak of a command resource",
        "mlx5_command_timeout",
        "0000:03:00.0",
        "error",
    ),
    (
        "mlx5_core 0000:03:00.0: Port module event[error]: module 0, Cable error, High Temperature",
        "mlx5_module_error",
        "0000:03:00.0",
        "error",
    ),
    (
        "mlx5_core 0000:03:00.0: Port module event: module 0, Cable unplugged",
        "mlx5_unplugged",
        "0000:03:00.0",
        "warning",
    ),
    ("mlx5_core 0000:03:00.0 ens1np0: Link down", "mlx5_link_down", "0000:03:00.0", "warning"),
    (
        "mlx5_core 0000:03:00.0: firmware version: 28.39.1002",
        "mlx5_loaded",
        "0000:03:00.0",
        "recovered",
    ),
    (
        "NVRM: Xid (PCI:0000:5f:00): 79, GPU has fallen off the bus.",
        "xid_79",
        "0000:5f:00.0",
        "fatal",
    ),
    (
        "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x025001c6"
        " 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
        "xid_149_fatal_NETIR_LINK_EVT_link1_0x025001c6",
        "0009:01:00.0",
        "error",
    ),
    (
        "NVRM: Xid (PCI:0018:01:00): 145, RLW_REMAP Nonfatal XC0 i0 Link -1 (0x00000004 0x0)",
        "xid_145_nonfatal_RLW_REMAP_link-1_0x00000004",
        "0018:01:00.0",
        "warning",
    ),
    (
        "NVRM: Xid (PCI:0000:00:1e): 149, NETIR_LINK_EVT Fatal XC 1 i 2 Link 01 [0x0000000a]",
        "xid_149_fatal_NETIR_LINK_EVT_link1_0x0000000a",
        "0000:00:1e.0",
        "error",
    ),
    ("NVRM: Xid (PCI:0018:01:00): 147, unknown", "xid_147", "0018:01:00.0", "error"),
    (
        "NVRM: Xid (PCI:0000:07:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error"
        " detected on link 2(0x10000, 0x0, 0x5, 0x0, 0x0, 0x0, 0x0)",
        "xid_74_link2_10000_0_5_0_0_0_0",
        "0000:07:00.0",
        "error",
    ),
    ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "xid_14", "0000:03:00.0", "warning"),
    (
        "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping",
        "xid_63",
        "0000:10:1c.0",
        "warning",
    ),
    (
        "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 "
        "(Node Reboot Required)",
        "xid_154_reset",
        "0000:01:00.0",
        "fatal",
    ),
    (
        "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset "
        "Required) to 0x0 (None)",
        "xid_154_none",
        "0000:01:00.0",
        "recovered",
    ),
    (
        "NVRM: GPU 0000:5f:00.0: GPU has fallen off the bus.",
        "gpu_off_the_bus",
        "0000:5f:00.0",
        "fatal",
    ),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20009, Non-fatal, Link 28 RX Short Error Rate",
        "sxid_20009",
        "0000:c3:00.0",
        "warning",
    ),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 30 sourcetrack timeout",
        "sxid_fatal_24007",
        "0000:c3:00.0",
        "fatal",
    ),
    (
        "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:01:00.0",
        "aer_fatal",
        "0000:01:00.0",
        "error",
    ),
    (
        "pcieport 0000:00:01.0: AER: Multiple Correctable error message received from 0000:01:00.0",
        "aer_corrected",
        "0000:01:00.0",
        "warning",
    ),
    (
        "mlx5_core 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, "
        "(Receiver ID)",
        "aer_corrected",
        "0000:41:00.0",
        "warning",
    ),
    (
        "pcieport 0000:00:02.0: AER: Uncorrected (Non-Fatal) error received: 0000:02:00.0",
        "aer_non_fatal",
        "0000:02:00.0",
        "error",
    ),
    (
        "pci 0000:01:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link "
        "at 0000:00:01.0 (capable of 126.016 Gb/s with 8.0 GT/s PCIe x16 link)",
        "pcie_downtrained",
        "0000:01:00.0",
        "warning",
    ),
    (
        "pcieport 0000:40:01.1:pcie204: pciehp: Slot(4): Link Down",
        "pcie_link_down",
        "0000:40:01.1",
        "error",
    ),
    (
        "NETDEV WATCHDOG: ens1np0 (mlx5_core): transmit queue 3 timed out",
        "netdev_watchdog",
        "ens1np0",
        "error",
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!",
        "amdgpu_reset",
        "0000:c1:00.0",
        "error",
    ),
)

NOT_WANTED = (
    "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
    "mlx5_core 0000:03:00.0: E-Switch: Total vports 2, per vport: max uc(128) max mc(2048)",
    "NVRM: GPU at PCI:0000:3b:00: GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7",
    "fabmon: my Xid is 79",
    "",
)


@pytest.mark.parametrize(("line", "name", "device", "severity"), LINES)
def test_each_text_is_known_by_its_name_device_and_severity(
    line: str, name: str, device: str, severity: str
) -> None:
    message = find_message(line)
    assert message is not None
    assert (message.name, message.device) == (name, device)
    assert describe(message.name).severity == severity
    assert describe(message.name).meaning


@pytest.mark.parametrize("line", NOT_WANTED)
def test_other_lines_stay_on_the_node(line: str) -> None:
    assert find_message(line) is None


def test_an_error_of_an_nvlink_has_its_link_and_what_its_registers_say() -> None:
    older = describe("xid_74_link2_10000_0_5_0_0_0_0").meaning
    assert older.startswith("Xid 74: an error of an NVLink: link 2, register 0 bit 16, register 2")
    meaning = describe("xid_149_fatal_NETIR_LINK_EVT_link1_0x025001c6").meaning
    assert meaning.startswith("Xid 149 Fatal: an NVLink error in the network interface")
    assert meaning.endswith("link 1, NETIR_LINK_EVT, sub-code 37 (0x025001c6)")
    none = describe("xid_145_nonfatal_RLW_REMAP_link-1_0x00000004").meaning
    assert "Xid 145 Nonfatal" in none
    assert "no single link" in none


def test_the_catalog_is_whole() -> None:
    names = [pattern.name for pattern in PATTERNS]
    assert len(set(names)) == len(names)
    assert {describe(f"xid_{code}").severity for code in XIDS} <= {
        *(pattern.severity for pattern in PATTERNS)
    }
    drivers = {pattern.driver for pattern in PATTERNS if pattern.severity == RECOVERED}
    fatal = {pattern.driver for pattern in PATTERNS if pattern.severity == FATAL}
    assert fatal <= drivers, "what is fatal can end"
    assert describe("made_up_tomorrow").meaning == ""


def test_a_line_without_end_is_cut_before_it_is_searched() -> None:
    began = time.thread_time()
    assert find_message("mlx5_core 0000:41:00.0: " + "PCIe Bus Error: severity=" * 200_000) is None
    message = find_message(f"NVRM: Xid (PCI:0000:5f:00): 79, {'x' * 100_000}")
    assert message is not None
    assert len(message.text) <= 300
    assert time.thread_time() - began < 1


def test_a_record_is_its_message() -> None:
    record = b"3,1182,74021,-;NVRM: caf\\xc3\\xa9\n SUBSYSTEM=pci\n DEVICE=+pci:0000:41:00.0\n"
    assert record_text(record) == "NVRM: caf\u00e9"


def test_a_tree_carries_records(tmp_path: Path) -> None:
    with pytest.raises(NoData):
        ask("kernel_log", tmp_path)
    (tmp_path / "dev").mkdir()
    records = (f"3,{n},{n},-;{line}\n SUBSYSTEM=pci\n" for n, (line, *_) in enumerate(LINES))
    (tmp_path / "dev/kmsg").write_text("".join(records))
    log = source("kernel_log", tmp_path)
    (item,) = log.discover()
    assert item.info == {"read_from": "/dev/kmsg"}
    assert log.read({}) == [len(LINES), 0]
    first = log.logged()
    assert len(first) == 10, "a tick's share"
    kinds = {(device, name) for _, name, device, _ in LINES}
    while more := (log.read({}), log.logged())[1]:
        first = [*first, *more]
    assert {(each.device, each.name) for each in first} == kinds


def test_what_repeats_is_reported_once_in_ten_seconds_with_its_number() -> None:
    repeats = kernel_log._Repeats()
    message = find_message(LINES[0][0])
    assert message is not None
    repeats.add(message)
    assert repeats.take(0) == [Logged("0000:41:00.0", "mlx5_health", message.text)]
    for _ in range(500):
        repeats.add(message)
    assert repeats.take(9) == []
    (again,) = repeats.take(10)
    assert again.text == f"{message.text} (500 times)"
    for number in range(10_000):
        repeats.add(message._replace(device=str(number)))
    assert len(repeats.take(11)) == 10
    assert len(repeats._waiting) < 200


def test_a_failure_that_repeats_is_never_reported_after_its_end() -> None:
    repeats = kernel_log._Repeats()
    failed = kernel_log.Message("xid_119", "0000:3b:00.0", "no answer")
    loaded = kernel_log.Message("nvidia_loaded", "", "loading")
    repeats.add(failed)
    assert [each.name for each in repeats.take(0)] == ["xid_119"]
    repeats.add(failed)
    repeats.add(loaded)
    assert [each.name for each in repeats.take(5)] == ["xid_119", "nvidia_loaded"]
    assert repeats.take(20) == []
    for message in (failed, loaded, failed):
        repeats.add(message)
    last = [each.name for each in (*repeats.take(20), *repeats.take(40))][-1]
    assert last == "xid_119", "the device failed again after its driver was loaded"


def test_what_a_gpu_needed_before_is_not_what_it_needs_now() -> None:
    line = (
        "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required)"
        " to 0x3 (Drain P2P)"
    )
    found = find_message(line)
    assert found is not None
    assert found.name == "xid_154"


def test_a_domain_beyond_four_digits_is_not_that_of_another_device() -> None:
    line = "pcieport 10000:e0:1d.0: AER: Corrected error received: 10000:e1:00.0"
    found = find_message(line)
    assert found is not None
    assert found.device == "10000:e1:00.0"


@pytest.fixture
def kmsg() -> Iterator[int]:
    """The real log of this machine, open for writing. Nothing fatal is written: other probes of
    this machine, those of the lab too, read it as well."""
    need_root()
    need_path("/dev/kmsg", "run in a container that has it")
    fd = os.open("/dev/kmsg", os.O_WRONLY)
    yield fd
    os.close(fd)


def test_the_real_log_is_read_from_now_on(kmsg: int) -> None:
    line = f"mlx5_core 0000:41:00.0: synd 0x8: a test of fabmon {os.getpid()}"
    os.write(kmsg, f"{line} before\n".encode())
    log = source("kernel_log", "/")
    log.discover()
    try:
        log.read({})
        assert not [each for each in log.logged() if str(os.getpid()) in each.text]
        os.write(kmsg, f"{line} after\n".encode())
        log.read({})
        (logged,) = (each for each in log.logged() if str(os.getpid()) in each.text)
        assert logged == Logged("0000:41:00.0", "mlx5_syndrome", f"{line} after")
    finally:
        log.close()


def test_records_that_were_overwritten_are_counted(
    kmsg: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel answers EPIPE once, then with the oldest record that it still has."""
    log = KernelLog(source("kernel_log", "/").host)
    log.discover()
    answers: list[bytes | OSError] = [
        b"6,7,1,-;harmless\n",
        BrokenPipeError(),
        f"3,12,1,-;{LINES[0][0]}\n".encode(),
        BlockingIOError(),
    ]

    def read(fd: int, size: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    try:
        monkeypatch.setattr("collectors.sources.kernel_log.os.read", read)
        assert log.read({}) == [1, 4]
        names = {each.name: each.text for each in log.logged()}
        assert set(names) == {"mlx5_health", LOST}
        assert names[LOST] == "4 messages of the kernel were not read: too many came at once"
    finally:
        monkeypatch.undo()
        log.close()


JOURNALCTL = """#!/bin/sh
case "$*" in
    *--after-cursor=*) for n in $(seq $(cat "$0.count")); do
        echo '{"__CURSOR": "'$n'", "MESSAGE": "message '$n'"}'; done ;;
    *) echo '{"__CURSOR": "0", "MESSAGE": "old"}' ;;
esac
"""


def test_messages_beyond_those_of_one_query_of_the_journal_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "journalctl"
    command.write_text(JOURNALCTL)
    command.chmod(0o755)
    (tmp_path / "journalctl.count").write_text("2500")
    monkeypatch.setattr(kernel_log, "_JOURNAL_S", 0.0)
    monkeypatch.setattr(kernel_log, "_JOURNAL_DUTY", 1e9)
    reader = kernel_log._JournalReader(str(command), Denied("/dev/kmsg: no"))
    found: list[str] = []
    until_s = time.monotonic() + 240
    while not found and time.monotonic() < until_s:
        found = reader.lines()
        time.sleep(0.01)
    assert (len(found), found[0], found[-1]) == (1000, "message 1501", "message 2500")
    assert reader.lost == 1500


def test_the_probe_sends_a_notice_in_the_tick_of_the_message(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text(f"3,1,1,-;{LINES[0][0]}\n")
    lines: list[bytes] = []
    Probe([source("kernel_log", tmp_path)], lines.append, {}).run(1)
    kind, notice = json.loads(lines[1])
    assert kind == "notice"
    assert notice == {
        "event": wire.LOGGED,
        "source": "kernel_log",
        "object": "0000:41:00.0",
        "metric": "mlx5_health",
        "reason": "",
        "text": LINES[0][0],
    }


AS_NOBODY = """
import os, sys
sys.path.insert(0, sys.argv[1])
from collectors.hostfs import HostFS
from collectors.sources import kernel_log
os.setgroups([]); os.setgid(65534); os.setuid(65534)
log = kernel_log.KernelLog(HostFS("/"))
os.environ["PATH"] = "/nonexistent"
try:
    log.discover()
except Exception as error:
    print(error.reason, error)
"""


def test_who_may_not_read_it_is_told_why() -> None:
    need_root()
    need_path("/dev/kmsg", "run in a container that has it")
    restricted = Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() == "1"
    need("kernel.dmesg_restrict", restricted, "sysctl kernel.dmesg_restrict=1")
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(ROOT)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("denied /dev/kmsg: ")
    assert "there is no journalctl" in done.stdout


WITH_JOURNAL = """
import json, os, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from collectors.source import Denied
from collectors.sources import kernel_log
for place in ("/run", "/var/log/journal"):
    if os.path.isdir(place):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
os.makedirs("/run/log/journal")
daemon = subprocess.Popen([sys.argv[2]], stderr=subprocess.DEVNULL)
kernel_log._JOURNAL_S = 0.2
kernel_log._JOURNAL_DUTY = 1.0
kernel_log._JOURNAL_RETRY_S = 0.2
reader = kernel_log._JournalReader("journalctl", Denied("/dev/kmsg: no"))
found, errors, written = [], [], 0
until = time.monotonic() + 240
while time.monotonic() < until and len(found) < 2:
    try:
        found += [line for line in reader.lines() if sys.argv[3] in line]
    except Denied as error:
        errors.append(str(error))
    if reader._cursor and not written:
        written = 1
        for line in ("NVRM: Xid (PCI:0000:5f:00): 31, ", "mlx5_core 0000:41:00.0: synd 0x8: x "):
            with open("/dev/kmsg", "w") as kmsg:
                kmsg.write("<3>" + line + sys.argv[3] + "\\n")
    time.sleep(0.1)
daemon.terminate()
daemon.wait()
print(json.dumps([found, errors]))
"""


def test_a_real_journal_is_read_where_the_log_itself_may_not_be() -> None:
    need_root()
    need_path("/dev/kmsg", "run in a container that has it")
    daemon = "/usr/lib/systemd/systemd-journald"
    need_path(daemon, "apt-get install systemd")
    need_command("journalctl", "systemd")
    need_command("unshare", "util-linux")
    mark = f"fabmon-{os.getpid()}"
    argv = ["unshare", "--mount", sys.executable, "-c", WITH_JOURNAL, str(ROOT), daemon, mark]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=240)
    found, errors = json.loads(done.stdout)
    assert found == [
        f"NVRM: Xid (PCI:0000:5f:00): 31, {mark}",
        f"mlx5_core 0000:41:00.0: synd 0x8: x {mark}",
    ]
    assert all(text.startswith("/dev/kmsg: no; ") for text in errors)


@pytest.mark.parametrize(
    "entry",
    [{}, {"__CURSOR": "a", "MESSAGE": None}, [1], {"__CURSOR": "a", "MESSAGE": [78, 300, "x"]}],
)
def test_odd_entries_of_a_journal_are_no_messages(entry: Any) -> None:
    for _, text in journal_entries(json.dumps(entry)):
        assert find_message(text) is None
