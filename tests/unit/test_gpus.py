"""GPUs: from the fields of the vendor's library to rates, states and findings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest

from collectors.hostfs import HostFS
from collectors.loop.probe import Probe
from collectors.loop.source_loader import load_source
from fabmon.analysis.audit import audit
from fabmon.analysis.audit.survey import Surveyor
from fabmon.analysis.detectors.gpu_nic_numa import distant_gpus
from fabmon.analysis.detectors.link_down import links_down
from fabmon.analysis.detectors.missing_nvlinks import missing_nvlinks
from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import build_structure
from fabmon.fabric.model import GPU, NVLINK, Host, Port
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.wire.messages import Frame, Hello, decode
from fabmon.history.history import History
from tests.builders import tick, up
from tests.fixtures import nvml
from tests.fixtures.hosts import hgx_host
from tests.fixtures.tree import Tree
from tests.goldens import check_golden

GOLDENS = Path(__file__).parent / "goldens"
SOURCES = ("ib", "ib_errors", "nvlink", "nvlink_errors", "pcie", "gpu_activity")
LINK_BPS = 25e9 * 8
"""Payload of a link of NVLink 4; NVML reports 26,562 MB/s with the line code."""


class Node:
    """One probe over a fake host, and the history of what it said."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.history = History([Host(name="gpu001")])
        self.surveyor = Surveyor([Host(name="gpu001")])
        self.snapshot: Snapshot | None = None
        self._seq = 0
        self._hello: Hello | None = None
        self._sources = [load_source(name)(HostFS(str(tree.root))) for name in SOURCES]
        for source in self._sources:
            source.deadline_s = 30.0  # a busy machine is not what is looked at here
        self._probe = Probe(
            self._sources,
            self._take,
            {"probe": "test", "hostname": "gpu001"},
            0.05,
        )

    def frames(self, count: int) -> Snapshot:
        self._probe.run(self._seq + count)
        assert self.snapshot is not None
        return self.snapshot

    def close(self) -> None:
        for source in self._sources:
            source.close()

    def _take(self, line: bytes) -> None:
        message = decode(line)
        if isinstance(message, Hello):
            # The probe ticks faster than it says, so that the test need not wait.
            self._hello = msgspec.structs.replace(message, interval_s=1.0)
        if isinstance(message, Frame):
            hellos = {} if self._hello is None else {"gpu001": self._hello}
            heard = tick(self._seq, {"gpu001": message}, hellos, up("gpu001"))
            self.snapshot = self.history.accept(heard)
            self.surveyor.accept(heard)
            self._hello = None
            self._seq += 1
            self.tree.grow(self._seq)


def host_with_gpus(path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A host with eight GPUs and as many HCAs, whose NVML a busy machine may read slowly."""
    monkeypatch.setenv(nvml.VARIABLE, str(path / nvml.SCENARIO))
    monkeypatch.setattr("collectors.loop.probe._DISCOVERY_S", 30.0)
    return hgx_host(path, hcas=8)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    return host_with_gpus(tmp_path, monkeypatch)


@pytest.fixture
def node(tree: Tree) -> Iterator[Node]:
    with closing(Node(tree)) as node:
        yield node


def seen(snapshot: Snapshot) -> DetectorInput:
    return DetectorInput(snapshot, build_structure(snapshot.fabric))


def port(snapshot: Snapshot, name: str) -> Port:
    return next(each for each in snapshot.fabric.ports if each.name == name)


def test_a_gpu_carries_what_its_links_carry(node: Node) -> None:
    snapshot = node.frames(3)
    gpu = port(snapshot, "gpu2")
    links = [p.row for p in snapshot.fabric.ports if p.name.startswith("gpu2/")]
    assert (gpu.role, gpu.label, len(links)) == (GPU, "g2", 18)
    tx, rx = snapshot.column("tx_bps"), snapshot.column("rx_bps")
    assert tx[gpu.row] == pytest.approx(tx[links].sum(), rel=1e-3)
    assert rx[gpu.row] == pytest.approx(tx[gpu.row] / 2, rel=1e-3)
    assert snapshot.line_rate_bps[gpu.row] == pytest.approx(18 * LINK_BPS, rel=1e-6)
    assert snapshot.line_rate_bps[links[0]] == pytest.approx(LINK_BPS, rel=1e-6)
    assert snapshot.up[gpu.row] == 1


def test_a_gpu_without_links_carries_what_its_pcie_link_carries(tree: Tree) -> None:
    """It has a cell like others, with what PCIe carries as its line rate."""
    tree.nvml(nvml.L40S)
    with closing(Node(tree)) as node:
        snapshot = node.frames(3)
    gpus = [each for each in snapshot.fabric.ports if each.role == GPU]
    assert [gpu.label for gpu in gpus] == ["g0", "g1"]
    rows = [gpu.row for gpu in gpus]
    for way in ("tx", "rx"):
        counted = snapshot.column(f"pcie_{way}_bytes")[rows] * 8
        assert (counted > 0).all()
        assert snapshot.column(f"{way}_bps")[rows] == pytest.approx(counted)
    # PCIe 5, 16 lanes, 128b/130b, 90 % payload.
    assert snapshot.line_rate_bps[rows] == pytest.approx(32e9 * 16 * 128 / 130 * 0.9, rel=1e-6)
    assert (snapshot.up[rows] == 1).all()
    assert np.isfinite(snapshot.tx_util[rows]).all()


def test_the_busiest_link_of_the_fabric_is_none_inside_a_node(node: Node) -> None:
    snapshot = node.frames(3)
    worst = np.fmax(snapshot.tx_util, snapshot.rx_util)
    inside = [p.row for p in snapshot.fabric.ports if p.role in (GPU, NVLINK)]
    rails = [p.row for p in snapshot.fabric.ports if p.role == "rail"]
    assert snapshot.worst(1)[0] == pytest.approx(np.nanmax(worst[rails]))
    assert np.isfinite(worst[inside]).all()


def test_an_nvlink_that_goes_down_is_reported_with_what_to_do(tree: Tree, node: Node) -> None:
    node.frames(3)
    tree.nvml((*nvml.HGX_H100, "inactive 3 7"))
    snapshot = node.frames(10)
    (condition,) = links_down(seen(snapshot))
    assert condition.subject == "gpu001/gpu3/nv7"
    assert "nvidia-smi nvlink" in condition.advice


def test_links_are_numbered_within_their_gpu(node: Node) -> None:
    snapshot = node.frames(3)
    for gpu, links in snapshot.fabric.node("gpu001").gpu_links():
        assert [link.label for link in links] == [f"nv{number}" for number in range(18)]
        assert all(link.display_name.startswith(f"gpu001 {gpu.label} nv") for link in links)


def test_a_gpu_that_came_up_with_fewer_links_than_its_peers(tree: Tree, node: Node) -> None:
    tree.nvml((*nvml.HGX_H100, "inactive 3 7"))
    snapshot = node.frames(12)
    inputs = seen(snapshot)
    assert list(links_down(inputs)) == []
    (condition,) = missing_nvlinks(inputs)
    assert condition.subject == "gpu001/gpu3"
    assert condition.text == (
        "gpu001 g3: 17 of 18 NVLinks are active (nv7 is not), on other GPUs of this model all are"
    )
    assert condition.rows == (port(snapshot, "gpu3").row, port(snapshot, "gpu3/nv7").row)
    assert condition.lost == pytest.approx(1 / 18)
    (problem,) = (p for p in audit(node.surveyor.survey(snapshot)) if p.check == "missing_nvlinks")
    assert problem.ports == ("gpu001/gpu3",)
    assert problem.text.startswith("17 of 18 NVLinks are active (nv7 is not), on most GPUs")
    # The line rate of that GPU is that of the links it has.
    assert snapshot.line_rate_bps[port(snapshot, "gpu3").row] == pytest.approx(17 * LINK_BPS)


def test_a_link_that_goes_down_later_is_one_finding(tree: Tree, node: Node) -> None:
    node.frames(3)
    tree.nvml((*nvml.HGX_H100, "inactive 3 7"))
    inputs = seen(node.frames(10))
    assert len(list(links_down(inputs))) == 1
    assert list(missing_nvlinks(inputs)) == []


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(nvml.HGX_H100, id="all are active"),
        pytest.param((*nvml.HGX_B200, "inactive 1 3"), id="too few GPUs to compare with"),
        pytest.param(
            (*nvml.HGX_H100, *(f"inactive {gpu} {link}" for gpu in range(4) for link in range(18))),
            id="bridges on half of the GPUs",
        ),
    ],
)
def test_no_gpu_lacks_a_link(tree: Tree, node: Node, scenario: tuple[str, ...]) -> None:
    tree.nvml(scenario)
    assert list(missing_nvlinks(seen(node.frames(12)))) == []


def test_gpus_near_their_nics_are_no_finding(node: Node) -> None:
    assert not distant_gpus(seen(node.frames(2)))
    assert "gpu_nic_numa" not in {f.check for f in audit(node.surveyor.survey(node.frames(1)))}


def test_gpus_far_from_every_nic_are_reported_once_for_the_node(tree: Tree, node: Node) -> None:
    for number in range(4, 8):
        tree.remove(f"sys/class/infiniband/mlx5_{number}")
        tree.remove(f"sys/class/net/ib{number}")
    snapshot = node.frames(2)
    inputs = seen(snapshot)
    (condition,) = distant_gpus(inputs)
    text = msgspec.json.format(msgspec.json.encode(condition), indent=2).decode() + "\n"
    check_golden(GOLDENS / "condition_gpu_nic_numa.json", text)
    assert distant_gpus(inputs) == (condition,)
    (fault,) = (f for f in audit(node.surveyor.survey(snapshot)) if f.check == "gpu_nic_numa")
    assert fault.ports == tuple(f"gpu001/gpu{n}" for n in range(4, 8))
