"""PCIe traffic of NVIDIA GPUs, and where they are in the PCIe tree."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import cast

import pytest

from collectors.hostfs import HostFS
from collectors.readers import device_facts, ports
from collectors.readers.nvml import Gpu
from collectors.source import Failed, Faults
from collectors.sources import pcie as pcie_source
from tests.fixtures import nvml
from tests.fixtures.hosts import hgx_host
from tests.fixtures.reading import ask, read, source


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return nvml.root(tmp_path, monkeypatch)


def test_pcie_bytes_of_32_bits_are_not_counted_but_measured(root: Path) -> None:
    """A real H100 (R580) answers fields 197 and 198 so: at 50 GB/s they wrap 12 times a second."""
    nvml.act(root, "gpus 1", "links 0", "bytes 197 198", "narrow 197 198", "gpm 1000")
    pcie = source("pcie", root)
    objects = pcie.discover()
    assert objects[0].metrics == ("pcie_tx_bps", "pcie_rx_bps")
    assert objects[0].info["pcie_from"] == "gpm"
    assert set(read(pcie, objects).faults.values()) == {"absent"}, "a rate needs two samples"
    rates = read(pcie, objects).of("gpu0")
    assert rates == {"pcie_tx_bps": 50 * 2**20 * 8, "pcie_rx_bps": 100 * 2**20 * 8}


def test_the_call_that_blocks_is_not_in_the_read(root: Path) -> None:
    nvml.act(root, "gpus 8", "pcie_kbps 4000000")
    pcie = source("pcie", root)
    objects = pcie.discover()
    try:
        assert objects[0].metrics == ("pcie_tx_bps", "pcie_rx_bps")
        until = time.monotonic() + 240
        answer = read(pcie, objects)
        while answer.faults and time.monotonic() < until:
            # A reading takes no 20 ms a GPU and direction: it only fetches.
            assert set(answer.faults.values()) == {"absent"}
            time.sleep(0.05)
            answer = read(pcie, objects)
        assert answer.of("gpu7") == {"pcie_tx_bps": 32 * 10**9, "pcie_rx_bps": 16 * 10**9}
        faults: Faults = {}
        began_s = time.thread_time()
        pcie.read(faults)
        assert time.thread_time() - began_s < 0.1
    finally:
        pcie.close()


class HangingGpu:
    """Measures once each way, then its driver does not come back."""

    def __init__(self, index: int, answers: int) -> None:
        self.index = index
        self._left = answers
        self.released = threading.Event()

    def ask(self, function: str, way: int) -> int:
        self._left -= 1
        if self._left < 0:
            self.released.wait()
        return 1000


def test_a_gpu_whose_driver_hangs_is_late_and_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pcie_source, "_STALE_S", 1.0)
    monkeypatch.setattr(pcie_source._Sampler, "_PAUSE_S", 0.01)
    sick, well = HangingGpu(0, 2), HangingGpu(1, 10**9)
    samplers = [pcie_source._Sampler(cast(Gpu, gpu)) for gpu in (sick, well)]
    try:
        until = time.monotonic() + 240
        while not all(isinstance(answer, Failed) for answer in samplers[0].read()):
            assert time.monotonic() < until
            time.sleep(0.05)
        while samplers[1].read() != [8_000_000, 8_000_000]:
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        sick.released.set()
        for sampler in samplers:
            sampler.stop()


def test_the_distance_to_each_nic_is_what_nvidia_smi_prints(root: Path) -> None:
    hgx_host(root)
    near = ports.affinity(HostFS(str(root)), "0000:1b:00.0")
    assert near["mlx5_0"] == "PIX"
    assert near["mlx5_1"] == "NODE"
    assert near["mlx5_4"] == "SYS"


@pytest.mark.parametrize(
    ("one", "other", "same_node", "between"),
    [
        ("pci0000:00/0000:00:01.0/01.0", "pci0000:00/0000:00:01.0/01.1", True, "PIX"),
        ("pci0/root/up/down1/gpu", "pci0/root/up/down2/nic", True, "PIX"),
        ("pci0/root/up/down1/up2/down3/gpu", "pci0/root/up/down2/nic", True, "PXB"),
        ("pci0/root1/gpu", "pci0/root2/nic", True, "PHB"),
        ("pci0/root1/gpu", "pci1/root1/nic", True, "NODE"),
        ("pci0/root1/gpu", "pci1/root1/nic", False, "SYS"),
        ("pci0/root1/gpu", "pci1/root1/nic", None, None),
    ],
)
def test_the_relation_of_two_functions(
    one: str, other: str, same_node: bool | None, between: str | None
) -> None:
    assert device_facts.relation(f"sys/devices/{one}", f"sys/devices/{other}", same_node) == between


@pytest.mark.parametrize(
    ("files", "gpudirect"),
    [
        ({"sys/module/nvidia_peermem/refcnt": "0"}, "nvidia_peermem"),
        (
            {
                "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for"
                " x86_64  570.86.15",
                "proc/sys/kernel/osrelease": "6.8.0-60-generic",
            },
            "dma-buf",
        ),
        (
            {
                "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module"
                "  535.129.03",
                "proc/sys/kernel/osrelease": "6.8.0-60-generic",
            },
            "none",
        ),
        ({"proc/sys/kernel/osrelease": "6.8.0-60-generic"}, None),
    ],
)
def test_what_gpudirect_rdma_can_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], gpudirect: str | None
) -> None:
    monkeypatch.setenv(nvml.VARIABLE, str(tmp_path / nvml.SCENARIO))
    tree = hgx_host(tmp_path, hcas=1)
    for path, text in files.items():
        tree.write(path, text)
    assert ask("nvlink", tmp_path).info("gpu0").get("gpudirect") == gpudirect


def test_a_gpu_whose_gpm_knows_no_pcie_is_measured(root: Path) -> None:
    """As it may be where GPM is there for parts of a GPU only."""
    nvml.act(root, "gpus 1", "links 0", "gpm 1000", "gpm_fails", "pcie_kbps 4000000")
    pcie = source("pcie", root)
    try:
        assert pcie.discover()[0].info["pcie_from"] == "20 ms a second"
    finally:
        pcie.close()
