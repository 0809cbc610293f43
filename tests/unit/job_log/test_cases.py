"""Logs in the shape of public reports, each with what is right to say of it (`shared/cases`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.job_log.observed import failures, of_kind
from tests.unit.job_log.test_explain import explained, run

CASES = Path(__file__).parents[4] / "shared" / "cases"


def case(name: str, *options: object) -> dict[str, Any]:
    path = CASES / name
    if not path.exists():  # these files are not ours to ship: a fresh machine has none
        pytest.skip(f"no logs at {path}")
    assert run(path, *options).exit_code == 5
    return explained(path, *options)


def test_an_exception_with_its_last_error_names_rank_hca_and_peer() -> None:
    found = case("logs/exception-with-prefix.log")
    assert found["conclusions"][0].startswith("rank 3 mlx5_4 did not reach 10.0.3.21")
    (failure,) = failures(found)
    assert (failure["code"], failure["near"]["ranks"], failure["near"]["hcas"]) == (
        12,
        [3],
        ["mlx5_4"],
    )


def test_an_exception_that_pytorch_writes_twice_is_one(tmp_path: Path) -> None:
    """Its watchdog logs it, then it ends the process, with the same last error or without one."""
    head = (
        "Process group watchdog thread terminated with exception: NCCL error: remote process"
        " exited or there was a network error, NCCL version 2.21.5"
    )
    named = "ncclRemoteError: A call failed possibly due to a network error."
    last = (
        "Last error:\nNET/IB: Got completion from peer 192.0.2.21<47000> with status=12 opcode=0"
        " len=0 vendor err 129 (Recv) hca mlx5_4"
    )
    traced = "Exception raised from checkForNCCLErrorsInternal at ProcessGroupNCCL.cpp:2363"
    for error, text in ((f"\n{last}", ""), ("", "ncclRemoteError")):
        message = f"[PG ID 0 PG GUID 0 Rank 3] {head}\n{named}{error}\n{traced}\n"
        path = tmp_path / "job.log"
        path.write_text(
            f"[rank3]:[E1103 09:30:05.123456789 ProcessGroupNCCL.cpp:1895] {message}"
            "terminate called after throwing an instance of 'c10::DistBackendError'\n"
            f"  what():  {message}"
        )
        (failure,) = failures(explained(path))
        assert (failure["count"], failure["near"]["ranks"]) == (1, [3])
        assert text in failure["what"]
        another = "[rank4]:[E1103 09:30:06.123456789 ProcessGroupNCCL.cpp:1895] "
        path.write_text(f"{path.read_text()}{another}{message.replace('Rank 3', 'Rank 4')}")
        assert [each["count"] for each in failures(explained(path))] == [1, 1]


def test_an_exception_of_an_old_version_without_a_prefix() -> None:
    (failure,) = failures(case("logs/exception-error-12.log"))
    assert (failure["code"], failure["vendor_error"]) == (12, 129)
    assert failure["far"]["address"] == "192.0.2.122"


def test_an_asynchronous_exception_is_no_timeout() -> None:
    found = case("async-exception-is-no-timeout/job.log")
    assert of_kind(found, "timeout") == []
    assert found["conclusions"][0].startswith("BROADCAST 71 of rank 4 was ended by an error.")
    (failure,) = failures(found)
    assert (failure["kind"], failure["near"]["ranks"]) == ("connection", [4])
    assert failure["far"]["host"] == "node-b.example"
    assert "process at the far end has ended" in failure["check"]


def test_a_request_of_libfabric_names_its_rank_and_device_and_its_peer() -> None:
    found = case("ofi-request-failed/job.log")
    (failure,) = failures(found)
    assert (failure["kind"], failure["code"], failure["side"]) == ("request", 4113, "send")
    assert "the receiver did not answer" in failure["text"]
    near, far = failure["near"], failure["far"]
    assert (near["host"], near["ranks"], near["gpus"], near["hcas"]) == (
        *("node-a", [3], [3]),
        ["device 3"],
    )
    assert far["ranks"] == [11]
    assert found["hosts"][0]["nics"] == 32
    assert found["not_understood"] == []


def test_a_line_behind_a_progress_bar() -> None:
    (timeout,) = of_kind(case("tqdm-carriage-return/job.log"), "timeout")
    assert (timeout["at"][0]["ranks"], timeout["operation"], timeout["seq"]) == (
        [7],
        "ALLREDUCE",
        6408,
    )
    assert timeout["ran_s"] == pytest.approx(1800, abs=2)


def test_the_present_wording_of_pytorch_names_the_late_rank() -> None:
    found = case("pytorch-2.6-pg-status/job.log")
    (timeout,) = of_kind(found, "timeout")
    assert (timeout["at"][0]["ranks"], timeout["seq"]) == ([1, 2], 167)
    (late,) = of_kind(found, "behind")
    assert (late["at"], late["launched"], late["expected"]) == ([{"ranks": [0]}], 166, 167)
    assert "not at the network" in found["conclusions"][0]


def test_every_timeout_of_a_rank_in_a_group_without_a_name() -> None:
    found = case("several-groups-one-rank/job.log")
    timeouts = {(each["seq"], *each["at"][0]["ranks"]) for each in of_kind(found, "timeout")}
    assert timeouts == {(51020, 0), (51017, 0), (51025, 0), (33001, 7)}
    assert not any(each.get("ranks_are_global", True) for each in of_kind(found, "timeout"))
    sentences = [each for each in found["conclusions"] if "timed out" in each]
    assert len(sentences) == 4
    assert all("its number there, not in the job" in each for each in sentences)


def test_two_timeouts_of_a_rank_in_two_groups() -> None:
    found = case("several-groups-one-rank/two-groups.log")
    tensor, pipeline = sorted(of_kind(found, "timeout"), key=lambda each: -each["seq"])
    assert (tensor["seq"], tensor["at"][0]["ranks"]) == (500, [3])
    assert "ranks_are_global" not in tensor
    assert "TENSOR_MODEL_PARALLEL_GROUP" in tensor["group"]
    (late,) = of_kind(found, "behind")
    assert (late["at"][0]["ranks"], late["group"]) == ([2], tensor["group"])
    assert (pipeline["operation"], pipeline["seq"]) == ("SEND", 41)


def test_a_job_over_tcp() -> None:
    (sentence,) = case("logs/network-socket.log")["conclusions"]
    assert "runs over TCP" in sentence
    assert "libibverbs" in sentence


def test_gpudirect_rdma_that_is_disabled() -> None:
    (sentence,) = case("logs/gdr-disabled.log")["conclusions"]
    assert "disabled for mlx5_0, mlx5_1 on node-a" in sentence
    assert "host memory" in sentence


def test_wrong_values_in_place() -> None:
    found = case("logs/nccl-tests-in-place-wrong.log")
    (test,) = found["tests"]
    assert (test["wrong"], test["out_of_bounds"]) == ({"8388608": 7}, 7)
    assert any("7 wrong values at 8.39 MB" in each for each in found["conclusions"])


def test_bandwidth_that_falls_off_has_no_share_without_line_rates() -> None:
    found = case("logs/nccl-tests-two-nodes.log")
    assert [each["size"] for each in found["tests"][0]["falls"]] == [1 << 30]
    assert "%" not in "".join(found["conclusions"])


def test_nccl_tests_of_which_each_process_ran_alone() -> None:
    found = case("nccl-tests-each-alone/all_reduce.log", "--rails", 1, "--line-rate", "10G")
    (test,) = found["tests"]
    assert sorted(test["lone_hosts"]) == ["node-a", "node-b"]
    assert (test["share"], test["limit_bps"]) == (None, None)
    assert "MPI=1" in found["conclusions"][0]
