"""Plays a scenario, and writes down what was true and what was reported, second by second."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fabmon.analysis.finding import Change
from fabmon.fabric.snapshot import Snapshot
from fabmon.feeds.demo.fault_planner import Truth
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import Scenario
from fabmon.feeds.demo.training import Phase
from fabmon.feeds.demo.world import StepTotals
from tests.builders import new_pipeline
from tests.score.congestion import Episode, Queues

_SENDS = 0.02
"""Share of line rate above which a NIC sends anything to speak of."""
HOT, HOT_S = 0.9, 5
"""The plain rule: any link above 90 % for 5 s."""


@dataclass
class ReportedFinding:
    """A finding as it opened; `ports` are those it lights, `names` all it mentions."""

    second: int
    cause: str
    subject: str
    ports: tuple[str, ...]
    text: str
    confidence: float
    until: int | None = None
    victims: set[str] = field(default_factory=set)
    later: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """The ports that it lights, by second, where no switch is watched."""


@dataclass
class Played:
    """All that is needed to score a run."""

    scenario: Scenario
    reported: list[ReportedFinding] = field(default_factory=list)
    truths: tuple[Truth, ...] = ()
    episodes: dict[str, Episode] = field(default_factory=dict)
    crossing: dict[str, set[str]] = field(default_factory=dict)
    queued: dict[str, set[int]] = field(default_factory=dict)
    sends: dict[str, set[int]] = field(default_factory=dict)
    """The seconds in which a host sent, by its name; `queued` are those of ports with a queue."""
    waits: list[int] = field(default_factory=list)
    """The seconds at whose end a job waited for a straggler."""
    full_leaves: dict[str, list[int]] = field(default_factory=dict)
    crossing_flows: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of each leaf: senders that have a flow to another leaf, and uplinks."""
    peer: dict[str, str] = field(default_factory=dict)
    plain: list[tuple[int, str]] = field(default_factory=list)
    seconds: int = 0


def play(scenario: Scenario, seconds: int) -> Played:
    """Run it for so many simulated seconds, as fast as it goes."""
    feed = DemoFeed(scenario)
    world = feed.world
    hardware = world.hardware
    queues = Queues(world)
    pipeline = new_pipeline(feed.hosts)
    played = Played(scenario, seconds=seconds)
    advance = world.advance
    now = 0

    def observed(seconds: float) -> StepTotals:
        moved = advance(seconds)
        if seconds:
            queues.see(now, moved)
            busy = moved.sent[: hardware.nics] > _SENDS * hardware.speed[: hardware.nics] * seconds
            for nic in np.flatnonzero(busy).tolist():
                host = hardware.port_id(nic).partition("/")[0]
                played.sends.setdefault(host, set()).add(now + 1)
            if any(training.phase is Phase.WAIT for training in world.trainings):
                played.waits.append(now)
            if scenario.fault or queues.episodes:
                for port in set(queues.episodes) - set(crossing):
                    crossing[port] = queues.crossing(port)
        return moved

    crossing: dict[int, set[int]] = {}
    world.advance = observed  # type: ignore[method-assign]
    plain = PlainRule()
    open_now: dict[str, ReportedFinding] = {}
    for now in range(seconds):
        scene = pipeline.accept(feed.step())
        fabric = scene.snapshot.fabric
        for change, finding in scene.changes:
            if change is Change.OPEN:
                reported = ReportedFinding(
                    now,
                    finding.cause,
                    finding.subject,
                    tuple(fabric.ports[row].id for row in finding.rows),
                    finding.text,
                    finding.confidence,
                )
                open_now[finding.key] = reported
                played.reported.append(reported)
            elif change is Change.CLOSE:
                open_now.pop(finding.key).until = now
        for finding in scene.findings:
            open_now[finding.key].victims.update(finding.victims)
            if scenario.topology.visible == "hosts":
                lit = tuple(fabric.ports[row].id for row in finding.rows)
                open_now[finding.key].later[now] = lit
        played.plain += [(now, fabric.ports[row].id) for row in plain.flags(scene.snapshot)]
    played.truths = feed.truth
    name = hardware.port_id
    played.episodes = {name(port): each for port, each in queues.episodes.items()}
    played.crossing = {name(p): {name(nic) for nic in nics} for p, nics in crossing.items()}
    played.full_leaves = {
        hardware.leaf_names[number // 2]: times for number, times in queues.full_groups.items()
    }
    for second, ports in enumerate(queues.queued_s, start=1):
        for port in np.flatnonzero(ports).tolist():
            played.queued.setdefault(name(port), set()).add(second)
    flows = world.flows
    enter, leave = hardware.cabling[flows.src], hardware.cabling[flows.dst]
    away = hardware.leaf_of(enter) != hardware.leaf_of(leave)
    for leaf, leaf_name in enumerate(hardware.leaf_names):
        senders = np.unique(flows.src[away & (hardware.leaf_of(enter) == leaf)])
        played.crossing_flows[leaf_name] = (len(senders), hardware.up)
    played.peer = {name(a): name(b) for a, b in enumerate(hardware.cabling.tolist())}
    return played


class PlainRule:
    """What one would write first: a link above 90 % of line rate for 5 s."""

    def __init__(self) -> None:
        self._flagged: set[int] = set()

    def flags(self, snapshot: Snapshot) -> list[int]:
        """The links that are flagged now and were not a second ago."""
        ports = range(len(snapshot.fabric.ports))
        hot: set[int] = set()
        for way in ("tx_bps", "rx_bps"):
            window = snapshot.window(way, ports, HOT_S)
            with np.errstate(invalid="ignore"):
                above = (window > HOT * snapshot.line_rate_bps[:, None]).all(axis=1)
            hot |= set(np.flatnonzero(above).tolist())
        # A link is one link, whichever end tells of it.
        hot = {min(row, snapshot.fabric.ports[row].peer or row) for row in hot}
        new = hot - self._flagged
        self._flagged = hot
        return sorted(new)
