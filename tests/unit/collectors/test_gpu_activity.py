"""How busy NVIDIA GPUs are, their clocks and why these are lowered."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.source import Faults, Unsupported
from tests.fixtures import nvml
from tests.fixtures.hosts import hgx_host
from tests.fixtures.reading import ask, source


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return nvml.root(tmp_path, monkeypatch)


def test_what_gpus_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(nvml.VARIABLE, str(tmp_path / nvml.SCENARIO))
    tree = hgx_host(tmp_path, hcas=1)
    with pytest.raises(Unsupported):
        source("gpu_activity", tmp_path).discover()
    tree.nvml((*nvml.HGX_H100, "activity 0 98 1980 0", "activity 3 100 410 72"))
    answer = ask("gpu_activity", tmp_path)
    assert [item.id for item in answer.objects] == ["gpu0", "gpu3"]
    assert answer.of("gpu3") == {
        "gpu_busy_percent": 100,
        "gpu_sm_clock_hz": 410_000_000,
        "gpu_max_sm_clock_hz": 1_980_000_000,
        "gpu_clock_reasons": 72,
    }


def test_a_gpu_that_is_lost_loses_its_own_activity_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(nvml.VARIABLE, str(tmp_path / nvml.SCENARIO))
    tree = hgx_host(tmp_path, hcas=1)
    busy = (*nvml.HGX_H100, "activity 0 98 1980 0", "activity 1 98 1980 0")
    tree.nvml(busy)
    activity = source("gpu_activity", tmp_path)
    activity.discover()
    tree.nvml((*busy, "lost 0"))
    faults: Faults = {}
    values = activity.read(faults)
    assert values[:4] == [None] * 4
    assert values[4] == 98
    assert set(faults) == {0, 1, 2, 3}
