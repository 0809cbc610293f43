"""NVLinks of NVIDIA GPUs, through the real pynvml, against a library that acts out a scenario."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from collectors.readers.nvml import FieldValue, Gpu
from collectors.source import Failed, Faults, NoData, SourceError, Unsupported
from collectors.sources import nvlink as nvlink_source
from collectors.sources.nvlink import _GpuErrors
from tests.fixtures import nvml
from tests.fixtures.hosts import hgx_host, ib_host, nvlink5_host
from tests.fixtures.reading import Answer, ask, read, source
from tests.fixtures.tree import Tree

GB = 10**9


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return nvml.root(tmp_path, monkeypatch)


def number(answer: Answer, name: str, metric: str = "nvlink_tx_bytes") -> int:
    value = answer.values[name, metric]
    assert value is not None
    return value


def test_every_link_and_the_gpu_as_a_whole_are_counted_in_bytes(root: Path) -> None:
    tree = hgx_host(root)
    nvlink = source("nvlink", root)
    objects = nvlink.discover()
    assert [item.id for item in objects[:3]] == ["gpu0", "gpu0/nv0", "gpu0/nv1"]
    assert len(objects) == 8 * (1 + 18)
    before = read(nvlink, objects)
    tree.grow(10)
    after = read(nvlink, objects)

    def moved(name: str, metric: str = "nvlink_tx_bytes") -> int:
        return number(after, name, metric) - number(before, name, metric)

    # The library counts whole KiB.
    assert moved("gpu0/nv3") == pytest.approx(10 * (1 * GB + 3 * 10**6), abs=1024)
    assert moved("gpu7/nv0", "nvlink_rx_bytes") == pytest.approx(10 * 8 * GB / 2, abs=1024)
    links = sum(moved(f"gpu2/nv{link}") for link in range(18))
    assert moved("gpu2") == links
    assert before.values["gpu2", "nvlink_tx_bytes"] == 0


@pytest.mark.parametrize(
    ("supported", "said"),
    [
        ("202 204 138 139", "fields 202/204"),
        ("138 139 140 141", "fields 138/139"),
        ("140 141", "fields 140/141, raw"),
    ],
)
def test_the_best_counter_that_a_gpu_has_is_taken_and_said(
    root: Path, supported: str, said: str
) -> None:
    tree = nvml.act(root, "gpus 1", "links 2", f"bytes {supported}")
    nvlink = source("nvlink", root)
    objects = nvlink.discover()
    assert objects[0].info["bytes_from"] == said
    first = number(read(nvlink, objects), "gpu0/nv1")
    tree.grow(1)
    assert number(read(nvlink, objects), "gpu0/nv1") - first == pytest.approx(1.001 * GB, abs=1024)


def test_a_gpu_that_counts_nothing_is_sampled_by_gpm(root: Path) -> None:
    nvml.act(root, "gpus 1", "links 4", "gpm 1000")
    nvlink = source("nvlink", root)
    objects = nvlink.discover()
    assert [item.metrics for item in objects] == [("nvlink_tx_bps", "nvlink_rx_bps")]
    assert objects[0].info["bytes_from"] == "gpm"
    assert set(read(nvlink, objects).faults.values()) == {"absent"}
    rates = read(nvlink, objects).of("gpu0")
    assert rates == {"nvlink_tx_bps": 1000 * 2**20 * 8, "nvlink_rx_bps": 500 * 2**20 * 8}


def test_links_that_nothing_counts_are_unsupported_and_not_zero(root: Path) -> None:
    nvml.act(root, "gpus 1", "links 4", "speed 25000")
    with pytest.raises(Unsupported):
        ask("nvlink", root)
    state = ask("nvlink_errors", root)
    assert state.of("gpu0/nv0") == {"nvlink_state": 1, "nvlink_speed_bps": 200_000_000_000}


def test_gpus_without_nvlink_have_none(root: Path) -> None:
    nvml.act(root, "gpus 2", "bytes 197 198")
    with pytest.raises(NoData):
        ask("nvlink", root)
    assert ask("pcie", root).of("gpu1")["pcie_tx_bytes"] == 2 * 10**12


def test_a_host_without_the_driver_has_none_of_it(root: Path) -> None:
    ib_host(root, hcas=1)
    for name in ("nvlink", "nvlink_errors", "pcie"):
        with pytest.raises(NoData, match="no NVIDIA driver"):
            ask(name, root)


def test_a_driver_whose_library_is_missing_is_said(root: Path) -> None:
    Tree(root).write("proc/driver/nvidia/gpus/0000:1b:00.0/information", "Model: H100\n")
    with pytest.raises(Unsupported, match="the NVIDIA driver is loaded, its library is not"):
        ask("nvlink", root)


@pytest.mark.parametrize(("code", "error"), [(9, "NoData"), (4, "Denied"), (18, "Failed")])
def test_a_library_that_refuses_says_why(root: Path, code: int, error: str) -> None:
    nvml.act(root, "gpus 1", f"init {code}")
    with pytest.raises(SourceError) as caught:
        ask("nvlink", root)
    assert type(caught.value).__name__ == error


HGX = nvml.HGX_H100


def test_fields_that_fail_one_by_one_cost_their_own_value(root: Path) -> None:
    links = range(18)
    nvml.act(root, *HGX)
    nvlink = source("nvlink", root)
    objects = nvlink.discover()
    read(nvlink, objects)
    nvml.change(root, *HGX, "clock 1", "fail 3 138 999")
    answer = read(nvlink, objects)
    failed = {("gpu3", "nvlink_tx_bytes")} | {(f"gpu3/nv{n}", "nvlink_tx_bytes") for n in links}
    assert set(answer.faults) == failed
    assert set(answer.faults.values()) == {"failed"}
    assert answer.values["gpu3", "nvlink_rx_bytes"] is not None
    nvml.change(root, *HGX, "clock 2")
    assert not read(nvlink, objects).faults


@pytest.mark.parametrize("field", [161, 162, 163, 173, 177, 183, 160])
def test_an_error_field_that_is_not_supported_is_no_metric(root: Path, field: int) -> None:
    nvml.act(root, *HGX)
    every = {m for item in source("nvlink_errors", root).discover() for m in item.metrics}
    act_without = [f"fail {gpu} {field} 3" for gpu in range(8)]
    nvml.change(root, *HGX, *act_without)
    answer = ask("nvlink_errors", root)
    kept = {metric for item in answer.objects for metric in item.metrics}
    assert len(every - kept) == 1
    assert not answer.faults


def test_an_error_field_that_fails_later_costs_its_value(root: Path) -> None:
    nvml.act(root, *HGX)
    errors = source("nvlink_errors", root)
    objects = errors.discover()
    nvml.change(root, *HGX, "fail 2 163 999", "set 161 7")
    answer = read(errors, objects)
    assert {place[0] for place in answer.faults} == {f"gpu2/nv{link}" for link in range(18)}
    assert answer.of("gpu2/nv0")["nvlink_crc_errors"] == "failed"
    assert answer.of("gpu5/nv17")["nvlink_replays"] == 7


def test_a_gpu_that_falls_off_the_bus_costs_its_own_values(root: Path) -> None:
    nvml.act(root, *HGX)
    for name in ("nvlink", "nvlink_errors", "pcie"):
        nvml.change(root, *HGX)
        asked = source(name, root)
        objects = asked.discover()
        read(asked, objects)
        nvml.change(root, *HGX, "lost 5", "clock 1")
        answer = read(asked, objects)
        assert {place[0].partition("/")[0] for place in answer.faults} == {"gpu5"}
        assert set(answer.faults.values()) == {"failed"}
        asked.close()
        # One that was lost before we came is not there; the others are.
        ids = {item.id for item in source(name, root).discover()}
        assert "gpu5" not in ids
        assert "gpu6" in ids


def test_a_link_that_goes_down_leaves_the_gpu_its_sum(root: Path) -> None:
    nvml.act(root, *HGX)
    nvlink, errors = source("nvlink", root), source("nvlink_errors", root)
    objects, slow = nvlink.discover(), errors.discover()
    read(nvlink, objects)
    nvml.change(root, *HGX, "clock 1", "inactive 0 4")
    down = read(nvlink, objects)
    assert down.faults["gpu0/nv4", "nvlink_tx_bytes"] == "unsupported"
    whole = number(down, "gpu0")
    assert whole == pytest.approx(sum(GB + n * 10**6 for n in range(18) if n != 4), abs=18 * 1024)
    state = read(errors, slow)
    assert state.of("gpu0/nv4")["nvlink_state"] == 0
    assert state.of("gpu0/nv5")["nvlink_state"] == 1
    assert state.of("gpu0")["nvlink_speed_bps"] == 17 * 25_000 * 8_000_000
    nvml.change(root, *HGX, "clock 2")
    up = number(read(nvlink, objects), "gpu0")
    # What the link moved while it could not be read is not made up into one tick.
    assert up - whole == pytest.approx(sum(GB + n * 10**6 for n in range(18) if n != 4), abs=40960)


def test_nvlink_5_has_an_error_set_of_its_own(root: Path) -> None:
    nvlink5_host(root)
    answer = ask("nvlink_errors", root)
    of_a_link = answer.of("gpu1/nv0")
    assert {"nvlink_malformed_packets", "nvlink_symbol_errors", "nvlink_recoveries"} <= set(
        of_a_link
    )
    assert "nvlink_crc_errors" not in of_a_link
    assert of_a_link["nvlink_speed_bps"] == 50_000 * 8_000_000


def test_a_library_that_hangs_costs_the_gpus_and_nothing_else(root: Path) -> None:
    hgx_host(root, hcas=1)
    nvml.change(root, *HGX, "hang 0")
    command = [sys.executable, "-m", "collectors", "--root", str(root), "--interval", "0.3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ)) as probe:
        assert probe.stdout is not None
        seen: list[list[Any]] = []
        lost: set[str] = set()
        waiting = select.poll()
        waiting.register(probe.stdout)
        until = time.monotonic() + 240
        while time.monotonic() < until:
            lost = {line[1]["source"] for line in seen if line[0] == "notice"}
            if "nvlink" in lost and seen[-1][0] == "frame":
                break
            assert waiting.poll(60_000)
            seen.append(json.loads(probe.stdout.readline()))
        probe.kill()
    hello = next(line[1] for line in reversed(seen) if line[0] == "hello")
    assert "ib" in {block["source"] for block in hello["blocks"]}
    assert "nvlink" in lost


class GpuWithABadLink:
    """Eighteen links; the state of one cannot be read, and its bytes not always."""

    index, name = 0, "gpu0"

    def __init__(self) -> None:
        self.bad: set[int] = set()
        self.counted = 0

    def links(self) -> list[int]:
        return list(range(18))

    def link_facts(self, link: int) -> dict[str, Any]:
        return {}

    def fields(self, asks: Sequence[tuple[int, int]]) -> list[FieldValue]:
        return [
            FieldValue(999, 0)
            if field in (138, 139) and link in self.bad
            else FieldValue(0, self.counted)
            for field, link in asks
        ]

    def ask(self, function: str, link: int) -> int:
        if link in self.bad:
            raise Failed(f"link {link}")
        return 1


def test_a_link_whose_state_fails_costs_its_own_value() -> None:
    gpu = GpuWithABadLink()
    errors = _GpuErrors(cast(Gpu, gpu))
    gpu.counted = 5
    faults: Faults = {}
    assert None not in errors.read(0, faults)
    gpu.bad = {3}
    values = errors.read(0, faults)
    assert values.count(None) == len(faults) == 1


def test_a_link_that_fails_is_there() -> None:
    gpu = Gpu.__new__(Gpu)
    answers: list[type[SourceError] | None] = [None, Failed, Unsupported, None]

    class Library:
        def constant(self, name: str, default: int) -> int:
            return default

        def call(self, function: str, handle: object, link: int) -> int:
            answer = answers[link] if link < len(answers) else Unsupported
            if answer is not None:
                raise answer("no")
            return 1

    gpu.library, gpu.handle = cast(Any, Library()), None
    assert gpu.links() == [0, 1, 3]


def test_bytes_moved_while_a_link_could_not_be_read_are_counted_later() -> None:
    gpu = GpuWithABadLink()
    counted = nvlink_source._CountedBytes(
        cast(Gpu, gpu), gpu.links(), nvlink_source._FAMILIES[1], {}
    )
    totals = []
    for tick in range(5):
        gpu.counted = tick * 1000
        gpu.bad = {0, 1, 2} if tick == 2 else set()
        totals.append(counted.read(0, {})[0])
    each = 18 * 1000 * 1024
    assert totals == [0, each, None, 3 * each, 4 * each]
