"""Captures of real hardware, where they lie beside the repository: everything in them is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectors.catalog import CATALOG
from collectors.hostfs import HostFS
from collectors.readers.ethtool_names import metric_of
from collectors.readers.ethtool_stats import TextStats
from collectors.sources.rdma import SPELLINGS
from tests.fixtures import parts
from tests.fixtures.reading import ask
from tests.fixtures.tree import Tree
from tests.goldens import check_golden

CAPTURES = Path(__file__).parents[4] / "shared" / "hardware"
GOLDENS = Path(__file__).parent / "goldens" / "captures"
H100 = CAPTURES / "sys-class-infiniband-h100"

# What each driver's dump must yield, at the least.
WANTED = {
    "mlx5_core": {
        *(f"phy_{way}_{what}" for way in ("rx", "tx") for what in ("bytes", "packets", "discards")),
        *(f"phy_{way}_bytes_prio{prio}" for way in ("rx", "tx") for prio in range(8)),
        *("pause_rx_frames", "pause_rx_us", "pause_rx_transitions", "pause_tx_us"),
        *("phy_rx_symbol_errors", "phy_rx_pcs_symbol_errors", "phy_rx_fec_corrected_bits"),
        *("phy_link_down_events", "phy_rx_buffer_events", "phy_rx_out_of_buffer"),
        *("pci_stalled_read_percent", "pci_stalled_write_percent", "pci_tx_signal_errors"),
    },
    "bnxt_en": {
        *(f"phy_{way}_{what}" for way in ("rx", "tx") for what in ("bytes", "packets", "discards")),
        *(f"pfc_{way}_frames_prio{prio}" for way in ("rx", "tx") for prio in range(8)),
        *(f"pfc_{way}_pause_us_prio{prio}" for way in ("rx", "tx") for prio in range(8)),
        *("phy_rx_fec_uncorrectable_blocks", "phy_link_down_events", "phy_rx_buffer_events"),
    },
    "i40e": {
        *("phy_rx_bytes", "phy_tx_bytes", "phy_rx_crc_errors", "phy_remote_faults"),
        *(f"pfc_{way}_frames_prio{prio}" for way in ("rx", "tx") for prio in range(8)),
        *(f"pfc_rx_transitions_prio{prio}" for prio in range(8)),
    },
    "ionic": {
        *(f"phy_{way}_{what}" for way in ("rx", "tx") for what in ("bytes", "packets")),
        *(f"pfc_{way}_pause_us_prio{prio}" for way in ("rx", "tx") for prio in range(8)),
        *("pfc_rx_frames", "pause_rx_us", "phy_rx_discards"),
    },
}
DUMPS = {
    "mlx5_core": "mlx5_core.txt",
    "bnxt_en": "bnxt_en.txt",
    "i40e": "i40e.txt",
    "ionic": "ionic-enp132s0.txt",
}


@pytest.fixture(autouse=True)
def captures() -> None:
    if not CAPTURES.is_dir():
        pytest.skip("no captures of hardware beside the repository (../shared/hardware)")


@pytest.fixture
def h100(tmp_path: Path) -> Path:
    (tmp_path / "sys/class").mkdir(parents=True)
    (tmp_path / "sys/class/infiniband").symlink_to(H100)
    return tmp_path


def test_every_port_of_the_h100_host_is_read(h100: Path) -> None:
    names = sorted(path.name for path in H100.iterdir())
    assert len(names) == 9
    for source, values in (("ib", 6), ("ib_errors", 18), ("rdma", 7), ("rdma_errors", 18)):
        answer = ask(source, h100)
        assert sorted(item.id for item in answer.objects) == names
        assert {len(item.metrics) for item in answer.objects} == {values}
        assert not answer.faults


def test_the_h100_values_are_those_of_the_files(h100: Path) -> None:
    for path in H100.iterdir():
        port = path / "ports/1"
        traffic = ask("ib", h100).of(path.name)
        errors = ask("ib_errors", h100).of(path.name)
        assert traffic["ib_tx_bytes"] == 4 * int((port / "counters/port_xmit_data").read_text())
        assert traffic["ib_state"] == 4
        assert errors["ib_link_downed"] == int((port / "counters/link_downed").read_text())
        rate = (port / "rate").read_text().split()[0]
        assert errors["ib_rate_bps"] == int(rate) * 10**9


def test_no_counter_of_the_h100_host_is_overlooked() -> None:
    read = {spelling for spellings in SPELLINGS.values() for spelling in spellings}
    there = {path.name for path in H100.glob("*/ports/1/hw_counters/*")}
    assert there - read == {"lifespan"}


@pytest.mark.parametrize("driver", sorted(DUMPS))
def test_every_wanted_counter_is_found_in_a_real_dump(driver: str) -> None:
    stats = TextStats(HostFS(str(CAPTURES)), "ethtool", DUMPS[driver])
    names = stats.names()
    assert len(names) > 100
    found = {metric_of(driver, name)[0]: name for name in names}
    found.pop(None, None)
    assert {name for name in found if name is not None} <= set(CATALOG)
    assert set(found) >= WANTED[driver]
    positions = [position for position, name in enumerate(names) if metric_of(driver, name)[0]]
    assert len(positions) == len(found), "no two counters of a driver are one metric"
    stats.choose(positions, len(names))
    values = stats.read()
    assert values is not None
    by_name = {names[position]: values[row] for row, position in enumerate(positions)}
    text = (CAPTURES / "ethtool" / DUMPS[driver]).read_text()
    for name, value in by_name.items():
        assert f"{name}: {value}\n" in text
    stats.close()


@pytest.fixture
def ainic(tmp_path: Path) -> Path:
    """`rdma -j statistic` of a host with AINICs, as the files that the command reads."""
    for link in json.loads((CAPTURES / "ethtool/ionic-rdma-statistic.json").read_text()):
        name, port = link.pop("ifname"), link.pop("port")
        where = tmp_path / f"sys/class/infiniband/{name}/ports/{port}"
        (where / "hw_counters").mkdir(parents=True)
        (where / "link_layer").write_text("Ethernet\n")
        for counter, value in link.items():
            (where / "hw_counters" / counter).write_text(f"{value}\n")
    return tmp_path


def test_the_counters_of_a_real_ionic_are_known(ainic: Path) -> None:
    each_tick, rarely = ask("rdma", ainic), ask("rdma_errors", ainic)
    assert not each_tick.faults
    assert not rarely.faults
    for item in each_tick.objects:
        assert set(item.metrics) >= {
            *(f"rdma_{way}_{what}" for way in ("rx", "tx") for what in ("bytes", "packets")),
            *("rdma_ecn_marked", "rdma_cnp_sent", "rdma_cnp_handled"),
            *("rdma_out_of_sequence", "rdma_packet_sequence_errors", "rdma_rnr_nak_retries"),
            "rdma_out_of_buffer",
        }
    for item in rarely.objects:
        assert set(item.metrics) >= {
            *("rdma_transport_retries_exceeded", "rdma_duplicate_requests"),
            *("rdma_duplicate_responses", "rdma_rnr_naks_sent", "rdma_implied_nak_errors"),
        }


def check(golden: Path, lines: list[str]) -> None:
    check_golden(golden, "\n".join(lines) + "\n")


def shown(source: str, root: Path) -> list[str]:
    """What fabmon makes of a tree: a line a value, by catalog name and in the catalog's unit."""
    answer = ask(source, root)
    return [
        f"{source} {item.id} {metric} {value}"
        for item in answer.objects
        for metric, value in answer.of(item.id).items()
    ]


def test_the_h100_host_looks_as_it_did(h100: Path) -> None:
    sources = ("ib", "ib_errors", "rdma", "rdma_errors")
    check(GOLDENS / "h100.txt", [line for name in sources for line in shown(name, h100)])


def test_the_ainics_look_as_they_did(ainic: Path) -> None:
    check(
        GOLDENS / "ainic.txt",
        [line for name in ("rdma", "rdma_errors") for line in shown(name, ainic)],
    )


@pytest.mark.parametrize("driver", sorted(DUMPS))
def test_a_dump_looks_as_it_did(tmp_path: Path, driver: str) -> None:
    tree = Tree(tmp_path)
    parts.netdev(tree, "eth0", 2, parts.pci(tree, "0000:18:00.0", driver))
    (tmp_path / "ethtool").mkdir()
    (tmp_path / "ethtool/eth0.txt").symlink_to(CAPTURES / "ethtool" / DUMPS[driver])
    check(GOLDENS / f"{driver}.txt", shown("ethtool", tmp_path))
