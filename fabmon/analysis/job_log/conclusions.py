"""What follows from the logs of a job: ends of failures, what they share, ranks that are late."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from fabmon.analysis.job_log.events import (
    CANCELLED,
    COMPLETION,
    EXCEPTION,
    GPU,
    PROCESS,
    PROGRAM,
    REQUEST,
    Process,
)
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.analysis.job_log.launchers import SOME_EXIT
from fabmon.analysis.job_log.log_times import LogTime
from fabmon.analysis.job_log.places import Place, Places
from fabmon.analysis.job_log.seen import SeenFailure, SeenTimeout, order_of_cause
from fabmon.analysis.job_log.torch_fields import is_world

_SHARED = 0.6
"""A port that this share of failed connections have in common is named."""


class FailureEnd(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a failed connection; empty where unknown. `ranks` are the possible ranks."""

    host: str = ""
    ranks: tuple[int, ...] = ()
    gpu: int = -1
    hcas: tuple[str, ...] = ()
    address: str = ""
    gid: str = ""
    place: Place | None = None

    @property
    def name(self) -> str:
        """The end in few words: `rank 4 node17 mlx5_3`, or its address."""
        rank = f"rank {self.ranks[0]}" if len(self.ranks) == 1 else ""
        if self.place is not None:
            where = self.place.name
        else:
            hca = self.hcas[0] if len(self.hcas) == 1 else ""
            where = " ".join(filter(None, (self.host, hca))) or self.address
            if not hca and self.gid:
                where = f"{where} GID {self.gid}".strip()
        return " ".join(filter(None, (rank, where))) or "an unnamed host"


class LocatedFailure(msgspec.Struct, frozen=True):
    """A failure and its ends; `far` is None for one that is no connection."""

    seen: SeenFailure
    near: FailureEnd
    far: FailureEnd | None


class StuckCollective(msgspec.Struct, frozen=True, kw_only=True):
    """A collective that timed out, by process group and sequence number (-1: not given).

    `ranks` report the timeout. `late` have not enqueued it (rank, last enqueued), `silent` are
    ranks of the job without a line about the group, where its size is known. Ranks are those of the
    job if `is_global`, else those in the process group.
    """

    group: str
    seq: int
    operation: str
    is_global: bool
    ranks: tuple[int, ...]
    late: tuple[tuple[int, int], ...]
    silent: tuple[int, ...]
    limit_s: float | None
    ran_s: float | None
    first: LogTime | None


def located_failures(log: JobLog, places: Places) -> list[LocatedFailure]:
    """All failures with their ends, the possible cause first. What only says that there was one is
    left out where the same rank or process says which."""
    every = order_of_cause(log.failures.values())
    cancelled = [each for each in every if each.event.text.startswith(CANCELLED)]
    if any(each.event.peer for each in cancelled):
        # What srun says of the end of the step has neither its reason nor a host.
        every = [each for each in every if each not in cancelled or each.event.peer]
    known = {(each.process, each.rank) for each in every if not _is_general(each)}
    codes = {each.event.code for each in every if each.event.kind == PROCESS and each.rank >= 0}
    if codes:
        codes.add(SOME_EXIT)
    return [
        _located(seen, log, places)
        for seen in every
        if not _is_general(seen)
        or (seen.event.kind == PROCESS and seen.event.code not in codes)
        or (seen.event.kind == EXCEPTION and (seen.process, seen.rank) not in known)
    ]


def _is_general(seen: SeenFailure) -> bool:
    event = seen.event
    return event.kind == EXCEPTION or (event.kind == PROCESS and event.rank < 0 and not event.peer)


def _located(seen: SeenFailure, log: JobLog, places: Places) -> LocatedFailure:
    event = seen.event
    process = seen.process or log.process_of(seen.rank)
    indexed: tuple[str, ...] = ()
    if event.index >= 0:
        host = log.hosts.get(process.host) if process is not None else None
        name = f"{'device' if event.kind == REQUEST else 'HCA'} {event.index}"
        indexed = (host.hcas.get(event.index, ()) if host is not None else ()) or (name,)
    near = _near(seen, process, indexed, log, places)
    has_far = event.kind in (COMPLETION, REQUEST) or event.peer or event.remote_gid
    if event.kind == PROCESS or not has_far:
        return LocatedFailure(seen, near, None)
    ranks: Sequence[int] = ()
    if event.kind in (COMPLETION, REQUEST):
        ranks = log.peers_of(process, event.side, near.hcas[0] if len(near.hcas) == 1 else "")
    far = _far(event.peer, event.remote_gid, ranks, log, places)
    return LocatedFailure(seen, near, _with_hca(far, near, log, places))


def _with_hca(far: FailureEnd, near: FailureEnd, log: JobLog, places: Places) -> FailureEnd:
    """The far end with the HCA that its rank uses towards the near one, where one is known."""
    if far.place is not None or far.hcas or len(far.ranks) != 1 or not near.ranks:
        return far
    process = log.process_of(far.ranks[0])
    if process is None or (far.host and far.host != process.host):
        return far
    hcas = log.hcas_of(process, near.ranks[0])
    place = places.port(process.host, hcas[0]) if len(hcas) == 1 else None
    return msgspec.structs.replace(far, host=process.host, hcas=tuple(hcas), place=place)


def _near(
    seen: SeenFailure,
    process: Process | None,
    indexed: Sequence[str],
    log: JobLog,
    places: Places,
) -> FailureEnd:
    """The end that wrote the line; of a process that ended the one that the line names."""
    event = seen.event
    gid = event.local_gid
    rank = seen.rank if seen.rank >= 0 else log.rank_of(process)
    hcas = (event.hca,) if event.hca else tuple(indexed) or tuple(log.hcas_of(process))
    host = event.peer if event.kind == PROCESS else "" if process is None else process.host
    host = host or seen.host or log.host_of_rank(rank)
    if not host and rank < 0 and event.kind in (GPU, PROCESS, PROGRAM):
        host = log.host_of_source(seen.source)
    place = places.port_of_gid(gid) if gid else None
    if place is None and host and len(hcas) == 1:
        place = places.port(host, hcas[0])
    facts = log.processes.get(process) if process is not None else None
    gpu = facts.gpu if facts is not None and facts.gpu >= 0 else process.gpu if process else -1
    return FailureEnd(
        host=host,
        ranks=(rank,) if rank >= 0 else (),
        gpu=gpu,
        hcas=hcas,
        gid=gid,
        place=place,
    )


def _far(address: str, gid: str, ranks: Sequence[int], log: JobLog, places: Places) -> FailureEnd:
    """The end that the line names, by address and GID; `ranks` are those it may be."""
    place = places.port_of_gid(gid) if gid else None
    host, hca = log.host_of_gid(gid) if gid else ("", "")
    host = host or log.host_of_address(address) or places.host_of(address)
    host = host or (place.node if place is not None else "")
    if not host and address and not address[0].isdecimal() and ":" not in address:
        host = address
    if place is None and host and hca:
        place = places.port(host, hca)
    if host:
        ranks = [rank for rank in ranks if log.host_of_rank(rank) in (host, "")]
    return FailureEnd(
        host=host,
        ranks=tuple(ranks),
        hcas=(hca,) if hca else (),
        address=address,
        gid=gid,
        place=place,
    )


class SharedEnd(msgspec.Struct, frozen=True):
    """What most failed connections have in common: a port, host or leaf, and in how many of all."""

    what: str
    count: int
    total: int


def shared_end(failures: Iterable[LocatedFailure]) -> SharedEnd | None:
    """The port, else host, else leaf that most failed connections share; None for less than three
    connections, or where nothing is shared by most."""
    connections = [
        each
        for each in failures
        if each.far is not None and each.seen.event.kind in (COMPLETION, REQUEST)
    ]
    if len(connections) < 3:
        return None
    ends = [(each.near, each.far) for each in connections if each.far is not None]
    # A line may have the GID of a port only, and another its name too.
    by_gid = {end.gid: _port_name(end) for pair in ends for end in pair if _port_name(end)}
    for of in (lambda end: _port_name(end) or by_gid.get(end.gid, end.gid), _host_name, _leaf_name):
        counts: Counter[str] = Counter()
        for pair in ends:
            counts.update({of(end) for end in pair} - {""})
        ranked = counts.most_common(2)
        if not ranked or ranked[0][1] < _SHARED * len(connections):
            continue
        if len(ranked) == 2 and ranked[1][1] == ranked[0][1]:
            continue
        return SharedEnd(ranked[0][0], ranked[0][1], len(connections))
    return None


def _port_name(end: FailureEnd) -> str:
    if end.place is not None:
        return end.place.name
    if end.host and len(end.hcas) == 1:
        return f"{end.host} {end.hcas[0]}"
    return ""


def _host_name(end: FailureEnd) -> str:
    return end.host or end.address


def _leaf_name(end: FailureEnd) -> str:
    return end.place.leaf if end.place is not None else ""


def stuck_collectives(log: JobLog) -> list[StuckCollective]:
    """The collectives that timed out, those with the most ranks first."""
    by_work: defaultdict[tuple[str, int, str, bool], list[SeenTimeout]] = defaultdict(list)
    for seen in log.all_timeouts:
        event = seen.event
        by_work[event.group, event.seq, event.operation, seen.rank >= 0].append(seen)
    for key in [key for key in by_work if not key[0] and key[3]]:
        # Of the group of all ranks some say its name, some only that they timed out.
        named = [each for each in by_work if each[0] and each[1:] == key[1:]]
        if len(named) == 1 and is_world(named[0][0]):
            by_work[named[0]] += by_work.pop(key)
    found = [_stuck(work, seen, log) for work, seen in by_work.items()]
    return sorted(found, key=lambda each: -len(each.ranks))


def _stuck(
    work: tuple[str, int, str, bool], seen: Sequence[SeenTimeout], log: JobLog
) -> StuckCollective:
    group, seq, operation, is_global = work
    numbers = {each.rank if is_global else each.event.rank for each in seen}
    ranks = sorted(number for number in numbers if number >= 0)
    progress = _progress_of(group, seq, set(ranks), is_global, log)
    late = sorted((r, done) for r, done in progress.items() if done < seq and r not in ranks)
    # Of a group of some ranks it is not known which these are.
    silent = log.silent_ranks if is_world(group) else []
    times = [each.time for each in seen if each.time is not None]
    return StuckCollective(
        group=group,
        seq=seq,
        operation=operation,
        is_global=is_global,
        ranks=tuple(ranks),
        late=tuple(late),
        silent=tuple(silent),
        limit_s=next((each.event.limit_s for each in seen if each.event.limit_s), None),
        ran_s=max((each.event.ran_s or 0.0 for each in seen), default=0.0) or None,
        first=min(times, key=lambda time: time.at) if times else None,
    )


def _progress_of(
    group: str, seq: int, ranks: set[int], is_global: bool, log: JobLog
) -> dict[int, int]:
    """The last enqueued work by rank, in a group; where the timeout does not name its group, in the
    one in which a rank that timed out had enqueued the work and not completed it."""
    groups = {group} if group else set()
    by_rank = [
        (rank if is_global else in_group, name, done)
        for (rank, in_group, name), done in log.progress.items()
        if (rank >= 0) == is_global
    ]
    if not group:
        for rank, name, done in by_rank:
            completed = done.enqueued - 1 if done.completed is None else done.completed
            if rank in ranks and completed < seq <= done.enqueued:
                groups.add(name)
    if len(groups) > 1:
        return {}
    return {rank: done.enqueued for rank, name, done in by_rank if name in groups and rank >= 0}
