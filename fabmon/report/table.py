"""`--once`: what there is to know in one table, for a pipe, a ticket or a glance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fabmon.analysis.finding import sentence
from fabmon.analysis.scene import Scene
from fabmon.fabric.moment import Moment
from fabmon.fabric.tick import NodeState
from fabmon.report.jsonl import nodes_up
from fabmon.report.links import link_records
from fabmon.report.records import LinkRecord, utc
from fabmon.report.units import bits, percent

_HEAD = ("NODE", "PORT", "AS", "STATE", "SPEED", "TX", "RX", "TX %", "RX %", "ERRORS/s", "DROPS/s")
_LEFT = 4
"""The first columns are words and stand left, the others are numbers and stand right."""

_JUDGED_S = 10.0
"""What most rules look back at, and the time that nodes need to come up."""


def table(scene: Scene) -> str:
    """The whole report: a summary line, findings, nodes that are missing, one row a port."""
    return "\n".join([*_summary(scene), *_findings(scene), *_missing(scene.moment), *_links(scene)])


def _summary(scene: Scene) -> Iterator[str]:
    moment = scene.moment
    ports = sum(len(node.ports) for node in moment.fabric.nodes)
    time = utc(moment.time_ns).strftime("%Y-%m-%d %H:%M:%SZ")
    found = f"{len(scene.findings)} findings"
    watched_s = (moment.seq + 1) * moment.interval_s
    if not scene.findings and watched_s < _JUDGED_S:
        found += f" in {watched_s:g} s (most need 10: --duration 15)"
    yield (
        f"{time}  {nodes_up(scene)}/{len(moment.fabric.nodes)} nodes up  {ports} ports  "
        f"{found}  rates over {moment.interval_s:g} s"
    )


def _findings(scene: Scene) -> Iterator[str]:
    for finding in scene.findings:
        yield f"! {finding.cause}: {sentence(finding, scene.moment)}"
        yield f"  {finding.advice}"


def _missing(moment: Moment) -> Iterator[str]:
    for status in moment.statuses.values():
        if status.state is not NodeState.UP:
            yield f"x {status.node} {status.state}: {status.reason or 'no word from it yet'}"


def _links(scene: Scene) -> Iterator[str]:
    moment = scene.moment
    rows = {port.id: port.row for node in moment.fabric.nodes for port in node.ports}
    lines = [
        _cells(moment, link, rows[f"{link.node}/{link.port}"]) for link in link_records(moment)
    ]
    if lines:
        yield ""
        yield from aligned([_HEAD, *lines], _LEFT)


def _cells(moment: Moment, link: LinkRecord, row: int) -> Sequence[str]:
    errors, drops = (moment.column(name)[row] for name in ("errors", "drops"))
    return (
        link.node,
        link.port,
        link.label,
        link.state,
        bits(link.speed_bps),
        bits(link.tx_bps),
        bits(link.rx_bps),
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
