"""Captures of real hardware, where they lie beside the repository: everything in them is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectors.catalog import CATALOG
from collectors.gstats import TextStats
from collectors.hostfs import HostFS
from collectors.sources.ethtool_names import catalog_name
from collectors.sources.rdma_names import SPELLINGS
from tests.fixtures.reading import ask

CAPTURES = Path(__file__).parents[4] / "shared" / "hardware"
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
    found = {catalog_name(driver, name): name for name in names}
    found.pop(None, None)
    assert {name for name in found if name is not None} <= set(CATALOG)
    assert set(found) >= WANTED[driver]
    positions = [position for position, name in enumerate(names) if catalog_name(driver, name)]
    assert len(positions) == len(found), "no two counters of a driver are one metric"
    stats.choose(positions, len(names))
    values = stats.read()
    assert values is not None
    by_name = {names[position]: values[row] for row, position in enumerate(positions)}
    text = (CAPTURES / "ethtool" / DUMPS[driver]).read_text()
    for name, value in by_name.items():
        assert f"{name}: {value}\n" in text
    stats.close()


def test_the_counters_of_a_real_ionic_are_known() -> None:
    links = json.loads((CAPTURES / "ethtool/ionic-rdma-statistic.json").read_text())
    assert links
    for link in links:
        found = {
            metric
            for metric, spellings in SPELLINGS.items()
            if any(set(spelling.split("+")) <= set(link) for spelling in spellings)
        }
        assert found >= {
            "rdma_ecn_marked",
            "rdma_cnp_sent",
            "rdma_cnp_handled",
            "rdma_out_of_sequence",
            "rdma_packet_sequence_errors",
            "rdma_rx_bytes",
            "rdma_tx_bytes",
        }
