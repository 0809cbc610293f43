from __future__ import annotations

from pathlib import Path

import pytest

from collectors.source import NoData
from tests.fixtures import hosts
from tests.fixtures.reading import ask, read, source


def test_counters_of_all_interfaces_and_their_growth(tmp_path: Path) -> None:
    tree = hosts.ib_host(tmp_path, hcas=2)
    netdev = source("netdev", tmp_path)
    objects = netdev.discover()
    assert [(item.id, item.port, item.kind) for item in objects] == [
        ("eno1", "eno1", "ethernet"),
        ("ib0", "mlx5_0", "infiniband"),
        ("ib1", "mlx5_1", "infiniband"),
    ]
    first = read(netdev, objects)
    assert first.of("eno1") == {
        "netdev_up": 1,
        "netdev_carrier_changes": 3,
        "netdev_rx_bytes": 20_000_000,
        "netdev_tx_bytes": 40_000_000,
        "netdev_rx_packets": 20_000,
        "netdev_tx_packets": 40_000,
        "netdev_rx_errors": 0,
        "netdev_tx_errors": 0,
        "netdev_rx_drops": 2,
        "netdev_tx_drops": 0,
    }
    tree.grow(10)
    later = read(netdev, objects)
    grown = later.values["eno1", "netdev_rx_bytes"] or 0
    assert grown - 20_000_000 == 10 * 1_000_000
    netdev.close()


@pytest.mark.parametrize(
    ("operstate", "carrier", "up"),
    [
        ("up", "1", 1),
        ("down", "0", 0),
        ("lowerlayerdown", "0", 0),
        ("dormant", "1", 0),
        ("unknown", "1", 1),
        ("unknown", "0", 0),
    ],
)
def test_up_is_what_carries_traffic(tmp_path: Path, operstate: str, carrier: str, up: int) -> None:
    hosts.container_host(tmp_path)
    directory = tmp_path / "sys/class/net/eth0"
    (directory / "operstate").write_text(f"{operstate}\n")
    (directory / "carrier").write_text(f"{carrier}\n")
    assert ask("netdev", tmp_path).values["eth0", "netdev_up"] == up


def test_a_carrier_that_refuses_is_down(tmp_path: Path) -> None:
    hosts.container_host(tmp_path)
    directory = tmp_path / "sys/class/net/eth0"
    (directory / "operstate").write_text("unknown\n")
    (directory / "carrier").unlink()
    (directory / "carrier").mkdir()
    assert ask("netdev", tmp_path).values["eth0", "netdev_up"] == 0


def test_an_interface_that_left_has_no_values_and_the_others_stay(tmp_path: Path) -> None:
    hosts.ib_host(tmp_path, hcas=2)
    netdev = source("netdev", tmp_path)
    objects = netdev.discover()
    table = tmp_path / "proc/net/dev"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(line for line in lines if " ib0:" not in line))
    answer = read(netdev, objects)
    assert answer.of("ib0")["netdev_rx_bytes"] == "absent"
    assert answer.of("ib1")["netdev_rx_bytes"] == 110_000_000
    netdev.close()


def test_speed_and_mtu(tmp_path: Path) -> None:
    hosts.ib_host(tmp_path, hcas=1)
    answer = ask("netdev_link", tmp_path)
    assert answer.of("ib0") == {"netdev_speed_bps": 400_000_000_000, "netdev_mtu": 4200}
    assert answer.of("eno1")["netdev_speed_bps"] == 1_000_000_000


@pytest.mark.parametrize("text", ["-1", "4294967295", "0"])
def test_a_line_rate_that_the_kernel_does_not_know_is_not_zero(tmp_path: Path, text: str) -> None:
    hosts.container_host(tmp_path)
    (tmp_path / "sys/class/net/eth0/speed").write_text(f"{text}\n")
    assert ask("netdev_link", tmp_path).of("eth0") == {
        "netdev_speed_bps": "unsupported",
        "netdev_mtu": 4200,
    }


@pytest.mark.parametrize("name", ["netdev", "netdev_link"])
def test_a_machine_without_interfaces_has_no_data(tmp_path: Path, name: str) -> None:
    with pytest.raises(NoData):
        source(name, tmp_path).discover()


def test_the_machine_this_runs_on() -> None:
    """Loopback at least is everywhere; a port may not be."""
    netdev = source("netdev", "/")
    try:
        objects = netdev.discover()
    except NoData:
        pytest.skip("no network interface here is a port")
    answer = read(netdev, objects)
    assert any((value or 0) > 0 for value in answer.values.values())
    netdev.close()
