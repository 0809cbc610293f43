"""The node, GPU, NICs and links of a rank that RAS names."""

from __future__ import annotations

from collections import defaultdict

from fabmon.analysis.job.observation import Location
from fabmon.analysis.job_log.events import Process
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.analysis.job_log.places import Places
from fabmon.analysis.nccl_ras.job_status import Member
from fabmon.fabric.pseudonyms import without_domain


class RankPlaces:
    """Finds ranks by places and by the log of the job, None without one."""

    def __init__(self, places: Places, log: JobLog | None = None) -> None:
        self._places = places
        self._log = log
        self._processes: defaultdict[int, list[Process]] = defaultdict(list)
        for process in log.processes if log is not None else ():
            self._processes[process.pid].append(process)

    def host(self, host: str) -> str:
        """The node with a name or address that RAS has; the same text where it is not known."""
        known = self._places.host_of(host)
        if not known and self._log is not None:
            known = self._log.host_of_address(host)
        return known or host

    def locate(self, member: Member) -> Location:
        """Where a rank is. Its NICs are those that its log has, else those nearest to its GPU."""
        host = self.host(member.host)
        hcas = self._hcas(member, host)
        found = [self._places.port(host, hca) for hca in hcas if host]
        ports = [each for each in found if each is not None]
        if host and not ports:
            ports = self._places.ports_of_gpu(host, member.gpu)
        return Location(
            ranks=(member.rank,) if member.rank >= 0 else (),
            host=host,
            pid=member.pid if member.pid >= 0 else None,
            gpus=(member.gpu,) if member.gpu >= 0 else (),
            hcas=tuple(hcas),
            ports=tuple(ports),
        )

    def _hcas(self, member: Member, host: str) -> list[str]:
        for process in self._processes.get(member.pid, ()):
            if self._log is not None and process.host in (without_domain(host), host, member.host):
                return self._log.hcas_of(process)
        return []
