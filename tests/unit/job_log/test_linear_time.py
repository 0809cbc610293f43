"""No line keeps the reader of logs busy: what a line repeats costs no more than in proportion."""

from __future__ import annotations

import time

import pytest

from fabmon.analysis.job_log.job_log import JobLog

_HEADS = (
    "gpu001:77:80 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB OOB a",
    "gpu001:77:80 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.1",
    "gpu001:77:80 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] via NET/IB/0",
    "[rank3]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited",
    "[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught collective operation timeout:",
    "Provider is efa, GPU Direct RDMA Disabled for HCA",
    "  host      : ",
)
_PUMPS = (":", " ", "a", "1", ".", "[", "a:", "a.", "(", "- ", "1,", "[1] ", "E: ", "status=")
_LIMIT_S = 10.0
"""Of a line of 32 kB, which takes up to 1 s, on a busy machine; it took minutes of 4 kB."""


@pytest.mark.parametrize("head", _HEADS)
def test_a_line_that_repeats_itself_is_read_at_once(head: str) -> None:
    for pump in _PUMPS:
        line = f"{head}{pump * (32_000 // len(pump))}!\n".encode()
        began_s = time.process_time()
        JobLog().accept(line, "job.log")
        assert time.process_time() - began_s < _LIMIT_S, (head, pump)
