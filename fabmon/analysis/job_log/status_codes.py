"""Failures in words: status codes of work requests, events of HCAs, and what to check next.

Codes: `enum ibv_wc_status` of rdma-core, libibverbs/verbs.h; the InfiniBand specification,
volume 1, section 11.6.2. Events: ibv_event_type_str of the same library.
"""

from __future__ import annotations

import re
import signal

import msgspec

from fabmon.analysis.job_log.events import (
    CALL,
    CANCELLED,
    COMPLETION,
    CONNECTION,
    DEVICE,
    EXCEPTION,
    GPU,
    NODE_FAILURE,
    PROCESS,
    PROGRAM,
    REQUEST,
    SHARED_MEMORY,
    STALL,
    TAKEN_DOWN,
    Failure,
)
from fabmon.analysis.job_log.launchers import AFTER_CANCEL
from fabmon.fabric.wire.messages import clean


class Meaning(msgspec.Struct, frozen=True):
    """What a code means, and what to check next. `is_consequence`: another failure came before."""

    name: str
    text: str
    check: str
    is_consequence: bool = False


_PATH = (
    "Check the two ports and the path between them: link down or flapping, errors, PFC and pause;"
    " then whether the process at the far end still runs."
)
_MEMORY = (
    "Not the network: a memory region or its registration. Check the versions of NCCL, driver and"
    " firmware, GPUDirect RDMA (nvidia_peermem, DMA-BUF), ACS and IOMMU."
)

STATUS = {
    1: Meaning("LOC_LEN_ERR", "local length error", _MEMORY),
    2: Meaning("LOC_QP_OP_ERR", "local queue pair operation error", _MEMORY),
    3: Meaning("LOC_EEC_OP_ERR", "local end-to-end context error", _MEMORY),
    4: Meaning("LOC_PROT_ERR", "local protection error", _MEMORY),
    5: Meaning(
        "WR_FLUSH_ERR",
        "flushed: the queue pair had failed before",
        "Look for the first other error, on this rank or on its peer.",
        is_consequence=True,
    ),
    6: Meaning("MW_BIND_ERR", "memory window bind error", _MEMORY),
    7: Meaning("BAD_RESP_ERR", "bad response from the far end", _PATH),
    8: Meaning("LOC_ACCESS_ERR", "local access error", _MEMORY),
    9: Meaning("REM_INV_REQ_ERR", "remote invalid request: the far end refused it", _MEMORY),
    10: Meaning("REM_ACCESS_ERR", "remote access error: the far end refused the memory", _MEMORY),
    11: Meaning(
        "REM_OP_ERR",
        "remote operation error: the far end could not complete it",
        "Check the far end: its log, its GPU (Xid), its HCA.",
    ),
    12: Meaning(
        "RETRY_EXC_ERR",
        "transport retry exceeded: the far end or the path did not answer",
        _PATH,
    ),
    13: Meaning(
        "RNR_RETRY_EXC_ERR",
        "receiver not ready, retries exceeded: the far end has posted no receive",
        "Check the process at the far end: late, stopped or out of memory. The path works.",
    ),
    14: Meaning("LOC_RDD_VIOL_ERR", "local RDD violation", _MEMORY),
    15: Meaning("REM_INV_RD_REQ_ERR", "remote invalid RD request", _MEMORY),
    16: Meaning("REM_ABORT_ERR", "aborted by the far end", "Check the log of the far end."),
    17: Meaning("INV_EECN_ERR", "invalid end-to-end context number", _MEMORY),
    18: Meaning("INV_EEC_STATE_ERR", "invalid end-to-end context state", _MEMORY),
    19: Meaning(
        "FATAL_ERR", "fatal error of the HCA", "Check the kernel's log for the HCA: firmware, PCIe."
    ),
    20: Meaning("RESP_TIMEOUT_ERR", "response timeout", _PATH),
    21: Meaning("GENERAL_ERR", "general error", "Check the kernel's log, and the vendor error."),
}
"""By `enum ibv_wc_status`."""

_UNKNOWN = Meaning("unknown", "no status of the verbs API", "Check the vendor error.")


def status_meaning(status: int) -> Meaning:
    """The meaning of a status."""
    return STATUS.get(status, _UNKNOWN)


_EVENTS = (
    (
        "port error",
        "the port went down",
        "Check the cable, the transceiver and the switch port: a link that is down or flapping.",
    ),
    ("port active", "the port came up again", "The link flapped: check cable and transceiver."),
    (
        "lid change",
        "the subnet manager gave the port another LID",
        "Check the subnet manager: a sweep or a failover.",
    ),
    ("sm", "the subnet manager changed", "Check the subnet manager: restarts break connections."),
    ("client reregistration", "the subnet manager restarted", "Check the subnet manager."),
    (
        "gid table change",
        "an address of the port changed",
        "Check DHCP and the interface: NCCL's connections used the previous address.",
    ),
    (
        "local catastrophic error",
        "the HCA failed",
        "Check the kernel's log for the HCA: firmware, PCIe. Reset or replace it.",
    ),
    (
        "marked as failed",
        "NCCL gave up this device",
        "Check the port of this device: link down, flapping, errors.",
    ),
    (
        "transmit queue",
        "the kernel gave up waiting for the NIC to send",
        "Check the kernel's log before this line: NIC, driver, firmware, PCIe, pauses.",
    ),
    ("access", "a memory access of a peer was refused", _MEMORY),
)
"""A part of an event's text, what it means, and what to check."""


def event_meaning(text: str) -> Meaning:
    """The meaning of an event of an HCA."""
    lower = text.lower()
    for part, meaning, check in _EVENTS:
        if lower.startswith(part) or (len(part) > 2 and part in lower):
            return Meaning(part, meaning, check, part in ("port active", "client reregistration"))
    return Meaning("event", clean(text), "Check the kernel's log for the HCA.")


_NO_PATH = re.compile(r"unreachable|[Nn]o route")
_VAGUE = re.compile(r"Rendezvous(?:Closed|Connection)Error|assigned_ranks")
"""What agents of torchrun write after others have failed."""
_KILLED = "Killed"
_CRASHES = (signal.SIGSEGV, signal.SIGILL, signal.SIGFPE)
"""Signals of what the program itself did; SIGABRT and SIGTERM follow from another failure."""
_RESULTS = {
    "ncclUnhandledCudaError": "a call of CUDA failed",
    "ncclSystemError": "a call of the system or of the network failed",
    "ncclInternalError": "an internal check of NCCL failed",
    "ncclInvalidArgument": "an argument was invalid",
    "ncclInvalidUsage": "NCCL was used in a wrong way",
    "ncclRemoteError": "a remote process ended, or the network failed",
    "communicator aborted": "the communicator was aborted",
    TAKEN_DOWN: "PyTorch ended the process after a failure",
}


def meaning_of(event: Failure) -> Meaning:
    """What a failure means."""
    if event.kind == COMPLETION:
        return status_meaning(event.code)
    if event.kind == DEVICE:
        return event_meaning(event.text)
    if event.kind == REQUEST:
        return _request_meaning(event.text)
    if event.kind == PROCESS:
        return _process_meaning(event)
    if event.kind == PROGRAM and event.text.startswith(SHARED_MEMORY):
        meaning = "/dev/shm of the host or container is full, or not shared by its processes"
        return Meaning(SHARED_MEMORY, meaning, f"Neither the network nor a GPU: {_SHM}")
    if event.kind == GPU:
        return _gpu_meaning(event.text)
    if event.kind == STALL and event.rank >= 0:
        check = "Look at what that rank does: late, stopped, ended, or not reachable."
        return Meaning("late", "other ranks waited for it in vain", check)
    if event.kind == EXCEPTION:
        text = clean(_RESULTS.get(event.text, event.text))
        check = "The first other error says why; without one run with NCCL_DEBUG=WARN."
        return Meaning(event.text, text, check, is_consequence=True)
    if event.kind == CONNECTION and "in use already" in event.text:
        return Meaning("port", "another process has it", "End that process, or take another port.")
    if event.kind == CONNECTION and _NO_PATH.search(event.text):
        check = "Check its link, addresses and routes on this host."
        return Meaning("no path", "this host has no path to the peer", check)
    if event.kind == CONNECTION:
        text = "a TCP connection was lost or could not be made"
        check = "Check whether the process at the far end has ended first: its log says why."
        return Meaning("connection", text, check, is_consequence=True)
    if event.kind == CALL:
        return _call_meaning(event.text)
    return {
        PROGRAM: Meaning("program", "the job's own code", "Not the network: read its traceback."),
        STALL: Meaning("stall", "a wait ended without an answer", _STALLED, is_consequence=True),
    }[event.kind]


_CALL = "Timed out or no route: addresses, GID index and VLAN of both ports."
_LOCKED_MEMORY = (
    "Not the network: most often, the limit of locked memory (ulimit -l) of the job on this host is"
    " too low, as Slurm, systemd or the container set it."
)
_LOCAL_CALL = (
    "It asks nothing of the far end: check the NIC, its driver and the kernel's log on this host,"
    " and whether a container has /dev/infiniband."
)
_STALLED = "Look for the rank that is late, has ended or cannot be reached: its log says why."


def _call_meaning(text: str) -> Meaning:
    """Of a call of the verbs API or libfabric, by its name and its error: few need the network."""
    lower = text.lower()
    if "cannot allocate memory" in lower or "enomem" in lower:
        check = _LOCKED_MEMORY
    elif re.search(r"(?:ibv|fi|mlx5dv)_\w{0,60}(?:reg|mr)", lower):
        check = _MEMORY
    elif re.search(r"ibv_(?:create|alloc|open|get|query|fork|req_notify)\w*", lower):
        check = _LOCAL_CALL
    else:
        check = f"{_PATH} {_CALL}"
    return Meaning("call", "a call of the NIC's library failed", check)


def _request_meaning(text: str) -> Meaning:
    """Of a request of libfabric, by the words of the provider."""
    lower = text.lower()
    if "unresponsive" in lower or "unreachable" in lower or "timed out" in lower:
        meaning = "the receiver did not answer"
        return Meaning("unresponsive", meaning, f"{_PATH} EFA: security groups too.")
    if "flush" in lower or "cancel" in lower:
        return Meaning("flushed", "flushed: its queue pair had failed before", _OTHER, True)
    return Meaning("request", "a request of libfabric failed", _PATH)


_OTHER = "Look for the first other error, on this rank or on its peer."


_OOM = re.compile(r"out of memory|\boom", re.I)
_GPU_MEMORY = re.compile(r"out ?of ?memory|memory ?allocation|alloc_failed|failure 2\b", re.I)
_GPU_PROGRAM = re.compile(
    r"illegal (?:memory access|address|instruction)|misaligned address|launch ?failure"
    r"|device-side assert|(?:failure|error) (?:700|710|719)\b|^Xid (?:13|31|43|45)\b",
    re.I,
)


_NUMBER = r"(?:failure|error) (?:{})\b"
_GPU_REFUSALS = (
    (
        re.compile(rf"(?:not yet initialized|{_NUMBER.format('802')})", re.I),
        "Nothing is known to be broken: on hosts with NVSwitch the Fabric Manager must run"
        " (systemctl status nvidia-fabricmanager).",
    ),
    (
        re.compile(
            r"invalid device ordinal|no CUDA-capable device|no ROCm-capable device|busy or"
            rf" unavailable|{_NUMBER.format('46|100|101')}",
            re.I,
        ),
        "See which GPUs the job has (scheduler, CUDA_VISIBLE_DEVICES, container, exclusive mode),"
        " and whether nvidia-smi lists them all; where one is missing, check Xid.",
    ),
    (
        re.compile(
            r"driver version is insufficient|no kernel image|invalid device function|not supported"
            r"|invalid (?:argument|value|configuration)|unsupported"
            rf"|{_NUMBER.format('1|35|98|209|217|801')}",
            re.I,
        ),
        "Nothing is known to be broken: compare the versions of driver, CUDA, NCCL and the job's"
        " programs, and what this GPU supports.",
    ),
)
"""Calls of CUDA and HIP that were refused, by their words or numbers (driver_types.h): no GPU that
works would accept them. Then what to check."""


def _gpu_meaning(text: str) -> Meaning:
    """Of an error of CUDA or HIP, by its words or its number."""
    if _GPU_MEMORY.search(text):
        meaning = "the job needed more memory than its GPU had free"
        check = "Nothing is broken: give each GPU less (batch, sequence), or see who else uses it."
        return Meaning("gpu memory", meaning, check)
    if _GPU_PROGRAM.search(text):
        meaning = "a kernel on the GPU did what is not allowed"
        check = "Not the network: most often the job's own code; CUDA_LAUNCH_BLOCKING=1 names it."
        return Meaning("gpu program", meaning, check)
    for refusal, check in () if text.startswith("Xid") else _GPU_REFUSALS:
        if refusal.search(text):
            return Meaning("gpu refusal", "a call of CUDA was refused", f"Not the network. {check}")
    return Meaning("gpu", "the GPU or its driver failed", "Not the network: check Xid and ECC.")


_SHM = (
    "df -h /dev/shm on its host; of a container raise --shm-size, or use --ipc=host; in Kubernetes"
    " mount an emptyDir with medium: Memory there."
)


_CANCELLED = {
    "time limit": Meaning(
        "cancelled",
        "the job reached its time limit",
        "It hung or was slower than planned if this is early: earlier lines say what stopped it.",
        is_consequence=True,
    ),
    "preemption": Meaning(
        "cancelled",
        "another job took its nodes (preemption)",
        "Not the network: start it again, or with a QOS that is not preempted.",
    ),
    "node failure": Meaning(
        "cancelled",
        "a node of the job no longer answered Slurm",
        "sinfo -R and slurmctld's log say which one.",
        is_consequence=True,
    ),
}
"""By Slurm's reason."""
_ENDED_BY_HAND = Meaning(
    "cancelled",
    "the step or job was ended: by scancel, or by srun as a task had failed",
    "If nobody did: the failed task's own log says why.",
    is_consequence=True,
)


def _process_meaning(event: Failure) -> Meaning:
    if event.text == NODE_FAILURE:
        check = "Look at it and its links: sinfo -R says why it was drained, its own log the rest."
        return Meaning("node failure", "the whole node is lost to the job", check)
    if event.text.startswith(CANCELLED):
        return _CANCELLED.get(event.text.removeprefix(CANCELLED), _ENDED_BY_HAND)
    if _OOM.search(event.text):
        meaning = "the memory of the host, or the job's part of it, ran out"
        check = "Not the network: see what the job asked of the scheduler, and its data loaders."
        return Meaning("host memory", meaning, check)
    if -event.code == signal.SIGBUS:
        meaning = "a bus error: most often, the shared memory (/dev/shm) was full"
        check = f"Not the network: {_SHM} Else a mapped file that became shorter."
        return Meaning("killed", meaning, check)
    if -event.code in _CRASHES:
        check = "Not the network: its stack trace, or a core dump, names the library and function."
        return Meaning("crashed", "the program crashed", check)
    if event.text.endswith(AFTER_CANCEL):
        check = "Slurm kills what is left of a step. What ended the step says why."
        return Meaning("ended", "the process was killed with its step", check, is_consequence=True)
    check = "See the kernel's log and the scheduler of its host: out of memory, a limit, a person."
    if -event.code == signal.SIGKILL or _KILLED in event.text:
        return Meaning("killed", "the process was killed", f"Not the network. {check}")
    check = "Its own log says why: the first other error."
    return Meaning("ended", "the process ended", check, is_consequence=True)


def order_of(event: Failure) -> int:
    """A number by which failures that may be the cause come first: events of ports; GPUs, programs
    and processes that were killed; failed requests; calls of the NIC's library, which fail where
    there is no path any more; then what follows from others, the least specific last."""
    if meaning_of(event).is_consequence:
        if event.kind == STALL and _VAGUE.search(event.text):
            return 7
        return {COMPLETION: 4, REQUEST: 4, STALL: 5, CONNECTION: 6, PROCESS: 8}.get(event.kind, 9)
    return {DEVICE: 0, GPU: 1, PROGRAM: 1, PROCESS: 1, CALL: 3}.get(event.kind, 2)
