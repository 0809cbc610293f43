"""What the logs of a job say, explained, as the record of `fabmon explain`."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from fabmon.analysis.flight_recorder.dumps import Dump
from fabmon.analysis.flight_recorder.witness import NO_DUMP, TRANSFER, Witness, witnesses
from fabmon.analysis.job.wire import Wire
from fabmon.analysis.job_log.conclusions import FailureEnd, LocatedFailure, StuckCollective
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.analysis.job_log.launchers import SOME_EXIT
from fabmon.analysis.job_log.log_times import Clock, LogTime
from fabmon.analysis.job_log.nccl_tests import (
    BenchmarkResult,
    BenchmarkRow,
    Rails,
    benchmark_result,
)
from fabmon.analysis.job_log.slow_signs import slow_signs
from fabmon.analysis.job_log.status_codes import meaning_of
from fabmon.fabric.name_forms import NAME_FORMS
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.time_wording import utc
from fabmon.fabric.wire.messages import clean
from fabmon.report.explain_conclusions import (
    NOT_UNDERSTOOD,
    OK,
    WRONG,
    conclusions,
    host_of,
    result_of,
    what_failed,
)
from fabmon.report.explain_records import (
    BenchmarkRecord,
    BenchmarkRowRecord,
    EndRecord,
    ExplainRecord,
    FailureRecord,
    HostRecord,
    LateRank,
    TimeoutRecord,
    UnreadRecord,
)
from fabmon.report.flight_recorder import collective_records, dump_records, sentences


def explain_record(
    log: JobLog,
    sources: Sequence[str],
    failures: Sequence[LocatedFailure],
    stuck: Sequence[StuckCollective],
    clock: Clock | None = None,
    wire: Wire | None = None,
    notes: Sequence[str] = (),
    rails: Rails | None = None,
    dumps: Sequence[Dump] = (),
) -> ExplainRecord:
    """The logs of a job as a record; times are UTC where `clock` is known. `rails` are the NICs of
    a node, with which runs of nccl-tests are compared; None where unknown. `dumps` are those of
    PyTorch's Flight Recorder."""
    slow = slow_signs(log)
    seen = witnesses(dumps)
    of_dumps = sentences(dumps, seen)
    results = [each for run in log.tests.runs if (each := benchmark_result(run, rails)) is not None]
    of_log = conclusions(log, failures, stuck, slow, results, wire=wire, rails=rails)
    return ExplainRecord(
        sources=list(sources),
        bytes=log.size,
        lines=log.lines,
        nccl_lines=log.nccl_lines,
        not_read=log.not_parsed + log.left_out.total(),
        versions=sorted(log.versions),
        ranks=max((facts.ranks for facts in log.processes.values()), default=0),
        result=_with_dumps(result_of(log, stuck, slow, results), dumps, seen),
        conclusions=[*of_dumps, *of_log] if seen else [*of_log, *of_dumps],
        hosts=_hosts(log),
        failures=[_failure(each, clock) for each in failures],
        timeouts=[_timeout(each, log, clock) for each in stuck],
        dumps=dump_records(dumps),
        collectives=collective_records(seen),
        not_understood=[
            UnreadRecord(clean(text), count)
            for text, count in sorted(log.unread.values(), key=lambda each: -each[1])
        ],
        tests=[_test(each, rails) for each in results],
        wire=wire,
        notes=list(notes),
    )


def _with_dumps(result: str, dumps: Sequence[Dump], seen: Sequence[Witness]) -> str:
    """The result of a log, with what its dumps show; of what one that was not read would show
    nothing is known."""
    if any(each.kind not in (NO_DUMP, TRANSFER) for each in seen):
        return WRONG
    is_partial = bool(seen) or len({each.rank for each in dumps if not each.error}) < len(dumps)
    return NOT_UNDERSTOOD if result == OK and is_partial else result


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
        best_bps=None if each.best is None else each.best.busbw_bps,
        best_size=None if each.best is None else each.best.size,
        share=each.share,
        is_good=each.is_good,
        falls=[size for size, _, _ in each.falls],
        wrong=dict(each.wrong),
        out_of_bounds=each.run.out_of_bounds,
        lone_hosts=list(each.lone_hosts),
        rows=[_row(row, limit) for row in each.run.rows],
    )


def _row(row: BenchmarkRow, limit_bps: float | None) -> BenchmarkRowRecord:
    share = None if limit_bps is None else row.busbw_bps / limit_bps
    return BenchmarkRowRecord(row.size, row.busbw_bps, share)


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
            nics=(known.nics or len(known.hcas)) if known else 0,
            addresses=sorted(known.addresses) if known else [],
        )
        found.append(record)
    return sorted(found, key=lambda each: (each.ranks or [1 << 30], each.host))


def _failure(each: LocatedFailure, clock: Clock | None) -> FailureRecord:
    seen, meaning = each.seen, meaning_of(each.seen.event)
    event = seen.event
    return FailureRecord(
        kind=event.kind,
        what=what_failed(event),
        code=None if event.code in (-1, SOME_EXIT) else event.code,
        meaning=meaning.text,
        check=meaning.check,
        is_consequence=meaning.is_consequence,
        near=_end(each.near),
        far=None if each.far is None else _end(each.far),
        side=event.side or None,
        vendor_error=event.vendor_error if event.vendor_error >= 0 else None,
        count=seen.count,
        log_time=_written(seen.first),
        time=_at(seen.first, clock),
        source=seen.source,
        line=clean(seen.text),
    )


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
        ranks_are_global=each.is_global,
        late=[
            LateRank(rank, done, host_of(rank, log) if each.is_global else None)
            for rank, done in each.late
        ],
        silent=list(each.silent),
        limit_s=each.limit_s,
        ran_s=each.ran_s,
        log_time=_written(each.first),
        began=began,
    )


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


_OWN_WORDS = frozenset({"type", "kind", "result", "side", "severity"})
"""Fields with words of the schema: a host may be called as one of them."""


def redacted_record(record: ExplainRecord, log: JobLog, redactor: Redactor) -> ExplainRecord:
    """The record of a log with pseudonyms; lines and names of files are left out."""
    for host in (*(each.host for each in record.hosts), *_named_by_conclusions(log)):
        redactor.node(host)
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
        dumps=[
            msgspec.structs.replace(each, source=names.get(each.source, ""))
            for each in record.dumps
        ],
        not_understood=[],
    )
    looked_for = ", ".join(form.what for form in NAME_FORMS)
    note = (
        f"Replaced: names that are known, addresses, paths, URLs, and by their form {looked_for}."
        " Other words of the log may be names too: read this before you send it."
    )
    replaced = replaced_names(msgspec.to_builtins(plain), redactor)
    record = msgspec.convert(replaced, ExplainRecord)
    return msgspec.structs.replace(record, notes=[*record.notes, note])


def _named_by_conclusions(log: JobLog) -> Iterator[str]:
    """Hosts that only sentences name."""
    for run in log.tests.runs:
        yield from (*run.hosts.values(), *run.lone_hosts)
    for peers in log.retries.values():
        yield from peers
    yield from (sign.text for sign in log.signs if sign.kind == "no_name")


def replaced_names(value: object, redactor: Redactor) -> object:
    """A value with all texts in it replaced, each name everywhere it is."""
    _replaced(value, redactor)  # A name may be found by its form in the last text only.
    return _replaced(value, redactor)


def _replaced(value: object, redactor: Redactor) -> object:
    if isinstance(value, str):
        try:
            datetime.datetime.fromisoformat(value)
        except ValueError:
            return redactor.foreign(value)
        return value
    if isinstance(value, list):
        return [_replaced(each, redactor) for each in value]
    if isinstance(value, dict):
        return {
            key: each if key in _OWN_WORDS else _replaced(each, redactor)
            for key, each in value.items()
        }
    return value
