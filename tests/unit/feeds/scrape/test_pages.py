"""Goldens of the ports, metrics and values read from a page of each exporter."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from collectors.catalog import CATALOG, GAUGE, WRAP64
from collectors.readers.ethtool_names import RULES, SWITCHD, USUAL, metric_of
from fabmon.fabric.openmetrics import EXPOSED
from fabmon.feeds.errors import Misbehaved
from fabmon.feeds.scrape.exporter_tables import TableError, exporter_tables, load_table
from fabmon.feeds.scrape.page_reader import PageReader, PageReading
from fabmon.feeds.scrape.port_mapping import PageTooLarge
from tests.goldens import check_golden

PAGES = Path(__file__).parent / "pages"
CAPTURES = Path(__file__).parents[5] / "shared" / "hardware"
RECEIVED = b'node_network_receive_bytes_total{device="eth%d"} 1\n'
COUNTED = tuple(
    f"{way}_{what}_total".encode()
    for way in ("receive", "transmit")
    for what in ("bytes", "errs", "drop")
)
EXPORTERS = sorted(path.stem for path in PAGES.glob("*.prom"))


def shown(reading: PageReading) -> str:
    """A reading as text."""
    lines = []
    values = iter(reading.values or ())
    for item in reading.objects:
        where = f"{item.node} " if item.node is not None else ""
        lines.append(f"{where}{item.port}  {item.kind}  {json.dumps(item.info, sort_keys=True)}")
        lines += [f"    {metric} {next(values)}" for metric in item.metrics]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_page_of(exporter: str) -> None:
    page = (PAGES / f"{exporter}.prom").read_bytes()
    reading = PageReader(exporter_tables()).read(page)
    check_golden(PAGES / f"{exporter}.txt", shown(reading))
    # No metric on the page matches another exporter's table.
    assert shown(PageReader(exporter_tables().of(exporter)).read(page)) == shown(reading)


def unread(page: bytes) -> dict[str, tuple[int, int, tuple[str, ...]]]:
    """What of a page is not read: driver -> names seen, names read, the others."""
    reader = PageReader(exporter_tables())
    reader.read(page)
    return {each.driver: (each.seen, each.read, each.unmapped) for each in reader.coverage}


def test_what_of_a_page_is_not_read_is_named_by_driver() -> None:
    page = b"""\
node_network_receive_bytes_total{device="eth0"} 1
node_network_receive_bytes_total{device="lo"} 1
node_network_brand_new_total{device="eth0"} 1
node_infiniband_brand_new_total{device="mlx5_0",port="1"} 1
node_ethtool_info{device="eth0",driver="quux"} 1
node_ethtool_info{device="eth1",driver="mlx5_core"} 1
node_ethtool_frobs{device="eth0"} 1
node_ethtool_received_bytes_phy{device="eth0"} 1
node_ethtool_received_bytes_phy{device="eth1"} 1
node_ethtool_received_brand_new_phy{device="eth1"} 1
DCGM_FI_DEV_NVLINK_BRAND_NEW{gpu="0"} 1
node_cpu_seconds_total{cpu="0"} 1
node_cpu_guest_seconds_total{cpu="0"} 1
go_threads 7
"""
    assert unread(page) == {
        "dcgm_exporter": (1, 0, ("DCGM_FI_DEV_NVLINK_BRAND_NEW",)),
        "mlx5_core": (3, 2, ("node_ethtool_received_brand_new_phy",)),
        "node_exporter": (
            *(3, 1),
            ("node_infiniband_brand_new_total", "node_network_brand_new_total"),
        ),
        "other metrics": (3, 0, ("go_threads", "node_cpu_*")),
        "quux": (3, 1, ("node_ethtool_frobs", "node_ethtool_received_bytes_phy")),
    }


def test_series_with_labels_that_no_row_knows_are_named() -> None:
    page = b"""\
DCGM_FI_DEV_PCIE_TX_THROUGHPUT{gpu="0"} 1
DCGM_FI_DEV_PCIE_TX_THROUGHPUT{gpu="0",nvswitch="3"} 1
"""
    name = "DCGM_FI_DEV_PCIE_TX_THROUGHPUT (1 of 2 series)"
    assert unread(page) == {"dcgm_exporter": (1, 0, (name,))}


def ports_on(page: str) -> list[str]:
    """The ports of a page, with the metrics of each."""
    reading = PageReader(exporter_tables()).read(page.encode())
    return [f"{item.node}/{item.port} {' '.join(item.metrics)}" for item in reading.objects]


DATA = """\
infiniband_switch_info{{guid="0xa1",switch="leaf1",lid="1"}} 1
infiniband_switch_port_transmit_data_bytes_total{{guid="0xa1",port="1"}} 1000
infiniband_hca_port_transmit_data_bytes_total{{guid="0xc1",port="1"}} 1000
infiniband_hca_rate_bytes_per_second{{guid="0xc1"}} 2.5e10
infiniband_hca_info{{guid="0xc1",hca="gpu7 mlx5_0",lid="9"}} 1
{0}
"""
OF_SWITCH = 'infiniband_switch_rate_bytes_per_second{guid="0xa1"} 2.5e10'
OF_PORT = 'infiniband_switch_port_rate_bytes_per_second{guid="0xa1",port="1"} 2.5e10'


@pytest.mark.parametrize(("rate", "factor"), [(OF_SWITCH, 4), (OF_PORT, 1)])
def test_the_version_of_infiniband_exporter_decides_the_unit_of_data(
    rate: str, factor: int
) -> None:
    """Up to 0.9 it has words of 4 bytes under the names of bytes. In every version the rate of an
    HCA has no label `port`: that of a switch shows which it is."""
    values = values_on(DATA.format(rate))
    assert values["leaf1/1"] == {"ib_tx_bytes": 1000 * factor, "ib_rate_bps": 200_000_000_000}
    assert values["gpu7/mlx5_0"]["ib_tx_bytes"] == 1000 * factor


def test_data_of_infiniband_exporter_without_a_known_unit_is_not_read_and_that_is_said() -> None:
    reader = PageReader(exporter_tables())
    packets = 'infiniband_switch_port_transmit_packets_total{guid="0xa1",port="1"} 7'
    reading = reader.read(DATA.format(packets).encode())
    assert [item.metrics for item in reading.objects] == [("ib_tx_packets",)]
    assert len(reader.notes) == 1
    assert "words of 4 bytes under the names of bytes" in reader.notes[0]
    (coverage,) = reader.coverage
    assert "infiniband_switch_port_transmit_data_bytes_total" in coverage.unmapped


@pytest.mark.parametrize("version", ["0.9", "0.10"])
def test_the_two_versions_of_infiniband_exporter_beside_the_repository(version: str) -> None:
    page = CAPTURES.parent / "cases" / "infiniband-exporter-before-0.10" / f"v{version}.prom"
    if not page.is_file():
        pytest.skip("needs ../shared/cases beside the repository")
    values = values_on(page.read_text())
    assert [values[f"ib-leaf1/{port}"]["ib_tx_bytes"] for port in (1, 2)] == [4 * 10**9, 8 * 10**9]


def test_hcas_without_a_name_are_nodes_by_their_guid() -> None:
    ports = ports_on(
        OF_SWITCH
        + """
infiniband_hca_info{guid="0xc1",hca="MT4129 ConnectX7   Mellanox Technologies"} 1
infiniband_hca_info{guid="0xc2",hca="MT4129 ConnectX7   Mellanox Technologies"} 1
infiniband_hca_info{guid="0xc3",hca="localhost HCA-1"} 1
infiniband_hca_info{guid="0xc4",hca="localhost HCA-1"} 1
infiniband_hca_info{guid="0xc5",hca="gpu7 HCA-1"} 1
infiniband_hca_port_transmit_packets_total{guid="0xc1",port="1"} 1
infiniband_hca_port_transmit_packets_total{guid="0xc2",port="1"} 1
infiniband_hca_port_transmit_packets_total{guid="0xc3",port="1"} 1
infiniband_hca_port_transmit_packets_total{guid="0xc4",port="1"} 1
infiniband_hca_port_transmit_packets_total{guid="0xc5",port="1"} 1
"""
    )
    assert [port.split("/")[0] for port in ports] == [
        "gpu7",
        *(f"unnamed-00000000000000c{number}" for number in (1, 2, 3, 4)),
    ]


PACKETS = (
    'infiniband_portxmitpkts_total{{component="{0}",local_name="{1}",local_guid="{2}"'
    ',local_port="1"}} 1\n'
)


def test_hcas_and_switches_without_a_name_of_the_other_exporter() -> None:
    page = "".join(
        PACKETS.format(*each)
        for each in (
            ("ca", "MT4129 ConnectX7   Mellanox Technologies", "0xc1"),
            ("ca", "localhost mlx5_0", "0xc2"),
            ("ca", "gpu7 mlx5_0", "0xc3"),
            ("switch", "Quantum Mellanox Technologies", "0xa1"),
            ("switch", "Quantum Mellanox Technologies", "0xa2"),
            ("switch", "leaf1", "0xa3"),
        )
    )
    assert [port.split(" ")[0] for port in ports_on(page)] == [
        "0xa1/1",
        "0xa2/1",
        "gpu7/mlx5_0",
        "leaf1/1",
        "unnamed-00000000000000c1/0xc1",
        "unnamed-00000000000000c2/0xc2",
    ]
    reader = PageReader(exporter_tables())
    reader.read(page.encode())
    assert reader.notes[0].startswith("2 HCAs have no name")


MIG = """\
DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{gpu="0",GPU_I_PROFILE="1g.12gb",GPU_I_ID="{0}"}} 12
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{{gpu="0",GPU_I_PROFILE="1g.12gb",GPU_I_ID="{0}"}} 5000
DCGM_FI_PROF_NVLINK_L3_TX_BYTES{{gpu="0",GPU_I_PROFILE="1g.12gb",GPU_I_ID="{0}"}} 7
"""


def test_the_links_of_a_gpu_in_mig_mode_count_once() -> None:
    page = MIG.format(7) + MIG.format(8) + 'DCGM_FI_DEV_PCIE_REPLAY_COUNTER{gpu="1"} 3\n'
    assert values_on(page) == {
        "gpu0": {"nvlink_both_bps": 5000 * 8_192_000, "pcie_replays": 12},
        "gpu0/nv3": {"nvlink_tx_bps": 56},
        "gpu1": {"pcie_replays": 3},
    }
    assert unread(page.encode()) == {}


def values_on(page: str) -> dict[str, dict[str, int | None]]:
    """The values of each port of a page, by metric; a port of another node is `node/port`.

    It is the second page, as counters of DCGM, which repeats its values, are unknown before they
    change.
    """
    reader = PageReader(exporter_tables())
    reader.read(re.sub(r"(?m)^(DCGM.*) \S+$", r"\1 0", page).encode())
    reading = reader.read(page.encode())
    values = iter(reading.values or ())
    return {item.id: {name: next(values) for name in item.metrics} for item in reading.objects}


@pytest.mark.parametrize(
    ("legacy", "port", "expected"),
    [
        (0, 6_800_000_000, 6_800_000_000),  # files that stay 0
        (7_000_000_000_000, 4_294_967_295, 7_000_000_000_000),  # 32 bits, stuck
        (None, 4_294_967_295, None),
        (None, 5, 5),
        (9, None, 9),
    ],
)
def test_the_counter_that_counts_is_used(
    legacy: int | None, port: int | None, expected: int | None
) -> None:
    labels = '{device="mlx4_0",port="1"}'
    page = f"node_infiniband_state_id{labels} 4\n"
    if legacy is not None:
        page += f"node_infiniband_legacy_packets_received_total{labels} {legacy}\n"
    if port is not None:
        page += f"node_infiniband_port_packets_received_total{labels} {port}\n"
    assert values_on(page)["mlx4_0"]["ib_rx_packets"] == expected


def interface(name: str, name_type: int, address_type: int, link: int) -> str:
    labels = f'{{device="{name}"}}'
    return (
        f"node_network_name_assign_type{labels} {name_type}\n"
        f"node_network_address_assign_type{labels} {address_type}\n"
        f"node_network_protocol_type{labels} 1\n"
        f"node_network_iface_id{labels} 5\n"
        f"node_network_iface_link{labels} {link}\n"
        f"node_network_receive_bytes_total{labels} 7\n"
    )


def test_an_interface_that_was_named_by_userspace_is_a_port_if_it_is_hardware() -> None:
    hardware = interface("rdma0", 3, 0, 5)
    pod, vlan, tap = (
        interface("pod7", 3, 1, 9),
        interface("storage", 3, 0, 4),
        interface("vm1", 3, 1, 5),
    )
    assert set(values_on(hardware + pod + vlan + tap)) == {"rdma0"}
    assert set(values_on(interface("eno1", 4, 0, 5) + pod)) == {"eno1"}


def test_a_machine_with_such_interfaces_only_has_these_as_ports() -> None:
    assert set(values_on(interface("pod7", 3, 1, 9))) == {"pod7"}


def test_infiniband_exporter_gives_each_port_its_rate_from_0_10_on() -> None:
    page = """\
infiniband_switch_info{guid="0x1",lid="7",switch="leaf1"} 1
infiniband_switch_port_transmit_data_bytes_total{guid="0x1",port="1",switch="leaf1"} 5
infiniband_switch_port_transmit_data_bytes_total{guid="0x1",port="2",switch="leaf1"} 6
infiniband_switch_port_rate_bytes_per_second{guid="0x1",port="1",switch="leaf1"} 1.25e+10
infiniband_switch_port_rate_bytes_per_second{guid="0x1",port="2",switch="leaf1"} 5e+10
infiniband_switch_port_raw_rate_bytes_per_second{guid="0x1",port="2",switch="leaf1"} 5.1e+10
infiniband_switch_port_state{guid="0x1",port="2",switch="leaf1"} 1
infiniband_hca_info{guid="0x2",hca="gpu1 mlx5_0",lid="9"} 1
infiniband_hca_port_transmit_data_bytes_total{guid="0x2",hca="gpu1 mlx5_0",port="1"} 8
infiniband_hca_port_rate_bytes_per_second{guid="0x2",hca="gpu1 mlx5_0"} 5e+10
"""
    values = values_on(page)
    assert values["leaf1/1"]["ib_rate_bps"] == 100_000_000_000
    assert values["leaf1/2"]["ib_rate_bps"] == 400_000_000_000
    assert values["leaf1/2"]["ib_state"] == 4
    assert values["gpu1/mlx5_0"]["ib_rate_bps"] == 400_000_000_000


def test_dcgm_counts_errors_and_rates_of_single_links() -> None:
    page = """\
DCGM_FI_DEV_PCIE_REPLAY_COUNTER{gpu="0",UUID="GPU-1"} 3
DCGM_FI_DEV_NVLINK_BANDWIDTH_L2{gpu="0",UUID="GPU-1"} 1000
DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL{gpu="0",nvlink="1",UUID="GPU-1"} 4
DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL{gpu="0",nvlink="1",UUID="GPU-1"} 5
DCGM_FI_DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS{gpu="0",nvlink="1",UUID="GPU-1"} 6
DCGM_FI_DEV_NVSWITCH_LINK_REPLAY_ERRORS{nvlink="3",nvswitch="nvswitch0"} 7
"""
    assert values_on(page) == {
        "gpu0": {"pcie_replays": 3},
        "gpu0/nv1": {
            "nvlink_crc_flit_errors": 5,
            "nvlink_replays": 4,
            "nvlink_symbol_errors": 6,
        },
        "gpu0/nv2": {"nvlink_both_bps": 8_192_000_000},
        "nvswitch0/nv3": {"nvlink_replays": 7},
    }


def test_an_amd_nic_has_its_fec_and_what_ethtool_lists() -> None:
    page = """\
nic_port_stats_rsfec_uncorrectable_word{nic_id="0",port_name="eth1/1"} 3
eth_octets_rx_ok{eth_intf_name="enp132s0",nic_id="0"} 4
eth_frames_rx_pripause{lif_name="enp132s0",nic_id="0"} 5
rdma_req_rx_oper_err{rdma_dev_name="rocep132s0"} 6
"""
    assert values_on(page) == {
        "eth1/1": {"phy_rx_fec_uncorrectable_blocks": 3},
        "rocep132s0": {
            "rdma_req_remote_operation_errors": 6,
            "phy_rx_bytes": 4,
            "pfc_rx_frames": 5,
        },
    }


def test_every_table_has_a_page() -> None:
    assert {*EXPORTERS, "fabmon"} == set(exporter_tables().by_name)


def test_gauges_stay_gauges_whatever_type_the_exporter_declares() -> None:
    reading = PageReader(exporter_tables()).read((PAGES / "dcgm_exporter.prom").read_bytes())
    metrics = {metric for item in reading.objects for metric in item.metrics}
    assert {name for name in metrics if CATALOG[name].kind == GAUGE} == {
        *("nvlink_tx_bps", "nvlink_rx_bps", "nvlink_both_bps", "pcie_tx_bps"),
    }


@pytest.mark.parametrize(
    "line",
    [
        'infiniband_switch_port_transmit_wait_total{guid="0x1",port="1"}',
        'infiniband_portxmitwait_total{component="switch",local_name="leaf1",local_port="1"}',
    ],
)
def test_64_bit_counters_of_fabric_exporters_do_not_saturate(line: str) -> None:
    reading = PageReader(exporter_tables()).read(f"{line} 9000000000\n".encode())
    (metric,) = reading.objects[0].metrics
    assert (metric, CATALOG[metric].kind) == ("ib_ext_tx_wait", WRAP64)
    assert reading.values == [9_000_000_000]


def test_the_page_of_fabmon_agent_is_read_by_its_table() -> None:
    page = "".join(
        f'{shown.sample}{{port="mlx5_0",kind="infiniband",source="ib"}} 1\n'
        for shown in EXPOSED.values()
    )
    page += 'fabmon_probe_cpu_seconds_total{object="node",kind="node",source="probe"} 3\n'
    page += 'fabmon_port_info{port="mlx5_0",kind="infiniband",pci="0000:18:00.0",mac=""} 1\n'
    reading = PageReader(exporter_tables()).read(page.encode())
    (port,) = reading.objects
    assert (port.kind, port.port, port.info["pci"]) == ("infiniband", "mlx5_0", "0000:18:00.0")
    assert set(port.metrics) == set(CATALOG)
    values = dict(zip(port.metrics, reading.values or (), strict=True))
    assert values["ib_tx_bytes"] == 1
    assert values["pfc_rx_pause_us_prio3"] == 1_000_000
    assert values["ib_rate_bps"] == 8


def test_a_repeated_snapshot_is_not_a_rate_of_zero() -> None:
    page = (PAGES / "dcgm_exporter.prom").read_bytes()
    reader = PageReader(exporter_tables())
    assert reader.read(page).values is not None
    assert reader.refresh_s == 30
    again = reader.read(page)
    assert again.values is None
    assert reader.read(page.replace(b"} 5\n", b"} 6\n")).values is not None
    assert again.objects is reader.objects


def test_equal_values_are_a_sample_without_a_refresh_time() -> None:
    page = (PAGES / "node_exporter.prom").read_bytes()
    reader = PageReader(exporter_tables())
    assert reader.read(page).values == reader.read(page).values is not None


def test_timestamps_of_the_exporter_are_the_clock() -> None:
    reader = PageReader(exporter_tables())
    line = 'ib_port_xmit_discards{{ib_port="mlx5_0:1"}} 7 {}\n'
    first = reader.read(line.format(1_700_000_000_000).encode())
    second = reader.read(line.format(1_700_000_002_500).encode())
    assert second.mono_ns - first.mono_ns == 2_500_000_000
    assert reader.read(line.format(1_700_000_002_500).encode()).values is None


def test_a_series_whose_time_stays_in_the_future_does_not_stop_the_others() -> None:
    reader = PageReader(exporter_tables())
    line = 'ib_port_xmit_discards{{ib_port="mlx5_{}:1"}} 7 {}\n'
    ahead = line.format(1, 4_000_000_000_000)
    reader.read((line.format(0, 1_700_000_000_000) + ahead).encode())
    page = (line.format(0, 1_700_000_002_500) + ahead).encode()
    second = reader.read(page)
    assert second.values is not None
    third = reader.read((line.format(0, 1_700_000_005_000) + ahead).encode())
    assert third.mono_ns - second.mono_ns == 2_500_000_000


def test_series_that_were_late_in_a_page_are_no_sample_of_their_own() -> None:
    """Their time is older than that of the page before: the clock went back, and the page after
    had their values again, as of a port without traffic."""
    reader = PageReader(exporter_tables())
    line = 'ib_port_xmit_discards{{ib_port="mlx5_{}:1"}} {} {}\n'
    samples: list[tuple[int, ...]] = []
    for page in range(12):
        # Both count every 2 s; pages, of which there is one each second, have the second one first.
        times = [10_700 + (page - 1) // 2 * 2000, 10_800 + page // 2 * 2000]
        text = "".join(line.format(port, at, at) for port, at in enumerate(times))
        reading = reader.read(text.encode())
        if reading.values is not None:
            samples.append((reading.mono_ns // 10**6, *(each or 0 for each in reading.values)))
    # From the second sample on it is known which time is an old one.
    steps = {
        tuple(new - old for old, new in zip(*each, strict=True)) for each in pairwise(samples[2:])
    }
    assert steps == {(2000, 2000, 2000)}


def test_timestamps_that_were_set_back_are_followed() -> None:
    reader = PageReader(exporter_tables())
    line = 'ib_port_xmit_discards{{ib_port="mlx5_0:1"}} 7 {}\n'
    times = (10_000, 12_000, 9_000_000, 14_000, 16_000, 15_000, 17_000, 19_000)
    read = [reader.read(line.format(at).encode()) for at in times]
    found = [at for at, each in zip(times, read, strict=True) if each.values is not None]
    assert found == [10_000, 12_000, 9_000_000, 16_000, 15_000, 17_000, 19_000]


def test_series_of_other_metrics_do_not_change_the_objects() -> None:
    page = (PAGES / "node_exporter.prom").read_bytes()
    reader = PageReader(exporter_tables())
    before = reader.read(page)
    after = reader.read(page + b'node_cpu_seconds_total{cpu="1",mode="idle"} 1\n')
    assert after.objects is before.objects
    assert after.values == before.values


BAD = """
name = "mine"
about = "mine"
[[group]]
object = "rdma"
kind = "infiniband"
labels = { device = "device", port = "port" }
[group.rows]
sent = "ib_tx_bytes"
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("ib_tx_bytes", "ib_sent"), "mine.toml: sent: the catalog has no metric ib_sent"),
        (("labels", "label"), "mine.toml: Object contains unknown field `label`"),
        ((', port = "port"', ""), "mine.toml: sent: no label for port"),
        (('"rdma"', '"port of rdma"'), "mine.toml: Invalid enum value 'port of rdma'"),
        (('"ib_tx_bytes"', '{ to = "ib_tx_bytes", times = 4 }'), "unknown field `times`"),
        (("[group.rows]", 'match = { port = "(" }\n[group.rows]'), "missing ), unterminated"),
        (("[group.rows]", "[group.rows"), "mine.toml: "),
    ],
)
def test_a_table_is_checked_when_it_is_loaded(change: tuple[str, str], message: str) -> None:
    assert load_table(BAD, "mine.toml").name == "mine"
    with pytest.raises(TableError, match=re.escape(message)):
        load_table(BAD.replace(*change), "mine.toml")


def exporters_name(name: str) -> str:
    """The name of a driver's counter in node_exporter's ethtool collector."""
    name = re.sub(r"[^a-z0-9_]", "_", name.lower()).lstrip("_")
    for short, whole in (("rx", "received"), ("tx", "transmitted")):
        name = re.sub(rf"(^|_){short}(_|$)", rf"\1{whole}\2", name)
    return f"node_ethtool_{name}"


def of_driver(driver: str) -> Callable[[str], str | None]:
    """A function from a metric of node_exporter to the catalog's, by the table for a driver."""

    def find(name: str) -> str | None:
        for prefixed in exporter_tables().groups:
            rows = prefixed.metrics.get(name)
            if rows and prefixed.group.match.get("driver") == driver:
                return rows[0].to
        return None

    return find


@pytest.mark.parametrize(
    ("driver", "dump"),
    [
        ("mlx5_core", "mlx5_core.txt"),
        ("bnxt_en", "bnxt_en.txt"),
        ("i40e", "i40e.txt"),
        ("ionic", "ionic-enp132s0.txt"),
    ],
)
def test_the_ethtool_collector_gives_the_drivers_metrics_of_the_probe(
    driver: str, dump: str
) -> None:
    path = CAPTURES / "ethtool" / dump
    if not path.exists():
        pytest.skip("no captures of hardware beside the repository (../shared/hardware)")
    find = of_driver(driver)
    names = re.findall(r"^\s*([^:\n]+): \d+\s*$", path.read_text(), re.MULTILINE)
    wanted = {name: metric_of(driver, name)[0] for name in names}
    found = {name: metric for name, metric in wanted.items() if metric in CATALOG}
    assert len(found) > 10
    assert {name: find(exporters_name(name)) for name in found} == found


def test_the_table_has_every_nic_driver_of_the_probe() -> None:
    nics = {
        driver
        for driver in RULES
        if not driver.startswith("mlxsw") and driver not in (SWITCHD, USUAL)
    }
    groups = exporter_tables().by_name["node_exporter"].groups
    assert {group.match["driver"] for group in groups if "driver" in group.match} == nics


def test_the_counters_of_an_amd_nic_are_mapped() -> None:
    path = CAPTURES / "ethtool" / "ionic-rdma-statistic.json"
    if not path.exists():
        pytest.skip("no captures of hardware beside the repository (../shared/hardware)")
    (first, *_) = json.loads(path.read_text())
    page = "".join(
        f'rdma_{name.replace("_rdma", "")}{{rdma_if_name="{first["ifname"]}"}} {value}\n'
        for name, value in first.items()
        if isinstance(value, int)
    )
    (port,) = PageReader(exporter_tables().of("amd_nic_exporter")).read(page.encode()).objects
    assert port.port == "rocep132s0"
    assert {"rdma_ecn_marked", "rdma_cnp_sent", "rdma_cnp_handled"} <= set(port.metrics)
    rows = exporter_tables().by_name["amd_nic_exporter"].groups[0].metrics().values()
    assert set(port.metrics) == {row.to for each in rows for row in each}


@pytest.mark.parametrize("stamp", [b"Inf", b"NaN", b"1e300", b"-1"])
def test_an_invalid_timestamp_is_rejected(stamp: bytes) -> None:
    name = b'node_infiniband_port_data_received_bytes_total{device="mlx5_0",port="1"}'
    with pytest.raises(Misbehaved):
        PageReader(exporter_tables()).read(name + b" 1 " + stamp + b"\n")


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize(
    ("pattern", "by"),
    [
        (rb'="\d+"', b'="' + b"9" * 5000 + b'"'),
        (rb" [0-9.e+]+$", b" 1.7e308"),
        (rb" [0-9.e+]+$", b" -Inf"),
    ],
)
def test_numbers_that_nothing_can_have_are_no_values(
    exporter: str, pattern: bytes, by: bytes
) -> None:
    page = (PAGES / f"{exporter}.prom").read_bytes()
    reading = PageReader(exporter_tables()).read(re.sub(pattern, by, page, flags=re.MULTILINE))
    assert all(value is None or 0 <= value < 1 << 64 for value in reading.values or ())


def test_matching_series_with_ports_takes_time_that_grows_with_their_number() -> None:
    """A refused interface costs as much among ten thousand as among ten."""
    page = b"".join(
        b'node_network_protocol_type{device="eth%d"} 772\n'
        b'node_network_receive_bytes_total{device="eth%d"} 1\n' % (number, number)
        for number in range(8000)
    )
    start_s = time.process_time()
    reading = PageReader(exporter_tables()).read(page)
    assert reading.objects == ()
    assert time.process_time() - start_s < 30


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (b"a 1\n" * 600_000, "600000 lines, 131072 at most"),
        (
            b"".join(RECEIVED % number for number in range(30_000)),
            "more than 16384 ports",
        ),
        (
            b"".join(
                b'node_network_%b{device="eth%d"} 1\n' % (metric, number)
                for number in range(11_500)
                for metric in COUNTED
            ),
            "69000 values of ports, 65536 at most",
        ),
        (
            b"".join(RECEIVED % number for number in range(9000)) + b"node_network_info 1\n" * 9000,
            "more than 1048576 matches of series and ports",
        ),
    ],
)
def test_a_page_of_too_many_series_is_refused_at_once(page: bytes, why: str) -> None:
    start_s = time.process_time()
    with pytest.raises(PageTooLarge, match=why):
        PageReader(exporter_tables()).read(page)
    assert time.process_time() - start_s < 30
