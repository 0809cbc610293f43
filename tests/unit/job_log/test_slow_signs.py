"""What makes a job slow, and lines in which it is hard to see: long ones, ones without a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabmon.analysis.job_log.slow_signs import slow_signs
from fabmon.session.log_files import read_files
from tests.unit.job_log.nccl_logs import Log, watchdog
from tests.unit.job_log.observed import is_failure
from tests.unit.job_log.test_generated_logs import read

LOG = Log("2.23.4")
CAPTION = "Epoch 0:   3%|###       | 3/20000 [00:00:03<9:39:17, 1.37it/s, loss=2.6]"


def signs(lines: list[str]) -> list[str]:
    return slow_signs(read(lines)[0])


def test_a_healthy_job_has_none() -> None:
    assert signs([*LOG.start(), f"{LOG.prefix(0)}Using network IB"]) == []


def test_ranks_of_one_host_over_tcp_and_the_others_over_infiniband() -> None:
    networks = ("IB", "IB", "Socket", "Socket")
    used = [f"{LOG.prefix(rank)}Using network {name}" for rank, name in enumerate(networks)]
    (sentence,) = signs([*LOG.start(), *used])
    assert "different networks: gpu002 TCP (NET/Socket), others IB" in sentence


def test_no_rdma_device_means_sockets_unless_another_network_is_named() -> None:
    """NCCL_DEBUG_SUBSYS may leave out the line that names the network."""
    none = f"{LOG.prefix(2)}NET/IB : No device found."
    (sentence,) = signs([none])
    assert sentence.startswith(
        "The job runs over TCP (NET/Socket), without RDMA: NCCL found no InfiniBand or RoCE device"
    )
    (sentence,) = signs([f"{LOG.prefix(0)}Using network IB", none])
    assert "different networks: gpu002 TCP (NET/Socket), others IB" in sentence
    assert signs([none, f"{LOG.prefix(2)}Using network AWS Libfabric"]) == []


def test_a_job_on_one_host_needs_no_network() -> None:
    lines = [f"{LOG.prefix(0)}Using network Socket"]
    lines += [f"{LOG.prefix(rank)}{LOG.communicator(rank, 2, '0x1')}" for rank in (0, 1)]
    assert signs(lines) == []


def test_gpudirect_rdma_on_one_side_of_a_connection() -> None:
    lines = [
        each.replace("/GDRDMA", "") if "[receive]" in each and each.startswith("gpu002") else each
        for each in LOG.start()
    ]
    (sentence,) = signs(lines)
    assert "on one side only of 1 connection: not by rank 2 (gpu002)" in sentence


def test_a_host_that_has_fewer_nics_than_the_others() -> None:
    lines = [each.replace(" [1]mlx5_2:1/RoCE", "") for each in LOG.start() if "gpu002" in each]
    lines += [each for each in LOG.start() if "gpu001" in each]
    (sentence,) = signs([each for each in lines if "Channel" not in each])
    assert sentence.startswith("gpu002 has 1 NIC, others 2 (mlx5_2 is missing)")


def test_a_host_that_uses_fewer_of_its_nics() -> None:
    lines = [
        each.replace("NET/IB/1", "NET/IB/0") if "Channel" in each and "gpu002" in each else each
        for each in LOG.start()
    ]
    (sentence,) = signs(lines)
    assert sentence.startswith("gpu002 uses 1 NIC, others 2")


def test_connections_that_were_tried_again_are_said_and_are_no_failure() -> None:
    again = f"{LOG.prefix(0)}Call to connect returned Connection refused, retrying 10.0.0.2<41211>"
    record = read([again])[1]
    assert record.result == "ok"
    assert "1 TCP connection to 10.0.0.2 could not be made at first" in record.conclusions[-1]
    record = read([again, *LOG.start()])[1]
    assert "at first" not in " ".join(record.conclusions), "it was made then"


@pytest.mark.parametrize(
    "line",
    [
        "gpu001:1:9 [0] misc/socket.cc:538 NCCL WARN socketPollConnect: connect to 10.0.0.2<3333>"
        " returned Connection timed out, exceeded error retry count after 35 attempts",
        "gpu001:1:9 [0] misc/socket.cc:538 NCCL WARN socketFinalizeConnect: Connect to"
        " 10.0.0.2<3333> failed : retry count exceeded",
        "[E1119 02:14:07.1 socket.cpp:957] [c10d] The client socket has failed to connect to any"
        " network address of (10.0.0.2, 29500). The client socket has failed to connect to"
        " 10.0.0.2:29500 (errno: 110 - Connection timed out).",
        "[rank3]: torch.distributed.DistNetworkError: The client socket has failed to connect to"
        " any network address of (10.0.0.2, 29500). The client socket has failed to connect to"
        " 10.0.0.2:29500 (errno: 111 - Connection refused).",
    ],
)
def test_the_last_attempt_to_connect_is_a_failure(line: str) -> None:
    """NCCL 2.23 and PyTorch give up with the words that they write for each attempt."""
    record = read([*LOG.start(), line])[1]
    assert record.result == "wrong"
    (failure,) = filter(is_failure, record.observations)
    assert (failure.kind, failure.others[0].address) == ("connection", "10.0.0.2")
    assert "tried again" not in " ".join(record.conclusions)


def test_an_empty_host_name_is_not_replaced_by_a_process() -> None:
    line = LOG.completion(2, 1, 12).replace("gpu002", "", 1)
    (failure,) = filter(is_failure, read([line])[1].observations)
    assert (failure.at[0].host, failure.at[0].hcas) == ("", ("mlx5_0",))


def test_a_long_line_is_read_to_its_end(tmp_path: Path) -> None:
    """Also without an end of line for a megabyte."""
    for length in (4000, 5000, 70_000, 1 << 20):
        bar = CAPTION * (length // len(CAPTION))
        path = tmp_path / "job.log"
        path.write_text(f"{bar}{watchdog(7, 77)[0]} {'x' * 900}\n")
        log = read_files([path]).log
        (seen,) = log.all_timeouts
        assert (seen.event.seq, seen.event.operation) == (77, "ALLREDUCE"), length


def test_an_exception_whose_ends_of_lines_are_escaped() -> None:
    text = (
        '{"log": "RuntimeError: NCCL error in: a.cpp:1, remote process exited or there was a'
        " network error, NCCL version 2.21.5\\nLast error:\\nNET/IB : Got completion from peer"
        ' 10.0.3.21<45782> with status=12 opcode=0 len=0 vendor err 129 (Send)"}'
    )
    (failure,) = filter(is_failure, read([text])[1].observations)
    assert (failure.kind, failure.code) == ("completion", 12)
