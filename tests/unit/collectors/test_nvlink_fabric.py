"""The NVLink fabric, C2C links and bit errors of NVIDIA GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.source import NoData
from collectors.sources.nvlink_fabric import ber_e18
from tests.fixtures import nvml
from tests.fixtures.reading import ask, read, source


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return nvml.root(tmp_path, monkeypatch)


def test_the_fabric_of_each_gpu_is_reported(root: Path) -> None:
    nvml.act(root, "gpus 2", "links 2", "fabric 0 3 0 32766 0x1aa 7", "fabric 1 3 4 1 0x1a9 9")
    answer = ask("nvlink_fabric", root)
    assert answer.of("gpu0") == {
        "gpu_fabric_state": 3,
        "gpu_fabric_status": 0,
        "gpu_fabric_clique": 32766,
        "gpu_fabric_health": 0x1AA,
    }
    assert answer.of("gpu1")["gpu_fabric_status"] == 4
    assert answer.info("gpu0")["fabric_cluster"] == "07" + "00" * 15


def test_a_library_that_knows_the_second_version_only_is_asked_for_that(root: Path) -> None:
    nvml.act(root, "gpus 1", "links 2", "fabric_version 2", "fabric 0 3 0 1 2")
    assert ask("nvlink_fabric", root).of("gpu0")["gpu_fabric_health"] == 2
    nvml.change(root, "gpus 1", "links 2", "fabric_version 1", "fabric 0 3 0 1 2")
    with pytest.raises(NoData):
        ask("nvlink_fabric", root)


def test_a_gpu_without_fabric_info_has_no_metric_of_it(root: Path) -> None:
    nvml.act(root, "gpus 1", "links 2", "bytes 138 139")
    with pytest.raises(NoData):
        ask("nvlink_fabric", root)


def test_a_gpu_that_is_lost_loses_its_own_fabric(root: Path) -> None:
    fabric = ("fabric 0 3 0 1 2", "fabric 1 3 0 1 2")
    nvml.act(root, "gpus 2", "links 2", *fabric)
    nvlink_fabric = source("nvlink_fabric", root)
    objects = nvlink_fabric.discover()
    known = nvlink_fabric.signature()
    nvml.change(root, "gpus 2", "links 2", "lost 1", *fabric)
    answer = read(nvlink_fabric, objects)
    assert answer.of("gpu0")["gpu_fabric_state"] == 3
    assert set(answer.of("gpu1").values()) == {"failed"}
    nvml.change(root, "gpus 2", "links 2", "fabric 0 3 0 1 2 5", fabric[1])
    assert nvlink_fabric.signature() != known, "it joined a cluster"


def test_c2c_links_are_summed(root: Path) -> None:
    nvml.act(root, "gpus 1", "c2c 10 45000", "set 231 3", "set 232 1", "set 233 0")
    assert ask("nvlink_fabric", root).of("gpu0") == {
        "c2c_active_links": 10,
        "c2c_speed_bps": 10 * 45_000 * 8_000_000,
        "c2c_crc_errors": 30,
        "c2c_replays": 10,
        "c2c_repeated_replays": 0,
    }
    nvml.change(root, "gpus 1", "c2c 2 45000", "fail 0 232 3")
    assert ask("nvlink_fabric", root).of("gpu0")["c2c_replays"] == "unsupported"


def test_bit_errors_and_fec_of_nvlink_5(root: Path) -> None:
    bins = " ".join(str(235 + number) for number in range(16))
    nvml.act(root, "gpus 1", "links 2", f"fields {bins} 222", "set 220 0x50c", "set 236 77")
    answer = ask("nvlink_fabric", root).of("gpu0/nv1")
    assert answer["nvlink_effective_ber_e18"] == 5 * 10**6, "5e-12"
    assert answer["nvlink_symbol_ber_e18"] == 0
    assert answer["nvlink_fec_codewords_s1"] == 77
    assert answer["nvlink_fec_codewords_s15"] == 0


@pytest.mark.parametrize(
    ("packed", "e18"), [(0, 0), (0xF00, 15 * 10**18), (0x112, 1), (0x1FF, 0), (0x80F, 8000)]
)
def test_a_bit_error_rate_is_a_mantissa_and_an_exponent(packed: int, e18: int) -> None:
    assert ber_e18(packed) == e18
