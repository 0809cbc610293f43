"""The objects of `--format jsonl`, typed; docs/jsonl.schema.json is generated from these."""

from __future__ import annotations

import datetime
import math

import msgspec
import numpy as np

from collectors.catalog import CATALOG, GAUGE
from fabmon.analysis.causes import measured_loss, sentence
from fabmon.analysis.finding import Change, Evidence, Finding, shown_moment
from fabmon.analysis.iteration.results import JobIteration, PreviousValue
from fabmon.analysis.scene import Scene
from fabmon.fabric.filter import Mask
from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.model import Port
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeState
from fabmon.fabric.time_wording import utc
from fabmon.report.output import json_schema

_DIGITS = 6


class LinkRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One port at one tick. Network rates are bits/s of one direction; null is absent, not zero.

    `peer` is the port at the other end of its cable, as `node/port`; null when it is not known.
    `state` is `up`, `down`, `stale` or `unknown`; `saturated` says that some counter of the port
    is at its maximum, so that its true value is not known. `doubt` says why its traffic cannot be
    what it counts, empty where nothing speaks against it. `rates` are the port's counters by
    catalog name, in their unit per second; `levels` its gauges.
    """

    node: str
    port: str
    label: str
    kind: str
    role: str
    peer: str | None
    state: str
    speed_bps: float | None
    tx_bps: float | None
    rx_bps: float | None
    tx_util: float | None
    rx_util: float | None
    age_s: float | None
    saturated: bool
    doubt: str
    rates: dict[str, float]
    levels: dict[str, float]


class TickRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tick"):
    """The fabric at one tick. `time` is UTC."""

    time: datetime.datetime
    seq: int
    interval_s: float
    nodes_up: int
    nodes_total: int
    links: list[LinkRecord]


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="node"):
    """A node's state changed; `reason` says why, and `cause` is one word per kind of failure."""

    time: datetime.datetime
    node: str
    state: NodeState
    since: datetime.datetime
    cause: str
    reason: str


class FindingRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="finding"):
    """A finding opened, changed or closed. `lost` and `confidence` are 0 to 1; traffic loses `lost`
    at most where `lost_is_upper_bound`.

    Severity, text, numbers, victims, jobs, advice and `unseen` are of one moment: that of `seen`
    while it is about as bad as the worst; of `worst` once the finding has ended, loses clearly
    less, no longer names who loses or knows only an upper bound. Then `last` is the moment of
    `seen`, else it is null.

    `cause` may change while a finding is open (errors that become damage); `key` does not: it has
    the first cause.

    `seen` is when its condition held last; null where that is not known. A finding stays open for
    some seconds after that, because its condition may hold again. `worst` is when it was worse than
    at `seen`, else null: when most was lost, of which 0.8 counts where it names nobody who loses,
    and where it is an upper bound. `jobs` are the affected jobs of the scheduler, as `job 8801
    llama-70b (anna)`. `since` and `until` are equal where one sample
    showed it.
    """

    time: datetime.datetime
    change: Change
    key: str
    cause: str
    severity: str
    subject: str
    ports: list[str]
    victims: list[str]
    jobs: list[str]
    text: str
    evidence: list[Evidence]
    advice: str
    unseen: str
    lost: float
    lost_is_upper_bound: bool
    confidence: float
    since: datetime.datetime
    seen: datetime.datetime | None
    worst: MomentRecord | None
    last: MomentRecord | None
    until: datetime.datetime | None


class MomentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A finding at a moment: when it was worst (of its ticks, those that one of the two before them
    equals), or when its condition held last."""

    time: datetime.datetime | None
    severity: str
    lost: float
    lost_is_upper_bound: bool
    confidence: float
    evidence: list[Evidence]
    unseen: str


class MovedRecord(msgspec.Struct, frozen=True):
    """The previous value of a number, and when it changed."""

    was: float
    at: datetime.datetime


class IterationRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="iteration"):
    """The iterations of a job were first measured (`open`), changed or ended (`close`).

    A job is the `hosts` whose traffic correlates, `job` is the scheduler's on these hosts, empty
    where none is known; `hosts_sure` is false where another job has a
    similar pattern, so that some hosts may be in the wrong one. `step_s` has an error of up to
    `error_s`; where `resolved` is false, the steps may be shorter than two sampling intervals.
    `comm_low` to `comm_high` is the share of time (0 to 1) in communication. `rail_bytes` are sent
    by each rail in an iteration, by rail index; `line_share` is their share of line rate. `bound`
    is `compute-bound`, `balanced`, `network-bound` or empty. `best_step_s` is the step if the
    network delivered 80 % of line rate. `needed_bps_low` to `needed_bps_high` is the rate of a rail
    that hides its bytes behind computing. `expected_rail_bytes`, `expected_comm_s`, `gpu_tflops`
    and `mfu` (0 to 1) follow from the hints on the command line.
    """

    time: datetime.datetime
    change: Change
    hosts: list[str]
    job: str
    hosts_sure: bool
    step_s: float
    error_s: float
    resolved: bool
    comm_low: float
    comm_high: float
    rail_bytes: list[float | None]
    line_share: float | None
    bound: str
    best_step_s: float | None
    step_was: MovedRecord | None
    comm_was: MovedRecord | None
    bytes_was: MovedRecord | None
    needed_bps_low: float
    needed_bps_high: float | None
    expected_rail_bytes: float | None
    expected_comm_s: float | None
    gpu_tflops: float | None
    mfu: float | None


class ReportRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="report"):
    """`--once --format json`: one tick, the state of every node, the open findings."""

    tick: TickRecord
    nodes: list[NodeRecord]
    findings: list[FindingRecord]
    iterations: list[IterationRecord]


Record = TickRecord | NodeRecord | FindingRecord | IterationRecord


def finding_record(
    change: Change, finding: Finding, ports: list[str], time_ns: int
) -> FindingRecord:
    """A change of a finding as a record; `ports` are the ids of its rows."""
    shown = shown_moment(finding)
    return FindingRecord(
        time=utc(time_ns),
        change=change,
        key=finding.key,
        cause=finding.cause,
        severity=shown.severity,
        subject=finding.subject,
        ports=ports,
        victims=list(shown.victims),
        jobs=list(shown.jobs),
        text=sentence(finding),
        evidence=list(shown.evidence),
        advice=shown.advice,
        unseen=shown.unseen,
        lost=round(measured_loss(shown), 4),
        lost_is_upper_bound=shown.lost_is_upper_bound,
        confidence=shown.confidence,
        since=utc(finding.since_ns),
        seen=None if finding.seen_ns is None else utc(finding.seen_ns),
        worst=None if finding.worst is None else _moment_record(finding.worst),
        last=None if shown is finding else _moment_record(finding),
        until=None if finding.until_ns is None else utc(finding.until_ns),
    )


def _moment_record(finding: Finding) -> MomentRecord:
    return MomentRecord(
        time=None if finding.seen_ns is None else utc(finding.seen_ns),
        severity=finding.severity,
        lost=round(measured_loss(finding), 4),
        lost_is_upper_bound=finding.lost_is_upper_bound,
        confidence=finding.confidence,
        evidence=list(finding.evidence),
        unseen=finding.unseen,
    )


def iteration_record(change: Change, job: JobIteration, time_ns: int) -> IterationRecord:
    """The iterations of a job as a record."""
    due = job.expected
    needed_low, needed_high = job.needed_bps
    return IterationRecord(
        time=utc(time_ns),
        change=change,
        hosts=list(job.hosts),
        job="" if job.job is None else job.job.label,
        hosts_sure=job.hosts_sure,
        step_s=round(job.step_s, 3),
        error_s=round(job.error_s, 3),
        resolved=job.resolved,
        comm_low=round(job.comm_low, 3),
        comm_high=round(job.comm_high, 3),
        rail_bytes=[None if each is None else round(each) for each in job.rail_bytes],
        line_share=_rounded(job.line_share),
        bound=job.bound,
        best_step_s=_rounded(job.best_step_s),
        step_was=_moved(job.step_was),
        comm_was=_moved(job.comm_was),
        bytes_was=_moved(job.bytes_was),
        needed_bps_low=round(needed_low),
        needed_bps_high=None if needed_high is None else round(needed_high),
        expected_rail_bytes=None if due is None else round(due.bytes),
        expected_comm_s=None if due is None else _rounded(due.comm_s),
        gpu_tflops=None if due is None else _rounded(due.tflops(job.step_s)),
        mfu=_rounded(job.mfu),
    )


def _moved(moved: PreviousValue | None) -> MovedRecord | None:
    return None if moved is None else MovedRecord(round(moved.was, 3), utc(moved.at_ns))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def schema() -> bytes:
    """JSON Schema of a line of `--format jsonl` and of `--format json`, as committed."""
    return json_schema(Record | ReportRecord)


def link_records(scene: Scene, wanted: Mask | None = None) -> list[LinkRecord]:
    """A record per port of every node that has sent its ports; `wanted` selects ports, None all."""
    snapshot, doubts = scene.snapshot, scene.doubts
    gauges = {position for name, position in snapshot.columns.items() if _is_gauge(name)}
    names = {position: name for name, position in snapshot.columns.items()}
    return [
        _record(snapshot, port, names, gauges, doubts.get(port.row, ""))
        for node in snapshot.fabric.nodes
        for port in node.ports
        if wanted is None or wanted[port.row]
    ]


def _record(
    snapshot: Snapshot, port: Port, names: dict[int, str], gauges: set[int], doubt: str
) -> LinkRecord:
    row = port.row
    known = np.flatnonzero(~np.isnan(snapshot.values[row])).tolist()
    values = {position: _round(float(snapshot.values[row, position])) for position in known}
    return LinkRecord(
        node=port.node,
        port=port.name,
        label=port.label,
        kind=port.kind,
        role=port.role,
        peer=None if port.peer is None else snapshot.fabric.ports[port.peer].id or None,
        state=snapshot.state(row),
        speed_bps=rounded_or_none(snapshot.line_rate_bps[row]),
        tx_bps=rounded_or_none(snapshot.heat[HEAT.index("tx_bps"), row]),
        rx_bps=rounded_or_none(snapshot.heat[HEAT.index("rx_bps"), row]),
        tx_util=rounded_or_none(snapshot.tx_util[row]),
        rx_util=rounded_or_none(snapshot.rx_util[row]),
        age_s=rounded_or_none(snapshot.age_s[row]),
        saturated=bool(snapshot.saturated[row]),
        doubt=doubt,
        rates={names[p]: value for p, value in values.items() if p not in gauges},
        levels={names[p]: value for p, value in values.items() if p in gauges},
    )


def _is_gauge(name: str) -> bool:
    return name in CATALOG and CATALOG[name].kind == GAUGE


def rounded_or_none(value: np.float32 | float | None) -> float | None:
    """A value with six significant digits; None where it is absent."""
    return None if value is None or not math.isfinite(value) else _round(float(value))


def _round(value: float) -> float:
    """Six significant digits: the precision of a float32."""
    return float(f"{value:.{_DIGITS}g}")
