"""Who takes part in a job, by its logs: which rank is which process, on which host, and peers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabmon.analysis.job_log.events import Channel, Process
from fabmon.analysis.job_log.seen import HostFacts

if TYPE_CHECKING:
    from fabmon.analysis.job_log.job_log import JobLog


class JobMembers:
    """The members of a job, of what was read of its logs until this was made."""

    def __init__(self, log: JobLog) -> None:
        self._log = log
        self._by_address: dict[str, str] = {}
        self._by_gid: dict[str, tuple[str, str]] = {}
        self._by_rank: dict[int, Process] = {}
        for name, host in log.hosts.items():
            for address in host.addresses:
                self._by_address.setdefault(address, name)
        for seen in log.failures.values():
            event = seen.event
            if event.local_gid and seen.process:
                self._by_gid.setdefault(event.local_gid, (seen.process.host, event.hca))
        most = max((facts.ranks for facts in log.processes.values()), default=0)
        for process, facts in log.processes.items():
            rank = facts.inferred_rank if not most else facts.rank if facts.ranks == most else -1
            if rank >= 0:
                self._by_rank.setdefault(rank, process)
        self._add_files(log)

    def host_of_address(self, address: str) -> str:
        """The host with an address for connection setup, by the log; empty if unknown."""
        return self._by_address.get(address) or self._log.address_hosts.get(address, "")

    def host_of_gid(self, gid: str) -> tuple[str, str]:
        """The host and HCA with a GID, by the log's failures; empty texts if unknown."""
        return self._by_gid.get(gid, ("", ""))

    def host_of_source(self, source: str) -> str:
        """The host that wrote a file, where nothing on a line says it: that of all its lines of
        NCCL, if all ranks of the job are on it, or if each file is that of another host. Empty if
        unknown."""
        hosts = self._log.hosts_by_source.get(source, set())
        if len(hosts) != 1:
            return ""
        host = next(iter(hosts))
        others = [each for name, each in self._log.hosts_by_source.items() if name != source]
        if others:
            is_one = all(len(each) == 1 and host not in each for each in others)
        else:
            on_host = {
                facts.rank for process, facts in self._log.processes.items() if process.host == host
            }
            ranks = max((facts.ranks for facts in self._log.processes.values()), default=0)
            is_one = 0 < ranks <= len(on_host - {-1})
        return host if is_one else ""

    def rank_of(self, process: Process | None) -> int:
        """The rank of a process; -1 if unknown."""
        if process is None:
            return -1
        facts = self._log.processes.get(process)
        if facts is None:
            return -1
        return facts.rank if facts.rank >= 0 else facts.inferred_rank

    def process_of(self, rank: int) -> Process | None:
        """The process with a rank in the largest communicator; None if unknown."""
        return self._by_rank.get(rank)

    def host_of_rank(self, rank: int) -> str:
        """The host of a global rank; empty if unknown."""
        process = self.process_of(rank)
        return (process.host if process is not None else "") or self._log.rank_hosts.get(rank, "")

    @property
    def silent_ranks(self) -> list[int]:
        """Ranks that wrote nothing, where at least half of the job's did; empty where that is not
        known: where no line has the size of the job, the log of one rank says nothing of others."""
        known = (
            {rank for rank, _, _ in self._log.progress}
            | set(self._log.signals)
            | set(self._log.rank_hosts)
        )
        known |= {each.rank for each in self._log.failures.values()}
        known |= {self.rank_of(each.process) for each in self._log.failures.values()}
        known |= {each.rank for each in self._log.all_timeouts}
        known.discard(-1)
        world = max((facts.ranks for facts in self._log.processes.values()), default=0)
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
        host = self._log.hosts.get(process.host)
        found: set[int] = set()
        for each in self._log.channels.get(process, ()):
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
        host = self._log.hosts.get(process.host)
        channels = self._log.channels.get(process, ())
        used = {
            (each.hca, _nic_names(host, each))
            for each in channels
            if peer is None or peer in (each.rank, each.peer)
        }
        return list(dict.fromkeys(name for _, names in sorted(used) for name in names))

    def _add_files(self, log: JobLog) -> None:
        """A log with lines of one rank of PyTorch and one host is that of the rank's process."""
        by_host: dict[str, Process] = {}
        for process in log.processes:
            by_host.setdefault(process.host, process)
        for source, ranks in log.ranks_by_source.items():
            hosts = log.hosts_by_source.get(source, set())
            if len(ranks) == len(hosts) == 1:
                self._by_rank.setdefault(next(iter(ranks)), by_host[next(iter(hosts))])


def _nic_names(host: HostFacts | None, channel: Channel) -> tuple[str, ...]:
    """The NIC of a connection: its HCAs, or the device of another transport by its index."""
    names = host.hcas.get(channel.hca, ()) if host is not None else ()
    if names or channel.hca < 0 or channel.transport in ("NET/IB", "NET/Socket"):
        return names
    return (f"device {channel.hca}",)
