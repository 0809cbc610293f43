"""What the logs of a job say: ranks, hosts, HCAs, connections, failures. Bounded in memory.

Logs of gigabytes are mostly lines of no use here: cheap searches for bytes sort these out before a
line is decoded. Lines that differ in digits only are read up to a limit, then counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from fabmon.analysis.job_log.events import (
    CANCELLED,
    PROCESS,
    PROGRAM,
    SHARED_MEMORY,
    Bootstrap,
    Channel,
    Communicator,
    Devices,
    Event,
    Failure,
    Process,
    Progress,
    Signalled,
    SlowSign,
    Timeout,
    Version,
)
from fabmon.analysis.job_log.failure_words import MARKS, WRITERS
from fabmon.analysis.job_log.launchers import after_cancel
from fabmon.analysis.job_log.line_filter import MAX_PIECE, LineFilter, pieces
from fabmon.analysis.job_log.log_lines import LogLine, parse_line, text_of
from fabmon.analysis.job_log.log_times import find_time
from fabmon.analysis.job_log.nccl_tests import BenchmarkReader
from fabmon.analysis.job_log.seen import (
    HostFacts,
    ProcessFacts,
    SeenFailure,
    SeenTimeout,
    merged_timeouts,
)
from fabmon.analysis.job_log.several_lines import SeveralLines
from fabmon.analysis.job_log.torch_fields import is_world

_LOCAL_ADDRESS = re.compile(r"\baddr=\[(?:::ffff:)?([\w.:]{2,64})\]:\d")

_MOST_PROCESSES = 100_000
_MOST_HOSTS = 50_000
_MOST_FAILURES = 10_000
_MOST_RANKS = 100_000
_MOST_GROUPS = 4_096
"""Process groups in which ranks of one number time out: a job of 32,768 has so many of 8. Each line
is compared with all of them."""
_MOST_UNREAD = 200
_MOST_SIGNS = 10_000

_T = TypeVar("_T")


class JobLog:
    """The content of the logs of one job so far."""

    def __init__(self) -> None:
        self.size = 0
        self.lines = 0
        self.nccl_lines = 0
        self._writers: set[str] = set()
        """Logs in which a program that is known here wrote a line."""
        self._understood: set[str] = set()
        self.left_out: Counter[str] = Counter()
        self.versions: Counter[str] = Counter()
        self.processes: dict[Process, ProcessFacts] = {}
        self.hosts: dict[str, HostFacts] = {}
        self.channels: dict[Process, set[Channel]] = {}
        self.failures: dict[tuple[Process | None, int, Failure], SeenFailure] = {}
        self.timeouts: dict[tuple[int, int], list[SeenTimeout]] = {}
        """By sequence number and rank in the process group."""
        self.progress: dict[tuple[int, int, str], Progress] = {}
        """By global rank (-1: unknown), rank in the process group, and the group."""
        self.signals: dict[int, int] = {}
        self.signs: dict[SlowSign, set[Process | None]] = {}
        self.retries: dict[str, Counter[str]] = {}
        """Connections that were tried again, by log and peer, until the log shows that they were
        made."""
        self.unread: dict[str, tuple[str, int]] = {}
        """Lines that speak of a failure and were not understood: by what is the same in those that
        differ in digits, one of them and their number."""
        self.tests = BenchmarkReader()
        self.rank_hosts: dict[int, str] = {}
        """By launchers: their labels, and torchrun's summary."""
        self.address_hosts: dict[str, str] = {}
        """By lines of PyTorch behind the label of a host."""
        self.ranks_by_source: dict[str, set[int]] = {}
        self.hosts_by_source: dict[str, set[str]] = {}
        self._made_index: _Index | None = None
        self._filter = LineFilter()
        self._several = SeveralLines()
        self._cancelled: set[str] = set()
        """Logs in which Slurm has ended the step."""

    def accept(self, block: bytes, source: str) -> None:
        """Read a block of whole lines of a log."""
        self.size += len(block)
        self._made_index = None
        self.tests.accept(block, source)
        marks = [mark for mark in MARKS if mark in block]
        if not marks and not self._several.is_open:
            self.lines += block.count(b"\n") + 1
            return
        # A carriage return ends a line too: progress bars are written with it.
        lines = block.splitlines()
        self.lines += len(lines)
        for line in lines:
            for mark in marks:
                if mark in line:
                    break
            else:
                if self._several.is_open:
                    self._read_unmarked(line, source)
                continue
            self.nccl_lines += 1
            if source not in self._writers and WRITERS.search(line):
                self._writers.add(source)
            if self._filter.is_useful(line, self._several.is_open):
                self._read(line, source)

    def _read(self, line: bytes, source: str) -> None:
        is_of_use = False
        before: LogLine | None = None
        for piece in pieces(line):
            text = text_of(piece)
            found = self._several.complete(parse_line(text), source)
            # A message in two pieces that overlap is one.
            if before is not None and found.events == before.events:
                continue
            before = found
            is_of_use |= bool(found.events) or found.is_unread or self._several.is_open
            self._note(found, text, source)
        if not is_of_use:
            self._filter.was_useless(line)

    def _read_unmarked(self, line: bytes, source: str) -> None:
        """A line that may belong to one with a mark."""
        text = text_of(line[:MAX_PIECE])
        found = self._several.belonging(text, source)
        if found is not None:
            self._note(found, text, source)

    def _note(self, found: LogLine, text: str, source: str) -> None:
        self._note_source(found, source)
        local = _LOCAL_ADDRESS.search(found.body) if found.host else None
        if local is not None and len(self.address_hosts) < _MOST_HOSTS:
            self.address_hosts.setdefault(local[1], found.host)
        if found.events or found.is_unread:
            self._understood.add(source)
        for event in found.events:
            self._add(event, found, text, source)
        if found.is_unread:
            self._add_unread(found.body)

    def _note_source(self, found: LogLine, source: str) -> None:
        if found.rank >= 0:
            _add_to(self.ranks_by_source, source, found.rank)
            if found.host and len(self.rank_hosts) < _MOST_RANKS:
                self.rank_hosts.setdefault(found.rank, found.host)
        if found.process is not None and (found.events or found.is_unread):
            _add_to(self.hosts_by_source, source, found.process.host)
            if len(self.processes) < _MOST_PROCESSES:
                self.processes.setdefault(found.process, ProcessFacts())
            else:
                self.left_out["processes"] += 1

    def _add(self, event: Event, found: LogLine, text: str, source: str) -> None:
        process, rank = found.process, found.rank
        if isinstance(event, Failure):
            self._add_failure(event, found, text, source)
        elif isinstance(event, Version):
            self.versions[event.text] += 1
        elif isinstance(event, SlowSign):
            self._add_sign(event, process, source)
        elif isinstance(event, Timeout):
            self._add_timeout(event, found, text)
        elif isinstance(event, Progress):
            if len(self.progress) < _MOST_RANKS:
                known = event.rank if rank < 0 and is_world(event.group) else rank
                self.progress[known, event.rank, event.group] = event
        elif isinstance(event, Signalled):
            if len(self.signals) < _MOST_RANKS:
                self.signals.setdefault(rank if rank >= 0 else event.rank, event.by)
        elif process is not None:
            self._add_facts(event, process, source)

    def _add_facts(self, event: Event, process: Process, source: str) -> None:
        facts = self.processes.get(process)
        if isinstance(event, (Channel, Communicator)):
            self.retries.pop(source, None)
        if isinstance(event, Communicator) and facts is not None:
            if event.ranks > facts.ranks:
                facts.rank, facts.ranks = event.rank, event.ranks
                facts.gpu, facts.pci = event.gpu, event.pci
        elif isinstance(event, (Devices, Bootstrap)):
            host = self._host(process.host)
            if isinstance(event, Devices):
                host.hcas.update(event.hcas)
            if event.address and len(host.addresses) < 16:
                host.addresses.add(event.address)
        elif isinstance(event, Channel):
            self.channels.setdefault(process, set()).add(event)
            if facts is not None and facts.inferred_rank < 0:
                facts.inferred_rank = event.peer if event.is_receive else event.rank

    def _host(self, name: str) -> HostFacts:
        """The facts of a host; those of one too many are not kept."""
        if name not in self.hosts and len(self.hosts) >= _MOST_HOSTS:
            self.left_out["hosts"] += 1
            return HostFacts()
        return self.hosts.setdefault(name, HostFacts())

    def _add_sign(self, event: SlowSign, process: Process | None, source: str) -> None:
        if event.kind == "retry":
            peers = self.retries.setdefault(source, Counter())
            if len(peers) < _MOST_SIGNS:
                peers[event.text] += 1
        elif event.kind == "nics":
            if process is not None:
                self._host(process.host).nics = event.count
        elif event in self.signs or len(self.signs) < _MOST_SIGNS:
            processes = self.signs.setdefault(event, set())
            if len(processes) < _MOST_PROCESSES:
                processes.add(process)

    def _add_timeout(self, event: Timeout, found: LogLine, text: str) -> None:
        """Add a timeout, or what another line says of one that is known."""
        rank = event.rank if found.rank < 0 and is_world(event.group) else found.rank
        new = SeenTimeout(event, rank, find_time(text), found.process)
        known = self.timeouts.setdefault((event.seq, event.rank), [])
        for seen in known:
            merged = merged_timeouts(seen, new)
            if merged is not None:
                seen.event, seen.rank = merged, max(seen.rank, rank)
                seen.time = seen.time or new.time
                return
        if len(self.timeouts) < _MOST_RANKS and len(known) < _MOST_GROUPS:
            known.append(new)
        else:
            self.left_out["timeouts"] += 1

    def _add_failure(self, event: Failure, found: LogLine, text: str, source: str) -> None:
        at = find_time(found.dated)
        if event.text.startswith(CANCELLED):
            self._cancelled.add(source)
        elif source in self._cancelled:
            event = after_cancel(event)
        rank = event.rank if event.rank >= 0 else found.rank
        if event.kind == PROCESS and rank >= 0 and len(self.rank_hosts) < _MOST_RANKS:
            self.rank_hosts.setdefault(rank, event.peer)
        process = found.process
        key = (process, rank, event)
        seen = self.failures.get(key)
        if seen is not None:
            seen.count += 1
            seen.last = at or seen.last
        elif len(self.failures) < _MOST_FAILURES:
            order = len(self.failures)
            host = found.process.host if found.process is not None else found.host
            if event.rank >= 0:
                # The line names a rank that is not the one that wrote it.
                host, process = "", None
            seen = SeenFailure(event, process, rank, host, order, source, text.strip()[:400])
            seen.first = seen.last = at
            self.failures[key] = seen
        else:
            self.left_out["failures"] += 1

    def _add_unread(self, body: str) -> None:
        shape = re.sub(r"\d+", "0", body[:300])
        text, count = self.unread.get(shape, (body.strip()[:300], 0))
        if count or len(self.unread) < _MOST_UNREAD:
            self.unread[shape] = text, count + 1
        else:
            self.left_out["unread"] += 1

    def forget_quotes(self) -> None:
        """Forget what the job itself wrote: messages of its exceptions, of which the class stays,
        and lines that were not understood, of which the number does."""
        self.unread = {shape: ("", count) for shape, (_, count) in self.unread.items()}
        for seen in self.failures.values():
            event = seen.event
            if event.kind == PROGRAM and not event.text.startswith(SHARED_MEMORY):
                raised = event.text.partition(":")[0]
                seen.event = msgspec.structs.replace(event, text=raised)

    def has_line_of_job(self, source: str) -> bool:
        """Whether a log has a line that a program which is known here wrote, that was understood or
        that speaks of a failure."""
        is_test = any(run.source == source for run in self.tests.runs)
        return is_test or source in self._writers or source in self._understood

    @property
    def is_of_job(self) -> bool:
        """Whether a program that is known here wrote a line, or a line was understood or speaks of
        a failure: only then "no failure" may be said."""
        return bool(
            self._writers
            or self.failures
            or self.timeouts
            or self.signals
            or self.signs
            or self.unread
            or self.tests.runs
        )

    @property
    def not_parsed(self) -> int:
        """The number of lines that were not read, as too many were like them."""
        return self._filter.not_parsed

    @property
    def unread_lines(self) -> int:
        """The number of lines that speak of a failure and were not understood."""
        return sum(count for _, count in self.unread.values()) + self.left_out["unread"]

    @property
    def all_timeouts(self) -> Iterator[SeenTimeout]:
        """All timeouts, in the order of the log."""
        for each in self.timeouts.values():
            yield from each

    @property
    def _index(self) -> _Index:
        """The index of what was read so far."""
        if self._made_index is None:
            self._made_index = _Index(self)
        return self._made_index

    def host_of_address(self, address: str) -> str:
        """The host with an address for connection setup, by the log; empty if unknown."""
        return self._index.by_address.get(address) or self.address_hosts.get(address, "")

    def host_of_gid(self, gid: str) -> tuple[str, str]:
        """The host and HCA with a GID, by the log's failures; empty texts if unknown."""
        return self._index.by_gid.get(gid, ("", ""))

    def host_of_source(self, source: str) -> str:
        """The host that wrote a file, where nothing on a line says it: that of all its lines of
        NCCL, if all ranks of the job are on it, or if each file is that of another host. Empty if
        unknown."""
        hosts = self.hosts_by_source.get(source, set())
        if len(hosts) != 1:
            return ""
        host = next(iter(hosts))
        others = [each for name, each in self.hosts_by_source.items() if name != source]
        if others:
            is_one = all(len(each) == 1 and host not in each for each in others)
        else:
            on_host = {
                facts.rank for process, facts in self.processes.items() if process.host == host
            }
            ranks = max((facts.ranks for facts in self.processes.values()), default=0)
            is_one = 0 < ranks <= len(on_host - {-1})
        return host if is_one else ""

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

    def host_of_rank(self, rank: int) -> str:
        """The host of a global rank; empty if unknown."""
        process = self.process_of(rank)
        return (process.host if process is not None else "") or self.rank_hosts.get(rank, "")

    @property
    def silent_ranks(self) -> list[int]:
        """Ranks that wrote nothing, where at least half of the job's did; empty where that is not
        known: where no line has the size of the job, the log of one rank says nothing of others."""
        known = {rank for rank, _, _ in self.progress} | set(self.signals) | set(self.rank_hosts)
        known |= {each.rank for each in self.failures.values()}
        known |= {self.rank_of(each.process) for each in self.failures.values()}
        known |= {each.rank for each in self.all_timeouts}
        known.discard(-1)
        world = max((facts.ranks for facts in self.processes.values()), default=0)
        if not world and len(known) < 2:
            return []
        world = max(world, max(known, default=-1) + 1)
        if 2 * len(known) < world:
            return []
        return [rank for rank in range(world) if rank not in known]

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
            names = _nic_names(host, each)
            if hca and names and hca not in names:
                continue
            found.add(each.rank if each.is_receive else each.peer)
        return sorted(found)

    def hcas_of(self, process: Process | None, peer: int | None = None) -> list[str]:
        """The HCAs that a process' connections use, to a rank (None: to any)."""
        if process is None:
            return []
        host = self.hosts.get(process.host)
        channels = self.channels.get(process, ())
        used = {
            (each.hca, _nic_names(host, each))
            for each in channels
            if peer is None or peer in (each.rank, each.peer)
        }
        return list(dict.fromkeys(name for _, names in sorted(used) for name in names))


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
            if event.local_gid and seen.process:
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


def _nic_names(host: HostFacts | None, channel: Channel) -> tuple[str, ...]:
    """The NIC of a connection: its HCAs, or the device of another transport by its index."""
    names = host.hcas.get(channel.hca, ()) if host is not None else ()
    if names or channel.hca < 0 or channel.transport in ("NET/IB", "NET/Socket"):
        return names
    return (f"device {channel.hca}",)
