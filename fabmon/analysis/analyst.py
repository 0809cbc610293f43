"""From moments to scenes: every detector, a life for each finding, the timeline's events."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence

from fabmon.analysis.causes import causes_with
from fabmon.analysis.detectors.degraded_link import LinkHealth
from fabmon.analysis.detectors.ecmp_collision import EcmpCollisions
from fabmon.analysis.detectors.gpu_nic_numa import GpuNicNuma
from fabmon.analysis.detectors.host_pcie_limit import NarrowBuses
from fabmon.analysis.detectors.incast import Incasts
from fabmon.analysis.detectors.inferred_collision import FromHosts
from fabmon.analysis.detectors.link_down import links_down
from fabmon.analysis.detectors.miscabled import Miscabled
from fabmon.analysis.detectors.node_lost import NodesLost
from fabmon.analysis.detectors.oversubscription import Oversubscription
from fabmon.analysis.detectors.pause_victim import waiting_ports
from fabmon.analysis.detectors.polarization import Polarization
from fabmon.analysis.detectors.saturated_counter import saturated_counters
from fabmon.analysis.detectors.slow_receiver import holding_hosts
from fabmon.analysis.detectors.straggler import Stragglers
from fabmon.analysis.detectors.uneven_rails import UnevenRails
from fabmon.analysis.evidence.detector_input import Detector, DetectorInput
from fabmon.analysis.fabric_structure import FabricStructure, build_structure
from fabmon.analysis.finding import Change, Condition, Finding, Trait
from fabmon.analysis.iteration.iteration_tracker import IterationTracker
from fabmon.analysis.iteration.results import JobHints
from fabmon.analysis.root_cause import keep_root_causes
from fabmon.analysis.scene import Event, Scene
from fabmon.analysis.thresholds import Thresholds
from fabmon.analysis.tracker import FindingTracker
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeState, NodeStatus

_LOG = logging.getLogger("fabmon.analysis")
_MOST_EVENTS = 500
_NEEDS_TRAFFIC = causes_with(Trait.NEEDS_TRAFFIC)


def detectors(thresholds: Thresholds) -> tuple[Detector, ...]:
    """A new one of every kind."""
    return (
        NodesLost(thresholds.node_lost),
        links_down,
        LinkHealth(thresholds.link_health),
        EcmpCollisions(thresholds.ecmp_groups),
        Polarization(thresholds.ecmp_groups),
        Oversubscription(thresholds.ecmp_groups),
        FromHosts(thresholds.from_hosts),
        Incasts(thresholds.incast),
        holding_hosts,
        NarrowBuses(thresholds.bus),
        waiting_ports,
        UnevenRails(thresholds.uneven_rails),
        Stragglers(thresholds.straggler),
        saturated_counters,
        GpuNicNuma(),
        Miscabled(),
    )


class Analyst:
    """Judges one moment after the other. `hints` are what a person said of the job that trains;
    `judged_by` are detectors to use instead of all.
    """

    def __init__(
        self,
        thresholds: Thresholds,
        hints: JobHints | None = None,
        judged_by: Sequence[Detector] | None = None,
    ) -> None:
        self._detectors = detectors(thresholds) if judged_by is None else tuple(judged_by)
        self._failed: set[Detector] = set()
        self._structure: FabricStructure | None = None
        self._tracker = FindingTracker(thresholds.findings)
        self._iteration_tracker = IterationTracker(hints)
        self._events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self._statuses: dict[str, NodeStatus] = {}
        self._open: tuple[Finding, ...] = ()

    def accept(self, snapshot: Snapshot) -> Scene:
        """What there is to show at this moment."""
        roots = self._open
        inputs = self._inputs(snapshot, {finding.key: finding for finding in roots})
        told = [condition for detect in self._detectors for condition in self._told(detect, inputs)]
        kept, explained = keep_root_causes(told, roots, inputs.structure)
        idle = {
            each.key for each in roots if each.cause in _NEEDS_TRAFFIC and inputs.is_idle(each.rows)
        }
        changes = self._tracker.accept(kept, snapshot.time_ns, snapshot.interval_s, explained, idle)
        self._open = self._tracker.open()
        self._events += [
            *_node_events(snapshot, self._statuses),
            *_finding_events(snapshot, changes),
        ]
        self._statuses = snapshot.statuses
        iteration_report, news = self._iteration_tracker.accept(snapshot)
        self._events += [Event(snapshot.time_ns, snapshot.seq, "rhythm", text) for text in news]
        return Scene(snapshot, self._open, tuple(changes), tuple(self._events), iteration_report)

    def _told(self, detect: Detector, inputs: DetectorInput) -> Sequence[Condition]:
        """What a detector says; nothing, and a word in the log the first time, when it fails."""
        try:
            return tuple(detect(inputs))
        except Exception:
            if detect not in self._failed:
                self._failed.add(detect)
                name = getattr(detect, "__name__", type(detect).__name__)
                _LOG.exception("%s failed and is left out of this second", name)
            return ()

    def _inputs(self, snapshot: Snapshot, standing: dict[str, Condition]) -> DetectorInput:
        if self._structure is None or self._structure.fabric is not snapshot.fabric:
            self._structure = build_structure(snapshot.fabric)
        return DetectorInput(snapshot, self._structure, standing)


def _finding_events(snapshot: Snapshot, changes: Iterable[tuple[Change, Finding]]) -> list[Event]:
    return [
        Event(
            snapshot.time_ns, snapshot.seq, "finding", f"{change} {finding.cause} {finding.subject}"
        )
        for change, finding in changes
        if change is not Change.UPDATE
    ]


def _node_events(snapshot: Snapshot, before: dict[str, NodeStatus]) -> list[Event]:
    """Nodes that were lost, and nodes that came back."""
    if snapshot.statuses == before:
        return []
    events = []
    for name, status in snapshot.statuses.items():
        was = before[name].state if name in before else None
        lost = status.state is NodeState.LOST and was not in (None, NodeState.LOST)
        back = status.state is NodeState.UP and was in (
            NodeState.LOST,
            NodeState.STALE,
            NodeState.CONNECTING,
            NodeState.STARTING,
        )
        if lost or back:
            text = f"{name} {'lost' if lost else 'up'}"
            events.append(Event(snapshot.time_ns, snapshot.seq, "node", text))
    return events
