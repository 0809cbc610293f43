"""The objects of `--format jsonl`, typed; docs/jsonl.schema.json is generated from these."""

from __future__ import annotations

import datetime

import msgspec

from fabmon.analysis.condition import Evidence
from fabmon.analysis.finding import Change, Finding
from fabmon.fabric.tick import NodeState


class LinkRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One port at one tick. Network rates are bits/s of one direction; null is absent, not zero.

    `peer` is the port at the other end of its cable, as `node/port`; null when it is not known.
    `state` is `up`, `down`, `stale` or `unknown`; `saturated` says that some counter of the port
    sticks at its maximum, so that its true value is not known. `rates` are the port's counters by
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
    """A node's state changed; `reason` says why, `cause` in a word equal for equal failures."""

    time: datetime.datetime
    node: str
    state: NodeState
    since: datetime.datetime
    cause: str
    reason: str


class FindingRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="finding"):
    """A finding opened, moved or closed. `lost` and `confidence` are 0 to 1."""

    time: datetime.datetime
    change: Change
    key: str
    cause: str
    severity: str
    subject: str
    ports: list[str]
    victims: list[str]
    text: str
    evidence: list[Evidence]
    advice: str
    unseen: str
    lost: float
    confidence: float
    since: datetime.datetime
    until: datetime.datetime | None


class ReportRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="report"):
    """`--once --format json`: one tick, the state of every node, the findings that are open."""

    tick: TickRecord
    nodes: list[NodeRecord]
    findings: list[FindingRecord]


Record = TickRecord | NodeRecord | FindingRecord


def finding_record(
    change: Change, finding: Finding, ports: list[str], time_ns: int
) -> FindingRecord:
    """A finding's change as it is told; `ports` are the names of its rows."""
    return FindingRecord(
        time=utc(time_ns),
        change=change,
        key=finding.key,
        cause=finding.cause,
        severity=finding.severity,
        subject=finding.subject,
        ports=ports,
        victims=list(finding.victims),
        text=finding.text,
        evidence=list(finding.evidence),
        advice=finding.advice,
        unseen=finding.unseen,
        lost=round(finding.lost, 4),
        confidence=finding.confidence,
        since=utc(finding.since_ns),
        until=None if finding.until_ns is None else utc(finding.until_ns),
    )


def utc(time_ns: int) -> datetime.datetime:
    """A wall clock in nanoseconds as a date; to the microsecond, without passing a float."""
    seconds, rest_ns = divmod(time_ns, 1_000_000_000)
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.replace(microsecond=rest_ns // 1000)


def schema() -> bytes:
    """JSON Schema of a line of `--format jsonl` and of `--format json`, as committed."""
    document = msgspec.json.schema(Record | ReportRecord)
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **document}
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
