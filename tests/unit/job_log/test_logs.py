"""Logs of four versions of NCCL and of PyTorch: ranks, NICs, codes, which rank against which."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from fabmon.analysis.job.log_failures import failures_of as found_failures
from fabmon.analysis.job.log_failures import shared_end
from fabmon.analysis.job.log_observations import log_observations
from fabmon.analysis.job.observation import Observation
from fabmon.analysis.job_log import job_log
from fabmon.analysis.job_log.events import (
    Channel,
    Communicator,
    Devices,
    Event,
    Failure,
    Timeout,
)
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.analysis.job_log.log_lines import parse_line
from fabmon.analysis.job_log.status_codes import (
    STATUS,
    event_meaning,
    meaning_of,
    order_of,
    status_meaning,
)
from fabmon.report.job_table import job_table
from tests.unit.job_log.nccl_logs import VERSIONS, Log, gid, notified, watchdog
from tests.unit.job_log.observed import NOWHERE, ranks_of, record_of

SHARED = Path(__file__).parents[4] / "shared"


def read(lines: Sequence[str]) -> JobLog:
    log = JobLog()
    log.accept("\n".join(lines).encode(), "job.log")
    return log


def failures_of(lines: Sequence[str]) -> list[Observation]:
    return found_failures(read(lines), NOWHERE)


def of_kinds(lines: Sequence[str], *kinds: str) -> list[Observation]:
    return [each for each in log_observations(read(lines), NOWHERE) if each.kind in kinds]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_healthy_job_has_its_ranks_hosts_and_hcas(version: str) -> None:
    log = read(Log(version).start())
    assert log.versions == {version: 1}
    ranks = {log.rank_of(process): process for process in log.processes}
    assert {rank: process.host for rank, process in ranks.items()} == {
        0: "gpu001",
        1: "gpu001",
        2: "gpu002",
        3: "gpu002",
    }
    assert {facts.gpu for facts in log.processes.values()} == {0, 1}
    assert log.hosts["gpu002"].hcas == {0: ("mlx5_0",), 1: ("mlx5_2",)}
    assert log.host_of_address("10.0.0.2") == "gpu002"
    assert log.peers_of(ranks[2], "recv", "mlx5_0") == [1]
    assert log.peers_of(ranks[2], "send", "") == []
    assert not log.failures


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("gids", [True, False], ids=["roce", "infiniband"])
def test_a_rank_that_receives_nothing_names_its_peer(version: str, gids: bool) -> None:
    log = Log(version)
    (found,) = failures_of([*log.start(), log.completion(2, 1, 12, gids=gids)])
    assert found.kind == "completion"
    assert (found.code, found.vendor_error, found.side) == (12, 129, "recv")
    (near,), (far,) = found.at, found.others
    assert (near.host, near.ranks, near.hcas) == ("gpu002", (2,), ("mlx5_0",))
    assert far.ranks == (1,)
    has_peer = log.number > 8
    assert far.address == ("10.0.0.1" if has_peer else "")
    assert (far.host, far.hcas) == ("gpu001", ("mlx5_2",))
    assert far.gid == (gid(1) if gids and has_peer else "")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_cause_is_before_what_follows_from_it(version: str) -> None:
    log = Log(version)
    lines = [
        *log.start(),
        log.closed(3, 0),
        log.completion(0, 3, 5),
        log.completion(2, 1, 12),
        log.port_error(1),
    ]
    kinds = [each.kind for each in failures_of(lines)]
    assert kinds == ["device", "completion", "completion", "connection"]
    first = failures_of(lines)[0]
    assert first.at[0].hcas == ("mlx5_2",)
    statuses = [each.code for each in failures_of(lines)[1:3]]
    assert statuses == [12, 5]
    assert failures_of(lines)[3].others[0].host == "gpu001"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_receiver_that_is_not_ready_is_another_code(version: str) -> None:
    (found,) = failures_of([*Log(version).start(), Log(version).completion(0, 3, 13)])
    assert found.code == 13
    assert "posted no receive" in status_meaning(13).text
    assert found.others[0].ranks == (3,)


def test_the_same_failure_many_times_is_one() -> None:
    log = Log("2.23.4")
    (found,) = failures_of([*log.start(), *[log.completion(2, 1, 12)] * 50])
    assert found.times == 50


def test_ranks_from_connections_where_the_log_has_no_communicators() -> None:
    log = Log("2.23.4")
    lines = [line for line in log.start() if " comm " not in line]
    (found,) = failures_of([*lines, log.completion(2, 1, 12)])
    assert (found.at[0].ranks, found.others[0].ranks) == ((2,), (1,))


def test_ranks_are_those_of_the_largest_communicator() -> None:
    log = Log("2.23.4")
    extra = [f"{log.prefix(3)}{log.communicator(1, 2, '0x77')}"]
    found = read([*extra, *log.start(), *extra])
    assert sorted(found.rank_of(process) for process in found.processes) == [0, 1, 2, 3]


def test_merged_devices() -> None:
    text = "h:1:2 [0] NCCL INFO NET/IB : Using [0]={[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE} [RO]; OOB"
    (event,) = parse_line(text).events
    assert isinstance(event, Devices)
    assert event.hcas == {0: ("mlx5_0", "mlx5_1")}


@pytest.mark.parametrize(
    ("text", "hca", "event"),
    [
        ("WARN NET/IB : Got async event : port error", "", "port error"),
        ("WARN NET/IB : mlx5_0:1 Got async event : port error", "mlx5_0", "port error"),
        ("WARN NET/IB : mlx5_0:1 Got async error event: lid change", "mlx5_0", "lid change"),
        (
            "INFO NET/IB : mlx5_0:1 Got non-fatal async event: port active(9)",
            "mlx5_0",
            "port active",
        ),
        ("WARN NET/IB: mlx5_0:1 async fatal event on QP: QP fatal", "mlx5_0", "QP fatal"),
    ],
)
def test_events_of_hcas(text: str, hca: str, event: str) -> None:
    (found,) = parse_line(f"gpu001:1:2 [0] NCCL {text}").events
    assert isinstance(found, Failure)
    assert (found.kind, found.hca) == ("device", hca)
    assert found.text.startswith(event)
    assert event_meaning(found.text).check


@pytest.mark.parametrize("cpu", ["", "CPU: 31: "])
def test_a_transmit_queue_that_timed_out_is_the_nics_and_no_rank_is_late(cpu: str) -> None:
    log = JobLog()
    log.accept(
        f"Nov  2 10:00:00 gpu005 kernel: NETDEV WATCHDOG: {cpu}eth4 (mlx5_core): transmit queue 5"
        " timed out 5000 ms\n".encode(),
        "job.log",
    )
    text = job_table(record_of(log))
    assert "gpu005 eth4: transmit queue 5 timed out: the kernel gave up" in text
    assert "rank" not in text.splitlines()[2]


def test_an_event_that_is_not_known_is_quoted_as_printable_text() -> None:
    assert event_meaning("port err\x7f\x1b[2Jr").text == "port err??[2Jr"


@pytest.mark.parametrize(
    ("before", "rank"), [("[1,5]<stdout>:", 2), ("12: ", 2), ("2026-05-04T19:55:27Z ", 2)]
)
def test_labels_of_launchers_before_a_line(before: str, rank: int) -> None:
    log = Log("2.23.4")
    (found,) = failures_of([before + each for each in [*log.start(), log.completion(2, 1, 12)]])
    assert (found.at[0].host, found.at[0].ranks) == ("gpu002", (rank,))


def test_many_failures_that_share_a_port() -> None:
    log = Log("2.23.4", hosts=("gpu001", "gpu002"))
    other = Log("2.23.4", hosts=("gpu001", "gpu003"))
    lines = [*log.start(), *other.start()]
    lines += [log.completion(2, 1, 12), other.completion(2, 1, 12), log.completion(0, 1, 12)]
    shared = shared_end(failures_of(lines))
    assert shared is not None
    assert (shared.what, shared.count, shared.total) == ("gpu001 mlx5_2", 3, 3)
    assert shared_end(failures_of(lines[:-1])) is None


def test_a_collective_that_timed_out_and_the_rank_that_had_not_enqueued_it() -> None:
    lines = [*Log("2.23.4").start()]
    for rank in (0, 1, 3):
        lines += watchdog(rank, 2398459)
    notified_too = [*lines, notified(2, 2398458, 0)]
    stuck, late = of_kinds(notified_too, "timeout", "behind", "silent")
    assert (stuck.operation, stuck.seq, ranks_of(stuck)) == ("ALLREDUCE", 2398459, (0, 1, 3))
    assert (late.kind, ranks_of(late), late.launched) == ("behind", (2,), 2398458)
    assert stuck.limit_s == 1800
    _, silent = of_kinds(lines, "timeout", "behind", "silent")
    assert (silent.kind, ranks_of(silent)) == ("silent", (2,))


def test_a_collective_that_all_ranks_have_enqueued() -> None:
    lines = [line for rank in range(4) for line in watchdog(rank, 7)]
    (stuck,) = of_kinds([*Log("2.23.4").start(), *lines], "timeout", "behind", "silent")
    assert ranks_of(stuck) == (0, 1, 2, 3)


def test_every_status_of_the_verbs_api_has_words_and_a_next_step() -> None:
    assert set(STATUS) == set(range(1, 22))
    assert all(each.text and each.check for each in STATUS.values())
    assert status_meaning(99).check
    assert event_meaning("port active").is_consequence
    assert "address" in event_meaning("GID table change").text


def test_every_line_of_the_captures_is_understood() -> None:
    path = SHARED / "captures" / "nccl-logs" / "lines.txt"
    if not path.exists():  # captures are not ours to ship: a fresh machine has none
        pytest.skip(f"no captures of real logs at {path}")
    kinds: dict[str, list[Event]] = {}
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            (event,) = parse_line(line).events
            kind = event.kind if isinstance(event, Failure) else type(event).__name__
            kinds.setdefault(kind, []).append(event)
    assert {name: len(events) for name, events in kinds.items()} == {
        "Devices": 1,
        "Communicator": 1,
        "Channel": 2,
        "completion": 3,
        "device": 2,
        "Timeout": 1,
    }
    (devices,) = kinds["Devices"]
    assert devices == Devices({0: ("mlx5_0",), 1: ("mlx5_2",)}, "172.41.212.9")
    (comm,) = kinds["Communicator"]
    assert isinstance(comm, Communicator)
    assert (comm.rank, comm.ranks, comm.gpu, comm.pci) == (1, 8, 1, "4b000")
    assert kinds["Channel"][0] == Channel(3, 4, "NET/IB", 2, True, gdr=True)
    completions = [each for each in kinds["completion"] if isinstance(each, Failure)]
    assert [(each.code, each.peer, each.vendor_error) for each in completions] == [
        (12, "10.216.210.236", 129),
        (5, "10.1.32.3", 249),
        (12, "", 129),
    ]
    assert re.fullmatch("fd00:.*:ff22", completions[0].local_gid)
    assert re.fullmatch("fd00:.*:ff1f", completions[0].remote_gid)
    events = [each.text for each in kinds["device"] if isinstance(each, Failure)]
    assert events == ["port error", "marked as failed"]
    (timeout,) = kinds["Timeout"]
    assert isinstance(timeout, Timeout)
    assert (timeout.rank, timeout.seq, timeout.ran_s) == (118, 2398459, 1800.068)


def test_timeouts_of_more_process_groups_than_are_kept_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each line is compared with all that are kept: without a limit a log of them takes hours."""
    monkeypatch.setattr(job_log, "_MOST_GROUPS", 3)
    lines = [watchdog(0, 7)[0].replace("[rank0]", f"[rank{each}]") for each in range(5)]
    log = JobLog()
    log.accept("\n".join(lines).encode(), "job.log")
    assert len(list(log.all_timeouts)) == 3
    assert log.left_out["timeouts"] == 2


def test_controls_of_a_log_are_quoted_as_question_marks_wherever_they_stand() -> None:
    log = JobLog()
    log.accept(
        b"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        b"\x1b[31mtrain.py FAILED\x1b[0m\nRoot Cause (first observed failure):\n[0]:\n"
        b"  host      : gpu\x00\xc2\x9b002\n  rank      : 5 (local_rank: 3)\n"
        b"  exitcode  : -9 (pid: 4301)\n",
        "job.log",
    )
    table = job_table(record_of(log))
    assert "gpu??002" in table
    assert all(line.isprintable() for line in table.splitlines())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gpu1:1:2 [0] alloc.h:178 NCCL WARN Cuda failure 2 'out of memory'", "gpu memory"),
        ("[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried 2.00 GiB.", "gpu memory"),
        ("[rank7]: torch.OutOfMemoryError: HIP out of memory. Tried 512.00 MiB.", "gpu memory"),
        ("[rank1]: RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when", "gpu memory"),
        ("gpu1:1:2 [0] NCCL WARN Cuda failure 700 'an illegal memory access'", "gpu program"),
        ("[rank0]: RuntimeError: CUDA error: unspecified launch failure", "gpu program"),
        ("gpu1:1:2 [0] NCCL WARN Cuda failure 999 'unknown error'", "gpu"),
        ("gpu1:1:2 [0] NCCL WARN Cuda failure 1 'invalid argument'", "gpu refusal"),
        ("gpu1:1:2 [0] NCCL WARN Cuda failure 802", "gpu refusal"),
        ("gpu1:1:2 [0] NCCL WARN Cuda failure 'operation not supported'", "gpu refusal"),
        ("RuntimeError: CUDA error: invalid device ordinal", "gpu refusal"),
        ("RuntimeError: CUDA error: system not yet initialized", "gpu refusal"),
        ("RuntimeError: HIP error: invalid device function", "gpu refusal"),
        (
            "gpu1:1:2 [0] NCCL WARN Cuda failure 'CUDA driver version is insufficient for CUDA"
            " runtime version'",
            "gpu refusal",
        ),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=8801.0.", "host memory"),
        ("srun: error: gpu003: task 17: Out Of Memory", "host memory"),
        ("gpu003 kernel: Out of memory: Killed process 4021 (python)", "host memory"),
    ],
)
def test_memory_that_ran_out_is_no_broken_gpu(text: str, name: str) -> None:
    log = JobLog()
    log.accept(text.encode() + b"\n", "job.log")
    ((_, _, found),) = log.failures
    assert meaning_of(found).name == name
    assert not meaning_of(found).is_consequence


_STEP = "slurmstepd: error: *** STEP 8801.0 ON gpu001 CANCELLED AT 2026-11-20T10:11:00"


@pytest.mark.parametrize(
    ("text", "name", "host", "is_consequence"),
    [
        (f"{_STEP} DUE TO TIME LIMIT ***", "cancelled", "gpu001", True),
        (f"{_STEP} DUE TO PREEMPTION ***", "cancelled", "gpu001", False),
        (f"{_STEP.replace('STEP 8801.0', 'JOB 8801')} ***", "cancelled", "gpu001", True),
        (f"{_STEP} DUE TO NODE FAILURE, SEE LOG ***", "cancelled", "gpu001", True),
        ("srun: error: Node failure on gpu007", "node failure", "gpu007", False),
        ("srun: Force Terminated StepId=8801.0", "cancelled", "", True),
    ],
)
def test_what_slurm_ended_says_why(text: str, name: str, host: str, is_consequence: bool) -> None:
    """A job that hangs reaches its time limit: what it hangs in stands before."""
    log = JobLog()
    log.accept(text.encode() + b"\n", "job.log")
    ((_, _, found),) = log.failures
    meaning = meaning_of(found)
    assert (meaning.name, found.peer, meaning.is_consequence) == (name, host, is_consequence)


@pytest.mark.parametrize("between", ["", "[rank8]: Last error:\n", "[rank8]: Last error:\nit\n"])
def test_a_line_of_another_process_is_not_of_the_rank_of_an_exception_before_it(
    between: str,
) -> None:
    log = JobLog()
    log.accept(
        "[rank8]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970,"
        f" unhandled system error, NCCL version 2.20.5\n{between}"
        "gpu006:55:66 [1] ofi_process_cq:171 NCCL WARN NET/OFI Request 0x55 completed"
        " with error. RC: 22. Error: Transport retry counter exceeded\n".encode(),
        "job.log",
    )
    (seen,) = (each for each in log.failures.values() if each.event.kind == "request")
    assert (seen.rank, seen.process and seen.process.host) == (-1, "gpu006")


def text_of(*lines: str) -> str:
    log = JobLog()
    log.accept("\n".join(lines).encode() + b"\n", "job.log")
    return job_table(record_of(log))


def test_a_timeout_is_said_before_that_pytorch_took_the_process_down() -> None:
    """The advice was to look for the first other error, which is the timeout."""
    log = JobLog()
    for line in (
        "[rank3]:[E1119 02:14:07.1 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective"
        " operation timeout: WorkNCCL(SeqNum=1523, OpType=ALLREDUCE, NumelIn=7, NumelOut=7,"
        " Timeout(ms)=600000) ran for 600049 milliseconds before timing out.",
        "[rank3]:[E1119 02:14:08.1 ProcessGroupNCCL.cpp:698] [Rank 3] To avoid data inconsistency,"
        " we are taking the entire process down.",
    ):
        log.accept(line.encode() + b"\n", "job.log")
    said = record_of(log).conclusions
    assert said[0].startswith("Rank 3 timed out in ALLREDUCE 1523 after 10 min.")
    assert "give the logs of all ranks" in said[0]
    assert "first other error" not in " ".join(said)


def test_a_store_that_says_how_many_joined_lacks_a_process_and_accuses_no_port() -> None:
    text = text_of(
        "[rank0]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for"
        " clients. 3/4 clients joined."
    )
    assert "1 of 4 processes did not join" in text
    assert "known to be missing" not in text
    assert "ports" not in text


def test_the_log_of_one_rank_does_not_say_that_another_wrote_nothing() -> None:
    """No line has the size of the job; other logs were not given."""
    line = "[rank{}]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank {}] Heartbeat monitor timed out!"
    assert "wrote nothing" not in text_of(line.format(1, 1))
    assert "give the logs of all ranks" in text_of(line.format(1, 1))
    three = text_of(*(line.format(rank, rank) for rank in (1, 2, 3)))
    assert "Rank 0 wrote nothing" in three


@pytest.mark.parametrize(
    ("call", "check"),
    [
        ("ibv_reg_mr failed with error Cannot allocate memory", "ulimit -l"),
        ("ibv_create_qp failed with error Cannot allocate memory", "ulimit -l"),
        ("ibv_reg_mr_iova2 failed with error Bad address", "nvidia_peermem"),
        ("ibv_create_cq failed", "/dev/infiniband"),
        ("ibv_modify_qp failed with error Connection timed out", "the path between them"),
    ],
)
def test_only_a_call_that_needs_the_far_end_accuses_the_path(call: str, check: str) -> None:
    text = text_of(f"gpu1:1:2 [0] misc/ibvwrap.cc:262 NCCL WARN Call to {call}")
    assert check in text
    assert ("the path between them" in text) == ("modify_qp" in call)


ENDED = "slurmstepd: error: *** STEP 88.0 ON gpu001 CANCELLED AT 2026-11-02T10:00:00"
ENDED_STEPS = {
    "time limit": (f"{ENDED} DUE TO TIME LIMIT ***", "cancelled: time limit: the job reached"),
    "scancel": (f"{ENDED} ***", "cancelled: by srun or scancel"),
    "aborted": ("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", "can"),
    "crash": (
        "srun: error: gpu007: task 60: Segmentation fault (core dumped)\n"
        "srun: Terminating StepId=88.0",
        "task 60: Segmentation fault (core dumped): the program crashed",
    ),
}


@pytest.mark.parametrize("name", ENDED_STEPS)
def test_what_slurm_kills_after_it_ended_the_step_is_no_cause(name: str) -> None:
    """A reader looked for memory that ran out on gpu003."""
    ended, first = ENDED_STEPS[name]
    log = JobLog()
    log.accept(f"{ended}\nsrun: error: gpu003: tasks 8-15: Killed\n".encode(), "job.log")
    assert found_failures(log, NOWHERE)[0].at[0].host != "gpu003"
    text = job_table(record_of(log))
    assert first in text.splitlines()[2]
    assert "out of memory" not in text
    assert "not understood" not in text


def test_the_end_of_a_step_is_said_once_with_its_reason() -> None:
    text = text_of(f"{ENDED} DUE TO TIME LIMIT ***", ENDED_STEPS["aborted"][0])
    assert "gpu001: cancelled: time limit" in text
    assert "scancel" not in text


def test_a_task_that_was_killed_before_the_step_ended_is_the_cause() -> None:
    log = JobLog()
    log.accept(
        b"srun: error: gpu003: task 17: Killed\nsrun: Terminating StepId=88.0\n"
        b"srun: error: gpu004: task 20: Killed\n",
        "job.log",
    )
    causes = [each for each in found_failures(log, NOWHERE) if each.weight == "wrong"]
    assert [each.at[0].host for each in causes] == ["gpu003"]


SHARED_MEMORY_LINES = (
    "gpu1:1:2 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-6rAfvM to"
    " 33030532 bytes, error: No space left on device (28)",
    "gpu1:1:2 [0] misc/shmutils.cc:113 NCCL WARN Error while creating shared memory segment"
    " /dev/shm/nccl-6rAfvM (size 33030528), error: No space left on device (28)",
    "gpu1:1:2 [0] include/shm.h:48 NCCL WARN Error while creating shared memory segment"
    " nccl-shm-recv-3fa23a9c5b-0-1-0 (size 9637888)",
    "gpu1:1:2 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left",
    "[rank1]: RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bus error. It is"
    " possible that dataloader's workers are out of shared memory. Please try to raise your shared"
    " memory limit.",
    "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared"
    " memory (shm).",
    "RuntimeError: unable to allocate shared memory(shm) for file </torch_42_1>: No space left on"
    " device (28)",
    "RuntimeError: unable to write to file </torch_4242_123>: No space left on device (28)",
)


@pytest.mark.parametrize("text", SHARED_MEMORY_LINES)
def test_a_full_shared_memory_is_said_with_what_to_do(text: str) -> None:
    log = JobLog()
    log.accept(text.encode() + b"\n", "job.log")
    ((_, _, found),) = log.failures
    meaning = meaning_of(found)
    assert meaning.name == "shared memory"
    assert not meaning.is_consequence
    assert "Neither the network nor a GPU" in meaning.check
    assert "--shm-size" in meaning.check
    assert "--ipc=host" in meaning.check


@pytest.mark.parametrize(
    "text",
    [
        "srun: error: gpu003: task 3: Bus error (core dumped)",
        "bash: line 1: 4021 Bus error (core dumped) python train.py",
        "E1129 10:00:00.0 140 torch/distributed/elastic/multiprocessing/api.py:874] failed"
        " (exitcode: -7) local_rank: 0 (pid: 42) of binary: /usr/bin/python",
    ],
)
def test_a_bus_error_may_be_a_full_shared_memory_and_is_a_cause(text: str) -> None:
    log = JobLog()
    log.accept(text.encode() + b"\n", "job.log")
    ((_, _, found),) = log.failures
    meaning = meaning_of(found)
    assert (meaning.name, meaning.is_consequence) == ("killed", False)
    assert "Not the network: df -h /dev/shm" in meaning.check
    assert "--shm-size" in meaning.check


def test_what_follows_from_a_full_shared_memory_blames_no_network() -> None:
    """NCCL fails in every rank, and their peers lose their connections."""
    log = JobLog()
    for text in (
        *SHARED_MEMORY_LINES[:2],
        "gpu1:1:2 [0] NCCL INFO transport/shm.cc:114 -> 2",
        "gpu2:1:2 [0] proxy.cc:1326 NCCL WARN Socket recv failed while polling for opId=0x7f,"
        " remote peer gpu1<41234>",
        "[rank0]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94,"
        " unhandled system error, ncclSystemError",
    ):
        log.accept(text.encode() + b"\n", "job.log")
    meanings = {meaning_of(found).name: meaning_of(found) for _, _, found in log.failures}
    causes = [name for name, each in meanings.items() if not each.is_consequence]
    assert causes == ["shared memory"]
    first = min((found for _, _, found in log.failures), key=order_of)
    assert meaning_of(first).name == "shared memory"
    text = job_table(record_of(log))
    assert "gpu1: shared memory: " in text.splitlines()[2]
    assert "Neither the network nor a GPU" in text.splitlines()[2]
