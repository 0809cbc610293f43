"""A node that was up does not answer any more."""

from __future__ import annotations

from collections.abc import Iterator

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import CRITICAL, Cause, Condition, Evidence, Trait
from fabmon.analysis.thresholds import NodeLost
from fabmon.fabric.tick import NodeState

CAUSE = Cause(
    name="node_lost",
    title="Node lost",
    severity=CRITICAL,
    picture="last_traffic",
    tables=("node_lost",),
    traits=(Trait.GONE,),
)


class NodesLost:
    """Judges by the feed's word alone: whether the node itself is down cannot be seen from here."""

    def __init__(self, thresholds: NodeLost) -> None:
        self._t = thresholds

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition for every node that is lost."""
        snapshot = inputs.snapshot
        for node in snapshot.fabric.nodes:
            status = snapshot.statuses.get(node.name)
            if status is None or status.state is not NodeState.LOST:
                continue
            lost_s = (snapshot.time_ns - status.since_ns) / 1e9
            if lost_s >= self._t.after_s:
                yield Condition(
                    cause="node_lost",
                    severity=CRITICAL,
                    subject=node.name,
                    rows=tuple(port.row for port in node.ports),
                    text=f"{node.name} is lost: {status.reason or 'no word from it'}",
                    evidence=(Evidence("cause", status.cause or "unknown"),),
                    advice="fabmon keeps trying; look at the node's console or its BMC.",
                    confidence=1.0,
                    lost=1.0,
                    unseen="whether the node is down, or only our way to it",
                )
