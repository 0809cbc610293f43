"""The items of answers: links, findings and jobs of a scene."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.finding import Change, shown_moment
from fabmon.analysis.job_summary import JobSummary, placement_text
from fabmon.analysis.scene import Scene
from fabmon.fabric.model import Port
from fabmon.fabric.names import natural
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.time_wording import utc
from fabmon.fabric.wording import plural
from fabmon.query.answers import JobItem, LinkItem
from fabmon.query.sources import KnownFinding
from fabmon.report.json_records import FindingRecord, finding_record, rounded_or_none

_MOST_PORTS = 100
"""Ports and victims of a finding, and nodes of a job, at most."""
_ORDERS = {
    "util": ("tx_util", "rx_util"),
    "pause": ("pause_rx", "pause_tx"),
    "ecn": ("ecn", "cnp"),
    "errors": ("errors",),
    "drops": ("drops",),
}
_NAMES = {"pause": "pauses", "ecn": "ECN marks or CNPs", "errors": "errors", "drops": "drops"}


def ports_by(snapshot: Snapshot, rows: Sequence[int], by: str) -> list[int]:
    """Ports (rows), the highest of an order first; except by traffic only those with some of it."""
    return _highest(snapshot, rows, by, least=-np.inf if by == "util" else 0.0)


def link_items(scene: Scene, rows: Sequence[int]) -> list[LinkItem]:
    """Ports (rows), in their order."""
    return [_link_item(scene, scene.snapshot.fabric.ports[row]) for row in rows]


def conspicuous_links(scene: Scene, rows: Sequence[int], limit: int) -> list[LinkItem]:
    """Links with a finding, then those with the most errors, drops, pauses, ECN marks, traffic."""
    snapshot = scene.snapshot
    flagged = {row for finding in scene.findings for row in finding.rows}
    chosen = dict.fromkeys(row for row in rows if row in flagged)
    for by in ("errors", "drops", "pause", "ecn", "util"):
        chosen |= dict.fromkeys(_highest(snapshot, rows, by)[: limit // 4 + 1])
    return link_items(scene, list(chosen)[:limit])


def unreported(snapshot: Snapshot, rows: Sequence[int], by: str) -> str:
    """Of how many ports (rows) what an order is by is not known; empty where it is of all."""
    absent = int(np.isnan(_values(snapshot, rows, by)).sum())
    if not absent or by == "util":
        return ""
    return f"{absent} of {plural(len(rows), 'port')} do not report {_NAMES[by]}: not known, not 0"


def _highest(snapshot: Snapshot, rows: Sequence[int], by: str, *, least: float = 0.0) -> list[int]:
    """The ports (rows) with more than `least` of what an order is by, the highest first; -1 where
    the values are absent."""
    values = np.nan_to_num(_values(snapshot, rows, by), nan=-1.0)
    order = np.argsort(-values, kind="stable")
    return [rows[place] for place in order[values[order] > least].tolist()]


def _values(snapshot: Snapshot, rows: Sequence[int], by: str) -> NDArray[np.floating[Any]]:
    """What an order is by, of ports (rows); NaN where absent."""
    parts = [
        getattr(snapshot, name) if name.endswith("_util") else snapshot.column(name)
        for name in _ORDERS[by]
    ]
    found: NDArray[np.floating[Any]] = np.fmax.reduce(parts)[list(rows)]
    return found


def _link_item(scene: Scene, port: Port) -> LinkItem:
    snapshot, row = scene.snapshot, port.row

    def heat(name: str) -> float | None:
        return rounded_or_none(snapshot.column(name)[row])

    return LinkItem(
        name=port.display_name,
        id=port.id,
        peer=None if port.peer is None else snapshot.fabric.ports[port.peer].id or None,
        role=port.role,
        state=snapshot.state(port.row),
        line_rate_bps=rounded_or_none(snapshot.line_rate_bps[row]),
        tx_bps=heat("tx_bps"),
        rx_bps=heat("rx_bps"),
        tx_util=rounded_or_none(snapshot.tx_util[row]),
        rx_util=rounded_or_none(snapshot.rx_util[row]),
        paused=heat("pause_rx"),
        pausing=heat("pause_tx"),
        stalled=heat("stall"),
        ecn=heat("ecn"),
        cnp=heat("cnp"),
        errors=heat("errors"),
        drops=heat("drops"),
        findings=[finding.key for finding in scene.findings if row in finding.rows],
        doubt=scene.doubts.get(row, ""),
    )


def known_finding_record(known: KnownFinding, to_ns: int) -> FindingRecord:
    """A finding as it was at a time."""
    finding = known.finding
    is_over = finding.until_ns is not None and finding.until_ns <= to_ns
    finding = msgspec.structs.replace(finding, until_ns=finding.until_ns if is_over else None)
    change = Change.CLOSE if is_over else Change.OPEN
    made = finding_record(change, finding, list(known.ports[:_MOST_PORTS]), to_ns)
    return msgspec.structs.replace(
        made, victims=made.victims[:_MOST_PORTS], jobs=made.jobs[:_MOST_PORTS]
    )


def cut_lists(known: KnownFinding) -> list[str]:
    """What of a finding's record is left out: `incast:gpu001/mlx5_0: 100 of its 812 ports are
    listed`."""
    shown = shown_moment(known.finding)
    counts = (
        ("ports", len(known.ports)),
        ("victims", len(shown.victims)),
        ("jobs", len(shown.jobs)),
    )
    return [
        f"{known.finding.key}: {_MOST_PORTS} of its {count:,} {name} are listed"
        for name, count in counts
        if count > _MOST_PORTS
    ]


def job_item(scene: Scene, summary: JobSummary) -> JobItem:
    """A job of a scene."""
    job, its = summary.job, summary.iteration
    ports = scene.snapshot.fabric.ports
    was = None if its is None else its.step_was
    worst = summary.worst_row
    labels = {each.number: each.label for each in scene.snapshot.jobs.jobs}
    return JobItem(
        job=job.label,
        number=job.number,
        name=job.name,
        user=job.user,
        partition=job.partition,
        nodes_total=len(summary.nodes),
        nodes=list(summary.nodes[:_MOST_PORTS]),
        leaves=sorted(summary.placement.leaves, key=natural)[:_MOST_PORTS],
        spans=placement_text(summary.placement, labels),
        tx_bps=rounded_or_none(summary.tx_bps),
        busbw_bps=rounded_or_none(summary.busbw_bps),
        step_s=None if its is None else round(its.step_s, 3),
        step_was_s=None if was is None else round(was.was, 3),
        step_changed=None if was is None else utc(was.at_ns),
        comm_low=None if its is None else round(its.comm_low, 3),
        comm_high=None if its is None else round(its.comm_high, 3),
        busiest_link=None if worst is None else ports[worst].display_name,
        busiest_util=None if worst is None else rounded_or_none(summary.worst_util),
        findings=[each.key for each in summary.findings],
    )
