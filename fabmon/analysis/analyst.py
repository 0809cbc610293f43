"""From moments to scenes: every detector, a life for each finding, the timeline's events."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable

from fabmon.analysis.condition import Condition, Detector
from fabmon.analysis.ecmp_collision import EcmpCollisions
from fabmon.analysis.finding import Change, Finding
from fabmon.analysis.gpu_nic_numa import GpuNicNuma
from fabmon.analysis.link_down import links_down
from fabmon.analysis.node_lost import NodesLost
from fabmon.analysis.rhythm.arithmetic import Hints
from fabmon.analysis.rhythm.conductor import Conductor
from fabmon.analysis.scene import Event, Scene
from fabmon.analysis.thresholds import Thresholds
from fabmon.analysis.tracker import Tracker
from fabmon.fabric.moment import Moment
from fabmon.fabric.tick import NodeState, Tick
from fabmon.history.history import History

_MOST_EVENTS = 500


class Analyst:
    """Judges one moment after the other. `hints` are what a person said of the job that trains."""

    def __init__(self, thresholds: Thresholds, hints: Hints | None = None) -> None:
        self._detectors: tuple[Detector, ...] = (
            EcmpCollisions(thresholds.ecmp_collision),
            links_down,
            NodesLost(thresholds.node_lost),
            GpuNicNuma(),
        )
        self._tracker = Tracker(thresholds.findings)
        self._conductor = Conductor(hints)
        self._events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self._states: dict[str, NodeState] = {}

    def accept(self, moment: Moment) -> Scene:
        """What there is to show at this moment."""
        changes = self._tracker.accept(self._conditions(moment), moment.time_ns)
        self._events += [*_node_events(moment, self._states), *_finding_events(moment, changes)]
        self._states = {name: status.state for name, status in moment.statuses.items()}
        beats, news = self._conductor.accept(moment)
        self._events += [Event(moment.time_ns, moment.seq, "rhythm", text) for text in news]
        return Scene(moment, self._tracker.open(), tuple(changes), tuple(self._events), beats)

    def _conditions(self, moment: Moment) -> list[Condition]:
        return [condition for detect in self._detectors for condition in detect(moment)]


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


def _node_events(moment: Moment, before: dict[str, NodeState]) -> list[Event]:
    """Nodes that were lost, and nodes that came back."""
    events = []
    for name, status in moment.statuses.items():
        was = before.get(name)
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
