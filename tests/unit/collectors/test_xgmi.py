from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.source import Failed, NoData, SourceError, Unsupported
from collectors.sources.xgmi import xgmi_of
from tests.fixtures import gpu_metrics, hosts
from tests.fixtures.gpu_metrics import KB, READ_KB_A_SECOND, WRITTEN_KB_A_SECOND
from tests.fixtures.reading import ask, read, source

GPU0 = "sys/bus/pci/devices/0000:25:00.0/gpu_metrics"


@pytest.mark.parametrize("content", [4, 5, 6, 7, 8, 9])
def test_every_revision_with_xgmi_is_read(content: int) -> None:
    now = xgmi_of(gpu_metrics.table(content, second=1, down=(2,)))
    assert now.revision == f"gpu_metrics v1.{content}"
    assert now.lanes == 16
    assert now.speed_bps == 512 * 10**9
    assert now.read_bytes[:2] == (READ_KB_A_SECOND * KB, (READ_KB_A_SECOND + 10_001) * KB)
    assert now.written_bytes[1] == (WRITTEN_KB_A_SECOND + 20_001) * KB
    assert now.written_bytes[7] is None
    reports_state = content > 6
    assert now.up == ((True, True, False, *[True] * 4, None) if reports_state else (None,) * 8)


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("7800 01 03", r"v1\.3 has no xGMI"),
        ("7800 02 04", r"v2\.4 has no xGMI"),
        ("7800 03 00", r"v3\.0 has no xGMI"),
        ("7800 01 0a", r"v1\.10 is not known"),
        ("7800 04 00", r"v4\.0 is not known"),
    ],
)
def test_other_revisions_are_refused_by_name(header: str, text: str) -> None:
    with pytest.raises(Unsupported, match=text):
        xgmi_of(bytes.fromhex(header) + b"\0" * 4000)


@given(st.sampled_from([4, 5, 6, 7, 8, 9]), st.integers(0, 400))
def test_a_table_that_is_cut_short_fails_or_says_the_same(content: int, length: int) -> None:
    table = gpu_metrics.table(content, second=3)
    with contextlib.suppress(Failed):
        assert xgmi_of(table[:length]).read_bytes == xgmi_of(table).read_bytes


@given(st.binary(max_size=600))
def test_any_bytes_are_an_answer_or_an_error_of_the_tree(rest: bytes) -> None:
    for header in (b"\x40\x02\x01\x09", b"\x40\x02\x01\x08", b""):
        with contextlib.suppress(SourceError):
            xgmi_of(header + rest)


def test_bytes_of_links_and_of_the_gpu_grow_together(tmp_path: Path) -> None:
    tree = hosts.mi300_host(tmp_path)
    xgmi = source("xgmi", tmp_path)
    objects = xgmi.discover()
    assert [item.id for item in objects if item.kind == "gpu"] == ["gpu0", "gpu1"]
    assert [item.port for item in objects if item.kind == "xgmi"][:2] == [
        "gpu0/xgmi0",
        "gpu0/xgmi1",
    ]
    before = read(xgmi, objects)
    hosts.grow(tree, 1)
    after = read(xgmi, objects)
    assert not after.faults

    def moved(name: str, metric: str) -> int:
        now, then = after.of(name)[metric], before.of(name)[metric]
        assert isinstance(now, int)
        assert isinstance(then, int)
        return now - then

    for gpu in ("gpu0", "gpu1"):
        assert moved(f"{gpu}/xgmi3", "xgmi_rx_bytes") == (READ_KB_A_SECOND + 3) * KB
        assert moved(f"{gpu}/xgmi3", "xgmi_tx_bytes") == (WRITTEN_KB_A_SECOND + 3) * KB
        assert moved(gpu, "xgmi_tx_bytes") == (7 * WRITTEN_KB_A_SECOND + 21) * KB
        assert after.of(gpu)["xgmi_speed_bps"] == 7 * 512 * 10**9
        assert after.of(f"{gpu}/xgmi0")["xgmi_state"] == 1
    xgmi.close()


def test_the_facts_of_a_gpu(tmp_path: Path) -> None:
    hosts.mi300_host(tmp_path)
    info = ask("xgmi", tmp_path).info("gpu1")
    assert info["pci"] == "0000:35:00.0"
    assert info["driver"] == "amdgpu"
    assert info["bytes_from"] == "gpu_metrics v1.9"
    assert info["affinity"]["enp54s0"] == "PIX"
    assert info["hive"] == "77"


def test_a_link_that_goes_down_is_said_to_be(tmp_path: Path) -> None:
    tree = hosts.mi300_host(tmp_path)
    xgmi = source("xgmi", tmp_path)
    objects = xgmi.discover()
    (tree.root / GPU0).write_bytes(gpu_metrics.table(7, 1, down=(4,)))
    answer = read(xgmi, objects)
    assert answer.of("gpu0/xgmi4")["xgmi_state"] == 0
    assert answer.of("gpu0")["xgmi_speed_bps"] == 6 * 512 * 10**9
    xgmi.close()


def test_a_gpu_that_fails_costs_its_own_values(tmp_path: Path) -> None:
    tree = hosts.mi300_host(tmp_path)
    xgmi = source("xgmi", tmp_path)
    objects = xgmi.discover()
    (tree.root / GPU0).write_bytes(b"")
    answer = read(xgmi, objects)
    assert {place[0].partition("/")[0] for place in answer.faults} == {"gpu0"}
    assert set(answer.faults.values()) == {"failed"}
    xgmi.close()


def test_a_gpu_without_xgmi_names_its_revision(tmp_path: Path) -> None:
    tree = hosts.mi300_host(tmp_path, gpus=0)
    with pytest.raises(Unsupported, match=r"v1\.3 has no xGMI"):
        source("xgmi", tmp_path).discover()
    table = "sys/bus/pci/devices/0000:c1:00.0/gpu_metrics"
    none = gpu_metrics.table(7)
    (tree.root / table).write_bytes(none[:136] + b"\xff" * (len(none) - 136))
    with pytest.raises(NoData, match="no xGMI link"):
        source("xgmi", tmp_path).discover()
    with pytest.raises(NoData, match="no AMD GPU"):
        source("xgmi", tmp_path / "nothing").discover()


@pytest.mark.parametrize(
    ("content", "width", "read_data", "written_data"),
    [(4, 52, 104, 168), (5, 116, 176, 240), (6, 64, 128, 192), (7, 72, 136, 200)],
)
def test_the_fixture_has_the_layout_of_the_header(
    content: int, width: int, read_data: int, written_data: int
) -> None:
    layout = gpu_metrics.layout(content)
    assert layout.xgmi_width.offset == width
    assert layout.xgmi_read.offset == read_data
    assert layout.xgmi_written.offset == written_data
