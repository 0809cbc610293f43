"""Logs of jobs that fail in one known way, as versions and launchers write them, and healthy ones.

Texts are built from the fields of the format strings of NCCL, RCCL, aws-ofi-nccl, UCX, gloo and
PyTorch; values are drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.unit.job_log.nccl_logs import HCAS, VERSIONS, Log, notified, watchdog

BAR = "Epoch 0:   3%|###       | 3/20000 [00:00:03<9:39:17, 1.37it/s, loss=2.6]"
PREFIXES: dict[str, Callable[[str], str]] = {
    "none": lambda line: line,
    "rank": lambda line: line if line.startswith("[rank") else f"[rank3]: {line}",
    "mpirun": lambda line: f"[1,3]<stderr>:{line}",
    "srun": lambda line: f"3: {line}",
    "ray": lambda line: f"(RayTrainWorker pid=4301, ip=10.0.0.7) {line}",
    "pdsh": lambda line: f"gpu007: {line}",
    "container": lambda line: f"2026-05-04T19:55:27.123456789Z stderr F {line}",
    "ansi": lambda line: f"\x1b[36m(Worker pid=77)\x1b[0m \x1b[31m{line}\x1b[0m",
    "bar": lambda line: f"\r{BAR}\r{BAR}{line}",
}
"""What stands before each line of a log."""


@dataclass(frozen=True)
class FailedJob:
    """Lines of a failure, the class that they must be read as, and the field that must be right."""

    name: str
    lines: Sequence[str]


def _nccl(random_: random.Random) -> list[FailedJob]:
    """What NCCL and RCCL write themselves."""
    version = random_.choice(VERSIONS)
    log = Log(version)
    rank, peer = random_.choice(((2, 1), (0, 3)))
    status = random_.choice((5, 12, 13))
    warn = log.prefix(rank, is_warning=True, file="transport/net_ib.cc:1480")
    gone = random_.choice(("Connection refused", "No route to host", "Connection timed out"))
    number = random_.choice((2, 700, 719))
    return [
        FailedJob("completion", [log.completion(rank, peer, status, gids=random_.random() < 0.5)]),
        FailedJob("device", [log.port_error(rank)]),
        FailedJob(
            "device",
            [
                f"{warn}NET/IB: {HCAS[0]}:1 async fatal event on QP: local work queue catastrophic"
                " error"
            ],
        ),
        FailedJob("connection", [log.closed(rank, peer)]),
        FailedJob(
            "connection",
            [f"{warn}socketStartConnect: Connect to 10.0.0.{peer}<4{rank}157> failed : {gone}"],
        ),
        FailedJob("connection", [f"{warn}Net : Call to recv from 10.0.0.3<41211> failed : {gone}"]),
        FailedJob("call", [f"{warn}Call to ibv_modify_qp failed with error {gone}"]),
        FailedJob(
            "call",
            [
                f"{warn}Call to ibv_modify_qp failed with 110 Connection timed out, on dev"
                " mlx5_0:1,"
                " curr state INIT, next state RTR, local GID index 3, local GID ::ffff:10.1.0.1,"
                " remote GID ::ffff:10.1.0.2"
            ],
        ),
        FailedJob("gpu", [f"{warn}Cuda failure {number} 'unspecified launch failure'"]),
        FailedJob("gpu", [f"{warn}HIP failure 'the operation cannot be performed'"]),
    ]


def _plugins(random_: random.Random) -> list[FailedJob]:
    """Requests of libfabric and of UCX."""
    warn = Log("2.23.4").prefix(
        2, is_warning=True, file=f"process_cq_entry_err:{random_.choice((9, 264))}"
    )
    request = f"0x7f00aa{random_.randrange(1 << 16):04x}00"
    device = random_.randrange(32)
    why = "Unresponsive receiver (reachable by EFA device but handshake failed)"
    texts = (
        f"Request {request} completed with error. RC: 113. Error: {why}. Completed length: 0,"
        f" Request: {{ dev: {device}, size: 0, state: CREATED, direction: SEND }}",
        f"Request {request} completed with error. RC: 12. Error: 4113 ({why}). Completed"
        f" length: 0, Request: {{ dev: {device}, size: 0, state: CREATED, type: SEND }}",
        f"Request {request} seq 7 completed with error. RC: 5. Error: 16 (NO_SPACE). Completed"
        f" length: 0, Request: {{ dev: {device}, type: RECV }}",
        f"Request {request} completed with error. RC: 107. Flags: 514. Error: 1 (Flushed during"
        " queue pair destroy). Completed length: 0",
        "Request completed with error. RC: 107. Error: Transport endpoint is not connected",
    )
    synd, vend = random_.choice(((0x15, 0x81), (0x16, 0x81), (0x5, 0xF9)))
    stamp = f"[{1699000000 + random_.randrange(9999)}.385373]"
    ucx = (
        f"{stamp} [gpu002:4301:0]       ib_mlx5_log.c:{random_.choice((143, 177))}  UCX  ERROR"
        f" Transport retry count exceeded on mlx5_0:1/IB (synd 0x{synd:x} vend 0x{vend:x}"
        " hw_synd 0/0)"
    )
    return [
        FailedJob("request", [f"{warn}NET/OFI {random_.choice(texts)}"]),
        FailedJob("completion", [ucx]),
    ]


def _exceptions(random_: random.Random) -> list[FailedJob]:
    """Exceptions that PyTorch raises, with the reason on lines of their own."""
    version = random_.choice(("2.14.3", "2.18.1", "2.21.5", "2.27.5"))
    source = random_.choice(
        (
            "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1269",
            "/pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77",
        )
    )
    kind = random_.choice(("RuntimeError", "torch.distributed.DistBackendError"))
    reason = "remote process exited or there was a network error"
    explained = (
        "ncclRemoteError: A call failed possibly due to a network error or a remote process"
        " exiting prematurely."
    )
    completion = (
        "NET/IB : Got completion from peer 10.0.3.21<45782> with status=12 opcode=0 len=0"
        " vendor err 129 (Send) localGid ::ffff:10.0.3.20 remoteGids::ffff:10.0.3.21 hca mlx5_4"
    )
    closed = "socketProgress: Connection closed by remote peer node-b.example<40532>"
    raised = f"{kind}: NCCL error in: {source}, {reason}, NCCL version {version}"
    seq = random_.randrange(1, 9999)
    work = f"WorkNCCL(SeqNum={seq}, OpType=BROADCAST, NumelIn=4, NumelOut=4, Timeout(ms)=1800000)"
    asynchronous = (
        f"[rank4]:[E1103 09:30:05.100000001 ProcessGroupNCCL.cpp:542] [Rank 4] Collective {work}"
        f" raised the following async exception: NCCL error: {reason}, NCCL version {version}"
    )
    return [
        FailedJob("completion", [raised, explained, "Last error:", completion]),
        FailedJob("connection", [raised, explained, "Last error:", closed]),
        FailedJob("connection", [asynchronous, explained, "Last error:", closed]),
        FailedJob(
            "exception",
            [f"{kind}: NCCL error in: {source}, unhandled system error, NCCL version {version}"],
        ),
        FailedJob("exception", [f"gpu001: Test NCCL failure common.cu:1279 '{reason} / '"]),
    ]


def _torch(random_: random.Random) -> list[FailedJob]:
    """PyTorch's watchdogs, gloo, stores, and the launchers' reports."""
    rank, seq = random_.randrange(8), random_.randrange(1, 99999)
    minutes = random_.choice((10, 30))
    work = f"WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, Timeout(ms)={minutes * 60000})"
    caught = (
        f"[Rank {rank}] Watchdog caught collective operation timeout: {work} ran for"
        f" {minutes * 60000 + 871} milliseconds before timing out."
    )
    group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
    head = (
        f"[rank{rank}]:[E1103 08:14:09.300100001"
        f" ProcessGroupNCCL.cpp:{random_.choice((632, 2271))}]"
    )
    detected = random_.choice(
        (
            f"Timeout at NCCL work: {seq}, last enqueued NCCL work: {seq}, last completed NCCL"
            f" work: {seq - 1}.",
            f" failure detected by watchdog at work sequence id: {seq} PG status: last enqueued"
            f" work: {seq}, last completed work: {seq - 1}",
            f"Exception (either an error or timeout) detected by watchdog at work: {seq}, last"
            f" enqueued NCCL work: {seq + 2}, last completed NCCL work: {seq - 1}.",
        )
    )
    stuck = random_.choice(
        (
            f"{head} {group} Heartbeat monitor timed out! Process will be terminated after"
            " dumping debug info. workMetaList_.size()=1",
            f"{head} {group} ProcessGroupNCCL's watchdog got stuck for 480 seconds without"
            " making progress in monitoring enqueued collectives. This typically indicates a"
            " NCCL/CUDA API (e.g., CudaEventDestroy) hang blocking the watchdog",
        )
    )
    summary = [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "============================================================",
        "train.py FAILED",
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-05-04_19:55:27",
        "  host      : gpu002",
        f"  rank      : {rank} (local_rank: 3)",
        "  exitcode  : -9 (pid: 4301)",
        "  error_file: <N/A>",
        "  traceback : Signal 9 (SIGKILL) received by PID 4301",
        "============================================================",
    ]
    return [
        FailedJob("timeout", [f"[E ProcessGroupNCCL.cpp:{random_.choice((458, 828))}] {caught}"]),
        FailedJob("timeout", [f"{head} {caught}", f"{head} {group} {detected}"]),
        FailedJob("timeout", [f"{head} {group} {detected}"]),
        FailedJob("timeout", watchdog(rank, seq)),
        FailedJob("signal", [notified(rank, seq, (rank + 1) % 8)]),
        FailedJob("stall", [stuck]),
        FailedJob(
            "stall",
            [
                "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81]"
                f" Timed out waiting {minutes * 60000}ms for recv operation to complete"
            ],
        ),
        FailedJob(
            "stall", [f"RuntimeError: Rank {rank} failed to pass monitoredBarrier in 1800000 ms"]
        ),
        FailedJob(
            "stall",
            [
                "torch.distributed.DistStoreError: Timed out after 301 seconds waiting for"
                " clients. 3/4 clients joined."
            ],
        ),
        FailedJob(
            "connection",
            [
                "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection"
                " closed by peer [10.1.2.3]:41234"
            ],
        ),
        FailedJob(
            "connection",
            [
                "torch.distributed.DistNetworkError: The client socket has timed out after"
                " 60000ms while trying to connect to (10.0.0.1, 29500)."
            ],
        ),
        FailedJob("process", summary),
        FailedJob(
            "process",
            [
                f"mpirun noticed that process rank {rank} with PID 0 on node gpu002 exited on"
                " signal 9 (Killed)."
            ],
        ),
        FailedJob("process", [f"srun: error: gpu002: task {rank}: Out Of Memory"]),
        FailedJob(
            "process",
            [
                "E0504 19:55:27.828000 3721"
                " torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -11)"
                f" local_rank: {rank} (pid: 4365) of binary: /usr/bin/python3"
            ],
        ),
    ]


def _slow(random_: random.Random) -> list[FailedJob]:
    log = Log(random_.choice(VERSIONS))
    info = log.prefix(2)
    return [
        FailedJob("slow", [f"{info}Using network Socket"]),
        FailedJob("slow", [f"{info}NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"]),
        FailedJob(
            "slow", [f"{info}GPU Direct RDMA Disabled for GPU 4b000 / HCA 2 (distance 7 > 4)"]
        ),
        FailedJob(
            "slow",
            [
                each.replace("/GDRDMA", "") if "receive" in each else each
                for each in log.channel(1, 2)
            ],
        ),
    ]


def _tests(random_: random.Random) -> list[FailedJob]:
    wrong = random_.randrange(1, 9)
    where = random_.choice((f"{wrong} 270.9 30.97 59.40 0", f"0 270.9 30.97 59.40 {wrong}"))
    return [
        FailedJob(
            "wrong",
            [
                *nccl_test(f"8388608 2097152 float sum -1 270.9 30.97 60.00 {where}")[:-2],
                f"# Out of bounds values : {wrong} FAILED",
                "# Avg bus bandwidth    : 60.1",
            ],
        )
    ]


def nccl_test(row: str) -> list[str]:
    """A run of nccl-tests on two hosts with one row."""
    return [
        "# Using devices",
        "#  Rank  0 Group  0 Pid  4101 on     gpu001 device  0 [0x18] NVIDIA H100",
        "#  Rank  1 Group  0 Pid  4202 on     gpu002 device  0 [0x18] NVIDIA H100",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong  "
        "   time"
        "   algbw   busbw #wrong",
        f"     {row}",
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 60.1",
    ]


def failed_jobs(random_: random.Random) -> list[FailedJob]:
    """One job of each class of failure, in versions that are drawn."""
    return [
        *_nccl(random_),
        *_plugins(random_),
        *_exceptions(random_),
        *_torch(random_),
        *_slow(random_),
        *_tests(random_),
    ]


HARMLESS = (
    "NCCL_IB_TIMEOUT set by environment to 22.",
    "NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.",
    "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
    "TUNER/Plugin: Failed to find ncclTunerPlugin_v3 symbol.",
    "PROFILER/Plugin: Could not find: libnccl-profiler.so.",
    "NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or"
    " directory",
    "[Service thread] Connection closed by localRank 1",
    "Topology detection : could not read /sys/devices/pci0000:00/link_speed, ignoring",
    "Using network IB",
    "Connected all trees",
    "comm 0x55e0d0 rank 0 nranks 4 cudaDev 0 busId 4b000 - Destroy COMPLETE",
)
TORCH_HARMLESS = (
    "[rank0]:[W1103 08:14:09.3 ProcessGroupNCCL.cpp:4115] [PG ID 0 PG GUID 0 Rank 0]  using GPU"
    " 0 to"
    " perform barrier as devices used by this process are currently unknown. This can potentially"
    " cause a hang if this rank to GPU mapping is incorrect.",
    "[rank0]:[W1103 08:15:09.3 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group()"
    " was not called before program exit, which can leak resources.",
    "[W1103 08:14:01.1 socket.cpp:464] [c10d] The server socket cannot be initialized on [::]:29500"
    " (errno: 97 - Address family not supported by protocol).",
    "[W1103 08:14:01.1 socket.cpp:759] [c10d] The hostname of the client socket cannot be"
    " retrieved."
    " err=-3",
    "[I1103 08:14:02.1 ProcessGroupNCCL.cpp:852] [PG 0 Rank 0] ProcessGroupNCCL initialization"
    " options:"
    " size: 4, global rank: 0, TIMEOUT(ms): 600000, USE_HIGH_PRIORITY_STREAM: 0,"
    " TORCH_NCCL_DUMP_ON_TIMEOUT: 0",
    "/usr/lib/python3/torch/distributed/launch.py:183: FutureWarning: The module"
    " torch.distributed.launch is deprecated",
    "INFO:torch.distributed.elastic.agent.server.api:[default] worker group successfully finished."
    " Waiting 300 seconds for other agents to finish.",
    "TrainingArguments(ddp_backend='nccl', ddp_timeout=1800, ignore_data_skip=False)",
    "[Rank 0] NCCL watchdog thread terminated normally",
    "srun: warning: can't honor --ntasks-per-node set to 8 which doesn't match the requested tasks"
    " 16 with the number of requested nodes 2. Ignoring --ntasks-per-node.",
)


def healthy_job(random_: random.Random) -> list[str]:
    """A job that ends without a failure, with what such jobs write too."""
    log = Log(random_.choice(VERSIONS))
    lines = log.start()
    lines += [log.prefix(random_.randrange(4)) + each for each in random_.sample(HARMLESS, 6)]
    lines += random_.sample(TORCH_HARMLESS, 5)
    lines += ["step 1 loss 2.31", "step 2 error 0.02"]
    if random_.random() < 0.3:
        lines += nccl_test("8388608 2097152 float sum -1 270.9 30.97 60.0 0 270.9 30.9 59.4 0")
    return lines


def mutated(lines: Sequence[str], random_: random.Random) -> list[str]:
    """The lines with a word changed, or two fields exchanged, in one of them."""
    changed = list(lines)
    at = random_.choice([n for n, line in enumerate(changed) if len(line.split()) > 1])
    words = changed[at].split(" ")
    first, second = random_.randrange(len(words)), random_.randrange(len(words))
    if random_.random() < 0.6:
        words[first] = "qqqq"
    else:
        words[first], words[second] = words[second], words[first]
    changed[at] = " ".join(words)
    return changed
