"""Records of NCCL Inspector in both layouts, lost and malformed ones, and metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.inspector_records import InspectorLog, Measured
from fabmon.fabric.jobs.collectives import of_metrics
from tests.unit.inspector.dumps import WRITTEN_US, bare, collective, line, marker, send, whole

CAPTURE = Path(__file__).parents[4] / "shared/captures/nccl-inspector/records.jsonl"


def read(*lines: bytes, is_cut: bool = False) -> tuple[list[Measured], InspectorLog]:
    log = InspectorLog("8801", is_cut=is_cut)
    return list(log.records(lines)), log


def test_a_record_with_its_communicator() -> None:
    (found,), log = read(whole(collective()))
    assert found.operation.name == "AllReduce"
    assert (found.operation.communicator, found.operation.nodes) == ("DP Group 0", 16)
    assert (found.operation.job, found.operation.size) == ("8801", "256 MiB")
    assert (found.host, found.busbw, found.time_s) == ("gpu001", 312e9, 0.0016)
    assert found.written_ns == WRITTEN_US * 1000
    assert (log.lost, log.unread) == (0, 0)


def test_records_after_a_marker_have_its_communicator_and_process() -> None:
    found, log = read(
        marker(collectives=2, sends=1, lost=5, host="gpu007"),
        bare(collective(300)),
        bare(collective(310)),
        bare(send()),
    )
    assert [(each.host, each.operation.name) for each in found] == [
        ("gpu007", "AllReduce"),
        ("gpu007", "AllReduce"),
        ("gpu007", "Send"),
    ]
    assert (log.lost, log.unread) == (5, 0)


def test_a_marker_of_the_older_layout_only_counts_what_was_lost() -> None:
    found, log = read(marker(collectives=1, lost=7, version="v4.2"), whole(collective()))
    assert len(found) == 1
    assert (log.lost, log.unread) == (7, 0)


def test_a_record_beyond_those_of_its_marker_gets_no_communicator() -> None:
    found, log = read(marker(collectives=1), bare(collective()), bare(collective()))
    assert (len(found), log.unread) == (1, 1)


def test_what_comes_before_the_first_marker_of_a_cut_file_is_left_out() -> None:
    found, log = read(bare(collective()), marker(collectives=1), bare(collective(99)), is_cut=True)
    assert [each.busbw for each in found] == [99e9]
    assert log.unread == 0


@pytest.mark.parametrize(
    "bad",
    [
        b"{",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        bare(collective()),
        line(coll_perf={"coll": "AllReduce"}),
        whole(collective(-1.0)),
        whole(collective(1e12)),
        whole(collective(size=-4)),
        whole(collective()).replace(b"312.0", b"NaN"),
        whole(collective())[:-20],
    ],
)
def test_a_malformed_line_costs_a_line(bad: bytes) -> None:
    found, log = read(whole(collective()), bad, whole(collective()))
    assert (len(found), log.unread) == (2, 1)


def test_other_kinds_of_records_and_empty_lines_are_passed_over() -> None:
    found, log = read(b"", line(proxy_trace={"channel": 1}), b"  ", whole(collective()))
    assert (len(found), log.unread) == (1, 0)


def test_names_cannot_draw_on_the_terminal() -> None:
    (found,), _ = read(whole(collective(name="All\x1b[31mReduce"), communicator="x" * 500))
    assert "\x1b" not in found.operation.name
    assert len(found.operation.communicator) == 64


@pytest.mark.skipif(not CAPTURE.exists(), reason=f"{CAPTURE} is not on this machine")
def test_the_sample_of_its_readme() -> None:
    found, log = read(*CAPTURE.read_bytes().splitlines())
    assert [(e.operation.name, e.operation.size, e.host) for e in found] == [
        ("AllReduce", "16 GiB", "example-hostname")
    ]
    assert found[0].busbw == pytest.approx(485.119099e9)
    assert (log.lost, log.unread) == (0, 0)


LINES = st.lists(
    st.one_of(
        st.binary(max_size=80),
        st.sampled_from(
            [
                whole(collective()),
                bare(collective()),
                bare(send()),
                marker(collectives=2, sends=1, lost=3),
                line(dump_stats={}),
                line(header=None, coll_perf=[]),
            ]
        ),
        st.builds(
            lambda text, at, byte: text[:at] + bytes([byte]) + text[at + 1 :],
            st.sampled_from([whole(collective()), bare(send()), marker(collectives=1)]),
            st.integers(0, 300),
            st.integers(0, 255),
        ),
    ),
    max_size=12,
)


@given(LINES, st.booleans())
def test_any_lines_give_sound_records_and_every_other_line_is_counted(
    lines: list[bytes], is_cut: bool
) -> None:
    found, log = read(*lines, is_cut=is_cut)
    assert len(found) + log.unread <= sum(bool(each.strip()) for each in lines)
    for each in found:
        assert 0 <= each.busbw < 1e15
        assert 0 <= each.time_s < 1e6
        assert each.written_ns >= 0
        assert len(each.operation.name) <= 64
        assert each.operation.name.isprintable()


def test_metrics_are_pairs_of_bandwidth_and_time() -> None:
    labels = {"node": "gpu001", "collective": "AllReduce", "message_size": "4-5GB", "nranks": "4"}
    samples = [
        ("nccl_bus_bandwidth_gbs", labels, 678.263),
        ("nccl_collective_exec_time_microseconds", labels, 9498.47),
        ("nccl_bus_bandwidth_gbs", {**labels, "message_size": "\x1b[2J"}, 1.0),
        ("nccl_bus_bandwidth_gbs", {**labels, "collective": "Broadcast"}, float("nan")),
        ("nccl_bus_bandwidth_gbs", {}, 1.0),
        ("up", labels, 1.0),
    ]
    found = of_metrics(samples, 7)
    assert [(e.operation.size, e.busbw, e.time_s) for e in found] == [
        ("4-5GB", 678.263e9, 0.00949847),
        ("", 1e9, 0.0),
    ]
