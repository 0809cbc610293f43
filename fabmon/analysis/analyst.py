"""From snapshots to scenes: runs every detector, tracks the findings, collects timeline events."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile

import msgspec

from fabmon.analysis.affected_jobs import AffectedJobs
from fabmon.analysis.causes import CAUSES, Thresholds, causes_with, detectors
from fabmon.analysis.earlier_findings import (
    EarlierFinding,
    EarlierFindings,
    down_and_gone,
    seconds_unreported,
    with_unreported,
)
from fabmon.analysis.evidence.detector_input import Detector, DetectorInput
from fabmon.analysis.evidence.doubtful_rates import DoubtfulRates
from fabmon.analysis.fabric_structure import FabricStructure, build_structure
from fabmon.analysis.finding import Change, Condition, Finding, Trait
from fabmon.analysis.iteration.iteration_tracker import IterationTracker
from fabmon.analysis.iteration.model_arithmetic import JobHints
from fabmon.analysis.iteration.results import NO_ITERATIONS
from fabmon.analysis.model.bottlenecks import BottleneckModel
from fabmon.analysis.model.full_links import FullLinks
from fabmon.analysis.root_cause import keep_root_causes
from fabmon.analysis.scene import Event, Scene
from fabmon.analysis.tracker import Begins, FindingTracker
from fabmon.fabric.kernel_log import message_text
from fabmon.fabric.model import Fabric
from fabmon.fabric.moved_times import moved
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeState, NodeStatus

_LOG = logging.getLogger("fabmon.analysis")
_MAX_EVENTS = 500
"""Events on a scene's timeline: some hours, and a bound on memory."""

_MAX_OF_NODE = 1024
"""Findings of one node: a director switch has 800 ports."""
_MAX_FINDINGS = 16_384
"""Findings of the fabric: each takes 20 us a tick."""

_MAX_LOG_EVENTS = 200
_MAX_LOG_EVENTS_OF_NODE = 20
"""Messages of kernels on the timeline, so that nodes that log much do not displace other events."""

_EXCUSING_TICKS = 25
"""For so many ticks a finding that closed excuses new conditions that are inferred from the last 40
ticks: it closes some time after its condition last held."""

_NEEDS_TRAFFIC = causes_with(Trait.NEEDS_TRAFFIC)
_OF_LINK = causes_with(Trait.OF_LINK)

_NOT_KNOWN = "whether it is still so: its nodes are silent"


class Analyst:
    """Judges one snapshot after the other.

    `hints` are what the user said of the training job; `judged_by` are detectors to use instead of
    all; `begins` are as in FindingTracker.
    """

    def __init__(
        self,
        thresholds: Thresholds,
        hints: JobHints | None = None,
        judged_by: Sequence[Detector] | None = None,
        begins: Begins | None = None,
    ) -> None:
        model = BottleneckModel(thresholds.model)
        self._full_links = FullLinks(model)
        if judged_by is None:
            judged_by = (*detectors(thresholds, model), self._full_links)
        self._detectors = tuple(judged_by)
        self._failed: dict[Detector, str] = {}
        """Detectors that failed at a tick, by name."""
        self._cut: set[str] = set()
        self._structure: FabricStructure | None = None
        families = {name: cause.family for name, cause in CAUSES.items() if cause.family}
        self._tracker = FindingTracker(thresholds.findings, families, begins)
        self._iteration_tracker = IterationTracker(hints)
        self._affected_jobs = AffectedJobs()
        self._events: deque[Event] = deque(maxlen=_MAX_EVENTS)
        self._log_events: deque[tuple[str, Event]] = deque(maxlen=_MAX_LOG_EVENTS)
        self._statuses: dict[str, NodeStatus] = {}
        self._open: tuple[Finding, ...] = ()
        self._closed: dict[str, tuple[int, Finding]] = {}
        """Findings that closed in the last _EXCUSING_TICKS, by key, and how many are left."""
        self._iterations = NO_ITERATIONS
        self._doubtful = DoubtfulRates()
        self._passed_over = 0
        self._unreported: set[str] = set()
        """Keys of links down whose ports are not reported."""
        self._silent: set[str] = set()
        """Keys of findings whose nodes are silent."""
        self._earlier = EarlierFindings()
        self._held: set[str] = set()

    def take_up(self, kept: Iterable[EarlierFinding]) -> None:
        """Findings that an earlier run left open: before the first tick, or once they are known."""
        self._earlier = EarlierFindings(kept)
        self._tracker.take_up(self._earlier.findings)
        self._open = self._tracker.open()

    def accept(self, snapshot: Snapshot) -> Scene:
        """The scene of a tick."""
        self._follow_clock(snapshot)
        if self._earlier:
            opened = {each.key: each for each in self._open}
            self._tracker.take_up(self._earlier.accept(snapshot, opened, self._held))
            self._open = self._tracker.open()
        snapshot = self._earlier.with_past(snapshot)
        unusable = self._earlier.unusable()
        open_findings = tuple(each for each in self._open if each.key not in unusable)
        inputs = self._inputs(snapshot)
        found = [each for detect in self._detectors for each in self._run(detect, inputs)]
        conditions = _named_as_open(found, open_findings)
        closed = [finding for _, finding in self._closed.values()]
        kept, explained = keep_root_causes(conditions, open_findings, inputs.structure, closed)
        kept = self._affected_jobs.added(self._bounded(kept, snapshot.fabric), snapshot)
        idle = {
            each.key
            for each in open_findings
            if each.cause in _NEEDS_TRAFFIC and inputs.is_idle(each.rows)
        }
        interval_s = snapshot.interval_s * (1 + self._passed_over)
        self._passed_over = 0
        self._held = {each.key for each in kept}
        gone = list(down_and_gone(open_findings, snapshot.fabric))
        not_judged = self._earlier.not_judged | {
            each.key for each in gone if seconds_unreported(each, snapshot)
        }
        self._silent = {each.key for each in _silent(open_findings, snapshot)}
        not_judged |= self._silent
        changes = self._tracker.accept(
            kept, snapshot.time_ns, interval_s, explained, idle, not_judged
        )
        self._unreported = self._earlier.unreported | {each.key for each in gone}
        changes = [(change, with_unreported(each, self._unreported)) for change, each in changes]
        self._open = self._open_now()
        self._note_closed(changes, explained)
        self._add_node_events(snapshot)
        self._events += _finding_events(snapshot, changes)
        iteration_report, news = self._iteration_tracker.accept(snapshot)
        self._iterations = iteration_report
        self._events += [Event(snapshot.time_ns, snapshot.seq, "iteration", text) for text in news]
        self._doubtful.of(snapshot)
        return self._scene(snapshot, tuple(changes))

    def pass_over(self, snapshot: Snapshot) -> Scene:
        """The scene of a tick that is not analysed: the findings of the tick before are still open.

        Events of nodes and the traffic of jobs are taken from it: neither can be read later.
        """
        self._follow_clock(snapshot)
        self._passed_over += 1
        self._add_node_events(snapshot)
        self._iteration_tracker.pass_over(snapshot)
        return self._scene(snapshot, ())

    def _follow_clock(self, snapshot: Snapshot) -> None:
        """Keep the ages of open findings where the wall clock was set. Where it was set back events
        move too: none is in the future."""
        jumped_ns = snapshot.clock_jumped_ns
        if jumped_ns:
            self._tracker.follow_clock(jumped_ns)
            self._open = self._open_now()
        if jumped_ns < 0:
            self._events = deque((moved(each, jumped_ns) for each in self._events), _MAX_EVENTS)
            logged = [(node, moved(each, jumped_ns)) for node, each in self._log_events]
            self._log_events = deque(logged, _MAX_LOG_EVENTS)

    def _open_now(self) -> tuple[Finding, ...]:
        """The open findings, with what is not known of them."""
        said = [
            msgspec.structs.replace(each, unseen=_NOT_KNOWN) if each.key in self._silent else each
            for each in (with_unreported(one, self._unreported) for one in self._tracker.open())
        ]
        return self._earlier.marked(said)

    def _scene(self, snapshot: Snapshot, changes: tuple[tuple[Change, Finding], ...]) -> Scene:
        timeline, doubtful = self._timeline(), self._doubtful.last(snapshot)
        return Scene(
            snapshot,
            self._open,
            changes,
            timeline,
            self._iterations,
            doubtful,
            tuple(self._failed.values()),
            self._full_links.why_unflagged,
        )

    def _note_closed(
        self, changes: Iterable[tuple[Change, Finding]], explained: Collection[str]
    ) -> None:
        """Keep the findings that closed because their condition no longer holds."""
        self._closed = {
            key: (left - 1, finding) for key, (left, finding) in self._closed.items() if left > 1
        }
        for change, finding in changes:
            if change is Change.CLOSE and finding.key not in explained:
                self._closed[finding.key] = _EXCUSING_TICKS, finding

    def _add_node_events(self, snapshot: Snapshot) -> None:
        self._events += _node_events(snapshot, self._statuses)
        self._statuses = snapshot.statuses
        for node, event in _log_events(snapshot):
            of_node = [each for each in self._log_events if each[0] == node]
            if len(of_node) >= _MAX_LOG_EVENTS_OF_NODE:
                self._log_events.remove(of_node[0])
            self._log_events.append((node, event))

    def _timeline(self) -> tuple[Event, ...]:
        """The last events, oldest first."""
        if not self._log_events:
            return tuple(self._events)
        logged = [event for _, event in self._log_events]
        return tuple(sorted([*self._events, *logged], key=lambda event: event.seq))

    def _bounded(self, conditions: list[Condition], fabric: Fabric) -> list[Condition]:
        """The conditions, of one node and in all only as many as any real fault has.

        Those of open findings come first, so that findings do not close for others to open. What is
        left out is logged once for each node.
        """
        if len(conditions) <= _MAX_OF_NODE:
            return conditions
        counts: Counter[str] = Counter()
        kept: set[int] = set()
        is_open = {finding.key for finding in self._open}
        for condition in sorted(conditions, key=lambda each: each.key not in is_open):
            node = _node_of(condition, fabric)
            counts[node] += 1
            if counts[node] <= _MAX_OF_NODE and len(kept) < _MAX_FINDINGS:
                kept.add(id(condition))
            elif node not in self._cut:
                self._cut.add(node)
                _LOG.warning("%s: more findings than are shown at once", node)
        return [condition for condition in conditions if id(condition) in kept]

    def _run(self, detect: Detector, inputs: DetectorInput) -> Sequence[Condition]:
        """The conditions of a detector. One that fails has none; its first failure is logged."""
        try:
            return tuple(detect(inputs))
        except Exception:
            if detect not in self._failed:
                function = detect.func if isinstance(detect, partial) else detect
                name = getattr(function, "__name__", type(function).__name__)
                self._failed[detect] = name
                _LOG.exception("detector %s failed: its findings are missing from this tick", name)
            return ()

    def _inputs(self, snapshot: Snapshot) -> DetectorInput:
        fabric = snapshot.fabric
        if self._structure is None or self._structure.fabric.ports is not fabric.ports:
            before = self._structure
            cables = None if before is None else before.peer
            self._structure = build_structure(fabric, before, cables)
        elif self._structure.fabric is not fabric:
            self._structure = replace(self._structure, fabric=fabric, _memo={})
        self._earlier.keep_cables(self._structure)
        return DetectorInput(snapshot, self._structure, self._iterations)


def _named_as_open(
    conditions: Iterable[Condition], open_findings: Iterable[Finding]
) -> list[Condition]:
    """Conditions, those of a cable by the end that an open finding about it is named by: it stays
    one finding, whichever ends are known at a tick."""
    named = {row: each.subject for each in open_findings if _is_of_cable(each) for row in each.rows}
    return [
        msgspec.structs.replace(
            each, subject=next((named[row] for row in each.rows if row in named), each.subject)
        )
        if _is_of_cable(each)
        else each
        for each in conditions
    ]


def _silent(findings: Iterable[Finding], snapshot: Snapshot) -> Iterator[Finding]:
    """Findings of which nothing is known for less than a day: all their nodes are silent, or what
    reports them is."""
    silent = {name for name, each in snapshot.statuses.items() if each.state is NodeState.STALE}
    for each in findings if silent else ():
        nodes = {snapshot.fabric.ports[row].node for row in each.rows}
        if nodes and nodes <= silent and seconds_unreported(each, snapshot):
            yield each


def _is_of_cable(condition: Condition) -> bool:
    """Whether it is about one cable, named by one of its ends."""
    return condition.cause in _OF_LINK and len(condition.rows) <= 2 and "/" in condition.subject


def _node_of(condition: Condition, fabric: Fabric) -> str:
    """The node of the first port of a condition, else its subject."""
    rows = condition.rows
    return fabric.ports[rows[0]].node if rows else condition.subject_node


def _finding_events(snapshot: Snapshot, changes: Iterable[tuple[Change, Finding]]) -> list[Event]:
    """Findings that opened or ended, as `open ecmp_collision leaf1/up3`, at their begin and end.
    That one has ended is known some seconds later; one that is computed again may open later than
    it began."""
    return [
        Event(
            finding.until_ns or finding.since_ns,
            snapshot.seq,
            "finding",
            f"{change} {finding.cause} {finding.subject}",
        )
        for change, finding in changes
        if change is not Change.UPDATE
    ]


def _log_events(snapshot: Snapshot) -> Iterator[tuple[str, Event]]:
    """What kernels logged in this tick, with the node."""
    for name, messages in snapshot.logs.items():
        new = list(takewhile(lambda each: each.logged_ns == snapshot.time_ns, reversed(messages)))
        if not new:
            continue
        node = next((each for each in snapshot.fabric.nodes if each.name == name), None)
        for message in reversed(new):
            text = f"{name} {message_text(message, node)}"
            yield name, Event(snapshot.time_ns, snapshot.seq, "log", text)


def _node_events(snapshot: Snapshot, before: dict[str, NodeStatus]) -> list[Event]:
    """Nodes that were lost, and nodes that are up again."""
    if snapshot.statuses == before:
        return []
    events = []
    for name, status in snapshot.statuses.items():
        was = before[name].state if name in before else None
        is_lost = status.state is NodeState.LOST and was not in (None, NodeState.LOST)
        is_back = status.state is NodeState.UP and was in (
            NodeState.LOST,
            NodeState.STALE,
            NodeState.CONNECTING,
            NodeState.STARTING,
        )
        if is_lost or is_back:
            text = f"{name} {'lost' if is_lost else 'up'}"
            events.append(Event(snapshot.time_ns, snapshot.seq, "node", text))
    return events
