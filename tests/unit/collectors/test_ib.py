from __future__ import annotations

from pathlib import Path

import pytest

from collectors.catalog import require
from collectors.source import NoData
from collectors.sources import ib as ib_source
from collectors.sources.ib import parse_rate
from tests.fixtures import hosts
from tests.fixtures.reading import ask, read, source


def test_data_counters_are_words_and_become_bytes(tmp_path: Path) -> None:
    tree = hosts.ib_host(tmp_path, hcas=1)
    ib = source("ib", tmp_path)
    objects = ib.discover()
    first = read(ib, objects)
    assert first.of("mlx5_0") == {
        "ib_state": 4,
        "ib_tx_bytes": 4 * 230_000_000_000_000,
        "ib_rx_bytes": 4 * 231_000_000_000_000,
        "ib_tx_packets": 315_000_000_000,
        "ib_rx_packets": 317_000_000_000,
        "ib_tx_wait": 2**32 - 1,
    }
    tree.grow(1)
    grown = (read(ib, objects).values["mlx5_0", "ib_tx_bytes"] or 0) - 4 * 230_000_000_000_000
    assert grown * 8 == 352_000_000_000  # 88 % of 400 Gb/s
    ib.close()


def test_bytes_wrap_as_a_64_bit_counter_would(tmp_path: Path) -> None:
    hosts.ib_host(tmp_path, hcas=1)
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    (port / "counters/port_xmit_data").write_text(f"{2**64 - 1}\n")
    assert ask("ib", tmp_path).values["mlx5_0", "ib_tx_bytes"] == 2**64 - 4


def test_omni_path_counts_flits_of_eight_octets(tmp_path: Path) -> None:
    hosts.ib_host(tmp_path, hcas=1)
    uevent = tmp_path / "sys/devices/pci0000:18/0000:18:01.0/0000:18:00.0/uevent"
    uevent.write_text(uevent.read_text().replace("mlx5_core", "hfi1"))
    answer = ask("ib", tmp_path)
    assert answer.info("mlx5_0")["data_unit_bytes"] == 8
    assert answer.values["mlx5_0", "ib_tx_bytes"] == 8 * 230_000_000_000_000


def test_old_kernels_keep_the_wide_counters_apart(tmp_path: Path) -> None:
    hosts.old_kernel_host(tmp_path)
    assert ask("ib", tmp_path).of("mlx4_0/1") == {
        "ib_state": 4,
        "ib_tx_bytes": 12_000_000_000_000,
        "ib_rx_bytes": (4 * (2**62 + 5)) % 2**64,
        "ib_tx_packets": 3_000_000_000,
        "ib_rx_packets": 4_000_000_000,
        "ib_tx_wait": 2**32 - 1,
    }


def test_a_narrow_counter_at_its_maximum_is_unknown_and_text_is_unsupported(
    tmp_path: Path,
) -> None:
    hosts.old_kernel_host(tmp_path)
    assert ask("ib", tmp_path).of("mlx4_0/2") == {
        "ib_state": 1,
        "ib_tx_bytes": "saturated",
        "ib_rx_bytes": "saturated",
        "ib_tx_packets": 315_000_000_000,
        "ib_rx_packets": "unsupported",
        "ib_tx_wait": 2**32 - 1,
    }


def test_a_counter_that_refuses_costs_only_itself(tmp_path: Path) -> None:
    hosts.refusing_host(tmp_path)
    traffic, errors = ask("ib", tmp_path), ask("ib_errors", tmp_path)
    assert traffic.faults == {("mlx5_0", "ib_rx_packets"): "failed"}
    assert errors.faults == {("mlx5_0", "ib_symbol_errors"): "unsupported"}
    assert len(traffic.values) == 6
    assert len(errors.values) == 18


def test_errors_keep_the_value_that_their_width_makes_them_stick_at(tmp_path: Path) -> None:
    hosts.ib_host(tmp_path, hcas=1)
    values = ask("ib_errors", tmp_path).of("mlx5_0")
    assert values["ib_excessive_buffer_overruns"] == 15
    assert values["ib_link_downed"] == 2
    assert values["ib_tx_discards"] == 7
    assert values["ib_rate_bps"] == 400_000_000_000
    assert values["ib_phys_state"] == 5


def test_a_port_without_pma_still_has_its_state(tmp_path: Path) -> None:
    hosts.bnxt_host(tmp_path)
    assert ask("ib", tmp_path).of("bnxt_re0") == {"ib_state": 4}
    assert ask("ib_errors", tmp_path).of("bnxt_re0") == {
        "ib_rate_bps": 200_000_000_000,
        "ib_phys_state": 5,
    }


@pytest.mark.parametrize(
    ("text", "bps"),
    [
        (b"400 Gb/sec (4X NDR)\n", 400_000_000_000),
        (b"2.5 Gb/sec (1X SDR)", 2_500_000_000),
        (b"14 Gb/sec (1X FDR)", 14_000_000_000),
        (b"800 Gb/sec (4X XDR)", 800_000_000_000),
    ],
)
def test_rate(text: bytes, bps: int) -> None:
    assert parse_rate(text) == bps


def test_a_rate_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="not a rate"):
        parse_rate(b"unknown")


@pytest.mark.parametrize("name", ["ib", "ib_errors", "rdma", "rdma_errors"])
def test_a_machine_without_rdma_has_no_data(tmp_path: Path, name: str) -> None:
    hosts.container_host(tmp_path)
    with pytest.raises(NoData):
        source(name, tmp_path).discover()


def test_every_metric_of_the_tables_is_in_the_catalog() -> None:
    for table in (ib_source._DATA, ib_source._PACKETS, ib_source._SLOW_PACKETS, ib_source._WAIT):
        require(*table)
    require(*ib_source._ERRORS)
