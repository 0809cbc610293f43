"""`--format jsonl`: one JSON object a line.

Nodes that changed, findings that changed, rhythms that changed, the tick.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from fabmon.analysis.finding import Change, sentence
from fabmon.analysis.iteration.results import JobIteration
from fabmon.analysis.scene import Scene
from fabmon.fabric.filter import Mask
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeState
from fabmon.fabric.wording import bit_rate, percent
from fabmon.report.records import (
    IterationRecord,
    LinkRecord,
    NodeRecord,
    Record,
    ReportRecord,
    TickRecord,
    finding_record,
    iteration_record,
    link_records,
    utc,
)

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
    """Turns scenes into lines. Remembers what it has told of each node."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        self._iterations = IterationLines()
        self._told: dict[str, tuple[NodeState, str]] = {}

    def lines(self, scene: Scene, links: Mask | None = None) -> Iterator[bytes]:
        """The lines of one scene, each with its newline; `links` are the ports to tell of."""
        for record in self._records(scene, links):
            yield self._encoder.encode(record) + b"\n"

    def _records(self, scene: Scene, links: Mask | None) -> Iterator[Record]:
        snapshot = scene.snapshot
        for record in node_records(snapshot):
            if self._told.get(record.node) != (record.state, record.cause):
                self._told[record.node] = (record.state, record.cause)
                yield record
        for change, finding in scene.changes:
            ports = [snapshot.fabric.ports[row].id for row in finding.rows]
            yield finding_record(change, finding, ports, snapshot.time_ns)
        yield from self._iterations.records(scene)
        yield tick_record(scene, links)


def tick_record(scene: Scene, links: Mask | None = None) -> TickRecord:
    """The fabric at a scene's tick."""
    snapshot = scene.snapshot
    return TickRecord(
        time=utc(snapshot.time_ns),
        seq=snapshot.seq,
        interval_s=snapshot.interval_s,
        nodes_up=nodes_up(scene),
        nodes_total=len(snapshot.fabric.nodes),
        links=link_records(snapshot, links),
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


def nodes_up(scene: Scene) -> int:
    """Nodes whose counters come in."""
    return sum(status.state is NodeState.UP for status in scene.snapshot.statuses.values())


# `--once --format json`: one report as one JSON object.


def report_json(scene: Scene) -> bytes:
    """The moment, the state of every node and what is open, indented, with a last newline."""
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
        rhythms=[
            iteration_record(Change.OPEN, rhythm, snapshot.time_ns)
            for rhythm in scene.iteration_report.jobs
        ],
    )
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


# `--once`: what there is to know in one table, for a pipe, a ticket or a glance.


_HEAD = ("NODE", "PORT", "AS", "STATE", "SPEED", "TX", "RX", "TX %", "RX %", "ERRORS/s", "DROPS/s")
_LEFT = 4
"""The first columns are words and stand left, the others are numbers and stand right."""

_JUDGED_S = 10.0
"""What most rules look back at, and the time that nodes need to come up."""


def table(scene: Scene) -> str:
    """The whole report: a summary line, findings, nodes that are missing, one row a port."""
    return "\n".join(
        [*_summary(scene), *_findings(scene), *_missing(scene.snapshot), *_links(scene)]
    )


def _summary(scene: Scene) -> Iterator[str]:
    snapshot = scene.snapshot
    ports = sum(len(node.ports) for node in snapshot.fabric.nodes)
    time = utc(snapshot.time_ns).strftime("%Y-%m-%d %H:%M:%SZ")
    found = f"{len(scene.findings)} findings"
    watched_s = (snapshot.seq + 1) * snapshot.interval_s
    if not scene.findings and watched_s < _JUDGED_S:
        found += f" in {watched_s:g} s (most need 10: --duration 15)"
    yield (
        f"{time}  {nodes_up(scene)}/{len(snapshot.fabric.nodes)} nodes up  {ports} ports  "
        f"{found}  rates over {snapshot.interval_s:g} s"
    )


def _findings(scene: Scene) -> Iterator[str]:
    for finding in scene.findings:
        yield f"! {finding.cause}: {sentence(finding, scene.snapshot)}"
        yield f"  {finding.advice}"


def _missing(snapshot: Snapshot) -> Iterator[str]:
    for status in snapshot.statuses.values():
        if status.state is not NodeState.UP:
            yield f"x {status.node} {status.state}: {status.reason or 'no word from it yet'}"


def _links(scene: Scene) -> Iterator[str]:
    snapshot = scene.snapshot
    rows = {port.id: port.row for node in snapshot.fabric.nodes for port in node.ports}
    lines = [
        _cells(snapshot, link, rows[f"{link.node}/{link.port}"]) for link in link_records(snapshot)
    ]
    if lines:
        yield ""
        yield from aligned([_HEAD, *lines], _LEFT)


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
        "·" if errors != errors else f"{errors:.0f}",
        "·" if drops != drops else f"{drops:.0f}",
    )


def aligned(rows: Sequence[Sequence[str]], left: int) -> Iterator[str]:
    """Rows of cells as lines; the first `left` columns stand left, the others right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
