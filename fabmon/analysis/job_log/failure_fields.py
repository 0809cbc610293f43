"""Recognises failures by the fields of a line, wherever they stand on it."""

from __future__ import annotations

import re

from fabmon.analysis.job_log.crashes import crash_of
from fabmon.analysis.job_log.events import (
    CALL,
    COMPLETION,
    CONNECTION,
    DEVICE,
    EXCEPTION,
    GPU,
    PROGRAM,
    REQUEST,
    SHARED_MEMORY,
    STALL,
    TAKEN_DOWN,
    Failure,
)
from fabmon.analysis.job_log.failure_words import COUNTED_NONE, speaks_of_failure
from fabmon.analysis.job_log.launchers import ended_process_of, mpi_abort_of

_MOST_TEXT = 160

_STATUS = re.compile(
    r"\b(?:status\s?[=: ]\s?|with error )(?:[^\d(),;\s]{0,80}\()?(\d{1,9})\b"
    r"|\bsynd 0x([0-9a-f]{1,4})\b"
)
_OPCODE = re.compile(r"opcode\s?[=:, ]\s?(?:[^\d(),]{0,80}\()?(\d{1,9})")
_VENDOR = re.compile(r"vendor[ _]err(?:or)?\s?[= ]\s?(\d{1,15})|\bvend 0x([0-9a-f]{1,8})")
_SIDE = re.compile(r"\((Send|Recv)\)|(?:req_type\s?=|type:|direction:)\s?(Send|Recv)", re.I)
_LOCAL_GID = re.compile(r"local ?gid\s*([0-9a-f]*[:.][0-9a-f:.]+)", re.I)
_REMOTE_GID = re.compile(r"remote ?gids?\s*([0-9a-f]*[:.][0-9a-f:.]+)", re.I)
_HCA = re.compile(
    r"\bhca ([\w.-]+)|\b(?:dev|on) ((?:mlx\d|bnxt_re|irdma|roce|ib|efa|hns|mana|rxe|siw)[\w-]*)"
)
_RECEIVES = frozenset(range(128, 256))
"""IBV_WC_RECV and IBV_WC_RECV_RDMA_WITH_IMM have bit 7 set."""
_SYNDROMES = {1: 1, 2: 2, 4: 4, 5: 5, 6: 6, 16: 7, 17: 8, 18: 9, 19: 10, 20: 11, 21: 12, 22: 13}
"""Syndromes of mlx5 (`enum` of rdma-core, providers/mlx5/cq.c), as UCX writes them, -> status of
the verbs API."""

_RC = re.compile(r"\bRC: ?(-?\d{1,9})")
_OFI_ERROR = re.compile(r"\b(?:Error|ERROR): ?(?:(-?\d{1,9}) ?)?\(?(.{0,200})")
_DEV = re.compile(r"\bdev: ?(\d{1,6})")

_ASYNC = re.compile(
    r"(?:(?<![\w.-])([\w.-]+):\d+ )?(?:Got )?(?:non-fatal )?async (?:fatal |error )?event"
    r"(?: on \w+)?\s*:\s*(.{1,100})"
)
_TRANSMIT_QUEUE = re.compile(
    r"NETDEV WATCHDOG: (?:CPU: \d{1,5}: )?([\w.-]{1,32}) .{0,60}(transmit queue \d{1,5} timed out)"
)
_DEVICE_FAILED = re.compile(r"Device (\d{1,6}) (marked as failed)")

_RESULTS = {
    "unhandled cuda error": "ncclUnhandledCudaError",
    "unhandled system error": "ncclSystemError",
    "internal error": "ncclInternalError",
    "invalid argument": "ncclInvalidArgument",
    "invalid usage": "ncclInvalidUsage",
    "remote process exited": "ncclRemoteError",
    "network error": "ncclRemoteError",
    "communicator was aborted": "communicator aborted",
}
"""Words of ncclGetErrorString (src/init.cc) -> the result."""
_BY_CODE = dict(enumerate(list(dict.fromkeys(_RESULTS.values()))[:6], 1))
_NCCL_ERROR = re.compile(
    r"NCCL (?:error|failure|communicator)|async exception|Backend\w*Error|Abort COMPLETE"
)
_RESULT = re.compile(
    r"\bnccl(?:UnhandledCuda|System|Internal|Remote)Error\b|\bncclInvalid(?:Usage|Argument)\b"
)
_TRACE = re.compile(r"\w\.(?:cc|h|cpp|cu):\d+ -> ([1-6])\b")
_WORK = re.compile(r"\bOpType=(\w+)")
_SEQ = re.compile(r"\bSeqNum=(\d{1,15})")
_TAKEN_DOWN = re.compile(
    r"taking the entire process down|operations have failed or timed out"
    r"|terminate called after throwing an instance of '(?:c10|nccl)"
    r"|failed or timed out\. Due to"
)

_PEERS = (
    re.compile(r"remote=\[([\w.:%-]{2,255})\]:\d+"),
    # From where such characters begin only: from each of them the next 255 were tried.
    re.compile(r"(?<![\w.:-])\[?[.:-]*+([0-9a-zA-Z.:_-]{2,255}+)\]?(?:%[\w.-]++)?<\d++>"),
    re.compile(r"\[([0-9a-zA-Z.:_-]{2,255})(?:%[\w.-]+)?\]:\d+"),
    re.compile(r"\(([0-9a-zA-Z.:_-]{2,255}), \d+\)"),
    re.compile(r"\b(?:to|from|peer) ((?:\d{1,3}\.){3}\d{1,3}|[\w-]+(?:\.[\w-]+)+):\d+"),
)
_PORT = re.compile(r"\bport: ?(\d{1,5})\b|\]:(\d{1,5})\b")
_BROKEN = re.compile(
    r"clos|refus|reset|tim\w{1,4} ?out|timeout|route|unreach|abort|broken|fail|error|retriev"
    r"|no longer|gone|retr(?:y|ies)|unresponsive",
    re.I,
)
_LEAD = re.compile(
    r"(?:\s*\[[^\]]*\]:?\s*|\s*[\w./-]+\.(?:cc|cpp|py|cu|h):\d+\]?:?\s*"
    r"|\s*[\w.:]+(?:Error|Exception): |\s*what\(\):\s*|\w+: (?=[A-Z]))+"
)
_NOISE = re.compile(
    r"(?:socket )?SocketImpl\([^()]*\),?|, remote=\[.*|\[[^\[\]]*\.(?:cc|cpp):\d+\] "
)
_CALL = re.compile(r"\b(?:ibv|fi|rdma|mlx5dv)_\w+")
_GPU = re.compile(
    r"(?:cuda|hip) (?:failure|error)|(?:cuda|hip)Error\w+|uncorrectable ECC"
    r"|(?:cuda|hip) out of memory|OutOfMemoryError|(?:cublas|cudnn|rocblas)_status_\w+"
    r"|device-side assert|CUDA driver",
    re.I,
)
_STALL = re.compile(
    r"\btim(?:ed?|ing)[ -]?outs?\b|heartbeat|got stuck|onitoredBarrier|without making progress"
    r"|Rendezvous\w{1,40}Error",
    re.I,
)
_AGENT = re.compile(r"Rendezvous\w{1,40}Error")
_LATE_RANKS = re.compile(
    r"\branks? (\d{1,9})[\d, ]* failed to pass|\bkeys?: .{0,300}//\w+//\d+/(\d{1,9})\b", re.I
)
"""The rank for which others wait: at a barrier, or for its address in the store."""
_TORCH = re.compile(
    r"c10d|torch|gloo|ProcessGroup|Dist\w{1,40}Error|Store|atchdog|Barrier|eartbeat (?:m|t)", re.I
)
_RAISED = re.compile(r"(?:[\w.]+\.)?(\w+(?:Error|Exception|Interrupt|Exit))\b:? ?(.*)")

_SHARED_MEMORY = re.compile(
    r"(?:creating|opening|attaching to) shared memory segment|failed to extend /dev/shm"
    r"|(?:posix_fallocate|shm_open) failed|/dev/shm\b(?=.{0,200}no space left)"
    r"|(?:out of|insufficient|allocate) shared memory"
    r"|</torch_\w{1,80}>: (?:no space|cannot allocate|resource temporarily)",
    re.I,
)
"""NCCL, PyTorch and its data loaders of a /dev/shm that is full."""
_SEGMENT = re.compile(r"</torch_\w+>|/dev/shm/\S+")


def failure_of(body: str, rank: int = -1) -> Failure | None:
    """The failure that a line without its labels speaks of; None where none is understood. `rank`
    is that of PyTorch's label, -1 without."""
    readers = (
        *(
            mpi_abort_of,
            _request,
            _completion,
            _device,
            _shared_memory,
            _exception,
            _connection,
            _call,
            _gpu,
        ),
        *(ended_process_of, crash_of),
    )
    for reader in readers:
        found = reader(body)
        if found is not None:
            return found
    if _STALL.search(body) and _TORCH.search(body) and speaks_of_failure(body, is_warning=False):
        late = _LATE_RANKS.search(body)
        agent, said = _AGENT.search(body), _said(body)
        text = f"{agent[0]}: {said.rpartition('.')[2]}" if agent else said
        return Failure(kind=STALL, text=text, rank=int(late[1] or late[2]) if late else -1)
    raised = _RAISED.match(body) if rank >= 0 else None
    if raised is not None and not _TORCH.search(body) and "NCCL" not in body:
        return Failure(kind=PROGRAM, text=f"{raised[1]}: {_shortened(raised[2])}".strip(" :"))
    return None


def _said(body: str, peer: str = "") -> str:
    """The text of a line without what is before it, and without the address of the peer."""
    lead = _LEAD.match(body)
    text = _NOISE.sub("", body[lead.end() :] if lead else body)
    if peer:
        addressed = rf"(?:(?:remote )?peer )?[\[(]?(?:::ffff:)?{re.escape(peer)}\]?"
        text = re.sub(rf"{addressed}(?:%[\w.-]+\]?)?(?:<\d+>|:\d+|, \d+\))?", "the peer", text)
    return _shortened(" ".join(text.split())).strip(" .:,")


def _request(body: str) -> Failure | None:
    """A request of libfabric. The text is the provider's, its code is one of the provider."""
    code = _RC.search(body)
    if code is None:
        return None
    error, dev, side = _OFI_ERROR.search(body), _DEV.search(body), _SIDE.search(body)
    text = error[2] if error else _said(body)
    text = re.split(r"\)?\.\s|\)?, Request", text)[0]
    if text.endswith(")") and text.count(")") > text.count("("):
        text = text[:-1]
    return Failure(
        kind=REQUEST,
        text=_shortened(text.strip()) or f"RC {code[1]}",
        code=abs(int((error and error[1]) or code[1])),
        index=int(dev[1]) if dev else -1,
        side=_side(side),
    )


def _side(found: re.Match[str] | None) -> str:
    return (found[1] or found[2]).lower() if found else ""


def _completion(body: str) -> Failure | None:
    """A work request of the verbs API; two of its fields make one."""
    status = _STATUS.search(body)
    if status is None:
        return None
    opcode, vendor = _OPCODE.search(body), _VENDOR.search(body)
    local, remote = _LOCAL_GID.search(body), _REMOTE_GID.search(body)
    if not (opcode or vendor or local or remote or "ompletion" in body):
        return None
    code = int(status[1]) if status[1] else _SYNDROMES.get(int(status[2], 16), 21)
    if code == 0:
        return None
    hca, peer = _HCA.search(body), _PEERS[1].search(body)
    side = _side(_SIDE.search(body))
    if not side and opcode and int(opcode[1]) in _RECEIVES:
        side = "recv"
    vendor_error = -1
    if vendor is not None:
        vendor_error = int(vendor[1]) if vendor[1] else int(vendor[2], 16)
    return Failure(
        kind=COMPLETION,
        code=code,
        vendor_error=vendor_error,
        peer=peer[1] if peer else "",
        side=side,
        local_gid=local[1] if local else "",
        remote_gid=remote[1] if remote else "",
        hca=next(filter(None, hca.groups())) if hca else "",
    )


def _device(body: str) -> Failure | None:
    event = _ASYNC.search(body) if "event" in body else None
    if event is not None:
        return Failure(kind=DEVICE, text=event[2].strip(), hca=event[1] or "")
    queue = _TRANSMIT_QUEUE.search(body)
    if queue is not None:
        return Failure(kind=DEVICE, text=queue[2], hca=queue[1])
    failed = _DEVICE_FAILED.search(body)
    if failed is not None:
        return Failure(kind=DEVICE, text=failed[2], index=int(failed[1]))
    return None


def _exception(body: str) -> Failure | None:
    """An error that NCCL reported to its caller; another line says why, if one does."""
    trace = _TRACE.search(body)
    if trace is not None:
        return Failure(kind=EXCEPTION, text=_BY_CODE[int(trace[1])])
    result = _RESULT.search(body)
    text = result[0] if result else ""
    if not text and _NCCL_ERROR.search(body):
        lower = body.lower()
        text = next((name for words, name in _RESULTS.items() if words in lower), "")
        text = text or ("communicator aborted" if "Abort COMPLETE" in body else "")
    if not text and _TAKEN_DOWN.search(body):
        text = TAKEN_DOWN
    if not text:
        return None
    operation, seq = _WORK.search(body), _SEQ.search(body)
    work = f"{operation[1]} {seq[1] if seq else ''}".strip() if operation else ""
    return Failure(kind=EXCEPTION, text=text, work=work)


def _connection(body: str) -> Failure | None:
    """A TCP connection: an address with a port, and a word of failure."""
    if _BROKEN.search(body) is None:
        return None
    if "EADDRINUSE" in body or "already in use" in body:
        port = _PORT.search(body)
        number = f" {port[1] or port[2]}" if port else ""
        return Failure(kind=CONNECTION, text=f"port{number} of this host is in use already")
    peer = next((each[1] for pattern in _PEERS if (each := pattern.search(body))), "")
    is_torch = "DistNetworkError" in body or "DistStoreError" in body
    if not (peer or (is_torch and "onnection" in body)) or not speaks_of_failure(
        body, is_warning=False
    ):
        return None
    peer = peer.removeprefix("::ffff:").partition("%")[0]
    return Failure(kind=CONNECTION, peer=peer, text=_said(body, peer).partition(". ")[0])


def _call(body: str) -> Failure | None:
    """A call of the verbs API or of libfabric."""
    if _CALL.search(body) is None or not speaks_of_failure(body, is_warning=False):
        return None
    hca = _HCA.search(body)
    local, remote = _LOCAL_GID.search(body), _REMOTE_GID.search(body)
    return Failure(
        kind=CALL,
        text=_said(body).partition(", on dev")[0],
        hca=next(filter(None, hca.groups())) if hca else "",
        local_gid=local[1] if local else "",
        remote_gid=remote[1] if remote else "",
    )


def _gpu(body: str) -> Failure | None:
    if _GPU.search(body) is None or COUNTED_NONE.search(body) is not None:
        return None
    return Failure(kind=GPU, text=_said(body))


def _shared_memory(body: str) -> Failure | None:
    """The text has no names of files and no sizes: of all ranks and segments it is the same."""
    found = _SHARED_MEMORY.search(body)
    if found is None:
        return None
    what = _SEGMENT.sub("a file", found[0])
    if what == "/dev/shm":
        what = "no space left in /dev/shm"
    return Failure(kind=PROGRAM, text=f"{SHARED_MEMORY}: {what[0].lower()}{what[1:]}")


def _shortened(text: str) -> str:
    """The beginning of a text, whole words where it has several: a part of a name is no name."""
    if len(text) <= _MOST_TEXT:
        return text
    return text[:_MOST_TEXT].rpartition(" ")[0] or text[:_MOST_TEXT]
