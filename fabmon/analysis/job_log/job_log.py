"""What the logs of a job say: ranks, hosts, HCAs, connections, failures. Bounded in memory.

Logs of gigabytes are mostly lines of no use here: cheap searches for bytes sort these out before a
line is decoded. Lines that differ in digits only are read up to a limit, then counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from fabmon.analysis.job_log.log_lines import (
    MAX_LINE,
    Bootstrap,
    Channel,
    Communicator,
    CompletionError,
    DeviceEvent,
    Devices,
    Event,
    LogLine,
    Process,
    Progress,
    Signalled,
    SocketError,
    Timeout,
    Version,
    Warned,
    parse_line,
)
from fabmon.analysis.job_log.log_times import LogTime, find_time
from fabmon.analysis.job_log.nccl_tests import BenchmarkReader
from fabmon.analysis.job_log.status_codes import event_meaning, status_meaning

_MARK = b"NCCL"
_INFO = b"NCCL INFO "
_USEFUL = frozenset((b"NET/IB ", b"NET/IB:", b"Bootstr", b"NCCL ve", b"Using [", b"NET/IBe"))
"""The first seven bytes of useful INFO messages, besides channels and communicators."""
_HEAD = 7
_DIGITS = b"0123456789abcdefABCDEF"

_MOST_ALIKE = 100_000
_MOST_SHAPES = 50_000
_MOST_CHANNELS = 200_000
_MOST_PROCESSES = 100_000
_MOST_HOSTS = 50_000
_MOST_FAILURES = 10_000
_MOST_RANKS = 100_000
_MOST_WARNINGS = 200

_T = TypeVar("_T")

Failure = CompletionError | DeviceEvent | SocketError


class ProcessFacts(msgspec.Struct):
    """The rank of a process in its largest communicator (-1: unknown), and its GPU."""

    rank: int = -1
    ranks: int = 0
    gpu: int = -1
    pci: str = ""
    inferred_rank: int = -1
    """From the connections of the process, where the log has no communicators."""


class HostFacts(msgspec.Struct):
    """The HCAs of a host by NCCL's index, and its addresses for connection setup."""

    hcas: dict[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    addresses: set[str] = msgspec.field(default_factory=set)


class SeenFailure(msgspec.Struct):
    """A failure, by which process (None: not given), how often, and when first and last."""

    event: Failure
    process: Process | None
    order: int
    source: str
    text: str
    count: int = 1
    first: LogTime | None = None
    last: LogTime | None = None


class SeenTimeout(msgspec.Struct, frozen=True):
    """A timeout of PyTorch's watchdog, the global rank (-1: unknown) and its time."""

    event: Timeout
    rank: int
    time: LogTime | None
    process: Process | None


class JobLog:
    """The content of the logs of one job so far."""

    def __init__(self) -> None:
        self.size = 0
        self.nccl_lines = 0
        self.not_parsed = 0
        self.left_out: Counter[str] = Counter()
        self.versions: Counter[str] = Counter()
        self.processes: dict[Process, ProcessFacts] = {}
        self.hosts: dict[str, HostFacts] = {}
        self.channels: dict[Process, set[Channel]] = {}
        self.failures: dict[tuple[Process | None, Failure], SeenFailure] = {}
        self.timeouts: dict[tuple[int, str], SeenTimeout] = {}
        self.progress: dict[tuple[int, str], Progress] = {}
        self.signals: dict[int, int] = {}
        self.warnings: Counter[str] = Counter()
        self.tests = BenchmarkReader()
        self.last_time: LogTime | None = None
        self.ranks_by_source: dict[str, set[int]] = {}
        self.hosts_by_source: dict[str, set[str]] = {}
        self._made_index: _Index | None = None
        self._alike: Counter[int] = Counter()
        self._channels_seen: set[int] = set()

    def accept(self, block: bytes, source: str) -> None:
        """Read a block of whole lines of a log."""
        self.size += len(block)
        self._made_index = None
        self.tests.accept(block, source)
        if _MARK not in block:
            return
        for line in block.split(b"\n"):
            if _MARK in line:
                self.nccl_lines += 1
                if self._is_useful(line):
                    self._read(line, source)

    def _is_useful(self, line: bytes) -> bool:
        """Whether a line with `NCCL` is to be parsed; lines of no use are dropped here."""
        at = line.find(_INFO)
        if at >= 0:
            at += len(_INFO)
            head = line[at : at + _HEAD]
            if head == b"Channel":
                return self._is_new_channel(line, at)
            if head not in _USEFUL and not (b"comm 0x" in line and b" rank " in line):
                return False
        shape = hash(line[:MAX_LINE].translate(None, _DIGITS))
        count = self._alike[shape]
        if count >= _MOST_ALIKE or (not count and len(self._alike) >= _MOST_SHAPES):
            self.not_parsed += 1
            return False
        self._alike[shape] = count + 1
        return True

    def _is_new_channel(self, line: bytes, at: int) -> bool:
        if b"NET/" not in line:
            return False
        # The same two ranks have many channels: their numbers do not matter.
        ranks = line.find(b" : ", at)
        key = hash((line[max(0, at - 80) : at], line[ranks : ranks + 120]))
        if key in self._channels_seen or len(self._channels_seen) >= _MOST_CHANNELS:
            return False
        self._channels_seen.add(key)
        return True

    def _read(self, line: bytes, source: str) -> None:
        text = line[:MAX_LINE].decode("utf-8", "replace")
        for found in parse_line(text):
            self._note_source(found, source)
            self._add(found.event, found, text, source)

    def _note_source(self, found: LogLine, source: str) -> None:
        if found.rank >= 0:
            _add_to(self.ranks_by_source, source, found.rank)
        if found.process is not None:
            _add_to(self.hosts_by_source, source, found.process.host)
            if len(self.processes) < _MOST_PROCESSES:
                self.processes.setdefault(found.process, ProcessFacts())
            else:
                self.left_out["processes"] += 1

    def _add(self, event: Event, found: LogLine, text: str, source: str) -> None:
        process = found.process
        if isinstance(event, (CompletionError, DeviceEvent, SocketError)):
            self._add_failure(event, process, text, source)
        elif isinstance(event, Warned):
            self._add_warning(event.text)
        elif isinstance(event, Version):
            self.versions[event.text] += 1
        elif isinstance(event, Timeout):
            rank = found.rank if found.rank >= 0 else event.rank
            if len(self.timeouts) < _MOST_RANKS:
                at = find_time(text)
                seen = SeenTimeout(event, rank, at, process)
                self.timeouts.setdefault((rank, event.group), seen)
        elif isinstance(event, Progress):
            rank = found.rank if found.rank >= 0 else event.rank
            if len(self.progress) < _MOST_RANKS:
                self.progress[rank, event.group] = event
        elif isinstance(event, Signalled):
            if event.by >= 0 and len(self.signals) < _MOST_RANKS:
                rank = found.rank if found.rank >= 0 else event.rank
                self.signals.setdefault(rank, event.by)
        elif process is not None:
            self._add_facts(event, process)

    def _add_facts(self, event: Event, process: Process) -> None:
        facts = self.processes.get(process)
        if isinstance(event, Communicator) and facts is not None:
            if event.ranks > facts.ranks:
                facts.rank, facts.ranks = event.rank, event.ranks
                facts.gpu, facts.pci = event.gpu, event.pci
        elif isinstance(event, (Devices, Bootstrap)):
            if process.host not in self.hosts and len(self.hosts) >= _MOST_HOSTS:
                self.left_out["hosts"] += 1
                return
            host = self.hosts.setdefault(process.host, HostFacts())
            if isinstance(event, Devices):
                host.hcas.update(event.hcas)
            if event.address and len(host.addresses) < 16:
                host.addresses.add(event.address)
        elif isinstance(event, Channel):
            self.channels.setdefault(process, set()).add(event)
            if facts is not None and facts.inferred_rank < 0:
                facts.inferred_rank = event.peer if event.is_receive else event.rank

    def _add_failure(self, event: Failure, process: Process | None, text: str, source: str) -> None:
        at = find_time(text)
        if at is not None:
            self.last_time = at
        seen = self.failures.get((process, event))
        if seen is not None:
            seen.count += 1
            seen.last = at or seen.last
        elif len(self.failures) < _MOST_FAILURES:
            order = len(self.failures)
            seen = SeenFailure(event, process, order, source, text.strip()[:400])
            seen.first = seen.last = at
            self.failures[process, event] = seen
        else:
            self.left_out["failures"] += 1

    def _add_warning(self, text: str) -> None:
        if text in self.warnings or len(self.warnings) < _MOST_WARNINGS:
            self.warnings[text] += 1
        else:
            self.left_out["warnings"] += 1

    @property
    def _index(self) -> _Index:
        """The index of what was read so far."""
        if self._made_index is None:
            self._made_index = _Index(self)
        return self._made_index

    def host_of_address(self, address: str) -> str:
        """The host with an address for connection setup, by the log; empty if unknown."""
        return self._index.by_address.get(address, "")

    def host_of_gid(self, gid: str) -> tuple[str, str]:
        """The host and HCA with a GID, by the log's failures; empty texts if unknown."""
        return self._index.by_gid.get(gid, ("", ""))

    def rank_of(self, process: Process | None) -> int:
        """The rank of a process; -1 if unknown."""
        if process is None:
            return -1
        facts = self.processes.get(process)
        if facts is None:
            return -1
        return facts.rank if facts.rank >= 0 else facts.inferred_rank

    def process_of(self, rank: int) -> Process | None:
        """The process with a rank in the largest communicator; None if unknown."""
        return self._index.by_rank.get(rank)

    def peers_of(self, process: Process | None, side: str, hca: str) -> list[int]:
        """The ranks at the other end of a process' connections in one direction (`send`, `recv`,
        empty: both), over an HCA (empty: any)."""
        if process is None:
            return []
        host = self.hosts.get(process.host)
        found: set[int] = set()
        for each in self.channels.get(process, ()):
            if side and each.is_receive != (side == "recv"):
                continue
            names = host.hcas.get(each.hca, ()) if host is not None else ()
            if hca and names and hca not in names:
                continue
            found.add(each.rank if each.is_receive else each.peer)
        return sorted(found)

    def hcas_of(self, process: Process | None, peer: int | None = None) -> list[str]:
        """The HCAs that a process' connections use, to a rank (None: to any)."""
        if process is None or process.host not in self.hosts:
            return []
        by_index = self.hosts[process.host].hcas
        channels = self.channels.get(process, ())
        used = {each.hca for each in channels if peer is None or peer in (each.rank, each.peer)}
        return [name for index in sorted(used) for name in by_index.get(index, ())]


class _Index:
    """Hosts by address and GID, processes by rank."""

    def __init__(self, log: JobLog) -> None:
        self.by_address: dict[str, str] = {}
        self.by_gid: dict[str, tuple[str, str]] = {}
        self.by_rank: dict[int, Process] = {}
        for name, host in log.hosts.items():
            for address in host.addresses:
                self.by_address.setdefault(address, name)
        for seen in log.failures.values():
            event = seen.event
            if isinstance(event, CompletionError) and event.local_gid and seen.process:
                self.by_gid.setdefault(event.local_gid, (seen.process.host, event.hca))
        most = max((facts.ranks for facts in log.processes.values()), default=0)
        for process, facts in log.processes.items():
            rank = facts.inferred_rank if not most else facts.rank if facts.ranks == most else -1
            if rank >= 0:
                self.by_rank.setdefault(rank, process)
        self._add_files(log)

    def _add_files(self, log: JobLog) -> None:
        """A log with lines of one rank of PyTorch and one host is that of the rank's process."""
        by_host: dict[str, Process] = {}
        for process in log.processes:
            by_host.setdefault(process.host, process)
        for source, ranks in log.ranks_by_source.items():
            hosts = log.hosts_by_source.get(source, set())
            if len(ranks) == len(hosts) == 1:
                self.by_rank.setdefault(next(iter(ranks)), by_host[next(iter(hosts))])


def _add_to(kept: dict[str, set[_T]], key: str, value: _T) -> None:
    """Add a value to the set of a key, of which few are of interest."""
    values = kept.setdefault(key, set())
    if len(values) < 3:
        values.add(value)


def order_of_cause(failures: Iterable[SeenFailure]) -> list[SeenFailure]:
    """Failures, those that may be the cause first: events of ports, then failed requests, then
    what follows from others (flushed requests, closed connections); each in the log's order."""
    return sorted(failures, key=lambda seen: (_rank_of_cause(seen.event), seen.order))


def _rank_of_cause(event: Failure) -> int:
    if isinstance(event, DeviceEvent):
        return 3 if event_meaning(event.text).is_consequence else 0
    if isinstance(event, CompletionError):
        return 2 if status_meaning(event.status).is_consequence else 1
    return 3
