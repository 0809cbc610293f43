"""What follows from the logs of a job: ends of failures, what they share, ranks that are late."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from fabmon.analysis.job_log.job_log import JobLog, SeenFailure, SeenTimeout, order_of_cause
from fabmon.analysis.job_log.log_lines import CompletionError, DeviceEvent, Process, SocketError
from fabmon.analysis.job_log.log_times import LogTime
from fabmon.analysis.job_log.places import Place, Places

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
    """A failure and its ends; `far` is None for an event of a device."""

    seen: SeenFailure
    near: FailureEnd
    far: FailureEnd | None


class StuckCollective(msgspec.Struct, frozen=True, kw_only=True):
    """A collective that timed out, by process group and sequence number.

    `ranks` report the timeout. `late` have not enqueued it (rank, last enqueued), `silent` are
    ranks of the job without a line about the group, where its size is known.
    """

    group: str
    seq: int
    operation: str
    ranks: tuple[int, ...]
    late: tuple[tuple[int, int], ...]
    silent: tuple[int, ...]
    limit_s: float | None
    ran_s: float | None
    first: LogTime | None


def located_failures(log: JobLog, places: Places) -> list[LocatedFailure]:
    """All failures with their ends, the possible cause first."""
    return [_located(seen, log, places) for seen in order_of_cause(log.failures.values())]


def _located(seen: SeenFailure, log: JobLog, places: Places) -> LocatedFailure:
    event, process = seen.event, seen.process
    if isinstance(event, DeviceEvent):
        host = log.hosts.get(process.host) if process is not None else None
        indexed = host.hcas.get(event.index, ()) if host is not None else ()
        if event.index >= 0 and not indexed:
            indexed = (f"HCA {event.index}",)
        return LocatedFailure(seen, _near(process, event.hca, "", indexed, log, places), None)
    if isinstance(event, SocketError):
        return LocatedFailure(
            seen, _near(process, "", "", (), log, places), _far(event.peer, "", (), log, places)
        )
    near = _near(process, event.hca, event.local_gid, (), log, places)
    hca = near.hcas[0] if len(near.hcas) == 1 else ""
    ranks = log.peers_of(process, event.side, hca)
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
    process: Process | None,
    hca: str,
    gid: str,
    indexed: Sequence[str],
    log: JobLog,
    places: Places,
) -> FailureEnd:
    """The end that wrote the line."""
    rank = log.rank_of(process)
    hcas = (hca,) if hca else tuple(indexed) or tuple(log.hcas_of(process))
    host = "" if process is None else process.host
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
    if not host and address and not address[0].isdigit() and ":" not in address:
        host = address
    if place is None and host and hca:
        place = places.port(host, hca)
    if host:
        ranks = [rank for rank in ranks if _host_of(rank, log) in (host, "")]
    return FailureEnd(
        host=host,
        ranks=tuple(ranks),
        hcas=(hca,) if hca else (),
        address=address,
        gid=gid,
        place=place,
    )


def _host_of(rank: int, log: JobLog) -> str:
    process = log.process_of(rank)
    return "" if process is None else process.host


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
        if each.far is not None and isinstance(each.seen.event, CompletionError)
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
    by_work: defaultdict[tuple[str, int, str], list[SeenTimeout]] = defaultdict(list)
    for seen in log.timeouts.values():
        by_work[seen.event.group, seen.event.seq, seen.event.operation].append(seen)
    found = [_stuck(work, seen, log) for work, seen in by_work.items()]
    return sorted(found, key=lambda each: -len(each.ranks))


def _stuck(work: tuple[str, int, str], seen: Sequence[SeenTimeout], log: JobLog) -> StuckCollective:
    group, seq, operation = work
    ranks = sorted({each.rank for each in seen if each.rank >= 0})
    progress = _progress_of(group, seq, set(ranks), log)
    late = sorted((r, done) for r, done in progress.items() if done < seq and r not in ranks)
    world = max((facts.ranks for facts in log.processes.values()), default=0)
    silent: list[int] = []
    if world and max(ranks, default=-1) < world:
        is_world = not group or "default_pg" in group or group.startswith("0")
        failed = {log.rank_of(failure.process) for failure in log.failures.values()}
        known = set(ranks) | set(progress) | set(log.signals) | failed
        # A log of a few ranks says nothing about the others.
        if is_world and 2 * len(known) >= world:
            silent = [rank for rank in range(world) if rank not in known]
    times = [each.time for each in seen if each.time is not None]
    return StuckCollective(
        group=group,
        seq=seq,
        operation=operation,
        ranks=tuple(ranks),
        late=tuple(late),
        silent=tuple(silent),
        limit_s=next((each.event.limit_s for each in seen if each.event.limit_s), None),
        ran_s=max((each.event.ran_s or 0.0 for each in seen), default=0.0) or None,
        first=min(times, key=lambda time: time.at) if times else None,
    )


def _progress_of(group: str, seq: int, ranks: set[int], log: JobLog) -> dict[int, int]:
    """The last enqueued work by rank, in a group; where the timeout does not name its group, in the
    one in which a rank that timed out had enqueued the work and not completed it."""
    groups = {group} if group else set()
    if not group:
        for (rank, name), done in log.progress.items():
            if rank in ranks and done.completed < seq <= done.enqueued:
                groups.add(name)
    return {
        rank: done.enqueued
        for (rank, name), done in log.progress.items()
        if name in groups and rank >= 0
    }
