"""The end of a job that no program of the network wrote: kernel, shell, runtimes of languages.

Each case is a log of a job with a line of NCCL, so that it is one of a job, and the line in
question. "No failure" would mislead whoever reads it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fabmon.cli.main import cli
from tests.unit.job_log.generated_logs import PREFIXES
from tests.unit.job_log.nccl_logs import Log
from tests.unit.job_log.observed import failures

WRONG, NOT_UNDERSTOOD = 5, 6
SYSLOG = "Nov  2 10:00:00 gpu001 kernel: "
JOURNAL = "2026-11-02T10:00:00.123456+00:00 gpu001 kernel: [ 1234.56] "

CRASHES = {
    "Segmentation fault": "SIGSEGV",
    "Segmentation fault (core dumped)": "SIGSEGV",
    "Bus error (core dumped)": "SIGBUS",
    "Illegal instruction (core dumped)": "SIGILL",
    "Floating point exception": "SIGFPE",
    "Aborted (core dumped)": "SIGABRT",
    "Killed": "SIGKILL",
    "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD": "rank 3: called MPI_Abort",
    "Abort(1) on node 3 (rank 3 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1)":
        "rank 3: called MPI_Abort",
    "run.sh: line 3: 4711 Killed                  python train.py": "SIGKILL",
    "run.sh: line 3: 4711 Aborted                 (core dumped) python train.py": "SIGABRT",
    "Fatal Python error: Illegal instruction": "SIGILL",
    "Fatal Python error: init_import_site: Failed to import": "Fatal Python error: init_import_sit",
    "python[4711]: segfault at 0 ip 00007f01 sp 00007f02 error 4 in libc.so": "SIGSEGV",
    "[gpu001:04711] Signal: Segmentation fault (11)": "SIGSEGV",
    "[gpu001:4711:0:4711] Caught signal 11 (Segmentation fault: address not mapped)": "SIGSEGV",
    "*** SIGSEGV (@0x0) received by PID 4711 (TID 0x7f) from PID 0; stack trace: ***": "SIGSEGV",
    "terminate called after throwing an instance of 'std::bad_alloc'": "std::bad_alloc",
    "terminate called without an active exception": "a C++ exception",
    "libc++abi: terminating due to uncaught exception of type std::exception": "std::exception",
    "double free or corruption (!prev)": "double free or corruption",
    "*** stack smashing detected ***: terminated": "stack smashing detected",
    "oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=4711,uid=1000": "Out Of Memory",
    "Out of memory: Killed process 4711 (python) total-vm:1kB": "Out Of Memory",
    "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.":
        "Xid 79 of GPU 0000:1b:00: GPU has fallen off the bus",
    "CUDA error: an illegal memory access was encountered": "CUDA error: an illegal memory",
    "cudaErrorIllegalAddress": "cudaErrorIllegalAddress",
    "prterun detected that one or more processes exited with non-zero status, thus causing":
        "a process of mpirun failed",
    "[2024-05-03 10:11:12,345] [ERROR] [launch.py:322:sigkill_handler] ['/usr/bin/python3', '-u',"
    " 'train.py', '--local_rank=7', '--lr', '1'] exits with return code = -9":
        "killed by signal 9 (SIGKILL), local rank 7",
    "(raylet) 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due"
    " to other reasons at node (ID: abc, IP: 10.0.0.8)": "Out Of Memory",
    "worker-0   0/1   OOMKilled   2   3m": "Out Of Memory",
}  # fmt: skip
"""What ends a process or a GPU, and what must be said of it."""

MAYBE = (
    "MPI_ABORT was invoked on rank 3 in communicator 0x7f00",
    "slurmstepd: *** STEP 5511.0 ON gpu001 CANCELLED AT 2026-11-02T10:00:00 ***",
    "read: Connection reset by peer",
    "connect: Connection refused",
    "write: Broken pipe",
    "OSError: [Errno 28] No space left on device",
    "  what():  something is odd",
    "ORTE has lost communication with a remote daemon.",
    "mlx5_core 0000:1b:00.0 eth0: Link down",
    "bnxt_en 0000:45:00.0 ens45np0: NIC Link is Down",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 32 LTSSM Fault Up",
    "pcieport 0000:16:00.0: AER: Uncorrected (Fatal) error received: 0000:17:00.0",
    "INFO: task python:777 blocked for more than 120 seconds.",
    "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
    "pdsh@login: gpu002: ssh exited with exit code 255",
    "(raylet) The node with node id: abc and address: 10.0.0.8 has been marked dead because the"
    " detector has missed too many heartbeats from it.",
    "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.",
    "mlx5_core 0000:1b:00.0: device's health compromised - reached miss count",
)
"""What speaks of a failure, and that the job failed is not known."""


@pytest.mark.parametrize(
    "line",
    [
        "gpu 0: Uncorrectable ECC errors: 0",
        "health check: uncorrectable ecc errors = 0",
        "num_ooms: 0, OutOfMemoryError count: 0",
        "cuda out of memory retries: 0",
        "except torch.cuda.OutOfMemoryError as e:",
        "[rank0] heartbeat timeout set to 600",
    ],
)
def test_a_check_that_counted_no_failure_is_none(line: str, tmp_path: Path) -> None:
    """The health check of a job's prolog was taken for a GPU that failed."""
    code, found = explained(["NCCL version 2.20.5+cuda12.4", line], tmp_path)
    assert (code, failures(found)) == (0, [])
    code, found = explained(
        ["NCCL version 2.20.5+cuda12.4", line.replace(": 0", ": 3").replace("= 0", "= 3")], tmp_path
    )
    assert code == (WRONG if ": 0" in line or "= 0" in line else 0)


def explained(lines: list[str], tmp_path: Path) -> tuple[int, dict[str, Any]]:
    path = tmp_path / "job.log"
    path.write_text("\n".join(lines) + "\n")
    done = CliRunner().invoke(cli, ["explain", str(path), "--format", "json"])
    assert done.output.startswith("{"), f"{done.output} {done.exception}"
    return done.exit_code, json.loads(done.output)


@pytest.mark.parametrize("prefix", ["none", "mpirun", "srun", "pdsh", "container"])
@pytest.mark.parametrize("line", CRASHES)
def test_a_crash_without_a_word_of_nccl_is_a_failure(
    line: str, prefix: str, tmp_path: Path
) -> None:
    lines = ["NCCL version 2.20.5+cuda12.4", "step 1 loss 2.3", PREFIXES[prefix](line)]
    code, found = explained(lines, tmp_path)
    assert code == WRONG
    assert CRASHES[line] in found["conclusions"][0]


@pytest.mark.parametrize(
    "line", ["Segmentation fault", "Illegal instruction (core dumped)", "Floating point exception"]
)
def test_a_program_that_crashed_was_not_killed_by_a_limit_or_a_person(
    line: str, tmp_path: Path
) -> None:
    _, found = explained(["NCCL version 2.20.5+cuda12.4", line], tmp_path)
    assert "the program crashed" in found["conclusions"][0]
    assert "out of memory" not in found["conclusions"][0]


@pytest.mark.parametrize("line", MAYBE)
def test_what_may_be_the_end_of_a_job_is_quoted(line: str, tmp_path: Path) -> None:
    code, found = explained(["NCCL version 2.20.5+cuda12.4", line], tmp_path)
    assert code == NOT_UNDERSTOOD
    assert line.split(": ")[-1].strip() in found["conclusions"][0]


@pytest.mark.parametrize(
    "line",
    [
        "Aborted steps are tried again",
        "Killed 3 stale workers before the start",
        "the handler of SIGTERM is set",
        "cuda errors: 0",
        "pcieport 0000:16:00.0: AER: Corrected error received: 0000:17:00.0",
        "(raylet) Spilled 2048 MiB, 12 objects, write throughput 900 MiB/s.",
        "bnxt_en 0000:45:00.0 ens45np0: NIC Link is Up, 400000 Mbps full duplex",
        "[2024-05-03 10:11:12,345] [INFO] [launch.py:351:main] Process 1234 exits successfully.",
    ],
)
def test_words_of_a_crash_in_a_sentence_are_no_crash(line: str, tmp_path: Path) -> None:
    _, found = explained(["NCCL version 2.20.5+cuda12.4", line], tmp_path)
    assert failures(found) == []


@pytest.mark.parametrize("label", ["", "gpu007: ", "[1,3]<stderr>:"])
def test_the_exception_of_a_traceback_is_quoted(label: str, tmp_path: Path) -> None:
    """It may have been caught; the second one is read as the first."""
    lines = [
        "Traceback (most recent call last):",
        '  File "/opt/torch/distributed/run.py", line 3, in main',
        "    raise KeyError(name)",
        "KeyError: 'shard-7'",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        '  File "/opt/train.py", line 9, in <module>',
        "ValueError: shapes do not match",
        "step 2 loss 2.2",
    ]
    code, found = explained(
        ["NCCL version 2.20.5+cuda12.4", *(label + each for each in lines)], tmp_path
    )
    assert code == NOT_UNDERSTOOD
    quoted = [each["text"] for each in found["not_understood"]]
    assert quoted == ["KeyError: 'shard-7'", "ValueError: shapes do not match"]


def test_a_traceback_of_a_known_error_is_that_error_alone(tmp_path: Path) -> None:
    lines = [
        "NCCL version 2.20.5+cuda12.4",
        "Traceback (most recent call last):",
        '  File "/opt/train.py", line 9, in <module>',
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    ]
    code, found = explained(lines, tmp_path)
    assert code == WRONG
    assert len(failures(found)) == 1
    assert found["not_understood"] == []


@pytest.mark.parametrize("begin", [SYSLOG, JOURNAL])
def test_the_kernel_of_a_host_names_the_host(begin: str, tmp_path: Path) -> None:
    lines = [
        f"{begin}Out of memory: Killed process 4711 (python) total-vm:1kB",
        f"{begin}NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
    ]
    _, found = explained(lines, tmp_path)
    assert {each["near"]["host"] for each in failures(found)} == {"gpu001"}


def job_of(hosts: int) -> list[str]:
    """The start of a job of four ranks on one or two hosts."""
    text = "\n".join(Log("2.23.4").start())
    return (text.replace("gpu002", "gpu001") if hosts == 1 else text).split("\n")


@pytest.mark.parametrize(("hosts", "named"), [(1, "gpu001"), (2, "")])
def test_a_crash_in_the_log_of_one_host_is_of_that_host(
    hosts: int, named: str, tmp_path: Path
) -> None:
    _, found = explained([*job_of(hosts), "Segmentation fault (core dumped)"], tmp_path)
    assert failures(found)[0]["near"]["host"] == named


def test_a_host_that_alone_wrote_warnings_is_not_that_of_a_crash(tmp_path: Path) -> None:
    """The log is of all hosts; with NCCL_DEBUG=WARN the others wrote nothing."""
    line = Log("2.23.4").prefix(2, is_warning=True) + "Cuda failure 2 'out of memory'"
    _, found = explained([line, "Killed"], tmp_path)
    killed = next(each for each in failures(found) if each["kind"] == "process")
    assert not killed["near"]["host"]


def test_each_file_of_another_host_names_its_own(tmp_path: Path) -> None:
    paths = []
    for host in ("gpu001", "gpu002"):
        lines = [each for each in job_of(2) if host in each]
        paths.append(tmp_path / f"{host}.log")
        paths[-1].write_text("\n".join([*lines, "Killed" if host == "gpu002" else "step 2"]))
    done = CliRunner().invoke(cli, ["explain", *map(str, paths), "--format", "json"])
    assert failures(json.loads(done.output))[0]["near"]["host"] == "gpu002"
