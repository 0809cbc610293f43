"""`--once --format json`: one report as one JSON object."""

from __future__ import annotations

import msgspec

from fabmon.analysis.finding import Change
from fabmon.analysis.scene import Scene
from fabmon.report.jsonl import node_records, tick_record
from fabmon.report.records import ReportRecord, finding_record, rhythm_record


def report_json(scene: Scene) -> bytes:
    """The moment, the state of every node and what is open, indented, with a last newline."""
    moment = scene.moment
    record = ReportRecord(
        tick=tick_record(scene),
        nodes=node_records(moment),
        findings=[
            finding_record(
                Change.OPEN,
                finding,
                [moment.fabric.ports[row].id for row in finding.rows],
                moment.time_ns,
            )
            for finding in scene.findings
        ],
        rhythms=[
            rhythm_record(Change.OPEN, rhythm, moment.time_ns) for rhythm in scene.beats.rhythms
        ],
    )
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
