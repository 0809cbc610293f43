"""Counters that nobody has mapped, fed to every kind of source: doctor names and counts them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from collectors import wire
from collectors.coverage import Coverage
from collectors.hostfs import HostFS
from collectors.loop.source_loader import load_source, make_source
from fabmon.analysis.audit.survey import Surveyor
from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import Hello, decode
from fabmon.feeds.prometheus.metric_names import known_metrics, other_exporters
from fabmon.feeds.scrape.exporter_tables import exporter_tables
from fabmon.feeds.scrape.page_coverage import names_coverage
from fabmon.feeds.scrape.page_reader import PageReader
from fabmon.feeds.transports import eapi_show, ufm_formats
from fabmon.history.history import History
from fabmon.report.doctor import doctor_table, examine
from tests.builders import port, tick, up
from tests.fixtures import nvml, parts
from tests.fixtures.hosts import HOSTS
from tests.fixtures.tree import Counter, Tree

FROBS = ("frobs", "quux_wibbles")


def said(source: str, coverage: Iterable[Coverage]) -> str:
    """What doctor's table says of a node whose source has this coverage."""
    blocks = [wire.BlockLayout(source, 1, [port("eth0")])]
    about = {"interval_s": 1.0, "coverage": [each.describe(source) for each in coverage]}
    message = decode(wire.hello(blocks, about))
    assert isinstance(message, Hello)
    history, surveyor = History([Host(name="gpu1")]), Surveyor([Host(name="gpu1")])
    heard = tick(0, hellos={"gpu1": message}, statuses=up("gpu1"))
    surveyor.accept(heard)
    return doctor_table(examine(surveyor.survey(history.accept(heard))))


def ethtool(root: Path) -> None:
    tree = Tree(root)
    parts.netdev(tree, "eth0", 2, parts.pci(tree, "0000:18:00.0", "quux"))
    tree.ethtool("eth0", [(name, Counter(7)) for name in (*FROBS, "rx_pause_frames")])


def infiniband(root: Path) -> None:
    HOSTS["roce"](root)
    for name in FROBS:
        (root / "sys/class/infiniband/mlx5_1/ports/1/counters" / name).write_text("1\n")


def rdma(root: Path) -> None:
    HOSTS["roce"](root)
    for name in FROBS:
        (root / "sys/class/infiniband/mlx5_1/ports/1/hw_counters" / name).write_text("1\n")


def slingshot(root: Path) -> None:
    HOSTS["slingshot"](root)
    (telemetry,) = list(root.glob("sys/class/cxi/cxi0/device/telemetry"))
    for name in FROBS:
        (telemetry / name).write_text("1@100.000000001\n")


def sonic(of: str) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        HOSTS["sonic"](root)
        databases = json.loads((root / "sonic.json").read_text())
        for key, row in databases["COUNTERS_DB"].items():
            if key.startswith(f"COUNTERS:oid:0x{of}"):
                row.update(dict.fromkeys(FROBS, "7"), frobs_last="7", frob_status="operational")
        (root / "sonic.json").write_text(json.dumps(databases))

    return write


def perfquery(root: Path) -> None:
    HOSTS["ib_fabric"](root)
    for path in root.glob("ib_fabric/perfquery-x-2.txt"):
        lines = "".join(f"{name}:....................7\n" for name in FROBS)
        path.write_text(path.read_text() + lines)


NODES: dict[str, tuple[Callable[[Path], None], str]] = {
    "ethtool": (ethtool, "quux"),
    "ib": (infiniband, "mlx5_core"),
    "rdma": (rdma, "mlx5_core"),
    "cxi": (slingshot, "cxi"),
    "sonic": (sonic("1000"), "SAI port"),
    "sonic_queues": (sonic("1500"), "SAI queue"),
    "ib_fabric": (perfquery, "perfquery"),
}
"""Source of a node -> what writes a host with its made-up counters, and what lists them."""


@pytest.mark.parametrize("name", NODES)
def test_sources_of_nodes(tmp_path: Path, name: str) -> None:
    write, driver = NODES[name]
    write(tmp_path)
    source = load_source(name)(HostFS(str(tmp_path)))
    source.discover()
    found = {each.driver: each for each in source.coverage}
    missing = {"counters/frobs", "counters/quux_wibbles"} if name == "ib" else set(FROBS)
    assert missing <= set(found[driver].unmapped)
    assert found[driver].seen >= found[driver].read + len(missing)
    assert not any("_last" in each or "status" in each for each in found[driver].unmapped)
    table = said(name, source.coverage)
    assert (
        f"  {name:<16} {driver:<14} {found[driver].read} of {found[driver].seen} counters" in table
    )
    assert all(each in table for each in missing)
    source.close()


def test_a_deferred_source_says_it_too(tmp_path: Path) -> None:
    """Most sources are imported late, by a source in their place."""
    rdma(tmp_path)
    source = make_source("rdma", HostFS(str(tmp_path)))
    source.discover()
    assert set(FROBS) <= {name for each in source.coverage for name in each.unmapped}


def test_fields_of_nvidia_s_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers a field of C2C and one of the PCIe link's recoveries, which nobody reads."""
    monkeypatch.setenv(nvml.VARIABLE, str(tmp_path / nvml.SCENARIO))
    tree = HOSTS["hgx"](tmp_path)
    tree.nvml((*nvml.HGX_H100, "fields 169 32 38"))
    source = load_source("nvlink_errors")(HostFS(str(tmp_path)))
    source.discover()
    (found,) = source.coverage
    assert (found.driver, found.ports) == ("nvidia", 8)
    assert found.unmapped == ("PCIE_L0_TO_RECOVERY_COUNTER",), "32 is a link of the total 38"
    assert found.seen == found.read + 1
    table = said("nvlink_errors", source.coverage)
    assert f"nvidia         {found.read} of {found.seen} counters read. Not read:\n" in table
    assert "PCIE_L0_TO_RECOVERY_COUNTER" in table
    source.close()


def test_the_page_of_an_exporter() -> None:
    reader = PageReader(exporter_tables())
    reader.read(
        b'DCGM_FI_DEV_QUUX_WIBBLES{gpu="0"} 1\n'
        b'DCGM_FI_DEV_PCIE_REPLAY_COUNTER{gpu="0"} 2\n'
        b'node_infiniband_frobs_total{device="mlx5_0",port="1"} 3\n'
    )
    unmapped = {each.driver: each.unmapped for each in reader.coverage}
    assert unmapped["dcgm_exporter"] == ("DCGM_FI_DEV_QUUX_WIBBLES",)
    assert "node_infiniband_frobs_total" in {name for names in unmapped.values() for name in names}
    table = said("dcgm_exporter", reader.coverage)
    assert "dcgm_exporter  1 of 2 counters read. Not read:\n      DCGM_FI_DEV_QUUX_WIB" in table


def test_the_names_on_a_prometheus_server() -> None:
    names = {
        "DCGM_FI_DEV_QUUX_WIBBLES",
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        "node_cpu_seconds_total",
    }
    found = names_coverage(names, known_metrics().keys(), other_exporters())
    assert list(found) == ["dcgm_exporter"], "metrics that no exporter of fabrics has are not named"
    assert found["dcgm_exporter"].unmapped == ("DCGM_FI_DEV_QUUX_WIBBLES",)
    assert "1 of 2 counters read" in said("dcgm_exporter", found.values())


def test_columns_of_ufm() -> None:
    text = b"timestamp,node_guid,port_num,PortXmitDataExtended,frobs,quux_wibbles\n1,0x1,1,2,3,4\n"
    found = ufm_formats.parse_telemetry(text, "ufm1").coverage
    assert [(each.driver, each.seen, each.read, each.unmapped) for each in found] == [
        ("UFM telemetry", 3, 1, FROBS)
    ]
    assert "UFM telemetry  1 of 3 counters read" in said("ufm", found)


def test_counters_of_eos() -> None:
    counters: dict[str, Any] = {
        "inOctets": 1,
        "outOctets": 2,
        "counterRefreshTime": 3.0,
        "frobs": 4,
        "inputErrorsDetail": {"fcsErrors": 5, "quuxes": 6},
    }
    item = {"hardware": "ethernet", "interfaceCounters": counters, "lineProtocolStatus": "up"}
    found = eapi_show.interfaces({"interfaces": {"Ethernet1/1": item}}).coverage
    assert [(each.seen, each.read, each.unmapped) for each in found] == [
        (5, 3, ("frobs", "inputErrorsDetail/quuxes"))
    ]
    assert "3 of 5 counters read" in said("eapi", found)
