"""What a node's drivers list and the probe does not read: counted and named, never absent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, List
from unittest.mock import patch

import pytest

from collectors.coverage import MOST_NAMES, fold_names
from collectors.hostfs import HostFS
from collectors.loop.probe import Probe
from collectors.loop.source_loader import load_source
from collectors.source import Unsupported
from tests.fixtures import hosts, parts
from tests.fixtures.reading import ask, source
from tests.fixtures.tree import Counter, Tree


def made_up_host(root: Path, driver: str, names: List[str]) -> Tree:
    """A host with one NIC whose driver lists counters of these names."""
    tree = Tree(root)
    parts.netdev(tree, "eth0", 2, parts.pci(tree, "0000:18:00.0", driver))
    tree.ethtool("eth0", [(name, Counter(7)) for name in names])
    return tree


def hello_of(root: Path, *names: str) -> Dict[str, Any]:
    """The hello of a probe that reads these sources."""
    lines: List[bytes] = []
    sources = [load_source(name)(HostFS(str(root))) for name in names]
    with patch("collectors.loop.probe._DISCOVERY_S", 240.0):
        Probe(sources, lines.append, {}, interval_s=0.05).run(frames=1)
    kind, hello = json.loads(lines[0])
    assert kind == "hello"
    assert isinstance(hello, dict)
    return hello


def test_a_driver_of_which_nothing_is_known_is_unsupported_and_not_absent(tmp_path: Path) -> None:
    made_up_host(tmp_path, "quux", ["frobs", "q0_wibbles", "q1_wibbles", "q2_wibbles"])
    ethtool = source("ethtool", tmp_path)
    with pytest.raises(Unsupported, match=r"^driver quux: 4 counters, names not known$"):
        ethtool.discover()
    (covered,) = ethtool.coverage
    assert covered.unmapped == ("frobs", "q[0-2]_wibbles")
    assert hello_of(tmp_path, "ethtool")["coverage"] == [
        {
            "source": "ethtool",
            "driver": "quux",
            "ports": 1,
            "seen": 4,
            "read": 0,
            "guessed": False,
            "unmapped": ["frobs", "q[0-2]_wibbles"],
        }
    ]


def test_the_usual_names_of_an_unknown_driver_are_read_and_marked(tmp_path: Path) -> None:
    usual = ["rx_bytes", "tx_bytes", "rx_pause_frames", "rx_crc_errors", "tx_discards", "frobs"]
    made_up_host(tmp_path, "quux", usual)
    answer = ask("ethtool", tmp_path)
    assert answer.of("eth0") == dict.fromkeys(
        (
            *("phy_rx_bytes", "phy_tx_bytes", "pause_rx_frames"),
            *("phy_rx_crc_errors", "phy_tx_discards"),
        ),
        7,
    )
    assert answer.info("eth0") == {"ethtool": "counters by pattern"}
    (covered,) = hello_of(tmp_path, "ethtool")["coverage"]
    assert (covered["seen"], covered["read"], covered["guessed"]) == (6, 5, True)
    assert covered["unmapped"] == ["frobs"]


def test_the_bytes_of_an_unknown_driver_are_not_the_wire_where_rdma_bypasses_it(
    tmp_path: Path,
) -> None:
    tree = made_up_host(tmp_path, "quux", ["rx_bytes", "rx_pause_frames"])
    rdma = parts.rdma(tree, "quux_0", "sys/devices/pci0000:18/0000:18:01.0/0000:18:00.0")
    parts.rdma_port(tree, rdma, 1, "Ethernet", "100 Gb/sec (4X EDR)", ndevs=["eth0"])
    assert ask("ethtool", tmp_path).of("eth0") == {"pause_rx_frames": 7}


def test_new_names_of_a_known_driver_are_named(tmp_path: Path) -> None:
    tree = hosts.roce_host(tmp_path, hcas=1)
    before = source("ethtool", tmp_path)
    before.discover()
    tree.ethtool("ens1np0", [("rx_bytes_phy", Counter(1)), ("rx_brand_new_phy", Counter(1))])
    after = source("ethtool", tmp_path)
    after.discover()
    assert [each.unmapped for each in after.coverage] == [("rx_brand_new_phy",)]
    assert "rx[0-15]_bytes" in before.coverage[0].unmapped
    assert not before.coverage[0].guessed


def test_files_of_an_rdma_device_that_nobody_reads_are_named(tmp_path: Path) -> None:
    hosts.roce_host(tmp_path, hcas=2)
    port = tmp_path / "sys/class/infiniband/mlx5_1/ports/1"
    for name in ("hw_counters/rx_brand_new", "counters/port_xmit_brand_new"):
        (port / name).write_text("1\n")
    hello = hello_of(tmp_path, "ib", "ib_errors", "rdma", "rdma_errors")
    unread = {(each["source"], each["driver"]): each["unmapped"] for each in hello["coverage"]}
    assert unread == {
        ("ib", "mlx5_core"): ["counters/port_xmit_brand_new"],
        ("rdma", "mlx5_core"): ["rx_brand_new"],
    }


def test_rdma_counters_of_which_none_is_known_are_unsupported(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    device = parts.pci(tree, "0000:18:00.0", "quux")
    port = parts.rdma_port(tree, parts.rdma(tree, "quux_0", device), 1, "Ethernet", "100 Gb/sec")
    parts.hw_counters(tree, port, {"frobs": Counter(1), "wibbles": Counter(2)})
    with pytest.raises(Unsupported, match=r"^driver quux: 2 counters, names not known$"):
        ask("rdma", tmp_path)


def test_a_hello_without_drivers_has_no_coverage(tmp_path: Path) -> None:
    hosts.container_host(tmp_path)
    assert "coverage" not in hello_of(tmp_path, "ethtool", "ib", "rdma")


def test_names_that_differ_in_numbers_only_are_one() -> None:
    queues = [f"ch{a}_q{b}_frobs" for a in range(4) for b in range(2)]
    assert fold_names([*queues, "rx_a1", "rx_a2", "plain"]) == (
        *("ch[0-3]_q[0-1]_frobs", "plain", "rx_a1", "rx_a2"),
    )
    many = [f"{chr(97 + n % 26)}{'x' * (n // 26)}" for n in range(MOST_NAMES + 20)]
    assert fold_names(many)[-1] == "and 20 more"
    assert fold_names(f"rx{digit * 5000}" for digit in "123")


def listed(root: Path) -> Dict[str, List[str]]:
    """Source -> the names of all counters in a tree, by walking it."""
    hw = [path.name for path in root.glob("sys/class/infiniband/*/ports/*/hw_counters/*")]
    hw += [path.name for path in root.glob("sys/class/infiniband/*/hw_counters/*")]
    lines = [line for path in root.glob("ethtool/*.txt") for line in path.read_text().splitlines()]
    return {
        "ethtool": [line.rpartition(":")[0].strip() for line in lines if ": " in line],
        "rdma": [name for name in hw if name != "lifespan"],
    }


def is_named(name: str, folded: str) -> bool:
    """Whether a name is one of those that a name of the coverage stands for."""
    spans = [(int(low), int(high)) for low, high in re.findall(r"\[(\d+)-(\d+)\]", folded)]
    pattern = r"(\d+)".join(map(re.escape, re.split(r"\[\d+-\d+\]", folded)))
    match = re.fullmatch(pattern, name)
    return match is not None and all(
        low <= int(text) <= high for text, (low, high) in zip(match.groups(), spans)
    )


@pytest.mark.parametrize("name", sorted(hosts.SMALL_HOSTS))
def test_every_counter_of_a_host_is_read_or_named(tmp_path: Path, name: str) -> None:
    hosts.SMALL_HOSTS[name](tmp_path)
    for source_name, names in listed(tmp_path).items():
        if not names:
            continue
        asked = source(source_name, tmp_path)
        asked.discover()
        assert sum(each.seen for each in asked.coverage) == len(set(names))
        unread = {
            there
            for there in names
            for each in asked.coverage
            for text in each.unmapped
            if is_named(there, text)
        }
        assert len(unread) == sum(each.seen - each.read for each in asked.coverage)
        asked.close()
