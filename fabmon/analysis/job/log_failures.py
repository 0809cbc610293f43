"""The failures in the logs of a job, with both ends, and what most of them have in common."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from fabmon.analysis.job.observation import LOG, Kind, Location, Observation, Weight
from fabmon.analysis.job_log.events import (
    CANCELLED,
    COMPLETION,
    CONNECTION,
    EXCEPTION,
    GPU,
    PROCESS,
    PROGRAM,
    REQUEST,
    Failure,
    Process,
)
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.analysis.job_log.launchers import SOME_EXIT
from fabmon.analysis.job_log.log_times import Clock, LogTime
from fabmon.analysis.job_log.places import Place, Places
from fabmon.analysis.job_log.seen import SeenFailure, order_of_cause
from fabmon.analysis.job_log.status_codes import meaning_of, status_meaning
from fabmon.fabric.pseudonyms import without_domain
from fabmon.fabric.time_wording import utc
from fabmon.fabric.wire.messages import clean

_SHARED = 0.6
"""A port that this share of failed connections have in common is named."""


def failures_of(log: JobLog, places: Places, clock: Clock | None = None) -> list[Observation]:
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
        _failure(seen, log, places, clock)
        for seen in every
        if not _is_general(seen)
        or (seen.event.kind == PROCESS and seen.event.code not in codes)
        or (seen.event.kind == EXCEPTION and (seen.process, seen.rank) not in known)
    ]


def _is_general(seen: SeenFailure) -> bool:
    event = seen.event
    return event.kind == EXCEPTION or (event.kind == PROCESS and event.rank < 0 and not event.peer)


def _failure(seen: SeenFailure, log: JobLog, places: Places, clock: Clock | None) -> Observation:
    event, meaning = seen.event, meaning_of(seen.event)
    near, far = _ends(seen, log, places)
    return Observation(
        witness=LOG,
        kind=event.kind,
        weight=Weight.CONSEQUENCE if meaning.is_consequence else Weight.WRONG,
        text=_failed(event, near, far),
        what=_what_failed(event),
        check=meaning.check,
        at=(near,),
        others=() if far is None else (far,),
        times=seen.count,
        code=None if event.code in (-1, SOME_EXIT) else event.code,
        side=event.side,
        vendor_error=event.vendor_error if event.vendor_error >= 0 else None,
        log_time=written(seen.first),
        time=utc_of(seen.first, clock),
        source=seen.source,
        line=clean(seen.text),
    )


def _what_failed(event: Failure) -> str:
    """A failure in few words: its status, or what its line says."""
    if event.kind == COMPLETION:
        return f"status {event.code} {status_meaning(event.code).name}"
    if event.kind == REQUEST:
        return clean(f"request failed, code {event.code}: {event.text}")
    return clean(event.text)


def _failed(event: Failure, near: Location, far: Location | None) -> str:
    """A failure in a sentence."""
    name, what, meaning = near.name, _what_failed(event), meaning_of(event).text
    also = f": {meaning}" if meaning != what else ""
    if event.work:
        name = f"{event.work} of {name} was ended by an error. {name}"
    if event.kind == CONNECTION and far is not None:
        peer = what if "the peer" in what else f"{what} (the peer)"
        return f"{name}: {peer}: {far.name}{also}."
    if far is None:
        return f"{name}: {what}{also}."
    verb = "received nothing from" if event.side == "recv" else "did not reach"
    if event.kind == COMPLETION and event.code == 13:
        verb = "found no receiver ready at"
    elif event.kind != REQUEST and event.code not in (12, 20):
        verb = "failed towards"
    return f"{name} {verb} {far.name}: {what}{also.replace(':', ',', 1)}."


def contradictions(failures: Iterable[Observation]) -> Iterator[Observation]:
    """That the GID of a port is of another host than the log says."""
    for end in (end for each in failures for end in (*each.at, *each.others)):
        place = end.ports[0] if end.ports else None
        if place is None or not end.gid or not end.host:
            continue
        if without_domain(end.host) != without_domain(place.node):
            text = (
                f"The log says {end.host}, but by GID {end.gid} it is {place.name}, as the nodes"
                " report it: the GID is believed here. Check whether it has moved."
            )
            yield Observation(witness=LOG, kind=Kind.CONTRADICTION, weight=Weight.USUAL, text=text)


def written(time: LogTime | None) -> str:
    """A time as the log has it; without a year only the day."""
    if time is None:
        return ""
    text = f"{time.at:%Y-%m-%d %H:%M:%S}" if time.has_year else f"{time.at:%m-%d %H:%M:%S}"
    return f"{text}Z" if time.has_zone else text


def utc_of(time: LogTime | None, clock: Clock | None) -> datetime.datetime | None:
    """A time of a log in UTC; None where its zone or year is not known."""
    if time is None:
        return None
    if clock is None or (clock.is_guess and not time.has_zone):
        return time.at if time.has_zone and time.has_year else None
    at_ns = clock.time_ns(time)
    return None if at_ns is None else utc(at_ns)


def _ends(seen: SeenFailure, log: JobLog, places: Places) -> tuple[Location, Location | None]:
    """Who wrote the line, and the far end; None for what is no connection."""
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
        return near, None
    ranks: Sequence[int] = ()
    if event.kind in (COMPLETION, REQUEST):
        ranks = log.peers_of(process, event.side, near.hcas[0] if len(near.hcas) == 1 else "")
    far = _far(event.peer, event.remote_gid, ranks, log, places)
    return near, _with_hca(far, near, log, places)


def _with_hca(far: Location, near: Location, log: JobLog, places: Places) -> Location:
    """The far end with the HCA that its rank uses towards the near one, where one is known."""
    if far.ports or far.hcas or len(far.ranks) != 1 or not near.ranks:
        return far
    process = log.process_of(far.ranks[0])
    if process is None or (far.host and far.host != process.host):
        return far
    hcas = log.hcas_of(process, near.ranks[0])
    place = places.port(process.host, hcas[0]) if len(hcas) == 1 else None
    return msgspec.structs.replace(far, host=process.host, hcas=tuple(hcas), ports=_known(place))


def _near(
    seen: SeenFailure,
    process: Process | None,
    indexed: Sequence[str],
    log: JobLog,
    places: Places,
) -> Location:
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
    return Location(
        host=host,
        ranks=(rank,) if rank >= 0 else (),
        gpus=(gpu,) if gpu >= 0 else (),
        hcas=hcas,
        gid=gid,
        ports=_known(place),
    )


def _far(address: str, gid: str, ranks: Sequence[int], log: JobLog, places: Places) -> Location:
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
    return Location(
        host=host,
        ranks=tuple(ranks),
        hcas=(hca,) if hca else (),
        address=address,
        gid=gid,
        ports=_known(place),
    )


def _known(place: Place | None) -> tuple[Place, ...]:
    return () if place is None else (place,)


class SharedEnd(msgspec.Struct, frozen=True):
    """What most failed connections have in common: a port, host or leaf, and in how many of all."""

    what: str
    count: int
    total: int


def shared_end(failures: Iterable[Observation]) -> SharedEnd | None:
    """The port, else host, else leaf that most failed connections share; None for less than three
    connections, or where nothing is shared by most."""
    ends = [
        (each.at[0], each.others[0])
        for each in failures
        if each.others and each.kind in (COMPLETION, REQUEST)
    ]
    if len(ends) < 3:
        return None
    # A line may have the GID of a port only, and another its name too.
    by_gid = {end.gid: _port_name(end) for pair in ends for end in pair if _port_name(end)}
    for of in (lambda end: _port_name(end) or by_gid.get(end.gid, end.gid), _host_name, _leaf_name):
        counts: Counter[str] = Counter()
        for pair in ends:
            counts.update({of(end) for end in pair} - {""})
        ranked = counts.most_common(2)
        if not ranked or ranked[0][1] < _SHARED * len(ends):
            continue
        if len(ranked) == 2 and ranked[1][1] == ranked[0][1]:
            continue
        return SharedEnd(ranked[0][0], ranked[0][1], len(ends))
    return None


def _port_name(end: Location) -> str:
    if end.ports:
        return end.ports[0].name
    if end.host and len(end.hcas) == 1:
        return f"{end.host} {end.hcas[0]}"
    return ""


def _host_name(end: Location) -> str:
    return end.host or end.address


def _leaf_name(end: Location) -> str:
    return end.ports[0].leaf if end.ports else ""
