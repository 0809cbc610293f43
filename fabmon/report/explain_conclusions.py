"""The sentences of `fabmon explain`: what failed and where to look, the most important first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fabmon.analysis.job.wire import Wire
from fabmon.analysis.job_log.conclusions import (
    FailureEnd,
    LocatedFailure,
    StuckCollective,
    shared_end,
)
from fabmon.analysis.job_log.events import (
    COMPLETION,
    CONNECTION,
    PROCESS,
    REQUEST,
    STALL,
    TAKEN_DOWN,
    Failure,
)
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.analysis.job_log.nccl_tests import BenchmarkResult, Rails
from fabmon.analysis.job_log.slow_signs import retried, unresolved
from fabmon.analysis.job_log.status_codes import meaning_of, status_meaning
from fabmon.analysis.job_log.torch_fields import is_world
from fabmon.fabric.pseudonyms import without_domain
from fabmon.fabric.time_wording import duration
from fabmon.fabric.wire.messages import clean
from fabmon.fabric.wording import (
    bit_rate,
    byte_count,
    byte_rate,
    name_list,
    plural,
    rounded_percent,
)
from fabmon.report.explain_records import rank_list

OK = "ok"
WRONG = "wrong"
NOT_UNDERSTOOD = "not_understood"

_MOST_STUCK = 8
_MOST_ENDED = 8
_MOST_QUOTED = 160
_JOINED = re.compile(r"\b(\d{1,9})/(\d{1,9}) clients joined")
"""Of PyTorch's store: how many of the processes that it waits for have joined."""


def result_of(
    log: JobLog,
    stuck: Sequence[StuckCollective],
    slow: Sequence[str],
    tests: Sequence[BenchmarkResult],
) -> str:
    """`ok`, `wrong` or `not_understood`; see ExplainRecord."""
    is_wrong = log.failures or stuck or log.signals or slow or any(each.is_wrong for each in tests)
    if is_wrong:
        return WRONG
    return NOT_UNDERSTOOD if log.unread_lines else OK


def conclusions(
    log: JobLog,
    failures: Sequence[LocatedFailure],
    stuck: Sequence[StuckCollective],
    slow: Sequence[str],
    tests: Sequence[BenchmarkResult],
    *,
    wire: Wire | None,
    rails: Rails | None,
) -> Iterator[str]:
    """The sentences. That there is no failure is said only where every line that speaks of one was
    understood."""
    shared = shared_end(failures)
    if shared is not None:
        yield (
            f"{shared.count} of {shared.total} failed connections have {shared.what} as an end:"
            " look there first."
        )
    is_setup = bool(failures) and failures[0].seen.event.kind in (STALL, CONNECTION)
    if is_setup:
        yield from unresolved(log)
    # PyTorch takes a process down after a timeout: that is what the reader looks for.
    is_timeout = bool(stuck) and all(each.seen.event.text == TAKEN_DOWN for each in failures)
    if failures and not is_timeout:
        yield _first_cause(failures[0])
        yield from _ended(failures[1:])
    yield from dict.fromkeys(
        text for each in failures for end in (each.near, each.far) if (text := _contradiction(end))
    )
    yield from _stuck_sentences(stuck[:_MOST_STUCK], log, not is_timeout)
    if len(stuck) > _MOST_STUCK:
        yield f"{plural(len(stuck) - _MOST_STUCK, 'other collective')} timed out: --format json"
    if log.signals and not stuck:
        named = sorted({by for by in log.signals.values() if by >= 0})
        who = rank_list(named) if named else "Another rank"
        yield f"{who} reported a timeout to {rank_list(sorted(log.signals)).lower()}."
    if is_setup and not stuck:
        yield from _silent(log)
    yield from slow
    if wire is not None and wire.start is not None:
        hits = [each for each in wire.findings if each.is_on_path]
        for text in list(dict.fromkeys(each.text for each in hits))[:3]:
            yield f"The recording has a finding on it at that time: {text}."
        if failures and not hits:
            yield "The recording has no finding on these ports at that time."
    for test in tests:
        yield from _test_conclusions(test, rails)
    if log.unread_lines:
        yield _not_understood(log)
    elif log.is_of_job and result_of(log, stuck, slow, tests) == OK:
        yield _no_failure(log)
    yield from retried(log)


def _contradiction(end: FailureEnd | None) -> str:
    """That the GID of a port is of another host than the log says; empty where they agree."""
    if end is None or end.place is None or not end.gid or not end.host:
        return ""
    if without_domain(end.host) == without_domain(end.place.node):
        return ""
    return (
        f"The log says {end.host}, but by GID {end.gid} it is {end.place.name}, as the nodes"
        " report it: the GID is believed here. Check whether it has moved."
    )


def _no_failure(log: JobLog) -> str:
    ranks = max((facts.ranks for facts in log.processes.values()), default=0)
    versions = f"NCCL {name_list(sorted(log.versions), 3)}" if log.versions else "no version named"
    return (
        "No failure of the network and no timeout is in these logs. Read:"
        f" {plural(log.lines, 'line')}, {log.nccl_lines} of them of NCCL, PyTorch or a launcher;"
        f" {plural(ranks, 'rank') if ranks else 'no rank named'}; {versions}."
    )


def _not_understood(log: JobLog) -> str:
    count = log.unread_lines
    verb = "speaks of a failure and was" if count == 1 else "speak of a failure and were"
    quoted = clean(next(iter(log.unread.values()), ("", 0))[0])[:_MOST_QUOTED]
    return f"{plural(count, 'line')} {verb} not understood{f': “{quoted}”' if quoted else ''}"


def what_failed(event: Failure) -> str:
    """A failure in few words: its status, or what its line says."""
    if event.kind == COMPLETION:
        return f"status {event.code} {status_meaning(event.code).name}"
    if event.kind == REQUEST:
        return clean(f"request failed, code {event.code}: {event.text}")
    return clean(event.text)


def _first_cause(first: LocatedFailure) -> str:
    event, meaning = first.seen.event, meaning_of(first.seen.event)
    near, what = first.near.name, what_failed(event)
    if event.work:
        near = f"{event.work} of {near} was ended by an error. {near}"
    if event.kind == CONNECTION and first.far is not None:
        text = what if "the peer" in what else f"{what} (the peer)"
        return f"{near}: {text}: {first.far.name}. {meaning.check}"
    if first.far is None:
        said = f": {meaning.text}" if meaning.text != what else ""
        return f"{near}: {what}{said}. {meaning.check}"
    verb = "received nothing from" if event.side == "recv" else "did not reach"
    if event.kind == COMPLETION and event.code == 13:
        verb = "found no receiver ready at"
    elif event.kind != REQUEST and event.code not in (12, 20):
        verb = "failed towards"
    return f"{near} {verb} {first.far.name}: {what}, {meaning.text}. {meaning.check}"


def _ended(failures: Sequence[LocatedFailure]) -> Iterator[str]:
    """Other processes that ended, as launchers report them."""
    ended = [each for each in failures if each.seen.event.kind == PROCESS]
    names = [f"{each.near.name} ({what_failed(each.seen.event)})" for each in ended]
    if names:
        yield f"Processes that ended: {name_list(names, _MOST_ENDED)}."


def _silent(log: JobLog) -> Iterator[str]:
    """The ranks for which others may have waited, and hosts whose ranks wrote nothing."""
    silent = log.silent_ranks
    ended = {each.host for each in log.failures.values() if each.event.kind == PROCESS}
    hosts = sorted(filter(None, ended - set(log.rank_hosts.values())))
    if silent or hosts:
        who = rank_list(silent) if silent else "A rank"
        on = f" (on {name_list(hosts, 4)}?)" if hosts and silent else ""
        on = on or (f" on {name_list(hosts, 4)}" if hosts else "")
        yield f"{who}{on} wrote nothing: see whether that process was late, stopped or had ended."
        return
    stalls = [seen.event for seen in log.failures.values() if seen.event.kind == STALL]
    joined = [found for event in stalls if (found := _JOINED.search(event.text))]
    if joined:
        count, total = (int(each) for each in joined[0].groups())
        yield (
            f"{total - count} of {plural(total, 'process', 'processes')} did not join: give the"
            " logs of all ranks, and look for one that was not started, had ended or cannot reach"
            " the host of rank 0."
        )
    elif any(event.rank < 0 for event in stalls):
        yield (
            "No rank is known to be missing: give the logs of all ranks. Where none is, look at"
            " the ports of these ranks and their path."
        )


def host_of(rank: int, log: JobLog) -> str | None:
    """The host of a global rank; None where unknown."""
    return log.host_of_rank(rank) or None


def _stuck_sentences(
    stuck: Sequence[StuckCollective], log: JobLog, has_failures: bool
) -> Iterator[str]:
    is_advised = has_failures
    for each in stuck:
        head = _timed_out(each)
        if each.late:
            late = rank_list([rank for rank, _ in each.late])
            known = {host_of(rank, log) for rank, _ in each.late} if each.is_global else set()
            hosts = sorted(filter(None, known))
            on = f" on {name_list(hosts, 4)}" if hosts else ""
            yield (
                f"{head} {late}{on} had not enqueued it: look at what that process did, not at the"
                " network."
            )
        elif each.silent:
            yield (
                f"{head} {rank_list(each.silent)} wrote nothing about it: see whether that process"
                " still ran."
            )
        elif is_advised:
            yield head
        else:
            is_advised = True
            yield (
                f"{head} No rank is known that had not enqueued it: give the logs of all ranks."
                " Where all had, a transfer or a GPU hangs: look at the ports of these ranks."
            )


def _timed_out(each: StuckCollective) -> str:
    """Which ranks timed out, in what."""
    ranks = rank_list(each.ranks) if each.ranks else "A rank"
    is_named = bool(each.group) and not is_world(each.group)
    group = f" of process group {each.group}" if is_named else ""
    where = ""
    if not each.is_global and each.ranks:
        where = group or " of a process group that the log does not name"
        where += " (its number there, not in the job)"
        group = ""
    work = " ".join(filter(None, (each.operation or "a collective", _number(each.seq))))
    waited = f" after {duration(each.ran_s)}" if each.ran_s else ""
    return f"{ranks}{where} timed out in {work}{group}{waited}."


def _number(seq: int) -> str:
    return str(seq) if seq >= 0 else ""


def _test_conclusions(each: BenchmarkResult, rails: Rails | None) -> Iterator[str]:
    name = each.run.name or "nccl-tests"
    if each.lone_hosts:
        hosts = name_list(sorted(set(each.lone_hosts)), 8)
        yield (
            f"{name} ran as {plural(len(each.lone_hosts), 'process', 'separate processes')} of one"
            f" rank each (rank 0 on {hosts}): they did not form one communicator, and the bandwidth"
            " of the network was not measured. Build nccl-tests with MPI=1, and start it with"
            " mpirun or srun."
        )
        return
    if each.best is None:
        yield _wrong_values(name, each)
        return
    best = f"{name} reaches {byte_rate(each.best.busbw_bps)} at {byte_count(each.best.size)}"
    if each.nodes == 1:
        yield f"{best}, within one node: the network has no part in it."
    elif each.share is None or each.limit_bps is None:
        yield f"{best}. To compare it with the rails, add --rails and --line-rate."
    elif not each.is_possible and rails is not None:
        yield f"{best}, {_impossible(each, rails)}"
    else:
        share = f"{rounded_percent(each.share)} of the {byte_rate(each.limit_bps)} of the rails"
        yield f"{best}, {share}, {_verdict(each)}"
    if each.falls:
        size, slow, fast = each.falls[0]
        more = f", and at {len(each.falls) - 1} larger sizes" if len(each.falls) > 1 else ""
        yield (
            f"{name} falls off at {byte_count(size)}: {byte_rate(slow)}, after"
            f" {byte_rate(fast)} at a smaller size{more}."
        )
    if each.wrong or each.run.out_of_bounds:
        yield _wrong_values(name, each)


def _wrong_values(name: str, each: BenchmarkResult) -> str:
    count = sum(wrong for _, wrong in each.wrong) or each.run.out_of_bounds
    sizes = name_list([byte_count(size) for size, _ in each.wrong], 4)
    return (
        f"{name} has {plural(count, 'wrong value')}{f' at {sizes}' if sizes else ''}: data is"
        " damaged, which is no matter of bandwidth. Check ECC and Xid of the GPUs, NVLinks, and the"
        " versions of NCCL and driver."
    )


def _verdict(each: BenchmarkResult) -> str:
    if not each.is_good:
        return "less than the usual 80 %: look for the slowest rail and for pauses."
    if (each.share or 0.0) > 1:
        return "more than a ring could: NCCL reduces in the node first."
    return "and about 80 % or more is usual."


def _impossible(each: BenchmarkResult, rails: Rails) -> str:
    """What is wrong where the rails cannot have carried the result."""
    wrong = "Check --rails, the NICs of a node, and --line-rate, in bits per second"
    if not each.nodes:
        wrong = f"The log does not name the hosts: it may be one node, with NVLink. {wrong}"
    return (
        f"which these rails cannot carry: {plural(rails.count, 'rail')} of"
        f" {bit_rate(rails.line_rate_bps)} ({rails.source}) are"
        f" {byte_rate(each.limit_bps)}. {wrong}."
    )
