"""`--format jsonl`: one JSON object a line.

Nodes that changed, findings that changed, rhythms that changed, the tick.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fabmon.analysis.scene import Scene
from fabmon.fabric.filter import Mask
from fabmon.fabric.moment import Moment
from fabmon.fabric.tick import NodeState
from fabmon.report.links import link_records
from fabmon.report.records import NodeRecord, Record, TickRecord, finding_record, utc
from fabmon.report.rhythms import RhythmLines


class JsonLines:
    """Turns scenes into lines. Remembers what it has told of each node."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        self._rhythms = RhythmLines()
        self._told: dict[str, tuple[NodeState, str]] = {}

    def lines(self, scene: Scene, links: Mask | None = None) -> Iterator[bytes]:
        """The lines of one scene, each with its newline; `links` are the ports to tell of."""
        for record in self._records(scene, links):
            yield self._encoder.encode(record) + b"\n"

    def _records(self, scene: Scene, links: Mask | None) -> Iterator[Record]:
        moment = scene.moment
        for record in node_records(moment):
            if self._told.get(record.node) != (record.state, record.cause):
                self._told[record.node] = (record.state, record.cause)
                yield record
        for change, finding in scene.changes:
            ports = [moment.fabric.ports[row].id for row in finding.rows]
            yield finding_record(change, finding, ports, moment.time_ns)
        yield from self._rhythms.records(scene)
        yield tick_record(scene, links)


def tick_record(scene: Scene, links: Mask | None = None) -> TickRecord:
    """The fabric at a scene's tick."""
    moment = scene.moment
    return TickRecord(
        time=utc(moment.time_ns),
        seq=moment.seq,
        interval_s=moment.interval_s,
        nodes_up=nodes_up(scene),
        nodes_total=len(moment.fabric.nodes),
        links=link_records(moment, links),
    )


def node_records(moment: Moment) -> list[NodeRecord]:
    """The state of every node, in the order of the hosts file."""
    return [
        NodeRecord(
            time=utc(moment.time_ns),
            node=name,
            state=status.state,
            since=utc(status.since_ns or moment.time_ns),
            cause=status.cause,
            reason=status.reason,
        )
        for name, status in moment.statuses.items()
    ]


def nodes_up(scene: Scene) -> int:
    """Nodes whose counters come in."""
    return sum(status.state is NodeState.UP for status in scene.moment.statuses.values())
