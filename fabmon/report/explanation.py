"""What the logs of a job say, explained, as the record of `fabmon explain`."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from fabmon.analysis.job_log.conclusions import (
    FailureEnd,
    LocatedFailure,
    SharedEnd,
    StuckCollective,
    shared_end,
)
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.analysis.job_log.log_lines import CompletionError, DeviceEvent
from fabmon.analysis.job_log.log_times import Clock, LogTime
from fabmon.analysis.job_log.nccl_tests import (
    BenchmarkResult,
    BenchmarkRow,
    Rails,
    benchmark_result,
)
from fabmon.analysis.job_log.status_codes import Meaning, event_meaning, status_meaning
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.time_wording import duration, utc
from fabmon.fabric.wire.messages import clean
from fabmon.fabric.wording import (
    bit_rate,
    byte_count,
    byte_rate,
    name_list,
    plural,
    rounded_percent,
)
from fabmon.report.explain_records import (
    BenchmarkRecord,
    BenchmarkRowRecord,
    EndRecord,
    ExplainRecord,
    FailureRecord,
    HostRecord,
    LateRank,
    RecordingAtTime,
    TimeoutRecord,
    WarningRecord,
    rank_list,
)


def explain_record(
    log: JobLog,
    sources: Sequence[str],
    failures: Sequence[LocatedFailure],
    stuck: Sequence[StuckCollective],
    clock: Clock | None = None,
    recording: RecordingAtTime | None = None,
    notes: Sequence[str] = (),
    rails: Rails | None = None,
) -> ExplainRecord:
    """The logs of a job as a record; times are UTC where `clock` is known. `rails` are the NICs of
    a node, with which runs of nccl-tests are compared; None where unknown."""
    shared = shared_end(failures)
    results = [each for run in log.tests.runs if (each := benchmark_result(run, rails)) is not None]
    return ExplainRecord(
        sources=list(sources),
        bytes=log.size,
        nccl_lines=log.nccl_lines,
        not_read=log.not_parsed + log.left_out.total(),
        versions=sorted(log.versions),
        ranks=max((facts.ranks for facts in log.processes.values()), default=0),
        conclusions=[
            *_conclusions(log, failures, stuck, shared, recording),
            *(text for each in results for text in _test_conclusions(each, rails)),
        ],
        hosts=_hosts(log),
        failures=[_failure(each, clock) for each in failures],
        timeouts=[_timeout(each, log, clock) for each in stuck],
        warnings=[WarningRecord(clean(text), n) for text, n in log.warnings.most_common()],
        tests=[_test(each, rails) for each in results],
        recording=recording,
        notes=list(notes),
    )


def _test(each: BenchmarkResult, rails: Rails | None) -> BenchmarkRecord:
    limit = each.limit_bps
    return BenchmarkRecord(
        name=each.run.name,
        source=each.run.source,
        nodes=each.nodes,
        ranks=each.ranks,
        rails=None if rails is None else rails.count,
        line_rate_bps=None if rails is None else rails.line_rate_bps,
        rails_known_from=None if rails is None else rails.source,
        limit_bps=limit,
        best_bps=each.best.busbw_bps,
        best_size=each.best.size,
        share=each.share,
        is_good=each.is_good,
        falls=[size for size, _, _ in each.falls],
        wrong=dict(each.wrong),
        rows=[_row(row, limit) for row in each.run.rows],
    )


def _row(row: BenchmarkRow, limit_bps: float | None) -> BenchmarkRowRecord:
    share = None if limit_bps is None else row.busbw_bps / limit_bps
    return BenchmarkRowRecord(row.size, row.busbw_bps, share)


def _test_conclusions(each: BenchmarkResult, rails: Rails | None) -> Iterator[str]:
    name = each.run.name or "nccl-tests"
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
    for size, count in each.wrong[:1]:
        yield (
            f"{name} has {plural(count, 'wrong value')} at {byte_count(size)}: data is damaged."
            " Check ECC and Xid of the GPUs, NVLinks, and the versions of NCCL and driver."
        )


def _hosts(log: JobLog) -> list[HostRecord]:
    by_host: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for process, facts in log.processes.items():
        gpu = facts.gpu if facts.gpu >= 0 else process.gpu
        by_host[process.host].append((log.rank_of(process), gpu))
    names = dict.fromkeys([*by_host, *log.hosts])
    found = []
    for name in names:
        known = log.hosts.get(name)
        ranks = sorted({rank for rank, _ in by_host[name] if rank >= 0})
        record = HostRecord(
            host=name,
            ranks=ranks,
            gpus=sorted({gpu for _, gpu in by_host[name] if gpu >= 0}),
            hcas={str(n): list(each) for n, each in known.hcas.items()} if known else {},
            addresses=sorted(known.addresses) if known else [],
        )
        found.append(record)
    return sorted(found, key=lambda each: (each.ranks or [1 << 30], each.host))


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


def meaning_of(failure: LocatedFailure) -> Meaning:
    """What a failure means."""
    event = failure.seen.event
    if isinstance(event, CompletionError):
        return status_meaning(event.status)
    if isinstance(event, DeviceEvent):
        return event_meaning(event.text)
    return Meaning(
        "connection",
        f"TCP connection for setup: {event.text}",
        "Check whether the process at the far end has ended first: its log says why.",
        is_consequence=True,
    )


def _failure(each: LocatedFailure, clock: Clock | None) -> FailureRecord:
    seen, meaning = each.seen, meaning_of(each)
    event = seen.event
    is_completion = isinstance(event, CompletionError)
    return FailureRecord(
        kind=_kind(each),
        what=_what(each),
        code=event.status if isinstance(event, CompletionError) else None,
        meaning=meaning.text,
        check=meaning.check,
        is_consequence=meaning.is_consequence,
        near=_end(each.near),
        far=None if each.far is None else _end(each.far),
        side=(event.side or None) if isinstance(event, CompletionError) else None,
        vendor_error=event.vendor_error
        if is_completion and isinstance(event, CompletionError) and event.vendor_error >= 0
        else None,
        count=seen.count,
        log_time=_written(seen.first),
        time=_at(seen.first, clock),
        source=seen.source,
        line=clean(seen.text),
    )


def _kind(each: LocatedFailure) -> str:
    event = each.seen.event
    if isinstance(event, CompletionError):
        return "completion"
    return "device" if isinstance(event, DeviceEvent) else "connection"


def _what(each: LocatedFailure) -> str:
    event = each.seen.event
    if isinstance(event, CompletionError):
        return f"status {event.status} {status_meaning(event.status).name}"
    return clean(event.text)


def _end(end: FailureEnd) -> EndRecord:
    place = end.place
    return EndRecord(
        host=end.host or None,
        ranks=list(end.ranks),
        gpu=None if end.gpu < 0 else end.gpu,
        hcas=list(end.hcas),
        address=end.address or None,
        gid=end.gid or None,
        port=None if place is None else place.port,
        leaf=None if place is None else place.leaf or None,
        leaf_port=None if place is None else place.leaf_port or None,
        name=end.name,
    )


def _timeout(each: StuckCollective, log: JobLog, clock: Clock | None) -> TimeoutRecord:
    began = _at(each.first, clock)
    if began is not None and each.ran_s is not None:
        began -= datetime.timedelta(seconds=each.ran_s)
    return TimeoutRecord(
        group=each.group,
        seq=each.seq,
        operation=each.operation,
        ranks=list(each.ranks),
        late=[LateRank(rank, done, _host(rank, log)) for rank, done in each.late],
        silent=list(each.silent),
        limit_s=each.limit_s,
        ran_s=each.ran_s,
        log_time=_written(each.first),
        began=began,
    )


def _host(rank: int, log: JobLog) -> str | None:
    process = log.process_of(rank)
    return None if process is None else process.host


def _written(time: LogTime | None) -> str | None:
    """A time as the log has it; without a year only the day."""
    if time is None:
        return None
    text = f"{time.at:%Y-%m-%d %H:%M:%S}" if time.has_year else f"{time.at:%m-%d %H:%M:%S}"
    return f"{text}Z" if time.has_zone else text


def _at(time: LogTime | None, clock: Clock | None) -> datetime.datetime | None:
    if time is None:
        return None
    if clock is None or (clock.is_guess and not time.has_zone):
        return time.at if time.has_zone and time.has_year else None
    at_ns = clock.time_ns(time)
    return None if at_ns is None else utc(at_ns)


def _conclusions(
    log: JobLog,
    failures: Sequence[LocatedFailure],
    stuck: Sequence[StuckCollective],
    shared: SharedEnd | None,
    recording: RecordingAtTime | None,
) -> Iterator[str]:
    if shared is not None:
        yield (
            f"{shared.count} of {shared.total} failed connections have {shared.what} as an end:"
            " look there first."
        )
    if failures:
        yield _first_cause(failures[0])
    for each in stuck[:3]:
        yield _stuck_sentence(each, log, bool(failures))
    if recording is not None and recording.start is not None:
        hits = [each for each in recording.findings if each.is_on_path]
        for text in list(dict.fromkeys(each.text for each in hits))[:3]:
            yield f"The recording has a finding on it at that time: {text}."
        if failures and not hits:
            yield "The recording has no finding on these ports at that time."
    if not failures and not stuck and not log.tests.runs:
        yield "No failure of the network and no timeout is in these logs."


def _first_cause(first: LocatedFailure) -> str:
    meaning = meaning_of(first)
    if first.far is None:
        return f"{first.near.name}: {_what(first)}: {meaning.text}. {meaning.check}"
    near, far = first.near.name, first.far.name
    verb = "received nothing from" if _side(first) == "recv" else "did not reach"
    if not isinstance(first.seen.event, CompletionError):
        verb = "lost its connection to"
    elif first.seen.event.status not in (12, 13, 20):
        verb = "failed towards"
    elif first.seen.event.status == 13:
        verb = "found no receiver ready at"
    return f"{near} {verb} {far}: {_what(first)}, {meaning.text}. {meaning.check}"


def _side(each: LocatedFailure) -> str:
    event = each.seen.event
    return event.side if isinstance(event, CompletionError) else ""


def _stuck_sentence(each: StuckCollective, log: JobLog, has_failures: bool) -> str:
    group = f" of process group {each.group}" if each.group else ""
    waited = f" after {duration(each.ran_s)}" if each.ran_s else ""
    ranks = rank_list(each.ranks) if each.ranks else "A rank"
    head = f"{ranks} timed out in {each.operation} {each.seq}{group}{waited}."
    if each.late:
        late = rank_list([rank for rank, _ in each.late])
        hosts = sorted({host for rank, _ in each.late if (host := _host(rank, log))})
        where = f" on {name_list(hosts, 4)}" if hosts else ""
        return (
            f"{head} {late}{where} had not enqueued it: look at what that process did, not at the"
            " network."
        )
    if each.silent:
        return (
            f"{head} {rank_list(each.silent)} wrote nothing about it: see whether that process"
            " still ran."
        )
    if has_failures:
        return head
    return (
        f"{head} No rank is known that had not enqueued it: give the logs of all ranks. Where all"
        " had, a transfer or a GPU hangs: look at the ports of these ranks."
    )


def redacted_record(record: ExplainRecord, redactor: Redactor) -> ExplainRecord:
    """The record with pseudonyms; lines, other warnings and names of files are left out."""
    for each in record.hosts:
        redactor.node(each.host)
    for failure in record.failures:
        for end in (failure.near, failure.far):
            for name in (end.host, end.leaf) if end is not None else ():
                if name:
                    redactor.node(name)
    names = {name: f"log {number}" for number, name in enumerate(record.sources, 1)}
    plain = msgspec.structs.replace(
        record,
        sources=list(names.values()),
        failures=[
            msgspec.structs.replace(each, line=None, source=names.get(each.source, ""))
            for each in record.failures
        ],
        tests=[
            msgspec.structs.replace(each, source=names.get(each.source, ""))
            for each in record.tests
        ],
        warnings=[],
    )
    replaced = replaced_names(msgspec.to_builtins(plain), redactor)
    return msgspec.convert(replaced, ExplainRecord)


def replaced_names(value: object, redactor: Redactor) -> object:
    """A value with all texts in it replaced; times and tags have no names."""
    if isinstance(value, str):
        try:
            datetime.datetime.fromisoformat(value)
        except ValueError:
            return redactor.text(value)
        return value
    if isinstance(value, list):
        return [replaced_names(each, redactor) for each in value]
    if isinstance(value, dict):
        return {key: replaced_names(each, redactor) for key, each in value.items()}
    return value
