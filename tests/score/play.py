"""Runs a simulated fabric through the pipeline, and keeps what was reported and what was true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from fabmon.analysis.finding import CRITICAL, Change, Finding
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import Tick
from fabmon.scenes.pipeline import Pipeline
from tests.builders import new_pipeline
from tests.world.plans import Plan
from tests.world.runs import build, truths
from tests.world.truth import Truth

SETTLED_S = 5
"""A finding's cause counts from this age on: it may change while evidence comes in."""


@dataclass
class Reported:
    """A finding from when it opened until it closed (or the run ended)."""

    opened_s: float
    subject: str
    closed_s: float | None = None
    causes: list[str] = field(default_factory=list)
    """One per second that it was open."""
    ports: list[str] = field(default_factory=list)
    """Ids of its ports over all its time, the one at fault first."""
    victims: set[str] = field(default_factory=set)
    text: str = ""
    evidence: str = ""
    unseen: str = ""
    confidences: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    """The share of bandwidth that it says is lost, in each second in which its condition held."""
    upper_bounds: int = 0
    """Seconds of `losses` in which it says that it loses up to so much."""
    critical: bool = False
    """Whether it was critical at any time."""

    @property
    def cause(self) -> str:
        """The cause that it had for most of its time from SETTLED_S on; the last of a short one."""
        settled = self.causes[SETTLED_S:]
        return Counter(settled).most_common(1)[0][0] if settled else self.causes[-1]

    @property
    def confidence(self) -> float:
        """Its median confidence."""
        return median(self.confidences)

    @property
    def lost(self) -> float:
        """The median of its losses."""
        return median(self.losses)

    @property
    def is_upper_bound(self) -> bool:
        """Whether it says for most of its time that the loss is an upper bound."""
        return 2 * self.upper_bounds > len(self.losses)

    def update(self, finding: Finding, snapshot: Snapshot) -> None:
        """One more second of it. While its condition does not hold, its loss is of the past."""
        self.causes.append(finding.cause)
        for row in finding.rows:
            name = snapshot.fabric.ports[row].id
            if name not in self.ports:
                self.ports.append(name)
        self.victims.update(finding.victims)
        self.confidences.append(finding.confidence)
        if finding.seen_ns == snapshot.time_ns:
            self.losses.append(finding.lost)
            self.upper_bounds += finding.lost_is_upper_bound
        self.critical |= finding.severity == CRITICAL
        if len(self.causes) in (1, SETTLED_S + 1):
            self.text, self.unseen = finding.text, finding.unseen
            self.evidence = ", ".join(
                f"{e.name} {e.value:.4g}{e.unit}" if isinstance(e.value, float)
                else f"{e.name} {e.value}{e.unit}"
                for e in finding.evidence
            )  # fmt: skip


@dataclass
class Played:
    """All that is needed to score a run."""

    plan: Plan
    truths: list[Truth]
    reported: list[Reported]
    description: str


def play(plan: Plan) -> Played:
    """Run a plan, as fast as it goes."""
    run = build(plan)
    log = FindingLog(new_pipeline(run.sampler.hosts()))
    for _ in range(plan.seconds):
        log.accept(run.sampler.tick())
    settings, view = run.world.transport.settings, run.sampler.view
    shape = run.world.topology.shape
    description = (
        f"{shape.hosts} hosts x {shape.rails} rails, {shape.kind}, "
        f"{'all switches watched' if view.visible else 'no switch watched'}, "
        f"uplink ratio {shape.ratio:g}, {settings.transport}"
        f"{'' if settings.dcqcn or settings.transport != 'roce' else ' without DCQCN'}, "
        f"paths {run.routing}, LLDP {'yes' if view.lldp else 'no'}"
    )
    return Played(run.plan, truths(run), log.reported, description)


class FindingLog:
    """The findings of a pipeline that gets ticks of one second.

    `reported` has them in the order in which they opened.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._open: dict[str, Reported] = {}
        self._second = 0
        self.reported: list[Reported] = []

    def accept(self, tick: Tick) -> None:
        """One more tick."""
        self._second += 1
        scene = self._pipeline.accept(tick)
        for change, finding in scene.changes:
            if change is Change.CLOSE and finding.key in self._open:
                self._open.pop(finding.key).closed_s = self._second
        keys = {finding.key for finding in scene.findings}
        for finding in scene.findings:
            known = self._open.get(finding.key)
            if known is None:
                known = _renamed(self._open, keys, finding)
                if known is None:
                    known = Reported(self._second, finding.subject)
                    self.reported.append(known)
                self._open[finding.key] = known
            known.update(finding, scene.snapshot)


def reported_by(pipeline: Pipeline, ticks: Iterable[Tick]) -> list[Reported]:
    """The findings of a pipeline over ticks of one second, in the order in which they opened."""
    log = FindingLog(pipeline)
    for tick in ticks:
        log.accept(tick)
    return log.reported


def _renamed(open_now: dict[str, Reported], keys: set[str], finding: Finding) -> Reported | None:
    """The open finding that this one is, with another cause: same subject, and gone by its name."""
    for key, known in open_now.items():
        if key not in keys and known.subject == finding.subject and known.closed_s is None:
            del open_now[key]
            return known
    return None
