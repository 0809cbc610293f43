"""What witnesses say of a job, as the records of `fabmon explain` and `fabmon ras`."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from fabmon.analysis.flight_recorder.dumps import Dump
from fabmon.analysis.job.conclusions import conclusions
from fabmon.analysis.job.dump_observations import dump_observations
from fabmon.analysis.job.observation import (
    NOT_UNDERSTOOD,
    OK,
    WRONG,
    Kind,
    Observation,
    Weight,
    result_of,
)
from fabmon.analysis.job.status_observations import RankPlaces, movement, status_observations
from fabmon.analysis.job.wire import Wire
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.analysis.job_log.nccl_tests import (
    BenchmarkResult,
    Rails,
    benchmark_result,
    benchmark_sentences,
)
from fabmon.analysis.nccl_ras.job_status import JobStatus
from fabmon.fabric.name_forms import NAME_FORMS
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.wire.messages import clean
from fabmon.fabric.wording import name_list, plural

_MOST_QUOTED = 160


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """What both commands report. `result` is `ok`, `wrong` (exit status 5) or `not_understood`
    (nothing is known to be wrong, but lines that speak of a failure were not understood, or a dump
    was not read; exit status 6). `conclusions` are sentences, the most important first, made of the
    `observations` and of `wire`, which is null where no recording was looked at."""

    result: str
    conclusions: list[str]
    observations: list[Observation]
    wire: Wire | None
    notes: list[str]


class HostRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A host in the log: its ranks, its HCAs by NCCL's index, the number of its NICs (0: unknown),
    its addresses."""

    host: str
    ranks: list[int]
    gpus: list[int]
    hcas: dict[str, list[str]]
    nics: int
    addresses: list[str]


class DumpRecord(msgspec.Struct, frozen=True):
    """A dump of PyTorch's Flight Recorder: its rank (-1 where its name does not have it), its file,
    how many entries it has, and why it could not be read, else null."""

    rank: int
    source: str
    entries: int
    error: str | None


class UnreadRecord(msgspec.Struct, frozen=True):
    """A line that speaks of a failure and was not understood, and how many differ from it in
    numbers only."""

    text: str
    count: int


class ExplainRecord(JobReport, frozen=True, kw_only=True, tag_field="type", tag="explain"):
    """`fabmon explain --format json`. `nccl_lines` are the lines with a mark of NCCL, of a plugin
    of it, of UCX, gloo, PyTorch's distributed package or a launcher. `ranks` is the size of the
    largest communicator, 0 where unknown. `not_read` counts lines that are like too many others.
    """

    sources: list[str]
    bytes: int
    lines: int
    nccl_lines: int
    not_read: int
    versions: list[str]
    ranks: int
    hosts: list[HostRecord]
    dumps: list[DumpRecord]
    not_understood: list[UnreadRecord]
    tests: list[BenchmarkResult]


class RasRecord(JobReport, frozen=True, kw_only=True, tag_field="type", tag="ras"):
    """`fabmon ras --format json`. `source` is the asked process' address or a file. `movement` says
    whether counts changed since an earlier answer: `moving`, `frozen` or `unknown`. `answer_time`
    is as written, in the local time of the answering node."""

    source: str
    asked_at: datetime.datetime | None
    answer_time: str | None
    nccl_version: str | None
    is_complete: bool
    nodes: int
    processes: int
    gpus: int
    communicators: int
    timeouts: int
    collection_s: float | None
    movement: str


def explain_record(
    log: JobLog,
    sources: Sequence[str],
    observations: Sequence[Observation],
    wire: Wire | None = None,
    notes: Sequence[str] = (),
    rails: Rails | None = None,
    dumps: Sequence[Dump] = (),
) -> ExplainRecord:
    """The logs of a job, of which `observations` were made, as a record. `rails` are the NICs of a
    node, with which runs of nccl-tests are compared; None where unknown. `dumps` are those of
    PyTorch's Flight Recorder."""
    tests = [each for run in log.tests.runs if (each := benchmark_result(run, rails)) is not None]
    is_wrong = bool(log.failures) or any(each.is_wrong for each in tests)
    of_log = WRONG if is_wrong else result_of(observations)
    if of_log == OK and log.unread_lines:
        of_log = NOT_UNDERSTOOD
    of_dumps = dump_observations(dumps)
    is_first = any(each.weight != Weight.USUAL for each in of_dumps)
    every = [*of_dumps, *observations] if is_first else [*observations, *of_dumps]
    results = (of_log, result_of(of_dumps))
    return ExplainRecord(
        sources=list(sources),
        bytes=log.size,
        lines=log.lines,
        nccl_lines=log.nccl_lines,
        not_read=log.not_parsed + log.left_out.total(),
        versions=sorted(log.versions),
        ranks=_ranks(log),
        result=next((each for each in (WRONG, NOT_UNDERSTOOD) if each in results), OK),
        conclusions=[
            *conclusions([each for each in every if each.kind != Kind.RETRIED], wire),
            *(sentence for test in tests for sentence in benchmark_sentences(test)),
            *_reading(log, of_log),
            *(each.text for each in every if each.kind == Kind.RETRIED),
        ],
        observations=every,
        hosts=_hosts(log),
        dumps=[
            DumpRecord(each.rank, clean(each.source), len(each.entries), clean(each.error) or None)
            for each in sorted(dumps, key=lambda each: each.rank)
        ],
        not_understood=[
            UnreadRecord(clean(text), count)
            for text, count in sorted(log.unread.values(), key=lambda each: -each[1])
        ],
        tests=tests,
        wire=wire,
        notes=list(notes),
    )


def _ranks(log: JobLog) -> int:
    return max((facts.ranks for facts in log.processes.values()), default=0)


def _reading(log: JobLog, result: str) -> Iterator[str]:
    """Lines that were not understood. That there is no failure is said only where every line that
    speaks of one was."""
    if count := log.unread_lines:
        verb = "speaks of a failure and was" if count == 1 else "speak of a failure and were"
        quoted = clean(next(iter(log.unread.values()), ("", 0))[0])[:_MOST_QUOTED]
        yield f"{plural(count, 'line')} {verb} not understood{f': “{quoted}”' if quoted else ''}"
    elif log.is_of_job and result == OK:
        ranks = _ranks(log)
        versions = f"NCCL {name_list(sorted(log.versions), 3)}" if log.versions else ""
        yield (
            "No failure of the network and no timeout is in these logs. Read:"
            f" {plural(log.lines, 'line')}, {log.nccl_lines} of them of NCCL, PyTorch or a"
            f" launcher; {plural(ranks, 'rank') if ranks else 'no rank named'};"
            f" {versions or 'no version named'}."
        )


def _hosts(log: JobLog) -> list[HostRecord]:
    by_host: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for process, facts in log.processes.items():
        gpu = facts.gpu if facts.gpu >= 0 else process.gpu
        by_host[process.host].append((log.rank_of(process), gpu))
    found = []
    for name in dict.fromkeys([*by_host, *log.hosts]):
        known = log.hosts.get(name)
        record = HostRecord(
            host=name,
            ranks=sorted({rank for rank, _ in by_host[name] if rank >= 0}),
            gpus=sorted({gpu for _, gpu in by_host[name] if gpu >= 0}),
            hcas={str(n): list(each) for n, each in known.hcas.items()} if known else {},
            nics=(known.nics or len(known.hcas)) if known else 0,
            addresses=sorted(known.addresses) if known else [],
        )
        found.append(record)
    return sorted(found, key=lambda each: (each.ranks or [1 << 30], each.host))


def ras_record(
    status: JobStatus,
    before: JobStatus | None,
    source: str,
    places: RankPlaces,
    *,
    asked_at: datetime.datetime | None = None,
    wire: Wire | None = None,
    notes: Sequence[str] = (),
) -> RasRecord:
    """An answer as a record; `before` is an earlier answer of the same job."""
    moved = movement(before, status)
    observations = status_observations(status, moved, places)
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
        result=result_of(observations),
        conclusions=list(conclusions(observations, wire)),
        observations=observations,
        wire=wire,
        notes=list(notes),
    )


_OWN_WORDS = frozenset({"type", "witness", "kind", "weight", "result", "side", "severity"})
"""Fields with words of the schema: a host may be called as one of them."""
_Report = TypeVar("_Report", bound=JobReport)


def redacted(record: _Report, redactor: Redactor, log: JobLog | None = None) -> _Report:
    """The record with pseudonyms; lines of the log and names of files are left out."""
    for name in (*_hosts_in(record), *(_named_by_conclusions(log) if log is not None else ())):
        if name:
            redactor.node(name)
    changed: dict[str, object] = {"source": "an answer of RAS"}
    if isinstance(record, ExplainRecord):
        names = {name: f"log {number}" for number, name in enumerate(record.sources, 1)}
        looked_for = ", ".join(form.what for form in NAME_FORMS)
        note = (
            "Replaced: names that are known, addresses, paths, URLs, and by their form"
            f" {looked_for}. Other words of the log may be names too: read this before you send it."
        )
        changed = {
            "sources": list(names.values()),
            **{
                field: [
                    msgspec.structs.replace(each, source=names.get(each.source, ""))
                    for each in getattr(record, field)
                ]
                for field in ("observations", "tests", "dumps")
            },
            "not_understood": [],
            "notes": [*record.notes, note],
        }
    plain = msgspec.to_builtins(msgspec.structs.replace(record, **changed))
    for each in plain["observations"]:
        each.pop("line", None)
    return msgspec.convert(replaced_names(plain, redactor), type(record))


def _hosts_in(record: JobReport) -> Iterator[str]:
    if isinstance(record, ExplainRecord):
        yield from (each.host for each in record.hosts)
    for each in record.observations:
        for end in (*each.at, *each.others):
            yield end.host
            yield from (port.leaf for port in end.ports)


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
    if isinstance(value, (list, tuple)):
        return [_replaced(each, redactor) for each in value]
    if isinstance(value, dict):
        return {
            key: each if key in _OWN_WORDS else _replaced(each, redactor)
            for key, each in value.items()
        }
    return value
