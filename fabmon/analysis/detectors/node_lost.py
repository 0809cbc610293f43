"""A node that was up does not answer any more."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

import msgspec

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import CRITICAL, Cause, Condition, Evidence, Trait
from fabmon.analysis.thresholds import Seconds
from fabmon.fabric.tick import NodeState

CAUSE = Cause(
    name="node_lost",
    title="Node lost",
    meaning="a node that was up does not answer any more",
    severity=CRITICAL,
    rule="The connection to a node that was up has been lost for node_lost.after_s.",
    inputs="The connection to the node",
    not_observable="Whether the node is down, or only the connection to it; what bandwidth is lost",
    picture="last_traffic",
    advice="fabmon keeps trying to reconnect; look at the node's console or its BMC.",
    tables=("node_lost",),
    traits=(Trait.GONE,),
)


class NodeLostThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [node_lost]."""

    after_s: Seconds


def lost_nodes(inputs: DetectorInput, t: NodeLostThresholds) -> Iterator[Condition]:
    """One condition for each lost node. Whether the node itself is down is not observable."""
    snapshot = inputs.snapshot
    is_any = NodeState.LOST in map(attrgetter("state"), snapshot.statuses.values())
    for node in snapshot.fabric.nodes if is_any else ():
        status = snapshot.statuses.get(node.name)
        if status is None or status.state is not NodeState.LOST:
            continue
        lost_s = (snapshot.time_ns - status.since_ns) / 1e9
        if lost_s >= t.after_s:
            yield Condition(
                cause=CAUSE.name,
                severity=CAUSE.severity,
                subject=node.name,
                rows=tuple(port.row for port in node.ports),
                text=f"{node.name} is lost: {status.reason or 'it does not answer'}",
                evidence=(Evidence("cause", status.cause or "unknown"),),
                advice=CAUSE.advice,
                confidence=1.0,
                lost=1.0,
                unseen="whether the node is down, or only the connection to it",
            )
