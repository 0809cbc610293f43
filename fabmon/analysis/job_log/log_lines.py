"""Lines of NCCL and of PyTorch's ProcessGroupNCCL, as typed events.

The wording changes from version to version, so fields are matched and not sentences. NCCL: the
format strings of src/init.cc, src/transport/net_ib.cc (from 2.28 src/transport/net_ib/p2p.cc) and
src/misc/socket.cc, 2.8 to 2.30. PyTorch: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, 1.13 to
2.9.
"""

from __future__ import annotations

import re

import msgspec

MAX_LINE = 4096
"""Bytes of a line that are read."""


class Process(msgspec.Struct, frozen=True):
    """Where a line was written: host, process and GPU (an index in the process; -1: unknown)."""

    host: str
    pid: int
    gpu: int = -1


class Communicator(msgspec.Struct, frozen=True, kw_only=True):
    """A rank of a communicator and its GPU; `pci` is the bus id of the GPU, `gpu` its index on the
    node where NVML reports it, -1 where unknown. `name` is the address or the id."""

    name: str
    rank: int
    ranks: int
    gpu: int
    pci: str


class Devices(msgspec.Struct, frozen=True):
    """The HCAs that NCCL uses on a host, by index; a merged device has several. `address` is that
    of the process for connection setup, empty where unknown."""

    hcas: dict[int, tuple[str, ...]]
    address: str


class Bootstrap(msgspec.Struct, frozen=True):
    """The address of a process for connection setup."""

    address: str


class Channel(msgspec.Struct, frozen=True):
    """A connection over the network: `rank` sends to `peer` over the HCA with this index (-1 where
    the transport has none); `transport` is as in `NET/IB`."""

    rank: int
    peer: int
    transport: str
    hca: int
    is_receive: bool


class CompletionError(msgspec.Struct, frozen=True, kw_only=True):
    """A work request that failed. `status` is that of the verbs API, `opcode` and `vendor_error`
    -1 where not given; texts are empty then. `side` is `send` or `recv`."""

    status: int
    opcode: int = -1
    vendor_error: int = -1
    peer: str = ""
    side: str = ""
    local_gid: str = ""
    remote_gid: str = ""
    hca: str = ""


class DeviceEvent(msgspec.Struct, frozen=True):
    """An event of an HCA, as `port error`, or that NCCL gave it up. `hca` is a name, `index` NCCL's
    index; empty and -1 where not given."""

    text: str
    hca: str = ""
    index: int = -1


class SocketError(msgspec.Struct, frozen=True):
    """A TCP connection of NCCL to a peer that failed, and what the line says of it."""

    peer: str
    text: str


class Timeout(msgspec.Struct, frozen=True, kw_only=True):
    """PyTorch's watchdog: a collective that did not finish. Seconds are None where not given."""

    rank: int
    group: str
    seq: int
    operation: str
    elements: int | None
    limit_s: float | None
    ran_s: float | None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The collectives of a rank in a process group: the last enqueued and the last completed."""

    rank: int
    group: str
    enqueued: int
    completed: int


class Signalled(msgspec.Struct, frozen=True):
    """A rank that received the timeout of another rank (`by`, -1 where not named)."""

    rank: int
    by: int


class Version(msgspec.Struct, frozen=True):
    """The version of NCCL."""

    text: str


class Warned(msgspec.Struct, frozen=True):
    """Any other warning of NCCL; `text` has no prefix."""

    text: str


Event = (
    Communicator
    | Devices
    | Bootstrap
    | Channel
    | CompletionError
    | DeviceEvent
    | SocketError
    | Timeout
    | Progress
    | Signalled
    | Version
    | Warned
)

_PREFIX = re.compile(r"([\w.-]{1,255}):(\d{1,10})(?::(\d{1,10}))? \[(-?\d{1,5})\]")
_MESSAGE = re.compile(r"NCCL (INFO|WARN|ERROR|ABORT|VERSION|TRACE)\s+")
_COMM = re.compile(
    r"comm (0x[0-9a-f]+)\s+rank (\d{1,15}) n[rR]anks (\d{1,15})"
    r"(?:.*?cudaDev (-?\d{1,15}))?(?:.*?nvmlDev (-?\d{1,15}))?(?:.*?busId ([0-9a-fA-F:.x]+))?"
    r"(?:.*?commId (0x[0-9a-f]+))?"
)
_HCA = re.compile(r"\[(\d{1,15})\](?:=\{([^}]*)\}|([\w.+-]+):\d+/\w+)")
_MERGED = re.compile(r"\[\d+\]\s*([\w.-]+):\d+/\w+")
_OOB = re.compile(r"OOB [\w.@:-]+?:(\[?[0-9a-fA-F.:]*[.:][0-9a-fA-F.:]*\]?)(?:%[\w.-]+)?(?:<|\s|$)")
_BOOTSTRAP = re.compile(
    r"Bootstrap\s*: Using\s+(?:\[\d+\])?[\w.@-]+:(\[?[0-9a-fA-F.:]+\]?)(?:%[\w.-]+)?<"
)
_CHANNEL = re.compile(
    r"Channel (\d{1,15})(?:/\d+)?\s*: (\d{1,15})\[[0-9a-f]+\] -> (\d{1,15})\[[0-9a-f]+\]\s+"
    r"(?:\[(send|receive)\] )?via (NET/\w+|COLLNET/\w+)(?:/(\d{1,15}))?"
)
_ADDRESS = r"\[?([0-9a-zA-Z.:_-]{2,255}?)\]?(?:%[\w.-]+)?<\d+>"
_PEER = re.compile(rf"from peer {_ADDRESS}")
_STATUS = re.compile(r"(?:status\s?[= ]\s?|with error )(?:[^\d(),]*\()?(\d{1,15})")
_OPCODE = re.compile(r"opcode\s?[= ]\s?(?:[^\d(),]*\()?(\d{1,15})")
_VENDOR = re.compile(r"vendor[ _]err(?:or)?\s?[= ]\s?(\d{1,15})")
_SIDE = re.compile(r"\((Send|Recv)\)|req_type\s?=\s?(Send|Recv)")
_LOCAL_GID = re.compile(r"localGid\s*([0-9a-fA-F.:]+)")
_REMOTE_GID = re.compile(r"remoteGids?\s*([0-9a-fA-F.:]+)")
_OF_HCA = re.compile(r"\bhca ([\w.-]+)")
_RECEIVES = frozenset(range(128, 256))
"""IBV_WC_RECV and IBV_WC_RECV_RDMA_WITH_IMM have bit 7 set."""
_ASYNC = re.compile(
    r"(?:NET/IB(?:/GIN)?\s*:\s*)?(?:([\w.-]+):\d+ )?"
    r"(?:Got )?(?:non-fatal )?async (?:fatal |error )?event(?: on \w+)?\s*:\s*(.{1,100})"
)
_DEVICE_FAILED = re.compile(r"Device (\d{1,15}) (marked as failed)")
_SOCKET = re.compile(
    r"([Cc]onnection closed by remote peer|[Cc]onnect(?:ion)? to|Call to connect to|"
    r"[Cc]onnect to|remote peer|recv(?:ing)? from|send(?:ing)? to)\s+" + _ADDRESS + r"(.{0,120})"
)
_WORK = re.compile(
    r"WorkNCCL\(SeqNum=(\d{1,15}), OpType=(\w+)(?:, NumelIn=(\d{1,15}))?(?:, NumelOut=(\d{1,15}))?"
    r"(?:, TensorShape=\[[^\]]*\])?(?:, Timeout\(ms\)=(\d{1,15}))?"
)
_RAN = re.compile(r"ran for (\d{1,15}) milliseconds")
_GROUP_RANK = re.compile(r"\[(?:PG (?:ID )?([^\]]*?) )?Rank (\d{1,15})\]")
_GLOBAL_RANK = re.compile(r"\[rank(\d{1,15})\]:")
_PROGRESS = re.compile(
    r"[Ll]ast enqueued NCCL work: (-?\d{1,15}), last completed NCCL work: (-?\d{1,15})", re.ASCII
)
_SIGNAL_BY = re.compile(
    r"dump signal (?:due to a collective timeout )?from\s+(?:rank (\d{1,15})|another)"
)
_VERSION = re.compile(r"NCCL version (\d+\.\d+(?:\.\d+)?)")


class LogLine(msgspec.Struct, frozen=True):
    """A line that says something: what, and the process that wrote it (None where not given)."""

    event: Event
    process: Process | None
    rank: int
    """The rank in the prefix of PyTorch's lines, `[rank3]:`; -1 without."""


def parse_line(text: str) -> list[LogLine]:
    """What a line that contains `NCCL` says; empty for a line of no use here. Never raises."""
    found = _MESSAGE.search(text)
    prefixed = _PREFIX.search(text[: found.start()] if found else "")
    process = None
    if prefixed is not None:
        process = Process(prefixed[1], int(prefixed[2]), int(prefixed[4]))
    events = _torch(text) if found is None else _nccl(text[found.end() :], found[1] != "INFO")
    ranked = _GLOBAL_RANK.search(text) if "[rank" in text else None
    rank = int(ranked[1]) if ranked and len(ranked[1]) < 10 else -1
    return [LogLine(event, process, rank) for event in events]


def _nccl(text: str, is_warning: bool) -> list[Event]:
    """The events of a message of NCCL."""
    if text.startswith("Channel"):
        return _channel(text)
    comm = None if is_warning else _COMM.search(text)
    if comm is not None:
        address, rank, ranks, cuda, nvml, pci, identity = comm.groups()
        gpu = nvml or cuda
        return [
            Communicator(
                name=identity or address,
                rank=int(rank),
                ranks=int(ranks),
                gpu=-1 if gpu is None else int(gpu),
                pci=pci or "",
            )
        ]
    if "Got completion" in text:
        return _completion(text)
    event = _ASYNC.search(text) if "event" in text else None
    if event is not None:
        return [DeviceEvent(event[2].strip(), event[1] or "")]
    failed = _DEVICE_FAILED.search(text)
    if failed is not None:
        return [DeviceEvent(failed[2], index=int(failed[1]))]
    bootstrap = _BOOTSTRAP.match(text) if text.startswith("Bootstrap") else None
    if bootstrap is not None:
        return [Bootstrap(bootstrap[1].strip("[]"))]
    if "Using [" in text:
        return _devices(text)
    version = _VERSION.search(text) if "version" in text else None
    if version is not None:
        return [Version(version[1])]
    if not is_warning:
        return []
    broken = _SOCKET.search(text)
    if broken is not None:
        return [SocketError(broken[2], f"{broken[1]} {broken[3].strip(' :')}".strip())]
    return [Warned(text[:300])]


def _channel(text: str) -> list[Event]:
    found = _CHANNEL.match(text)
    if found is None:
        return []
    rank, peer = int(found[2]), int(found[3])
    hca = -1 if found[6] is None else int(found[6])
    return [Channel(rank, peer, found[5], hca, found[4] == "receive")]


def _devices(text: str) -> list[Event]:
    """`NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_2:1/RoCE [RO]; OOB ib0:172.41.212.9<0>`."""
    hcas: dict[int, tuple[str, ...]] = {}
    for index, merged, name in _HCA.findall(text):
        names = tuple(_MERGED.findall(merged)) if merged else tuple(name.split("+"))
        hcas[int(index)] = names
    address = _OOB.search(text)
    if not hcas:
        return []
    return [Devices(hcas, address[1].strip("[]") if address else "")]


def _completion(text: str) -> list[Event]:
    status = _STATUS.search(text)
    if status is None:
        return [Warned(text[:300])]
    opcode, vendor, side = _OPCODE.search(text), _VENDOR.search(text), _SIDE.search(text)
    peer, hca = _PEER.search(text), _OF_HCA.search(text)
    local, remote = _LOCAL_GID.search(text), _REMOTE_GID.search(text)
    code = int(opcode[1]) if opcode else -1
    written = (side[1] or side[2]).lower() if side else "recv" if code in _RECEIVES else ""
    return [
        CompletionError(
            status=int(status[1]),
            opcode=code,
            vendor_error=int(vendor[1]) if vendor else -1,
            peer=peer[1] if peer else "",
            side=written,
            local_gid=local[1] if local else "",
            remote_gid=remote[1] if remote else "",
            hca=hca[1] if hca else "",
        )
    ]


def _torch(text: str) -> list[Event]:
    """The events of a line of PyTorch, or of one without NCCL's prefix."""
    events: list[Event] = []
    ranked = _GROUP_RANK.search(text)
    rank = int(ranked[2]) if ranked else -1
    group = (ranked[1] or "").strip() if ranked else ""
    work = _WORK.search(text) if "imeout" in text or "timed out" in text else None
    if work is not None:
        ran = _RAN.search(text)
        events.append(
            Timeout(
                rank=rank,
                group=group,
                seq=int(work[1]),
                operation=work[2],
                elements=None if work[3] is None else int(work[3]),
                limit_s=None if work[5] is None else int(work[5]) / 1000,
                ran_s=None if ran is None else int(ran[1]) / 1000,
            )
        )
    progress = _PROGRESS.search(text)
    if progress is not None:
        done = Progress(
            rank=rank, group=group, enqueued=int(progress[1]), completed=int(progress[2])
        )
        events.append(done)
    signal = _SIGNAL_BY.search(text)
    if signal is not None:
        events.append(Signalled(rank, -1 if signal[1] is None else int(signal[1])))
    if not events:
        version = _VERSION.search(text)
        if version is not None:
            events.append(Version(version[1]))
    return events
