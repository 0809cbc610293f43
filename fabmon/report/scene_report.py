"""Scenes as text: a table (`--once`), one JSON object, or lines of JSON (`--format jsonl`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from fabmon.analysis import causes
from fabmon.analysis.finding import Change, holds, shown_moment
from fabmon.analysis.iteration.results import JobIteration
from fabmon.analysis.scene import Scene
from fabmon.fabric.filter import Mask
from fabmon.fabric.hosts.nodesets import fold
from fabmon.fabric.node_failures import common_reason
from fabmon.fabric.snapshot import FIRST_SAMPLE, Snapshot, has_line_rates, unknown_ports
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.fabric.time_wording import date_time, interval, utc
from fabmon.fabric.wording import bit_rate, number, percent, plural
from fabmon.report.json_records import (
    IterationRecord,
    LinkRecord,
    NodeRecord,
    Record,
    ReportRecord,
    TickRecord,
    finding_record,
    iteration_record,
    link_records,
)
from fabmon.report.output import aligned, as_json

_HEAD = ("NODE", "PORT", "AS", "STATE", "SPEED", "TX", "RX", "TX %", "RX %", "ERRORS/s", "DROPS/s")
_LEFT = 4
"""The first columns are texts, aligned left; the others are numbers, aligned right."""

_JUDGED_S = 10.0
"""Most detectors need this much time, which includes the start of the nodes."""

_REPEAT_NS = 60_000_000_000
"""A job's iterations are reported again after this time."""

_MIN_STEP_CHANGE = 0.02
"""Share of the step time, below which a change is not reported at once."""


class IterationLines:
    """Records of jobs' iterations: when they begin, change or end, and once a minute.

    A job is identified by the first of its hosts.
    """

    def __init__(self) -> None:
        self._reported: dict[str, tuple[JobIteration, int]] = {}

    def records(self, scene: Scene) -> Iterator[IterationRecord]:
        """What is new in a scene."""
        now_ns = scene.snapshot.time_ns
        jobs = {job.hosts[0]: job for job in scene.iteration_report.jobs}
        for name in [name for name in self._reported if name not in jobs]:
            yield iteration_record(Change.CLOSE, self._reported.pop(name)[0], now_ns)
        for name, job in jobs.items():
            before = self._reported.get(name)
            if before is None or _differs(job, before[0]) or now_ns - before[1] >= _REPEAT_NS:
                self._reported[name] = (job, now_ns)
                yield iteration_record(Change.UPDATE if before else Change.OPEN, job, now_ns)


def _differs(job: JobIteration, before: JobIteration) -> bool:
    """Whether a job differs from what was reported by more than the error of measurement."""
    room_s = max(_MIN_STEP_CHANGE * before.step_s, before.error_s)
    return (
        abs(job.step_s - before.step_s) > room_s
        or job.hosts != before.hosts
        or job.bound != before.bound
        or (job.step_was, job.comm_was, job.bytes_was)
        != (before.step_was, before.comm_was, before.bytes_was)
    )


class JsonLines:
    """Turns scenes into lines of JSON: changed nodes, changed findings, iterations, the tick.

    It keeps the last reported state of each node.
    """

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        self._iterations = IterationLines()
        self._states: dict[str, tuple[NodeState, str]] = {}

    def lines(self, scene: Scene, links: Mask | None = None) -> Iterator[bytes]:
        """The lines of one scene, each with its newline; `links` selects ports, None for all."""
        for record in self._records(scene, links):
            yield self._encoder.encode(record) + b"\n"

    def _records(self, scene: Scene, links: Mask | None) -> Iterator[Record]:
        snapshot = scene.snapshot
        for record in node_records(snapshot):
            if self._states.get(record.node) != (record.state, record.cause):
                self._states[record.node] = (record.state, record.cause)
                yield record
        for change, finding in scene.changes:
            ports = [snapshot.fabric.ports[row].id for row in finding.rows]
            yield finding_record(change, finding, ports, snapshot.time_ns)
        yield from self._iterations.records(scene)
        yield tick_record(scene, links)


def finding_lines(scene: Scene) -> Iterator[str]:
    """A line for every finding that opened, changed or closed at a scene: time, change, severity,
    cause, subject, text, affected jobs.
    """
    for change, finding in scene.changes:
        shown = shown_moment(finding)
        head = f"{date_time(scene.snapshot.time_ns)} {change.value:<6} {shown.severity:<8}"
        jobs = f" [{', '.join(shown.jobs)}]" if shown.jobs else ""
        title, text = causes.finding_title(finding), causes.sentence(finding)
        yield f"{head} {title}: {finding.subject}: {text}{jobs}\n"


def tick_record(scene: Scene, links: Mask | None = None) -> TickRecord:
    """The fabric at a scene's tick."""
    snapshot = scene.snapshot
    return TickRecord(
        time=utc(snapshot.time_ns),
        seq=snapshot.seq,
        interval_s=snapshot.interval_s,
        nodes_up=snapshot.nodes_up,
        nodes_total=len(snapshot.fabric.nodes),
        links=link_records(scene, links),
    )


def node_records(snapshot: Snapshot) -> list[NodeRecord]:
    """The state of every node, in the order of the hosts file."""
    return [
        NodeRecord(
            time=utc(snapshot.time_ns),
            node=name,
            state=status.state,
            since=utc(status.since_ns or snapshot.time_ns),
            cause=status.cause,
            reason=status.reason,
        )
        for name, status in snapshot.statuses.items()
    ]


def report_json(scene: Scene) -> bytes:
    """The tick, the state of every node and the open findings as indented JSON."""
    snapshot = scene.snapshot
    record = ReportRecord(
        tick=tick_record(scene),
        nodes=node_records(snapshot),
        findings=[
            finding_record(
                Change.OPEN,
                finding,
                [snapshot.fabric.ports[row].id for row in finding.rows],
                snapshot.time_ns,
            )
            for finding in scene.findings
        ],
        iterations=[
            iteration_record(Change.OPEN, job, snapshot.time_ns)
            for job in scene.iteration_report.jobs
        ],
    )
    return as_json(record)


def table(scene: Scene) -> str:
    """The report as a table: a row per port, nodes that do not send data, findings, a summary. A
    fabric has more ports than a terminal has lines: what matters is at the end."""
    return "\n".join(
        [*_links(scene), *_missing(scene.snapshot), *_findings(scene), *_summary(scene)]
    )


def _summary(scene: Scene) -> Iterator[str]:
    snapshot = scene.snapshot
    ports = sum(len(node.ports) for node in snapshot.fabric.nodes)
    held = sum(holds(finding, snapshot) for finding in scene.findings)
    found, faded = plural(held, "finding"), len(scene.findings) - held
    found += f" and {faded} that no longer hold{'s' if faded == 1 else ''}" if faded else ""
    watched_s = (snapshot.seq + 1) * snapshot.interval_s
    if not scene.findings and unknown_ports(snapshot).all():
        why = FIRST_SAMPLE if snapshot.is_first_sample else "no port has a rate"
        found = f"nothing is known{' yet' if snapshot.is_first_sample else ''}: {why}"
    elif not scene.findings and not has_line_rates(snapshot):
        found += ", full links are not judged: no port has a line rate"
    elif not scene.findings and watched_s < _JUDGED_S:
        found += f" in {interval(watched_s)} (most need 10 s: --duration 15)"
    up = f"{snapshot.nodes_up}/{len(snapshot.fabric.nodes)} nodes up"
    yield (
        f"{date_time(snapshot.time_ns)}  {up}  {plural(ports, 'port')}  "
        f"rates of the last {interval(snapshot.interval_s)}  {found}"
    )


def _findings(scene: Scene) -> Iterator[str]:
    for finding in scene.findings:
        yield f"! {causes.finding_title(finding)}: {causes.sentence(finding, scene.snapshot)}"
        shown = shown_moment(finding)
        if shown.jobs:
            yield f"  affects {', '.join(shown.jobs)}"
        yield f"  {shown.advice}"


def _missing(snapshot: Snapshot) -> Iterator[str]:
    """A line for all nodes that do not send data for one reason."""
    similar: defaultdict[tuple[NodeState, str], list[NodeStatus]] = defaultdict(list)
    for status in snapshot.statuses.values():
        if status.state is not NodeState.UP:
            similar[status.state, status.cause or status.reason].append(status)
    for (state, cause), nodes in similar.items():
        count = f" ({len(nodes)} nodes)" if len(nodes) > 1 else ""
        reason = common_reason((node.reason for node in nodes), cause) or "no data from it yet"
        yield f"x {fold(node.node for node in nodes)}{count} {state}: {reason}"


def _links(scene: Scene) -> Iterator[str]:
    snapshot = scene.snapshot
    rows = {port.id: port.row for node in snapshot.fabric.nodes for port in node.ports}
    lines = [
        _cells(snapshot, link, rows[f"{link.node}/{link.port}"]) for link in link_records(scene)
    ]
    if lines:
        yield from aligned([_HEAD, *lines], _LEFT)
        yield ""


def _cells(snapshot: Snapshot, link: LinkRecord, row: int) -> Sequence[str]:
    errors, drops = (snapshot.column(name)[row] for name in ("errors", "drops"))
    return (
        link.node,
        link.port,
        link.label,
        link.state,
        bit_rate(link.speed_bps),
        bit_rate(link.tx_bps),
        bit_rate(link.rx_bps),
        percent(link.tx_util),
        percent(link.rx_util),
        number(errors),
        number(drops),
    )
