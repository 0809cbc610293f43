"""An alert as JSON for programs: the body of webhooks and the input of commands."""

from __future__ import annotations

import time
from datetime import datetime

import msgspec

from fabmon.alerts.alert import Alert
from fabmon.analysis.finding import Change
from fabmon.fabric.time_wording import utc
from fabmon.report.json_records import FindingRecord, finding_record
from fabmon.report.output import json_schema


class AlertRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="alert"):
    """A change of an alert; docs/alerts.schema.json is generated from this.

    `id` is the same from open to close, and after a restart of fabmon. `change` is `open`, `update`
    (cause or severity changed) or `close`. `findings` is how many findings the alert stands for;
    `finding` is it, or the oldest of them, and `others` are the subjects of a group. `node` and
    `port` are null where the subject is neither.
    """

    time: datetime
    change: Change
    cluster: str
    id: str
    severity: str
    node: str | None
    port: str | None
    findings: int
    others: list[str]
    finding: FindingRecord


def alert_record(change: Change, alert: Alert, cluster: str) -> AlertRecord:
    """A change of an alert as a record."""
    now_ns = time.time_ns()
    return AlertRecord(
        time=utc(now_ns),
        change=change,
        cluster=cluster,
        id=alert.id,
        severity=alert.severity,
        node=alert.node or None,
        port=alert.port or None,
        findings=max(1, len(alert.others)),
        others=list(alert.others),
        finding=finding_record(change, alert.known, list(alert.ports), now_ns),
    )


def schema() -> bytes:
    """JSON Schema of the body of a webhook without a template, as committed."""
    return json_schema(AlertRecord)
