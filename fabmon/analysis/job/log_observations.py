"""What the logs of a job say: failures with both ends, timeouts, ranks that are late or silent."""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from fabmon.analysis.job.log_failures import contradictions, failures_of, utc_of, written
from fabmon.analysis.job.observation import LOG, Kind, Location, Observation, Weight, rank_list, who
from fabmon.analysis.job_log.events import (
    CONNECTION,
    PROCESS,
    STALL,
)
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.analysis.job_log.log_times import Clock
from fabmon.analysis.job_log.places import Places
from fabmon.analysis.job_log.seen import SeenTimeout
from fabmon.analysis.job_log.slow_signs import retried, slow_signs, unresolved
from fabmon.analysis.job_log.torch_fields import is_world
from fabmon.fabric.time_wording import duration
from fabmon.fabric.wording import name_list, plural

_JOINED = re.compile(r"\b(\d{1,9})/(\d{1,9}) clients joined")
"""Of PyTorch's store: how many of the processes that it waits for have joined."""
_NONE_MISSING = (
    "No rank is known that had not enqueued it: give the logs of all ranks. Where all had, a"
    " transfer or a GPU hangs: look at the ports of these ranks."
)


def log_observations(log: JobLog, places: Places, clock: Clock | None = None) -> list[Observation]:
    """All that the logs say, failures first; `places` finds ports, and times are UTC where `clock`
    is known."""
    failures = failures_of(log, places, clock)
    timeouts = list(_timeouts(log, clock))
    is_setup = bool(failures) and failures[0].kind in (STALL, CONNECTION)
    silent = list(_silent(log)) if is_setup and not timeouts else []
    names = (
        [_sign(Kind.UNRESOLVED, each, Weight.USUAL) for each in unresolved(log)] if is_setup else []
    )
    return [
        *names,
        *failures,
        *dict.fromkeys(contradictions(failures)),
        *timeouts,
        *([] if timeouts else _signalled(log)),
        *silent,
        *(_sign(Kind.SLOW, each) for each in slow_signs(log)),
        *(_sign(Kind.RETRIED, each, Weight.USUAL) for each in retried(log)),
    ]


def _sign(kind: Kind, text: str, weight: Weight = Weight.WRONG) -> Observation:
    return Observation(witness=LOG, kind=kind, weight=weight, text=text)


def _timeouts(log: JobLog, clock: Clock | None) -> Iterator[Observation]:
    """The collectives that timed out, those with the most ranks first, each followed by who had not
    enqueued it, and by ranks that wrote nothing about it."""
    by_work: defaultdict[tuple[str, int, str, bool], list[SeenTimeout]] = defaultdict(list)
    for seen in log.all_timeouts:
        event = seen.event
        by_work[event.group, event.seq, event.operation, seen.rank >= 0].append(seen)
    for key in [key for key in by_work if not key[0] and key[3]]:
        # Of the group of all ranks some say its name, some only that they timed out.
        named = [each for each in by_work if each[0] and each[1:] == key[1:]]
        if len(named) == 1 and is_world(named[0][0]):
            by_work[named[0]] += by_work.pop(key)
    found = [list(_stuck(work, seen, log, clock)) for work, seen in by_work.items()]
    for each in sorted(found, key=lambda each: -len(each[0].at[0].ranks)):
        yield from each


def _stuck(
    work: tuple[str, int, str, bool], seen: Sequence[SeenTimeout], log: JobLog, clock: Clock | None
) -> Iterator[Observation]:
    group, seq, operation, is_global = work
    numbers = {each.rank if is_global else each.event.rank for each in seen}
    ranks = tuple(sorted(number for number in numbers if number >= 0))
    times = [each.time for each in seen if each.time is not None]
    first = min(times, key=lambda time: time.at) if times else None
    ran_s = max((each.event.ran_s or 0.0 for each in seen), default=0.0)
    began = utc_of(first, clock)
    name = f"{operation or 'a collective'} {seq if seq >= 0 else ''}".rstrip()
    of = f" of process group {group}" if group and not is_world(group) else ""
    where = ""
    if not is_global and ranks:
        where = of or " of a process group that the log does not name"
        where, of = f"{where} (its number there, not in the job)", ""
    timed_out = f"{rank_list(ranks) if ranks else 'A rank'}{where} timed out"
    waited = f" after {duration(ran_s)}" if ran_s else ""
    by_done: defaultdict[int, list[int]] = defaultdict(list)
    for rank, done in _progress_of(group, seq, set(ranks), is_global, log).items():
        if done < seq and rank not in ranks:
            by_done[done].append(rank)
    # Of a group of some ranks it is not known which these are.
    silent = log.silent_ranks if is_world(group) else []
    timeout = Observation(
        witness=LOG,
        kind=Kind.TIMEOUT,
        weight=Weight.WRONG,
        text=f"{timed_out} in {name}{of}{waited}.",
        what=f"{name} timed out",
        check="" if by_done or silent else _NONE_MISSING,
        at=(Location(ranks=ranks),),
        group=group,
        operation=operation,
        seq=seq if seq >= 0 else None,
        ranks_are_global=is_global,
        limit_s=next((each.event.limit_s for each in seen if each.event.limit_s), None),
        ran_s=ran_s or None,
        log_time=written(first),
        time=None if began is None else began - datetime.timedelta(seconds=ran_s),
    )
    yield timeout
    in_which = f"{name}{of}, in which {timed_out[:1].lower()}{timed_out[1:]}{waited}."
    for done, late in sorted(by_done.items()):
        hosts = [log.host_of_rank(rank) if is_global else "" for rank in sorted(late)]
        at = tuple(
            Location(ranks=(rank,), host=host)
            for rank, host in zip(sorted(late), hosts, strict=True)
        )
        yield msgspec.structs.replace(
            timeout,
            kind=Kind.BEHIND,
            text=f"{who(at)} had not enqueued {in_which}",
            what=f"had enqueued {done} of {seq}",
            check="Look at what that process did, not at the network.",
            at=at,
            others=timeout.at,
            launched=done,
            expected=seq,
        )
    if silent:
        yield msgspec.structs.replace(
            timeout,
            kind=Kind.SILENT,
            text=f"{rank_list(silent)} wrote nothing about {in_which}",
            what="wrote nothing",
            check="See whether that process still ran.",
            at=(Location(ranks=tuple(silent)),),
            others=timeout.at,
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


def _signalled(log: JobLog) -> Iterator[Observation]:
    """Ranks that received the timeout of another one."""
    if log.signals:
        by = sorted({each for each in log.signals.values() if each >= 0})
        ranks = sorted(log.signals)
        text = f"{rank_list(by) if by else 'Another rank'} reported a timeout to"
        yield msgspec.structs.replace(
            _sign(Kind.SIGNALLED, f"{text} {rank_list(ranks).lower()}."),
            what="another rank timed out",
            at=(Location(ranks=tuple(ranks)),),
            others=(Location(ranks=tuple(by)),) if by else (),
        )


def _silent(log: JobLog) -> Iterator[Observation]:
    """The ranks for which others may have waited, and hosts whose ranks wrote nothing."""
    silent = log.silent_ranks
    ended = {each.host for each in log.failures.values() if each.event.kind == PROCESS}
    hosts = sorted(filter(None, ended - set(log.rank_hosts.values())))
    stalls = [seen.event for seen in log.failures.values() if seen.event.kind == STALL]
    joined = [found for event in stalls if (found := _JOINED.search(event.text))]
    if silent or hosts:
        who_is = rank_list(silent) if silent else "A rank"
        on = f" (on {name_list(hosts, 4)}?)" if hosts and silent else ""
        on = on or (f" on {name_list(hosts, 4)}" if hosts else "")
        yield msgspec.structs.replace(
            _sign(
                Kind.SILENT,
                f"{who_is}{on} wrote nothing: see whether that process was late, stopped or had"
                " ended.",
            ),
            what="wrote nothing",
            at=(Location(ranks=tuple(silent), host=hosts[0] if len(hosts) == 1 else ""),),
        )
    elif joined:
        count, total = (int(each) for each in joined[0].groups())
        yield _sign(
            Kind.SILENT,
            f"{total - count} of {plural(total, 'process', 'processes')} did not join: give the"
            " logs of all ranks, and look for one that was not started, had ended or cannot reach"
            " the host of rank 0.",
        )
    elif any(event.rank < 0 for event in stalls):
        yield _sign(
            Kind.SILENT,
            "No rank is known to be missing: give the logs of all ranks. Where none is, look at"
            " the ports of these ranks and their path.",
            Weight.USUAL,
        )
