"""`fabmon ras`: asks NCCL's RAS once, or reads its answers, and looks at the wire at that time."""

from __future__ import annotations

import datetime
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fabmon.analysis.job.status_observations import RankPlaces
from fabmon.analysis.job.wire import Wire, WireState, wire_state
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.analysis.job_log.log_times import clock_of
from fabmon.analysis.nccl_ras.job_status import JobStatus, RasError
from fabmon.analysis.nccl_ras.text_status import parse_status
from fabmon.analysis.nccl_ras.versions import Version, library_version, parse_version, refusal
from fabmon.fabric.input_files import read_input
from fabmon.fabric.model import UPLINK, Fabric, Host
from fabmon.fabric.pseudonyms import without_domain
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.time_wording import date_time, utc
from fabmon.fabric.wording import file_error
from fabmon.feeds.errors import NO_CONNECTION, NodeError
from fabmon.feeds.nccl_ras import PORT, connected, connected_over_ssh, mapped_over_ssh, query_status
from fabmon.private_files import write_new
from fabmon.recording.reading.timeline import Timeline
from fabmon.report.job_report import RasRecord, ras_record, redacted
from fabmon.session import event_loop
from fabmon.session.errors import UsageError, cannot_write
from fabmon.session.log_files import read_files
from fabmon.session.nccl_version import THIS_MACHINE, allowed_version, mapped_versions
from fabmon.session.node_queries import live_places, named_hosts
from fabmon.session.played_part import PlayedPart, play_part
from fabmon.session.recorder_setup import last_ring
from fabmon.session.replay_run import open_recordings
from fabmon.session.session import Session

_LOOKED_AT_S = 30.0
"""Of the recording, up to the answer."""
_LATE_S = 30.0
"""A recording that ended this long before the answer still shows the wire of that time."""
_MOST_BYTES = 64 << 20


class RasUnreachable(Exception):
    """RAS could not be asked, or did not answer as it should; the message says why."""


class RasNotConnected(RasUnreachable):
    """There was no connection to RAS: nothing was sent."""


@dataclass(frozen=True, slots=True)
class RasOptions:
    """What to ask or to read, and with what to compare it.

    `host` is `HOST[:PORT]` to ask, None to read `answers` only; these are saved answers in the
    order of time. With `direct` the host itself is connected to, and not its localhost over SSH.
    RAS waits `timeout_s` for the job's processes; `save` is where the answer is written.
    """

    answers: tuple[Path, ...] = ()
    host: str | None = None
    direct: bool = False
    nccl_version: str | None = None
    logs: tuple[Path, ...] = ()
    hosts: Path | None = None
    recordings: tuple[Path, ...] = ()
    screen: bool = False
    zone: datetime.tzinfo | None = None
    timeout_s: int = 5
    duration_s: float = 20.0
    save: Path | None = None
    redact: bool = False


def ras(session: Session, options: RasOptions) -> RasRecord:
    """The status of a job. Raises UsageError, RasUnreachable."""
    _check(options)
    hosts = named_hosts(options.hosts)
    files = read_files(options.logs)
    log, notes = files.log if options.logs else None, files.notes
    notes += [f"{each.source}: fabmon explain reads dumps" for each in files.dumps]
    statuses = [_read_answer(path) for path in options.answers]
    source, asked_ns = str(options.answers[-1]) if options.answers else "", None
    if options.host is not None:
        target = _target(options.host, hosts)
        mapped = mapped_libraries(session, options, log, target[0])
        version = allowed_version(options.nccl_version, log, mapped)
        content = send_query(session, options, *target)
        asked_ns = time.time_ns()
        source = f"{target[0].name}:{target[1]}"
        if options.save is not None:
            _write(options.save, content)
        statuses.append(parsed_answer(content, source))
        notes += version_notes(version, statuses[-1])
    status, before = statuses[-1], statuses[-2] if len(statuses) > 1 else None
    answer = Answer(status, source, before, log, asked_ns, options.zone, notes)
    if options.recordings or options.screen:
        with open_recordings(_recordings(session, options)) as timeline:
            record, redactor = recorded_report(session, answer, timeline)
    else:
        record, redactor = live_report(session, answer, hosts, options.duration_s)
    return redacted(record, redactor) if options.redact else record


def _check(options: RasOptions) -> None:
    if options.host is None and not options.answers:
        raise UsageError(
            "name a host to ask (--host HOST), or a file with what ncclras printed; a query can"
            " crash a job with some versions of NCCL: see fabmon ras --help"
        )
    files = Counter(path.resolve() for path in options.answers)
    twice = next((path for path in options.answers if files[path.resolve()] > 1), None)
    if twice is not None:
        raise UsageError(f"{twice} is given twice: compare answers of different times")
    if options.host is None and (options.nccl_version or options.direct or options.save):
        raise UsageError("--nccl-version, --direct and --save are for a query: add --host HOST")
    if (
        (options.recordings or options.screen)
        and options.hosts is not None
        and options.host is None
    ):
        raise UsageError("--recording and --screen have the nodes of their time: remove --hosts")
    if options.recordings and options.screen:
        raise UsageError("--recording and --screen cannot be combined")


def _read_answer(path: Path) -> JobStatus:
    try:
        return parse_status(read_input(path, _MOST_BYTES))
    except OSError as error:
        raise UsageError(f"{path}: {file_error(error)}") from None
    except RasError as error:
        raise UsageError(f"{path}: {error}") from None


def parsed_answer(content: bytes, source: str) -> JobStatus:
    """The status in an answer. Raises RasUnreachable."""
    try:
        return parse_status(content)
    except RasError as error:
        raise RasUnreachable(f"{source}: {error}") from None


def _write(path: Path, content: bytes) -> None:
    try:
        write_new(path, content)
    except OSError as error:
        raise cannot_write(path, error) from None


def _target(text: str, hosts: list[Host]) -> tuple[Host, int]:
    """The host of `HOST[:PORT]`, as the hosts file has it, and the port. Raises UsageError."""
    name, port = text, str(PORT)
    if text.startswith("["):
        name, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":") or port
    elif text.count(":") == 1:
        name, _, port = text.partition(":")
    if not name or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"--host {text}: write HOST or HOST:PORT, as in gpu001 or [::1]:28028")
    if name in THIS_MACHINE:
        return Host(name=name, via="local"), int(port)
    known = [each for each in hosts if name in (each.name, without_domain(each.name))]
    host = known[0] if known else Host(name=name)
    if host.via not in ("ssh", "local"):
        raise UsageError(
            f"--host {text}: it is read with via={host.via}, and RAS listens on localhost of the"
            " node: run fabmon ras --host localhost there"
        )
    return host, int(port)


def mapped_libraries(
    session: Session, options: RasOptions, log: JobLog | None, host: Host
) -> Mapping[str, Version | None]:
    """The libraries that processes have mapped on this machine; on a node only where nothing else
    says the version. Raises RasUnreachable."""
    if host.name in THIS_MACHINE or (host.via == "local" and not options.direct):
        return mapped_versions()
    if options.direct or options.nccl_version or (log is not None and log.versions):
        return {}
    try:
        found = event_loop.run(mapped_over_ssh(host, session.settings.ssh_config))
    except NodeError as error:
        raise RasUnreachable(f"{host.name}: {error}") from None
    return {path: library_version(Path(path).name, [text.encode()]) for path, text in found.items()}


def version_notes(version: Version, status: JobStatus) -> list[str]:
    """What to say where the answer has another version than was known before."""
    answered = parse_version(status.version)
    if answered is None or answered == version:
        return []
    note = f"The job has NCCL {answered}, and not {version}."
    why_not = refusal(answered)
    return [note if why_not is None else f"{note} Do not ask it again: {why_not}."]


def send_query(session: Session, options: RasOptions, host: Host, port: int = PORT) -> bytes:
    """One query. Raises RasNotConnected, RasUnreachable."""
    is_connected = False
    if options.direct:
        opened = connected(host.address or host.name, port)
    elif host.via == "local":
        opened = connected(host.name if host.name in THIS_MACHINE else "localhost", port)
    else:
        opened = connected_over_ssh(host, port, session.settings.ssh_config)

    async def query() -> bytes:
        nonlocal is_connected
        async with opened as (reader, writer):
            is_connected = True
            return await query_status(reader, writer, options.timeout_s)

    try:
        return event_loop.run(query())
    except NodeError as error:
        hint = ""
        if error.cause in ("refused", NO_CONNECTION):
            hint = (
                ": a job with NCCL 2.24 or later listens there, unless NCCL_RAS_ENABLE=0 or"
                " NCCL_RAS_ADDR says otherwise"
            )
        failed = RasUnreachable if is_connected else RasNotConnected
        raise failed(f"RAS of {host.name}: {error}{hint}") from None


def _recordings(session: Session, options: RasOptions) -> tuple[Path, ...]:
    if not options.screen:
        return options.recordings
    ring = last_ring(session.settings.recording)
    if ring is None:
        raise UsageError("--screen: no screen was recorded on this machine")
    return (ring,)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of RAS from `source`, and what it is looked at with: the answer `before` it, a log
    of the job, when it was asked (None: it is in a file, with times of `zone`), what else to say.
    """

    status: JobStatus
    source: str
    before: JobStatus | None
    log: JobLog | None
    asked_ns: int | None
    zone: datetime.tzinfo | None
    notes: list[str]

    def report(self, places: RankPlaces, wire: Wire | None) -> RasRecord:
        """The record."""
        return ras_record(
            self.status,
            self.before,
            self.source,
            places,
            asked_at=None if self.asked_ns is None else utc(self.asked_ns),
            wire=wire,
            notes=self.notes,
        )


def live_report(
    session: Session, answer: Answer, hosts: Sequence[Host], duration_s: float
) -> tuple[RasRecord, Redactor]:
    """The record, with places from nodes, which are asked now, and from the plan."""
    places, _ = live_places(session, hosts, duration_s, answer.notes)
    return answer.report(RankPlaces(places, answer.log), None), Redactor(hosts)


def recorded_report(
    session: Session, answer: Answer, timeline: Timeline
) -> tuple[RasRecord, Redactor]:
    """The record, with places and the wire from a recording."""
    redactor = Redactor(timeline.hosts)
    at_ns, clock = _answer_ns(answer, timeline)
    end_ns = timeline.until_ns if at_ns is None else min(at_ns, timeline.until_ns)
    from_ns = max(timeline.start_ns, end_ns - int(_LOOKED_AT_S * 1e9))
    played = play_part(session, timeline, from_ns, end_ns, redactor)
    places = RankPlaces(played.places(session.topology, timeline.hosts), answer.log)
    wire = Wire(clock=clock)
    if at_ns is not None:
        hosts = {places.host(host) for host in _hosts_of(answer.status)}
        wire = _wire(played, hosts, clock, (from_ns, end_ns))
    return answer.report(places, wire), redactor


def _answer_ns(answer: Answer, timeline: Timeline) -> tuple[int | None, str]:
    """When the answer was given, by the recording's clock, and how that is known."""
    first, last = timeline.start_ns, timeline.until_ns
    late_ns = last + int(_LATE_S * 1e9)
    span = f"{date_time(first)} to {date_time(last)}"
    if answer.asked_ns is not None:
        if first <= answer.asked_ns <= late_ns:
            return answer.asked_ns, "by this machine's clock"
        return None, f"the query is not in the time of the recording, {span}"
    if answer.status.time is None:
        return None, "the answer has no time: what the recording shows then is not known"
    clock = clock_of([answer.status.time], first, late_ns, answer.zone)
    if clock is None:
        return None, f"the time of the answer is not in the recording, {span}"
    return clock.time_ns(answer.status.time), clock.sure.replace("the log's", "the answer's")


def _hosts_of(status: JobStatus) -> Iterator[str]:
    """The hosts that an answer names: of JSON all, of a text those of named ranks."""
    for communicator in status.communicators:
        members = [member for group in communicator.counts for member in group.members]
        members += [member for group in communicator.states for member in group.members]
        yield from (member.host for member in members if member.host)
        yield from (each.member.host for each in communicator.missing if each.member.host)
    yield from (each.host for each in status.missing)


def _wire(played: PlayedPart, hosts: set[str], clock: str, window_ns: tuple[int, int]) -> Wire:
    """The state of the rails of some hosts, or else of the uplinks of their leaves."""
    rails = played.rails_of(hosts)
    if not rails:
        return Wire(clock=f"{clock}; the hosts of the answer are not in the recording")
    state, rows = _state(played, rails), rails
    if state in (WireState.ACTIVE, WireState.UNKNOWN):
        both = [*rails, *_uplinks(played.fabric, rails)]
        if _state(played, both) in (WireState.DOWN, WireState.PAUSED, WireState.HOT):
            rows = both
    wire = played.wire(window_ns, clock, rows, hosts)
    return msgspec.structs.replace(wire, ports=wire_state(wire.ports)[1])


def _state(played: PlayedPart, rows: list[int]) -> WireState:
    return wire_state([played.load(row) for row in rows])[0]


def _uplinks(fabric: Fabric, rails: list[int]) -> list[int]:
    """The uplinks of the leaves of some rails."""
    peers = [fabric.ports[row].peer for row in rails]
    leaves = {fabric.ports[peer].node for peer in peers if peer is not None}
    return [port.row for port in fabric.ports if port.node in leaves and port.role == UPLINK]
