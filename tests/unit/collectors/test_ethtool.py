from __future__ import annotations

from pathlib import Path

import pytest

from collectors.source import NoData
from tests.fixtures import hosts, names, nic_drivers, parts
from tests.fixtures.reading import Answer, ask, read, source
from tests.fixtures.tree import Counter, Tree


def pause(answer: Answer, interface: str) -> dict[str, int | str | None]:
    return {
        name: value
        for name, value in answer.of(interface).items()
        if name.startswith(("pfc_", "pause_r", "pause_t"))
    }


def test_mlx5_with_pfc_on_one_priority(tmp_path: Path) -> None:
    tree = hosts.roce_host(tmp_path, hcas=2)
    ethtool = source("ethtool", tmp_path)
    objects = ethtool.discover()
    assert [(item.id, item.port) for item in objects] == [
        ("ens1np0", "mlx5_0"),
        ("ens2np0", "mlx5_1"),
    ]
    first = read(ethtool, objects)
    assert pause(first, "ens1np0") == {
        "pfc_rx_frames_prio3": 100,
        "pfc_rx_pause_us_prio3": 5_000,
        "pfc_rx_transitions_prio3": 50,
        "pfc_tx_frames_prio3": 10,
        "pfc_tx_pause_us_prio3": 900,
    }
    tree.grow(2)
    later = read(ethtool, objects)
    assert later.values["ens1np0", "pfc_rx_pause_us_prio3"] == 85_000
    assert later.values["ens1np0", "phy_tx_bytes"] == 13_000_000_000
    assert later.values["ens1np0", "phy_tx_bytes_prio3"] == 10_000_001_000
    assert later.values["ens1np0", "phy_tx_bytes_prio4"] == 1_000
    ethtool.close()


def test_pfc_off_is_absent_and_not_zero(tmp_path: Path) -> None:
    hosts.roce_host(tmp_path, hcas=2)
    assert pause(ask("ethtool", tmp_path), "ens2np0") == {
        "pause_rx_frames": 3,
        "pause_rx_us": 30,
        "pause_rx_transitions": 1,
        "pause_tx_frames": 0,
        "pause_tx_us": 0,
    }


def test_bnxt_has_frames_and_durations_of_all_priorities(tmp_path: Path) -> None:
    hosts.bnxt_host(tmp_path)
    values = ask("ethtool", tmp_path).of("enp0f0np0")
    assert values["pfc_rx_pause_us_prio5"] == 5_000
    assert values["pfc_tx_frames_prio7"] == 56
    assert values["pfc_rx_frames"] == 64
    assert values["phy_rx_discards"] == 2  # rx_stat_discard, not the rings' own


def test_ice_has_frames_and_no_durations(tmp_path: Path) -> None:
    hosts.ice_host(tmp_path)
    values = ask("ethtool", tmp_path).of("ens3f0")
    assert values["pfc_rx_frames_prio2"] == 12
    assert values["pause_tx_frames"] == 2
    assert values["phy_rx_bytes"] == 4_000_000
    assert not [name for name in values if name.endswith("_us") or "_us_" in name]


def test_another_list_of_counters_is_noticed_even_when_it_is_as_long(tmp_path: Path) -> None:
    tree = hosts.roce_host(tmp_path, hcas=1)
    with_pause = names.mlx5_ethtool(0, pfc=False)
    with_pfc = names.mlx5_ethtool(0, pfc=True)
    assert len(with_pause) == len(with_pfc)
    tree.ethtool("ens1np0", with_pause)
    ethtool = source("ethtool", tmp_path)
    ethtool.discover()
    before = ethtool.signature()
    assert ethtool.signature() == before
    tree.ethtool("ens1np0", with_pfc)
    assert ethtool.signature() != before
    ethtool.close()


def test_a_list_that_grew_has_no_values_until_it_is_looked_at_again(tmp_path: Path) -> None:
    tree = hosts.roce_host(tmp_path, hcas=2)
    ethtool = source("ethtool", tmp_path)
    objects = ethtool.discover()
    before = ethtool.signature()
    tree.ethtool("ens1np0", names.mlx5_ethtool(0, pfc=True, queues=17))
    answer = read(ethtool, objects)
    assert set(answer.of("ens1np0").values()) == {"absent"}
    assert answer.of("ens2np0")["phy_tx_bytes"] == 3_000_000_000
    assert ethtool.signature() != before
    objects = ethtool.discover()
    assert read(ethtool, objects).of("ens1np0")["phy_tx_bytes"] == 3_000_000_000
    ethtool.close()


@pytest.mark.parametrize("driver", sorted(nic_drivers.NAMES))
def test_the_counters_of_other_drivers(tmp_path: Path, driver: str) -> None:
    tree = Tree(tmp_path)
    parts.netdev(tree, "eth0", 2, parts.pci(tree, "0000:18:00.0", driver))
    tree.ethtool("eth0", [(name, Counter(7)) for name in nic_drivers.NAMES[driver]])
    answer = ask("ethtool", tmp_path)
    assert set(answer.of("eth0")) == nic_drivers.METRICS[driver]
    assert answer.info("eth0") == {}


def test_drops_of_queues_are_added_up(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    parts.netdev(tree, "eth0", 2, parts.pci(tree, "0000:18:00.0", "gve"))
    rows = [(f"rx_queue_drop_cnt[{queue}]", Counter(10 + queue, queue)) for queue in range(3)]
    tree.ethtool("eth0", [("tx_dropped", Counter(5)), *rows, ("rx_bytes[0]", Counter(9))])
    ethtool = source("ethtool", tmp_path)
    objects = ethtool.discover()
    assert read(ethtool, objects).of("eth0") == {"phy_tx_discards": 5, "phy_rx_discards": 33}
    tree.grow(10)
    assert read(ethtool, objects).of("eth0") == {"phy_tx_discards": 5, "phy_rx_discards": 63}
    ethtool.close()


def test_mlx5_and_bnxt_count_losses_and_marks_by_priority(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    names_of = {
        "mlx5_core": ["rx_prio3_buf_discard", "rx_prio3_cong_discard", "rx_prio3_marked"],
        "bnxt_en": ["rx_discard_packets_cos5"],
    }
    for place, (driver, listed) in enumerate(names_of.items()):
        device = parts.pci(tree, f"0000:1{place}:00.0", driver)
        parts.netdev(tree, f"eth{place}", 2 + place, device)
        tree.ethtool(f"eth{place}", [(name, Counter(7)) for name in listed])
    answer = ask("ethtool", tmp_path)
    assert answer.of("eth0") == {
        "phy_rx_host_buffer_drops_prio3": 7,
        "phy_rx_host_congestion_drops_prio3": 7,
        "phy_rx_ecn_marked_prio3": 7,
    }
    assert answer.of("eth1") == {"phy_rx_discards_cos5": 7}


def test_virtual_interfaces_without_a_driver_are_not_asked(tmp_path: Path) -> None:
    hosts.container_host(tmp_path)
    with pytest.raises(NoData):
        source("ethtool", tmp_path).discover()
