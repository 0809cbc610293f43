"""Reads lines of NCCL, RCCL, their network plugins, UCX, gloo, PyTorch and launchers, as events.

The wording changes from version to version, so fields are looked for wherever they stand on a line
(`status=`, `RC:`, `hca`, `OpType=`, an address with a port), and no sentence is matched as a whole.
The fields are those of the format strings of NCCL 2.8 to 2.30 (src/transport/net_ib, src/misc/
socket.cc, src/init.cc), RCCL, aws-ofi-nccl 1.2 to 1.17, UCX, gloo, and PyTorch 1.13 to 2.9
(torch/csrc/distributed/c10d, torch/distributed/elastic).
"""

from __future__ import annotations

import re

import msgspec

from fabmon.analysis.job_log.events import (
    Bootstrap,
    Channel,
    Communicator,
    Devices,
    Event,
    Process,
    Progress,
    SlowSign,
    Version,
)
from fabmon.analysis.job_log.failure_fields import failure_of
from fabmon.analysis.job_log.failure_words import speaks_of_failure
from fabmon.analysis.job_log.torch_fields import torch_events
from fabmon.fabric.wire.messages import printable

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_LABEL = re.compile(
    r"(\[rank(?P<rank>\d{1,9})\]:?|\[[a-z_]{1,40}\d{1,9}\]:"
    r"|\[\d+,\d+\](?:<\w+>)?:|\d{1,6}:(?=\s)|std(?:out|err) [FP]"
    r"|\([\w.]+(?:\[[^\]]*\])? pid=(?P<pid>\d{1,10})(?:, ip=(?P<ip>[\w.:]++))?[^()]*\)"
    r"|(?P<host>(?=[a-z.]*[-\d])[a-z][a-z0-9.-]{0,62}):(?=\s)|(?P<pod>[\w.-]{1,63}) +\|"
    r"|(?P<syslog>(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.,+-]{8,24}Z?)"
    r" (?P<machine>[A-Za-z0-9][\w.-]{0,62}) (?=kernel: |slurmstepd\[))"
    r"|(?P<time>\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]?)) ?"
)
_RANK = re.compile(r"\[rank(\d{1,9})\]:")
_BAR = re.compile(
    r"[^|\n]{0,200}\|[^|\n]{0,300}\|? {0,20}\d{1,15}/[\d?]{1,15} \[[^\]\n]*\] ?"
    r"|\d+it \[[^\]\n]*\] ?"
)
"""A progress bar that has no end of line."""
_PREFIX = re.compile(r"(?<![\w.-])([\w.-]{0,255}):(\d{1,10}):\d{1,10} \[(-?\d{1,5})\]")
_UCX_PREFIX = re.compile(r"\[([\w.-]{1,255}):(\d{1,10}):\d{1,10}\]")
_MESSAGE = re.compile(r"NCCL (INFO|WARN|ERROR|ABORT|VERSION|TRACE)\s+")
_COMM = re.compile(
    r"comm (0x[0-9a-f]+)\s+rank (\d{1,15}) n[rR]anks (\d{1,15})"
    r"(?:.*?cudaDev (-?\d{1,15}))?(?:.*?nvmlDev (-?\d{1,15}))?(?:.*?busId ([0-9a-fA-F:.x]+))?"
    r"(?:.*?commId (0x[0-9a-f]+))?"
)
_HCA = re.compile(r"\[(\d{1,15})\](?:=\{([^{}]*)\}|([\w.+-]+):\d+/\w+)")
_MERGED = re.compile(r"\[\d+\]\s*([\w.-]+):\d+/\w+")
_OOB = re.compile(
    r"OOB [\w.@-]{1,64}:(\[?(?=[0-9a-fA-F]{0,4}[.:])[0-9a-fA-F.:]{2,45}\]?)"
    r"(?:%[\w.-]{1,64})?(?:<|\s|$)"
)
_BOOTSTRAP = re.compile(
    r"Bootstrap\s*: Using\s+(?:\[\d+\])?[\w.@-]+:(\[?[0-9a-fA-F.:]+\]?)(?:%[\w.-]+)?<"
)
_CHANNEL = re.compile(
    r"Channel \d{1,15}(?:/\d+)?\s*: (\d{1,15})\[[0-9a-f]+\] -> (\d{1,15})\[[0-9a-f]+\]\s+"
    r"(?:\[(send|receive)\] )?via ((?:COLL)?NET/\w[\w ]*)(?:/(\d{1,15}))?(.*GDRDMA)?"
)
_VERSION = re.compile(r"[NR]CCL version\s*+:?\s*+(\d++\.\d++(?:\.\d++)?)")
_NETWORK = re.compile(r"(?<!NET/)\b(Socket)\b(?!\s*:)|Using network (\w[\w ]*\w)")
_GDR_OFF = re.compile(r"(?!.*\bEnabled).*(?:GPU Direct|RDMA).*(?:RDMA|Disabled)")
_OF_HCA = re.compile(r"HCA \w+(?: '([\w.-]+)')?|'([\w.-]+)'")
_OFI_NICS = re.compile(r"[Pp]rovider is (\w+)\b.*\(found (\d{1,6}) nics\)")
_NO_VERBS = re.compile(r"open libibverbs|NET/IB\s?: No device found")
_RETRIED = re.compile(
    r"(?!.*(?:exceeded|g(?:iving|ave) up|any network address|\w(?:Error|Exception)\b))"
    r"(?=.*\b(?:[Cc]onnect|socket))(?:.*\b[Rr]etry|.*socket has failed to connect)"
)
"""Not the last attempt, after which NCCL and PyTorch give up."""
_NO_PATH = re.compile(r"[Nn]etwork is unreachable|[Nn]o route to host")
_STORE_CLOSED = re.compile(
    r"(?:recv|send)\w+ failed on SocketImpl|has failed to shutdown the rendezvous"
)
"""PyTorch's store, in a process of another host, ended first: usual as a job ends."""
_RETRIED_PEER = re.compile(
    r"(?<![\w.:-])([\w.:-]{2,255})<\d+>|\[([\w.:-]{2,255})\]:\d+|\(([\w.:-]+), \d+\)"
)


class LogLine(msgspec.Struct, frozen=True):
    """What a line says, and who wrote it: the process (None where not given), the global rank in
    PyTorch's prefix `[rank3]:` (-1 without), the `label` of a launcher before it and the `host` in
    that (empty without). `body` is without
    label and prefix; `is_unread`: it speaks of a failure that was not understood. `dated` is
    the line with the time of the message."""

    events: tuple[Event, ...]
    process: Process | None
    rank: int
    label: str
    host: str
    body: str
    is_unread: bool
    dated: str


def text_of(line: bytes) -> str:
    """A line without the colours of a terminal, and with `?` in place of other controls: whatever
    is quoted of it is safe to print."""
    text = line.decode("utf-8", "replace")
    if text.isprintable():
        return text
    return printable(_ANSI.sub("", text).replace("\t", " "))


def parse_line(text: str, *, is_detail: bool = False) -> LogLine:
    """What a line says. `is_detail`: it belongs to an error whose beginning is on another line.
    Never raises."""
    label, host, rank, process, body = _split(text)
    found = _MESSAGE.search(body)
    if found is None:
        prefixed = _UCX_PREFIX.search(body) if "UCX" in body else None
        if prefixed is not None:
            process = Process(prefixed[1], int(prefixed[2]))
        events = torch_events(body)
        if not events:
            events = tuple(filter(None, (_slow(body) or failure_of(body, rank),)))
    else:
        prefixed = _PREFIX.search(body[: found.start()])
        if prefixed is not None:
            process = Process(prefixed[1], int(prefixed[2]), int(prefixed[3]))
        body = body[found.end() :]
        facts = _fact(body) if found[1] != "WARN" else None
        said = facts or _slow(body) or failure_of(body, rank)
        events = () if said is None else (said,)
    version = _VERSION.search(body) if "CCL version" in body else None
    if version is not None:
        events = (*events, Version(version[1]))
    is_unread = all(isinstance(each, (Version, Progress)) for each in events) and (
        is_detail
        or speaks_of_failure(
            body if found is None else f"NCCL {found[1]} {body}",
            found is not None and found[1] in ("WARN", "ERROR", "ABORT"),
        )
    )
    return LogLine(events, process, rank, label, host, body, is_unread, text)


def _split(text: str) -> tuple[str, str, int, Process | None, str]:
    """The labels before a line without their times, the host, rank and process in them, and the
    rest."""
    bar = _BAR.match(text) if "/s" in text or "s/it" in text else None
    at, host, rank, process = bar.end() if bar else 0, "", -1, None
    labels: list[str] = []
    while (found := _LABEL.match(text, at)) is not None:
        at = found.end()
        if found["time"] is None:
            labels.append(found["machine"] or found[1])
        host = host or found["host"] or found["pod"] or found["machine"] or ""
        if found["rank"] is not None:
            rank = int(found["rank"])
        if found["ip"] is not None:
            process = Process(found["ip"], int(found["pid"]))
            host = found["ip"]
    if rank < 0 and (inside := _RANK.search(text, at, at + 300)) is not None:
        rank = int(inside[1])
    return "".join(labels), host, rank, process, text[at:]


def _fact(body: str) -> Event | None:
    """What a message of NCCL that is no warning says of ranks, NICs and connections."""
    if body.startswith("Channel"):
        found = _CHANNEL.match(body)
        if found is None:
            return None
        hca = -1 if found[5] is None else int(found[5])
        return Channel(
            *(int(found[1]), int(found[2]), found[4], hca),
            is_receive=found[3] == "receive",
            gdr=found[6] is not None,
        )
    comm = _COMM.search(body)
    if comm is not None:
        address, rank, ranks, cuda, nvml, pci, identity = comm.groups()
        gpu = nvml or cuda
        return Communicator(
            name=identity or address,
            rank=int(rank),
            ranks=int(ranks),
            gpu=-1 if gpu is None else int(gpu),
            pci=pci or "",
        )
    bootstrap = _BOOTSTRAP.match(body) if body.startswith("Bootstrap") else None
    if bootstrap is not None:
        return Bootstrap(bootstrap[1].strip("[]"))
    return _devices(body) if "Using [" in body else None


def _devices(body: str) -> Devices | None:
    """`NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_2:1/RoCE [RO]; OOB ib0:172.41.212.9<0>`."""
    hcas: dict[int, tuple[str, ...]] = {}
    for index, merged, name in _HCA.findall(body):
        names = tuple(_MERGED.findall(merged)) if merged else tuple(name.split("+"))
        hcas[int(index)] = names
    address = _OOB.search(body)
    return Devices(hcas, address[1].strip("[]") if address else "") if hcas else None


def _plain_peer(found: re.Match[str] | None) -> str:
    return next(filter(None, found.groups()), "").removeprefix("::ffff:") if found else ""


def _slow(body: str) -> SlowSign | None:
    """What a line says of a slow network, or of a connection that was tried again."""
    found = _NETWORK.search(body)
    if found is not None:
        return SlowSign(kind="network", text=found[1] or found[2])
    if _GDR_OFF.match(body) is not None:
        found = _OF_HCA.search(body)
        return SlowSign(kind="gdr_off", text=(found[1] or found[2] or found[0]) if found else "")
    found = _OFI_NICS.search(body)
    if found is not None:
        return SlowSign(kind="nics", text=found[1], count=int(found[2]))
    if _NO_VERBS.search(body) is not None:
        return SlowSign(kind="no_verbs")
    if "NUMA auto balancing enabled" in body:
        return SlowSign(kind="numa")
    if "retrieved (gai error" in body:
        return SlowSign(kind="no_name", text=_plain_peer(_RETRIED_PEER.search(body)))
    if "loopback address as fallback" in body:
        return SlowSign(kind="loopback")
    if _STORE_CLOSED.search(body) is not None:
        return SlowSign(kind="store_closed")
    if _RETRIED.match(body) is not None and _NO_PATH.search(body) is None:
        peer = _RETRIED_PEER.search(body)
        return SlowSign(kind="retry", text=_plain_peer(peer))
    return None
