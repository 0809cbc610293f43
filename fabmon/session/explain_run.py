"""`fabmon explain`: reads the logs, finds the ports, and looks at a recording at that time."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from fabmon.analysis.flight_recorder.dumps import without_places
from fabmon.analysis.job.wire import Wire
from fabmon.analysis.job_log.conclusions import (
    LocatedFailure,
    StuckCollective,
    located_failures,
    stuck_collectives,
)
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.analysis.job_log.log_times import Clock, LogTime, clock_of
from fabmon.analysis.job_log.nccl_tests import Rails
from fabmon.analysis.job_log.places import AllPlaces, FabricPlaces, Places, PlannedPlaces
from fabmon.fabric.hosts.hosts_file import HostsFileError, from_nodesets, read
from fabmon.fabric.model import Fabric, Host
from fabmon.fabric.pseudonyms import without_domain
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.time_wording import date_time, duration
from fabmon.recording.reading.timeline import Timeline
from fabmon.report.explain_records import ExplainRecord
from fabmon.report.explanation import explain_record, redacted_record
from fabmon.session import event_loop
from fabmon.session.errors import UsageError
from fabmon.session.log_files import JobFiles, log_name, read_files
from fabmon.session.node_queries import collect_fabric
from fabmon.session.played_part import play_part, rail_rates
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
    sources = [log_name(path) for path in options.logs]
    if options.recordings:
        with open_recordings(options.recordings) as timeline:
            look = _RecordingLook(session, timeline, options)
            record = look.explain(files, sources)
        return redacted_record(record, log, look.redactor) if options.redact else record
    hosts = _named_hosts(options.hosts, options.nodesets)
    redactor = Redactor(hosts)
    places: list[Places] = []
    rates: dict[str, list[float]] = {}
    if hosts:
        snapshot, hellos = event_loop.run(collect_fabric(session, hosts, options.duration_s))
        places.append(FabricPlaces(snapshot.fabric, hellos))
        rates = rail_rates(snapshot)
        missing = [host.name for host in hosts if host.name not in hellos]
        if missing:
            notes.append(f"{len(missing)} of {len(hosts)} nodes did not answer.")
    places.append(PlannedPlaces(session.topology, hosts))
    failures = located_failures(log, AllPlaces(places))
    rails = _rails(log, options, rates)
    stuck = stuck_collectives(log)
    record = explain_record(log, sources, failures, stuck, notes=notes, rails=rails, dumps=dumps)
    return redacted_record(record, log, redactor) if options.redact else record


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


def _named_hosts(path: Path | None, nodesets: Sequence[str]) -> list[Host]:
    """The nodes of --hosts and --host; none without them. Raises UsageError."""
    try:
        return [
            *(read(path) if path is not None else ()),
            *(from_nodesets(list(nodesets)) if nodesets else ()),
        ]
    except HostsFileError as error:
        raise UsageError(str(error)) from None


class _RecordingLook:
    """Looks at a recording at the time of the failures of a log."""

    def __init__(self, session: Session, timeline: Timeline, options: ExplainOptions) -> None:
        self._session = session
        self._timeline = timeline
        self._options = options
        self.redactor = Redactor(timeline.hosts)

    def explain(self, files: JobFiles, sources: Sequence[str]) -> ExplainRecord:
        """The record, with what the recording shows."""
        log, notes = files.log, files.notes
        stuck = stuck_collectives(log)
        times = list(_times(log, stuck))[:_MOST_TIMES]
        start_ns, until_ns = self._timeline.start_ns, self._timeline.until_ns
        clock = clock_of(times, start_ns, until_ns, self._options.zone) if times else None
        window = _window(log, stuck, clock, start_ns, until_ns)
        played = play_part(
            self._session,
            self._timeline,
            *(window or (max(start_ns, until_ns - 1), until_ns)),
            self.redactor,
        )
        planned = PlannedPlaces(self._session.topology, self._timeline.hosts)
        places = AllPlaces([FabricPlaces(played.fabric, played.hellos), planned])
        failures = located_failures(log, places)
        if window is None:
            found = Wire(clock=self._why_not(times))
        else:
            assert clock is not None
            rows = _rows(failures, played.fabric) or played.rails_of(_tested_hosts(log))
            hosts = _hosts(failures) | _tested_hosts(log)
            earlier = list(_before_recording(stuck, clock, start_ns))
            found = played.wire(window, clock.sure, rows, hosts, earlier)
        rails = _rails(log, self._options, played.rail_rates)
        return explain_record(
            log, sources, failures, stuck, clock, found, notes, rails, files.dumps
        )

    def _why_not(self, times: Sequence[LogTime]) -> str:
        begun, ended = date_time(self._timeline.start_ns), date_time(self._timeline.until_ns)
        if not times:
            return "the log has no times: what the recording shows then is not known"
        return (
            f"the log's times ({times[0].at:%m-%d %H:%M:%S} and later) are not in the recording,"
            f" {begun} to {ended}"
        )


def _times(log: JobLog, stuck: Sequence[StuckCollective]) -> Iterator[LogTime]:
    """The times of failures, timeouts and tests."""
    for seen in log.failures.values():
        if seen.first is not None:
            yield seen.first
    for each in stuck:
        if each.first is not None:
            yield each.first
    for run in log.tests.runs:
        yield from (time for time in (run.first, run.last) if time is not None)


def _window(
    log: JobLog,
    stuck: Sequence[StuckCollective],
    clock: Clock | None,
    start_ns: int,
    until_ns: int,
) -> tuple[int, int] | None:
    """The part of the recording to look at: from before the first failure, or else from when the
    first collective that timed out began; None where it has none of these."""
    if clock is None:
        return None
    failed = [
        at
        for seen in log.failures.values()
        for time in (seen.first, seen.last)
        if time is not None and (at := clock.time_ns(time)) is not None
    ]
    began = [
        time_ns
        for each in stuck
        if each.first is not None and (at := clock.time_ns(each.first)) is not None
        for time_ns in _while_stuck(at, each.ran_s or 0.0, start_ns)
    ]
    tested = [
        at
        for run in log.tests.runs
        for time in (run.first, run.last)
        if time is not None and (at := clock.time_ns(time)) is not None
    ]
    inside = [at for at in failed if start_ns <= at <= until_ns] or began or tested
    if not inside:
        return None
    first = max(start_ns, min(inside) - int(_BEFORE_S * 1e9))
    last = min(max(inside) + int(_AFTER_S * 1e9), first + int(_LONGEST_S * 1e9), until_ns)
    return (first, last) if first < last else None


def _while_stuck(at_ns: int, ran_s: float, start_ns: int) -> tuple[int, ...]:
    """When a collective began that timed out at `at_ns` after `ran_s`. Of one that began before the
    recording, but did not end before it, the recording's start and the end."""
    began_ns = at_ns - int(ran_s * 1e9)
    return (start_ns, at_ns) if began_ns < start_ns <= at_ns else (began_ns,)


def _before_recording(
    stuck: Sequence[StuckCollective], clock: Clock, start_ns: int
) -> Iterator[str]:
    """A sentence for each of the first collectives that began before the recording."""
    for each in stuck[:_MOST_STUCK]:
        at_ns = None if each.first is None else clock.time_ns(each.first)
        began_ns = start_ns if at_ns is None else at_ns - int((each.ran_s or 0.0) * 1e9)
        if began_ns < start_ns:
            yield (
                f"{each.operation} {each.seq} began {duration((start_ns - began_ns) / 1e9)} before"
                f" the recording: what the network did until {date_time(start_ns)} is not known."
            )


def _hosts(failures: Sequence[LocatedFailure]) -> set[str]:
    ends = [end for each in failures for end in (each.near, each.far) if end is not None]
    return {end.place.node if end.place is not None else end.host for end in ends} - {""}


def _tested_hosts(log: JobLog) -> set[str]:
    return {host for run in log.tests.runs for host in run.hosts.values()}


def _rows(failures: Sequence[LocatedFailure], fabric: Fabric) -> list[int]:
    """The ports of the failures, each followed by the switch port at its other end if watched."""
    rows: dict[int, None] = {}
    for each in failures:
        for end in (each.near, each.far):
            if end is None or end.place is None or end.place.row < 0:
                continue
            rows[end.place.row] = None
            peer = fabric.ports[end.place.row].peer
            if peer is not None:
                rows[peer] = None
    return list(rows)
