"""What the logs of a job say, explained: as one object and as text."""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
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
from fabmon.fabric.hosts.nodesets import fold
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
from fabmon.report.output import aligned

_MOST_FAILURES = 16
_MOST_HOSTS = 16
_MOST_WARNINGS = 8
_MOST_PORTS = 16
_MOST_RANKS = 12
_MOST_ROWS = 40
_SMALLEST_ROW = 1 << 20


class EndRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a failed connection; null where unknown. `ranks` are the ranks that it may be,
    `port` is `node/port`, `leaf` and `leaf_port` are the switch port at the other end of its
    cable."""

    host: str | None
    ranks: list[int]
    gpu: int | None
    hcas: list[str]
    address: str | None
    gid: str | None
    port: str | None
    leaf: str | None
    leaf_port: str | None
    name: str


class FailureRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A failure in the log. `kind` is `completion` (a work request failed), `device` (an event of
    an HCA) or `connection` (a TCP connection of NCCL). `code` is the status of the verbs API.

    `near` wrote the line, `far` is the end that the line names. `time` is UTC, null where the log's
    clock is not known; `log_time` is as written. `is_consequence`: another failure came before.
    """

    kind: str
    what: str
    code: int | None
    meaning: str
    check: str
    is_consequence: bool
    near: EndRecord
    far: EndRecord | None
    side: str | None
    vendor_error: int | None
    count: int
    log_time: str | None
    time: datetime.datetime | None
    source: str
    line: str | None


class LateRank(msgspec.Struct, frozen=True):
    """A rank that has not enqueued a collective, the last one that it has, and its host."""

    rank: int
    enqueued: int
    host: str | None


class TimeoutRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A collective that timed out in PyTorch; see StuckCollective. `began` is UTC, when the first
    rank entered it; null where the log's clock is not known."""

    group: str
    seq: int
    operation: str
    ranks: list[int]
    late: list[LateRank]
    silent: list[int]
    limit_s: float | None
    ran_s: float | None
    log_time: str | None
    began: datetime.datetime | None


class HostRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A host in the log: its ranks, its HCAs by NCCL's index, its addresses."""

    host: str
    ranks: list[int]
    gpus: list[int]
    hcas: dict[str, list[str]]
    addresses: list[str]


class FindingAtTime(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of the recording in the time of the failures; `is_on_path`: it has a port or a host
    of a failure."""

    text: str
    subject: str
    severity: str
    since: datetime.datetime
    until: datetime.datetime | None
    is_on_path: bool


class PortAtTime(msgspec.Struct, frozen=True, kw_only=True):
    """A port of a failure, or the switch port at its other end, in the recording at that time.

    `down_s` are the seconds in which it was down. The others are the highest values of a tick:
    shares of line rate, of time in which the port was paused or paused its peer, errors of the link
    and drops per second; null where not known.
    """

    port: str
    name: str
    down_s: float
    tx_util: float | None
    rx_util: float | None
    paused: float | None
    pausing: float | None
    errors: float | None
    drops: float | None


class RecordingAtTime(msgspec.Struct, frozen=True, kw_only=True):
    """What a recording shows at the time of the failures; `clock` says how the times were aligned,
    and how sure that is. `start` and `end` are null where the failures are not in the recording."""

    clock: str
    start: datetime.datetime | None
    end: datetime.datetime | None
    findings: list[FindingAtTime]
    ports: list[PortAtTime]


class BenchmarkRowRecord(msgspec.Struct, frozen=True):
    """A size in bytes, its bus bandwidth (bits/s), and that over what the rails can carry."""

    size: int
    busbw_bps: float
    share: float | None


class BenchmarkRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run of nccl-tests. `limit_bps` is the bus bandwidth that the `rails` of a node with
    `line_rate_bps` can carry, null where it is unknown or the run is in one node; `share` is the
    best one over it, `is_good` whether that is 80 % or more. `falls` are sizes with less than 80 %
    of the bandwidth of a smaller one."""

    name: str
    source: str
    nodes: int
    ranks: int
    rails: int | None
    line_rate_bps: float | None
    rails_known_from: str | None
    limit_bps: float | None
    best_bps: float
    best_size: int
    share: float | None
    is_good: bool | None
    falls: list[int]
    wrong: dict[int, int]
    rows: list[BenchmarkRowRecord]


class WarningRecord(msgspec.Struct, frozen=True):
    """Another warning of NCCL, and how often it occurs."""

    text: str
    count: int


class ExplainRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="explain"):
    """`fabmon explain --format json`. `conclusions` are sentences, the most important first.

    `ranks` is the size of the largest communicator, 0 where unknown. `not_read` counts lines that
    are like too many others.
    """

    sources: list[str]
    bytes: int
    nccl_lines: int
    not_read: int
    versions: list[str]
    ranks: int
    conclusions: list[str]
    hosts: list[HostRecord]
    failures: list[FailureRecord]
    timeouts: list[TimeoutRecord]
    warnings: list[WarningRecord]
    tests: list[BenchmarkRecord]
    recording: RecordingAtTime | None
    notes: list[str]


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
            *(text for each in results for text in _test_conclusions(each)),
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


def _test_conclusions(each: BenchmarkResult) -> Iterator[str]:
    name = each.run.name or "nccl-tests"
    best = f"{name} reaches {byte_rate(each.best.busbw_bps)} at {byte_count(each.best.size)}"
    if each.nodes == 1:
        yield f"{best}, within one node: the network has no part in it."
    elif each.share is None or each.limit_bps is None:
        yield f"{best}. To compare it with the rails, add --rails and --line-rate."
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
        return "less than the 80 % that networks deliver: look for the slowest rail and for pauses."
    if (each.share or 0.0) > 1:
        return "more than a ring could: NCCL reduces in the node first."
    return "which is what networks deliver."


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
    if clock is None:
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
        for hit in hits[:3]:
            yield f"The recording has a finding on it at that time: {hit.text}."
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
    ranks = _rank_list(each.ranks) if each.ranks else "A rank"
    head = f"{ranks} timed out in {each.operation} {each.seq}{group}{waited}."
    if each.late:
        late = _rank_list([rank for rank, _ in each.late])
        hosts = sorted({host for rank, _ in each.late if (host := _host(rank, log))})
        where = f" on {name_list(hosts, 4)}" if hosts else ""
        return (
            f"{head} {late}{where} had not enqueued it: look at what that process did, not at the"
            " network."
        )
    if each.silent:
        return (
            f"{head} {_rank_list(each.silent)} wrote nothing about it: see whether that process"
            " still ran."
        )
    if has_failures:
        return head
    return (
        f"{head} No rank is known that had not enqueued it: give the logs of all ranks. Where all"
        " had, a transfer or a GPU hangs: look at the ports of these ranks."
    )


def _rank_list(ranks: Sequence[int]) -> str:
    word = "Rank" if len(ranks) == 1 else "Ranks"
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"{word} {name_list(texts, _MOST_RANKS)}"


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
    replaced = _replaced(msgspec.to_builtins(plain), redactor)
    return msgspec.convert(replaced, ExplainRecord)


def _replaced(value: object, redactor: Redactor) -> object:
    """A value with all texts in it replaced; times and tags have no names."""
    if isinstance(value, str):
        try:
            datetime.datetime.fromisoformat(value)
        except ValueError:
            return redactor.text(value)
        return value
    if isinstance(value, list):
        return [_replaced(each, redactor) for each in value]
    if isinstance(value, dict):
        return {key: _replaced(each, redactor) for key, each in value.items()}
    return value


def explain_table(record: ExplainRecord) -> str:
    """The text: conclusions, failures with their meanings, the recording, then ranks and hosts."""
    return "\n".join(_lines(record)) + "\n"


def _lines(record: ExplainRecord) -> Iterator[str]:
    parts = [
        plural(len(record.sources), "log"),
        byte_count(record.bytes),
    ]
    if record.nccl_lines:
        parts.append(plural(record.nccl_lines, "line of NCCL", "lines of NCCL"))
    if record.versions:
        parts.append(f"NCCL {name_list(record.versions, 3)}")
    if record.ranks:
        parts.append(plural(record.ranks, "rank"))
    if record.hosts:
        parts.append(plural(len(record.hosts), "host"))
    yield ", ".join(parts)
    yield ""
    yield from record.conclusions
    if record.failures:
        yield ""
        yield from _failure_lines(record.failures)
    for test in record.tests:
        yield ""
        yield from _test_lines(test)
    if record.recording is not None:
        yield ""
        yield from _recording_lines(record.recording)
    if record.hosts:
        yield ""
        yield from _host_lines(record.hosts)
    if record.warnings:
        yield ""
        yield "OTHER WARNINGS OF NCCL"
        yield from (
            f"{each.count} x {each.text[:120]}" for each in record.warnings[:_MOST_WARNINGS]
        )
        if len(record.warnings) > _MOST_WARNINGS:
            yield f"and {len(record.warnings) - _MOST_WARNINGS} others: --format json"
    if record.not_read:
        yield ""
        yield f"{record.not_read} lines are like too many others and were only counted."
    if record.notes:
        yield ""
        yield from record.notes


def _failure_lines(failures: Sequence[FailureRecord]) -> Iterator[str]:
    head = ("FAILURE", "TIMES", "FIRST AT", "REPORTED BY", "LEAF", "FAR END", "LEAF")
    yield from aligned([head, *map(_failure_row, failures[:_MOST_FAILURES])])
    if len(failures) > _MOST_FAILURES:
        yield f"and {len(failures) - _MOST_FAILURES} others: --format json"
    yield ""
    meanings = {(each.what, each.meaning, each.check): None for each in failures}
    for what, meaning, check in list(meanings)[:_MOST_FAILURES]:
        yield f"{what}: {meaning}. {check}" if meaning != what else f"{what}. {check}"
    vendor = Counter(each.vendor_error for each in failures if each.vendor_error is not None)
    if vendor:
        codes = ", ".join(f"{code} (0x{code:x})" for code, _ in vendor.most_common(4))
        yield f"Vendor errors: {codes}; the vendor's documentation has their meanings."


def _failure_row(each: FailureRecord) -> tuple[str, ...]:
    at = "·"
    if each.time is not None:
        at = f"{each.time:%m-%d %H:%M:%SZ}"
    elif each.log_time is not None:
        at = each.log_time
    far = each.far
    return (
        f"{each.what}{' (consequence)' if each.is_consequence else ''}",
        str(each.count),
        at,
        each.near.name,
        _leaf(each.near),
        "·" if far is None else _far_name(far),
        "·" if far is None else _leaf(far),
    )


def _far_name(end: EndRecord) -> str:
    if not end.ranks and end.address and end.address not in end.name:
        return f"{end.name} ({end.address})"
    if len(end.ranks) > 1:
        return f"{end.name}, rank {' or '.join(map(str, end.ranks[:4]))}"
    return end.name


def _leaf(end: EndRecord) -> str:
    return " ".join(filter(None, (end.leaf, end.leaf_port))) or "·"


def _test_lines(test: BenchmarkRecord) -> Iterator[str]:
    rails = ""
    if test.rails is not None:
        rails = f"; {test.rails} rails of {bit_rate(test.line_rate_bps)} a node,"
        rails += f" {test.rails_known_from}"
    where = f"{plural(test.ranks, 'rank')} on {plural(test.nodes, 'host')}" if test.ranks else ""
    yield f"{test.name.upper() or 'NCCL-TESTS'}  {where or 'hosts unknown'}{rails}"
    head = ("SIZE", "BUSBW", "OF THE RAILS", "")
    # Below a size that matters for bandwidth only every row's latency is of interest.
    rows = [row for row in test.rows if row.size >= _SMALLEST_ROW] or test.rows
    yield from aligned([head, *(_test_row(row, test) for row in rows[-_MOST_ROWS:])])


def _test_row(row: BenchmarkRowRecord, test: BenchmarkRecord) -> tuple[str, str, str, str]:
    marks = ["falls off"] if row.size in test.falls else []
    if row.size in test.wrong:
        marks.append(plural(test.wrong[row.size], "wrong value"))
    share = rounded_percent(row.share)
    return byte_count(row.size), byte_rate(row.busbw_bps), share, ", ".join(marks)


def _host_lines(hosts: Sequence[HostRecord]) -> Iterator[str]:
    yield from aligned([("HOST", "RANKS", "GPUS", "HCAS"), *map(_host_row, hosts[:_MOST_HOSTS])])
    if len(hosts) > _MOST_HOSTS:
        rest = fold([each.host for each in hosts[_MOST_HOSTS:]])
        yield f"and {plural(len(hosts) - _MOST_HOSTS, 'host')}: {clean(rest)}"


def _host_row(each: HostRecord) -> tuple[str, str, str, str]:
    ranks = _rank_list(each.ranks).partition(" ")[2] if each.ranks else "·"
    gpus = _rank_list(each.gpus).partition(" ")[2] if each.gpus else "·"
    hcas = [f"[{index}] {'+'.join(names)}" for index, names in each.hcas.items()]
    return each.host, ranks, gpus, name_list(hcas, 8) or "·"


def _recording_lines(found: RecordingAtTime) -> Iterator[str]:
    if found.start is None or found.end is None:
        yield f"RECORDING  {found.clock}"
        return
    yield f"RECORDING  {found.start:%m-%d %H:%M:%SZ} to {found.end:%H:%M:%SZ}; {found.clock}"
    for each in found.findings:
        mark = "◉" if each.is_on_path else " "
        until = f"{each.until:%H:%M:%SZ}" if each.until is not None else "open"
        yield f"{mark} {each.since:%H:%M:%SZ} to {until}  {each.severity}  {each.text}"
    if not found.findings:
        yield "No finding in this time."
    if found.ports:
        yield ""
        head = ("PORT", "DOWN", "TX", "RX", "PAUSED", "PAUSES", "ERRORS/S", "DROPS/S")
        yield from aligned([head, *map(_port_row, found.ports[:_MOST_PORTS])], left=1)
        if len(found.ports) > _MOST_PORTS:
            yield f"and {len(found.ports) - _MOST_PORTS} ports: --format json"


def _port_row(each: PortAtTime) -> tuple[str, ...]:
    shares = (each.tx_util, each.rx_util, each.paused, each.pausing)
    counts = (each.errors, each.drops)
    return (
        each.name,
        f"{each.down_s:.0f} s" if each.down_s else "no",
        *(rounded_percent(share) for share in shares),
        *("·" if count is None else f"{count:.3g}" for count in counts),
    )
