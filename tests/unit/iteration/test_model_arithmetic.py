"""Bytes of a rail and operations of a GPU in a step, from what a person says of the model."""

from __future__ import annotations

import pytest

from fabmon.analysis.iteration.model_arithmetic import (
    JobHints,
    all_reduce_share,
    expected_traffic,
    step_flops,
)

GRADIENTS = 70e9 * 2
"""Bytes of all gradients of the model below, in bf16."""


def bytes_of(**hints: float) -> float:
    """The bytes that a rail sends for 70 billion parameters, with eight NICs of 400 Gb/s a node."""
    return expected_traffic(JobHints(params=70e9, **hints), 400e9, 8).bytes  # type: ignore[arg-type]


def test_an_all_reduce_sends_twice_the_payload_but_for_the_own_part() -> None:
    assert all_reduce_share(1) == 0
    assert all_reduce_share(64) == pytest.approx(2 * 63 / 64)


def test_tensor_parallel_nodes_send_the_share_of_each_gpu_over_its_own_rail() -> None:
    due = expected_traffic(JobHints(params=70e9, dp=64, tp=8), 400e9, 8)
    assert due.nodes == 64
    assert due.bytes == pytest.approx(GRADIENTS / 8 * 2 * 63 / 64)
    assert due.comm_s == pytest.approx(due.bytes * 8 / 320e9)
    assert expected_traffic(JobHints(params=70e9, dp=64, tp=8), 0).comm_s is None


def test_data_parallel_ranks_of_a_node_reduce_over_nvlink_first() -> None:
    # 64 ranks in eight nodes: each node sends one payload, an eighth over each of its rails.
    assert bytes_of(dp=64) == pytest.approx(GRADIENTS / 8 * 2 * 7 / 8)
    # Four tensor-parallel groups of two: two groups of four ranks a node, each with its half.
    assert bytes_of(dp=64, tp=2) == pytest.approx(2 * GRADIENTS / 2 / 8 * 2 * 15 / 16)


def test_pipeline_stages_share_a_node_where_they_are_small() -> None:
    # A stage is four GPUs: a node holds two stages, and no group leaves it.
    assert bytes_of(dp=2, tp=2, pp=4) == 0
    # A stage is 16 GPUs in two nodes; each rank holds half of the model.
    assert bytes_of(dp=16, pp=2) == pytest.approx(GRADIENTS / 2 / 8)


def test_tensor_parallel_groups_larger_than_a_node_leave_a_rank_of_each_group_in_it() -> None:
    assert bytes_of(dp=4, tp=16) == pytest.approx(GRADIENTS / 16 * 2 * 3 / 4)


def test_nodes_with_fewer_nics_than_gpus_send_more_over_each() -> None:
    hints = JobHints(params=70e9, dp=64, tp=8)
    eight, four = (expected_traffic(hints, 400e9, rails).bytes for rails in (8, 4))
    assert four == pytest.approx(2 * eight)
    assert expected_traffic(hints, 400e9).bytes == eight


def test_nodes_with_four_gpus() -> None:
    four = expected_traffic(JobHints(params=70e9, dp=64, gpus_per_node=4), 400e9, 4)
    assert four.nodes == 16
    assert four.bytes == pytest.approx(GRADIENTS / 4 * 2 * 15 / 16)


def test_one_node_sends_nothing() -> None:
    for ways in ({}, {"fsdp": True}, {"sharp": True}):
        assert bytes_of(dp=8, **ways) == 0


def test_sharded_parameters_are_gathered_twice_and_reduced_once() -> None:
    assert bytes_of(dp=64, fsdp=True) == pytest.approx(1.5 * bytes_of(dp=64))


def test_switches_that_reduce_receive_each_payload_once() -> None:
    assert bytes_of(dp=64, sharp=True) == pytest.approx(GRADIENTS / 8)


def test_operations_of_a_token() -> None:
    # Llama 3 405B: 126 layers of 16,384; 8,192 tokens a sequence.
    exact = (6 * 405e9 + 12 * 126 * 16384 * 8192) * 8192 * 2048
    assert step_flops(405e9, 8192, 2048) == pytest.approx(exact, rel=0.01)
    # Llama 3 8B: 32 layers of 4,096.
    exact = (6 * 8e9 + 12 * 32 * 4096 * 8192) * 8192
    assert step_flops(8e9, 8192, 1) == pytest.approx(exact, rel=0.04)


def test_tflops_and_mfu_from_the_measured_step() -> None:
    # 405B on 16,384 H100 with 16 Mi tokens a step: 400 TFLOPS a GPU, MFU 41 % (Llama 3, table 4).
    hints = JobHints(
        params=405e9, dp=128, tp=8, pp=16, seq_len=8192, global_batch=2048, peak_tflops=989
    )
    due = expected_traffic(hints, 400e9, 8)
    step_s = due.flops / 400e12
    assert step_s == pytest.approx(6.7, rel=0.02)
    assert due.tflops(step_s) == pytest.approx(400)
    assert due.mfu(step_s) == pytest.approx(0.404, abs=0.001)


def test_without_a_batch_or_a_peak_there_is_no_mfu() -> None:
    assert expected_traffic(JobHints(params=70e9, dp=64), 400e9).tflops(5.0) is None
    batch = JobHints(params=70e9, dp=64, seq_len=4096, global_batch=64)
    assert expected_traffic(batch, 400e9).mfu(5.0) is None
