"""The status that NCCL's RAS reports, with nodes, NICs and links, as the record of `fabmon ras`."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from fabmon.analysis.job.wire import Wire
from fabmon.analysis.job_log.events import Process
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.analysis.job_log.places import Place, Places
from fabmon.analysis.nccl_ras.job_status import JobStatus, LateGroup, Member, late_groups, movement
from fabmon.fabric.pseudonyms import without_domain
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.wording import name_list
from fabmon.report.explanation import replaced_names
from fabmon.report.ras_conclusions import conclusions, needs_action
from fabmon.report.ras_records import (
    LateRecord,
    MissingProcessRecord,
    MissingRankRecord,
    RankRecord,
    RasRecord,
    StateRecord,
)

_NAMED_NICS = 2


class RankNames:
    """Finds the node, GPU, NICs and links of ranks, by places and by the log of the job."""

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

    def places(self, member: Member) -> list[Place]:
        """The NICs of a rank: those that its log has, or those nearest to its GPU."""
        host = self.host(member.host)
        if not host:
            return []
        found = [self._places.port(host, hca) for hca in self._hcas(member, host)]
        return [each for each in found if each is not None] or self._places.ports_of_gpu(
            host, member.gpu
        )

    def _hcas(self, member: Member, host: str) -> list[str]:
        if self._log is None:
            return []
        for process in self._processes.get(member.pid, ()):
            if process.host in (without_domain(host), host, member.host):
                return self._log.hcas_of(process)
        return []

    def record(self, member: Member) -> RankRecord:
        """The record of a rank."""
        host = self.host(member.host)
        nics = self.places(member)
        hcas = self._hcas(member, host)
        links = [" ".join(filter(None, (nic.leaf, nic.leaf_port))) for nic in nics if nic.leaf]
        facts = [
            host,
            f"GPU {member.gpu}" if member.gpu >= 0 else "",
            name_list([nic.name.removeprefix(f"{nic.node} ") for nic in nics] or hcas, _NAMED_NICS)
            if 0 < len(nics) <= _NAMED_NICS or hcas
            else "",
            f"at {name_list(links, _NAMED_NICS)}" if 0 < len(links) <= _NAMED_NICS else "",
        ]
        where = ", ".join(filter(None, facts))
        return RankRecord(
            rank=member.rank,
            host=host or None,
            pid=member.pid if member.pid >= 0 else None,
            gpu=member.gpu if member.gpu >= 0 else None,
            nics=[nic.port for nic in nics],
            links=links,
            name=f"rank {member.rank} ({where})" if where else f"rank {member.rank}",
        )


def ras_record(
    status: JobStatus,
    before: JobStatus | None,
    source: str,
    names: RankNames,
    *,
    asked_at: datetime.datetime | None = None,
    wire: Wire | None = None,
    notes: Sequence[str] = (),
) -> RasRecord:
    """An answer as a record; `before` is an earlier answer of the same job."""
    moved = movement(before, status)
    late = [_late(each, names) for each in late_groups(status)]
    missing = [
        MissingRankRecord(communicator=each.name, state=lack.state, rank=names.record(lack.member))
        for each in status.communicators
        for lack in each.missing
    ]
    states = [
        StateRecord(
            communicator=each.name,
            state=group.state,
            is_error=group.is_error,
            count=group.size,
            ranks=[names.record(member) for member in group.members],
        )
        for each in status.communicators
        for group in each.states
        if group.is_error or group.state != "RUNNING"
    ]
    processes = [
        MissingProcessRecord(
            host=names.host(each.host), pid=each.pid, gpus=list(each.gpus), is_dead=each.is_dead
        )
        for each in status.missing
    ]
    has_counts = any(each.counts for each in status.communicators)
    sentences = list(
        conclusions(processes, missing, late, states, moved, wire, status.is_complete, has_counts)
    )
    if wire is not None:
        sentences += [
            f"The recording has a finding on it at that time: {each.text}."
            for each in wire.findings[:3]
            if each.is_on_path
        ]
    return RasRecord(
        source=source,
        asked_at=asked_at,
        answer_time=None if status.time is None else f"{status.time.at:%Y-%m-%d %H:%M:%S}",
        nccl_version=status.version or None,
        is_complete=status.is_complete,
        nodes=status.nodes,
        processes=status.processes,
        gpus=status.gpus,
        communicators=status.communicator_count,
        timeouts=status.timeouts,
        collection_s=status.collection_s,
        movement=moved.value,
        needs_action=needs_action(processes, missing, late, states, moved),
        conclusions=sentences,
        missing_processes=processes,
        missing=missing,
        late=late,
        states=states,
        wire=wire,
        notes=list(notes),
    )


def _late(group: LateGroup, names: RankNames) -> LateRecord:
    return LateRecord(
        communicator=group.communicator,
        operation=group.operation,
        launched=group.launched,
        expected=group.expected,
        count=group.size,
        ranks=[names.record(member) for member in group.members],
    )


def redacted_ras_record(record: RasRecord, redactor: Redactor) -> RasRecord:
    """The record with pseudonyms; the name of a file is left out."""
    ranks = [
        *(each.rank for each in record.missing),
        *(rank for late in record.late for rank in late.ranks),
        *(rank for state in record.states for rank in state.ranks),
    ]
    hosts = [*(each.host for each in ranks), *(each.host for each in record.missing_processes)]
    for host in hosts:
        if host:
            redactor.node(host)
    plain = msgspec.structs.replace(record, source="an answer of RAS")
    return msgspec.convert(replaced_names(msgspec.to_builtins(plain), redactor), RasRecord)
