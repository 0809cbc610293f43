"""`fabmon explain`: reads the logs, finds the ports, and looks at a recording at that time."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from fabmon.analysis.flight_recorder.dumps import without_places
from fabmon.analysis.job.log_observations import log_observations
from fabmon.analysis.job.observation import Kind, Observation
from fabmon.analysis.job.wire import Wire
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.analysis.job_log.log_times import Clock, LogTime, clock_of
from fabmon.analysis.job_log.nccl_tests import Rails
from fabmon.fabric.pseudonyms import without_domain
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.time_wording import date_time, duration
from fabmon.recording.reading.timeline import Timeline
from fabmon.report.job_report import ExplainRecord, explain_record, redacted
from fabmon.session.errors import UsageError
from fabmon.session.log_files import read_files
from fabmon.session.node_queries import live_places, named_hosts
from fabmon.session.played_part import play_part
from fabmon.session.replay_run import open_recordings
from fabmon.session.session import Session

_BEFORE_S = 60.0
"""Looked at before a failure: NCCL reports it after its retries, some 30 s by default."""
_AFTER_S = 30.0
_LONGEST_S = 300.0
"""Looked at of the time of the failures, from the first one on."""
_MOST_TIMES = 1000
_MOST_STUCK = 3
"""Collectives that timed out of which it is said that they began before the recording."""


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """What to explain, and with what.

    `zone` is that of the log's clock, None where not given. Nodes are waited for `duration_s`.
    `rails` of a node and their line rate are for nccl-tests; None: as the nodes report them.
    """

    logs: tuple[Path, ...]
    hosts: Path | None = None
    nodesets: tuple[str, ...] = ()
    recordings: tuple[Path, ...] = ()
    zone: datetime.tzinfo | None = None
    duration_s: float = 20.0
    redact: bool = False
    rails: int | None = None
    line_rate_bps: float | None = None


def explain(session: Session, options: ExplainOptions) -> ExplainRecord:
    """Explain logs. Raises UsageError, also where they have no line of NCCL."""
    if options.recordings and (options.hosts is not None or options.nodesets):
        raise UsageError("--recording has the nodes of its time: remove --hosts and --host")
    files = read_files(options.logs, options.redact)
    log, notes, dumps = files.log, files.notes, files.dumps
    if options.redact:
        log.forget_quotes()
        dumps[:] = map(without_places, dumps)
    if not log.is_of_job and all(each.error for each in dumps):
        names = ", ".join(map(str, options.logs[:3]))
        raise UsageError(
            "; ".join(f"{each.source}: {each.error}" for each in dumps)
            or f"{names}: no line of NCCL, of PyTorch's NCCL or of nccl-tests: was it written with"
            " NCCL_DEBUG=WARN or INFO?"
        )
    wire = None
    if options.recordings:
        with open_recordings(options.recordings) as timeline:
            redactor = Redactor(timeline.hosts)
            seen, wire, rates = _recorded(session, timeline, log, options.zone, redactor)
    else:
        hosts = named_hosts(options.hosts, options.nodesets)
        redactor = Redactor(hosts)
        places, rates = live_places(session, hosts, options.duration_s, notes)
        seen = log_observations(log, places)
    record = explain_record(
        log, files.sources, seen, wire, notes, _rails(log, options, rates), dumps
    )
    return redacted(record, redactor, log) if options.redact else record


def _rails(log: JobLog, options: ExplainOptions, rates: dict[str, list[float]]) -> Rails | None:
    """The rails of a node in the tests of a log: as given, else as the nodes report them; their
    number also as NCCL reports it. None where the line rate is unknown."""
    hosts = {host for run in log.tests.runs for host in run.hosts.values()}
    known = [each for name, each in rates.items() if without_domain(name) in hosts]
    listed = next(iter(known or rates.values()), [])
    used = max((len(host.hcas) or host.nics for host in log.hosts.values()), default=0)
    count = options.rails or used or len(listed)
    if options.line_rate_bps is not None and count:
        return Rails(count, options.line_rate_bps, "as given")
    if not listed or not count:
        return None
    return Rails(count, median(listed), "as the nodes report them")


def _recorded(
    session: Session,
    timeline: Timeline,
    log: JobLog,
    zone: datetime.tzinfo | None,
    redactor: Redactor,
) -> tuple[list[Observation], Wire, dict[str, list[float]]]:
    """What the log says, what a recording shows at the time of its failures, and the line rates of
    each host's rails."""
    start_ns, until_ns = timeline.start_ns, timeline.until_ns
    times = _times(log)
    clock = clock_of(times, start_ns, until_ns, zone) if times else None
    window = None if clock is None else _window(log, clock, start_ns, until_ns)
    looked_at = window or (max(start_ns, until_ns - 1), until_ns)
    played = play_part(session, timeline, *looked_at, redactor)
    seen = log_observations(log, played.places(session.topology, timeline.hosts), clock)
    if window is None or clock is None:
        span = f"{date_time(start_ns)} to {date_time(until_ns)}"
        why_not = "the log has no times: what the recording shows then is not known"
        if times:
            first = f"{times[0].at:%m-%d %H:%M:%S}"
            why_not = f"the log's times ({first} and later) are not in the recording, {span}"
        wire = Wire(clock=why_not)
    else:
        tested = {host for run in log.tests.runs for host in run.hosts.values()}
        ends = [end for each in seen if each.is_failure for end in (*each.at, *each.others)]
        late = {end.host for each in seen if each.kind == Kind.BEHIND for end in each.at}
        hosts = {end.ports[0].node if end.ports else end.host for end in ends} | tested | late
        rows = played.rows_of(port.port for end in ends for port in end.ports)
        rows = rows or played.rails_of(tested | late)
        earlier = list(_before_recording(log, clock, start_ns))
        wire = played.wire(window, clock.sure, rows, hosts - {""}, earlier)
    return seen, wire, played.rail_rates


def _times(log: JobLog) -> list[LogTime]:
    """The first times of failures, timeouts and tests."""
    times = [seen.first for seen in log.failures.values()]
    times += [each.time for each in log.all_timeouts]
    times += [time for run in log.tests.runs for time in (run.first, run.last)]
    return [time for time in times if time is not None][:_MOST_TIMES]


def _window(log: JobLog, clock: Clock, start_ns: int, until_ns: int) -> tuple[int, int] | None:
    """The part of the recording to look at: from before the first failure, or else from when the
    first collective that timed out began; None where it has none of these."""

    def known(times: Iterable[LogTime | None]) -> list[int]:
        ats = [clock.time_ns(time) for time in times if time is not None]
        return [at for at in ats if at is not None]

    failed = known(time for each in log.failures.values() for time in (each.first, each.last))
    began = []
    for each in log.all_timeouts:
        for at_ns in known([each.time]):
            began_ns = at_ns - int((each.event.ran_s or 0.0) * 1e9)
            # Of one that began before the recording, but did not end before it, what is left.
            began += [start_ns, at_ns] if began_ns < start_ns <= at_ns else [began_ns]
    tested = known(time for run in log.tests.runs for time in (run.first, run.last))
    inside = [at for at in failed if start_ns <= at <= until_ns] or began or tested
    if not inside:
        return None
    first = max(start_ns, min(inside) - int(_BEFORE_S * 1e9))
    last = min(max(inside) + int(_AFTER_S * 1e9), first + int(_LONGEST_S * 1e9), until_ns)
    return (first, last) if first < last else None


def _before_recording(log: JobLog, clock: Clock, start_ns: int) -> Iterator[str]:
    """A sentence for each of the first collectives that began before the recording."""
    began: dict[str, int] = {}
    for each in log.all_timeouts:
        at_ns = None if each.time is None else clock.time_ns(each.time)
        if at_ns is not None:
            name = f"{each.event.operation} {each.event.seq}"
            began_ns = at_ns - int((each.event.ran_s or 0.0) * 1e9)
            began[name] = min(began.get(name, began_ns), began_ns)
    for name, began_ns in list(began.items())[:_MOST_STUCK]:
        if began_ns < start_ns:
            yield (
                f"{name} began {duration((start_ns - began_ns) / 1e9)} before the recording: what"
                f" the network did until {date_time(start_ns)} is not known."
            )
