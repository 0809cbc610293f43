"""Runs of nccl-tests: what the rails can carry, the 80 % rule, sizes that fall off."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabmon.analysis.job_log.nccl_tests import BenchmarkReader, BenchmarkRun, Rails, busbw_limit_bps
from tests.goldens import check_golden
from tests.unit.job_log.test_explain import explained, run

GOLDENS = Path(__file__).parent / "goldens"
SIZES = [8 << shift for shift in range(0, 31, 3)]


def output(
    peak_gbs: float,
    name: str = "all_reduce_perf",
    hosts: tuple[str, ...] = ("gpu001", "gpu002"),
    gpus: int = 8,
    slow: dict[int, float] | None = None,
    wrong: int = 0,
    stamp: str = "",
) -> str:
    """What a run prints: bandwidth grows with the size up to a peak, but for some slow sizes."""
    ranks = [(host, gpu) for host in hosts for gpu in range(gpus)]
    lines = [
        f"# Collective test starting: {name}",
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 8(factor) warmup iters: 5",
        "#",
        "# Using devices",
        *(
            f"#  Rank {rank:2d} Group  0 Pid {4000 + rank} on {host:>10} device {gpu:2d}"
            f" [0000:{gpu:02x}:00] NVIDIA H100"
            for rank, (host, gpu) in enumerate(ranks)
        ),
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
        "     time   algbw   busbw  #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)",
    ]
    for size in SIZES:
        busbw = (slow or {}).get(size, peak_gbs * size / (size + 30e6))
        pair = f"{size / busbw / 1e3 if busbw else 30:9.2f} {busbw / 2:7.2f} {busbw:7.2f}"
        count = f"{size:12d} {size // 4:13d} float sum -1"
        lines.append(f"{count} {pair} {wrong:7d} {pair} N/A {stamp}".rstrip())
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 52.97"])


def read(text: str) -> BenchmarkRun:
    reader = BenchmarkReader()
    reader.accept(text.encode(), "test.log")
    (found,) = reader.runs
    return found


@pytest.mark.parametrize("before", ["", "[1,0]<stdout>: ", "0: ", "    "])
def test_rows_ranks_and_hosts(before: str) -> None:
    text = "\n".join(before + line for line in output(340).splitlines())
    found = read(text)
    assert (found.name, len(found.rows), len(found.hosts)) == ("all_reduce", len(SIZES), 16)
    assert set(found.hosts.values()) == {"gpu001", "gpu002"}
    assert [row.size for row in found.rows] == SIZES
    assert found.rows[-1].busbw_bps == pytest.approx(340 * 8e9, rel=0.01)
    assert found.rows[0].wrong == 0


def test_times_at_the_end_of_rows() -> None:
    found = read(output(340, stamp="2026-05-04 20:00:30"))
    assert len(found.rows) == len(SIZES)
    assert found.first is not None
    assert str(found.first.at) == "2026-05-04 20:00:30+00:00"


def test_what_rails_can_carry() -> None:
    rails = Rails(8, 400e9, "as given")
    assert busbw_limit_bps("all_reduce", rails, 16, 8) == 3200e9
    # A group with one GPU of each node has one NIC.
    assert busbw_limit_bps("all_reduce", rails, 2, 1) == 400e9
    # All-to-all: 8 of a rank's 15 peers are in the other node.
    assert busbw_limit_bps("alltoall", rails, 16, 8) == pytest.approx(400e9 * 15 / 8)
    assert busbw_limit_bps("alltoall", rails, 2, 1) == 400e9
    assert busbw_limit_bps("sendrecv", rails, 16, 8) == 400e9


@pytest.mark.parametrize(
    ("peak", "is_good", "sentence"),
    [
        (341, True, "and about 80 % or more is usual"),
        (180, False, "less than the usual 80 %"),
        (437, True, "more than a ring could"),
    ],
)
def test_the_rule_of_80_percent(peak: float, is_good: bool, sentence: str) -> None:
    text = output(peak).encode()
    (test,) = explained("-", "--rails", 8, "--line-rate", "400G", stdin=text)["tests"]
    assert test["limit_bps"] == 3200e9
    assert test["share"] == pytest.approx(peak / 400, rel=0.01)
    assert test["is_good"] is is_good
    assert (
        sentence
        in explained("-", "--rails", 8, "--line-rate", "400G", stdin=text)["conclusions"][0]
    )


@pytest.mark.parametrize(
    ("rails", "line_rate", "known"),
    [(1, "400G", "1 rail of 400 Gb/s"), (8, "50G", "8 rails of 50.0 Gb/s")],
)
def test_a_result_that_the_rails_cannot_carry(rails: int, line_rate: str, known: str) -> None:
    given = ("--rails", rails, "--line-rate", line_rate)
    found = explained("-", *given, stdin=output(380).encode())
    assert found["tests"][0]["is_good"] is None
    assert found["conclusions"][0].endswith(
        f", which these rails cannot carry: {known} (as given) are 50.0 GB/s."
        " Check --rails, the NICs of a node, and --line-rate, in bits per second."
    )
    found = explained("-", *given, stdin=output(380, hosts=()).encode())
    assert "The log does not name the hosts: it may be one node" in found["conclusions"][0]


def test_the_size_at_which_bandwidth_falls_off() -> None:
    text = output(340, slow={SIZES[-1]: 120.0}).encode()
    found = explained("-", stdin=text)
    assert [each["size"] for each in found["tests"][0]["falls"]] == [SIZES[-1]]
    assert "all_reduce falls off at 8.59 GB: 120 GB/s" in found["conclusions"][1]
    assert "--line-rate" in found["conclusions"][0]


def test_one_node_and_wrong_values() -> None:
    found = explained("-", stdin=output(480, hosts=("gpu001",), wrong=3).encode())
    assert "within one node" in found["conclusions"][0]
    assert found["tests"][0]["limit_bps"] is None
    assert (
        "33 wrong values at 8 B, 64 B, 512 B, 4.10 kB and 7 more: data is damaged"
        in found["conclusions"][1]
    )


def test_the_text_of_a_run() -> None:
    text = output(340, slow={SIZES[-1]: 120.0}).encode()
    done = run("-", "--rails", 8, "--line-rate", "400G", stdin=text)
    check_golden(GOLDENS / "nccl_tests.txt", done.output)


def test_a_recording_has_the_rails_and_their_links(recording: Path) -> None:
    text = output(340, hosts=("gpu002", "gpu006"), stamp="2026-05-04 20:01:00").encode()
    found = explained("-", "--recording", recording, stdin=text)
    (test,) = found["tests"]
    assert test["rails"]["source"] == "as the nodes report them"
    assert test["rails"]["line_rate_bps"] == 400e9
    ports = {each["port"] for each in found["wire"]["ports"]}
    assert {"gpu002/mlx5_0", "gpu006/mlx5_3"} <= ports
    on_path = [each["subject"] for each in found["wire"]["findings"] if each["is_on_path"]]
    assert on_path == ["gpu006/mlx5_3"]


def test_numbers_that_are_none_are_passed_over() -> None:
    bad = "8 2 float sum -1 nan inf 1e400 0 x y z 0"
    text = output(340).replace("# Out", f"{bad}\n{'9' * 300} 2 float sum -1 1 1 1 0 1 1 1 0\n# Out")
    assert len(read(text).rows) == len(SIZES) + 1
    assert explained("-", stdin=text.encode())["tests"]


def test_a_rank_alone_has_no_bandwidth_rather_than_zero(tmp_path: Path) -> None:
    path = tmp_path / "alone.log"
    path.write_text(output(0, hosts=("gpu001",), gpus=1))
    table = run(path).output.partition("OF THE RAILS")[2]
    assert "0 B/s" not in table
    assert "1.07 GB  \N{MIDDLE DOT}" in table
