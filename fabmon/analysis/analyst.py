"""From moments to scenes: every detector, a life for each finding, the timeline's events."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence

from fabmon.analysis.condition import Condition, Detector
from fabmon.analysis.ecmp_collision import EcmpCollisions
from fabmon.analysis.finding import Change, Finding
from fabmon.analysis.from_hosts import FromHosts
from fabmon.analysis.gpu_nic_numa import GpuNicNuma
from fabmon.analysis.holding_hosts import holding_hosts
from fabmon.analysis.incast import Incasts
from fabmon.analysis.link_down import links_down
from fabmon.analysis.link_health import LinkHealth
from fabmon.analysis.miscabled import Miscabled
from fabmon.analysis.narrow_buses import NarrowBuses
from fabmon.analysis.node_lost import NodesLost
from fabmon.analysis.one_root import one_root
from fabmon.analysis.oversubscription import Oversubscription
from fabmon.analysis.polarization import Polarization
from fabmon.analysis.rhythm.arithmetic import Hints
from fabmon.analysis.rhythm.conductor import Conductor
from fabmon.analysis.scene import Event, Scene
from fabmon.analysis.sight import Sight
from fabmon.analysis.straggler import Stragglers
from fabmon.analysis.structure import Structure, structure
from fabmon.analysis.stuck_counters import stuck_counters
from fabmon.analysis.thresholds import Thresholds
from fabmon.analysis.tracker import Tracker
from fabmon.analysis.uneven_rails import UnevenRails
from fabmon.analysis.waiting_ports import waiting_ports
from fabmon.fabric.moment import Moment
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.history.history import History

_LOG = logging.getLogger("fabmon.analysis")
_MOST_EVENTS = 500
_OF_TRAFFIC = frozenset(
    {
        "ecmp_collision",
        "host_pcie_limit",
        "incast",
        "oversubscription",
        "polarization",
        "slow_receiver",
        "uneven_rails",
    }
)
"""What can be seen only while somebody sends."""


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
        stuck_counters,
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
        hints: Hints | None = None,
        judged_by: Sequence[Detector] | None = None,
    ) -> None:
        self._detectors = detectors(thresholds) if judged_by is None else tuple(judged_by)
        self._failed: set[Detector] = set()
        self._structure: Structure | None = None
        self._tracker = Tracker(thresholds.findings)
        self._conductor = Conductor(hints)
        self._events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self._statuses: dict[str, NodeStatus] = {}
        self._open: tuple[Finding, ...] = ()

    def accept(self, moment: Moment) -> Scene:
        """What there is to show at this moment."""
        roots = self._open
        sight = self._sight(moment, {finding.key: finding for finding in roots})
        told = [condition for detect in self._detectors for condition in self._told(detect, sight)]
        kept, explained = one_root(told, roots, sight.structure)
        idle = {
            each.key for each in roots if each.cause in _OF_TRAFFIC and sight.is_idle(each.rows)
        }
        changes = self._tracker.accept(kept, moment.time_ns, moment.interval_s, explained, idle)
        self._open = self._tracker.open()
        self._events += [*_node_events(moment, self._statuses), *_finding_events(moment, changes)]
        self._statuses = moment.statuses
        beats, news = self._conductor.accept(moment)
        self._events += [Event(moment.time_ns, moment.seq, "rhythm", text) for text in news]
        return Scene(moment, self._open, tuple(changes), tuple(self._events), beats)

    def _told(self, detect: Detector, sight: Sight) -> Sequence[Condition]:
        """What a detector says; nothing, and a word in the log the first time, when it fails."""
        try:
            return tuple(detect(sight))
        except Exception:
            if detect not in self._failed:
                self._failed.add(detect)
                name = getattr(detect, "__name__", type(detect).__name__)
                _LOG.exception("%s failed and is left out of this second", name)
            return ()

    def _sight(self, moment: Moment, standing: dict[str, Condition]) -> Sight:
        if self._structure is None or self._structure.fabric is not moment.fabric:
            self._structure = structure(moment.fabric)
        return Sight(moment, self._structure, standing)


async def watch(
    ticks: AsyncIterator[Tick], history: History, analyst: Analyst
) -> AsyncGenerator[Scene, None]:
    """The whole way through the house: ticks in, scenes out."""
    async for tick in ticks:
        yield analyst.accept(history.accept(tick))


def _finding_events(moment: Moment, changes: Iterable[tuple[Change, Finding]]) -> list[Event]:
    return [
        Event(moment.time_ns, moment.seq, "finding", f"{change} {finding.cause} {finding.subject}")
        for change, finding in changes
        if change is not Change.UPDATE
    ]


def _node_events(moment: Moment, before: dict[str, NodeStatus]) -> list[Event]:
    """Nodes that were lost, and nodes that came back."""
    if moment.statuses == before:
        return []
    events = []
    for name, status in moment.statuses.items():
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
            events.append(Event(moment.time_ns, moment.seq, "node", text))
    return events
