from __future__ import annotations

import time
from pathlib import Path

import pytest

from collectors.loop import watchdog
from collectors.source import NoData, Unsupported
from collectors.sources.cxi import EACH_TICK, RARELY
from tests.fixtures import hosts
from tests.fixtures.reading import ask, read, source

TELEMETRY = "sys/class/cxi/cxi0/device/telemetry"


def test_a_nic_is_the_port_of_its_interface(tmp_path: Path) -> None:
    hosts.slingshot_host(tmp_path)
    answer = ask("cxi", tmp_path)
    assert [(item.id, item.kind, item.port) for item in answer.objects] == [
        ("cxi0", "ethernet", "hsn0"),
        ("cxi1", "ethernet", "cxi1"),
    ]
    info = answer.info("cxi0")
    assert info["fabric"] == "slingshot"
    assert info["pci"] == "0000:18:00.0"
    assert info["pause_map"] == "pfc"
    assert ask("netdev_link", tmp_path).of("hsn0")["netdev_speed_bps"] == 200 * 10**9


def test_values_are_without_their_time_and_in_the_catalogs_units(tmp_path: Path) -> None:
    tree = hosts.slingshot_host(tmp_path)
    values = ask("cxi", tmp_path).of("cxi0")
    assert values["phy_rx_bytes"] == 3_000_000_000_000
    assert values["phy_rx_packets"] == 8 * 1_000 + 28
    # Sending that waited: this port was paused. Nanoseconds become microseconds.
    assert values["pfc_rx_pause_us_prio3"] == 5_000
    assert values["pfc_tx_pause_us_prio3"] == 3
    assert values["rdma_ecn_marked"] == 8 * 5_000 + 8 * 6_000 + 2 * 28
    rarely = ask("cxi_errors", tmp_path).of("cxi0")
    assert rarely["pfc_rx_frames_prio2"] == 8_002
    assert rarely["cxi_packet_timeouts"] == 17
    assert not set(rarely) & set(values)
    hosts.grow(tree, 1)
    assert ask("cxi", tmp_path).of("cxi0")["pfc_rx_pause_us_prio3"] == 255_000


def test_only_what_is_named_is_opened(tmp_path: Path) -> None:
    hosts.slingshot_host(tmp_path)
    names = {name for files in (EACH_TICK, RARELY) for row in files.values() for name in row}
    there = {path.name for path in (tmp_path / TELEMETRY).iterdir()}
    assert names <= there
    assert "lpe_append_cmds_0" in there - names


@pytest.mark.parametrize("wrong_s", [0, -3600, 3600], ids=["right", "behind", "ahead"])
def test_the_time_of_values_is_within_their_read_whatever_the_clock(
    tmp_path: Path, wrong_s: int
) -> None:
    hosts.slingshot_host(tmp_path, nics=1)
    cxi = source("cxi", tmp_path)
    cxi.discover()
    now_ns = time.time_ns() + wrong_s * 10**9
    for path in (tmp_path / TELEMETRY).iterdir():
        path.write_text(f"7@{now_ns // 10**9}.{now_ns % 10**9:09d}\n")
    start_ns = time.monotonic_ns()
    reading = watchdog.read(cxi, reads=True, looks=False, known=None)
    end_ns = time.monotonic_ns()
    assert reading.values is not None
    assert start_ns <= reading.mono_ns <= end_ns
    assert cxi.values_ns == reading.mono_ns
    cxi.close()


def test_a_file_that_fails_costs_its_own_value(tmp_path: Path) -> None:
    hosts.slingshot_host(tmp_path, nics=1)
    cxi = source("cxi", tmp_path)
    objects = cxi.discover()
    (tmp_path / TELEMETRY / "hni_sts_rx_ok_octets").write_text("")
    (tmp_path / TELEMETRY / "hni_tx_paused_4").write_text("12\n")
    answer = read(cxi, objects)
    assert answer.faults == {
        ("cxi0", "phy_rx_bytes"): "unsupported",
        ("cxi0", "pfc_rx_pause_us_prio4"): "unsupported",
    }
    cxi.close()


def test_a_nic_without_telemetry_is_unsupported(tmp_path: Path) -> None:
    with pytest.raises(NoData):
        source("cxi", tmp_path).discover()
    hosts.slingshot_host(tmp_path, nics=1)
    for path in (tmp_path / TELEMETRY).iterdir():
        path.unlink()
    with pytest.raises(Unsupported, match="cxi0 has no telemetry"):
        source("cxi", tmp_path).discover()


def test_a_virtual_function_beside_its_physical_one_is_left_out(tmp_path: Path) -> None:
    tree = hosts.slingshot_host(tmp_path)
    physical, virtual = (f"sys/devices/pci0000:{n}/0000:{n}:01.0/0000:{n}:00.0" for n in (18, 28))
    tree.link(f"{virtual}/physfn", physical)
    assert [item.id for item in ask("cxi", tmp_path).objects] == ["cxi0"]
