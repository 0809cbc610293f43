"""Ports that are held and whose root is none of the other findings: unwatched, or a loop."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.pause_graph import pause_graph
from fabmon.analysis.fabric_structure import NONE
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence, Trait
from fabmon.fabric.model import SWITCH
from fabmon.fabric.wording import plural, rounded_percent

CAUSE = Cause(
    name="pause_victim",
    title="Pause victim",
    severity=WARNING,
    picture="paused_ports",
)


_STUCK = 0.9
_STORM = 0.5
_HOT = 0.8
_NOT_NAMED = "unwatched switches"


def waiting_ports(inputs: DetectorInput) -> Iterator[Condition]:
    """Deadlocks, switches that hold others without a hot port, and neighbours that are not seen."""
    graph = pause_graph(inputs)
    if not graph.held.any():
        return
    yield from _deadlocks(inputs)
    yield from _storming_switches(inputs)
    by_neighbour: dict[str, list[int]] = {}
    for row in graph.orphans.tolist():
        cable = inputs.structure.fabric.ports[row].cable
        by_neighbour.setdefault(cable.node if cable else "", []).append(row)
    for neighbour, rows in by_neighbour.items():
        yield _victim(inputs, neighbour, rows)


def _deadlocks(inputs: DetectorInput) -> Iterator[Condition]:
    """Cycles of switches that all wait, and nothing moves."""
    graph, structure = pause_graph(inputs), inputs.structure
    sent = inputs.sent[:, -3:].max(axis=1)
    still = np.fmax(inputs.window("pause_rx"), inputs.window("stall"))[:, -3:]
    with np.errstate(invalid="ignore"):
        stuck = graph.held & (still > _STUCK).all(axis=1) & (sent < 0.001)
    told: set[int] = set()
    for node in sorted(set(structure.node[stuck].tolist()) - {NONE}):
        loop = graph.loop(node)
        if not loop or node in told or not all(stuck[row] for row in loop):
            continue
        told.update(int(structure.node[row]) for row in loop)
        names = structure.labels(np.array(loop))
        yield Condition(
            cause="pause_deadlock",
            severity=CRITICAL,
            subject=structure.fabric.ports[loop[0]].id,
            rows=tuple(loop),
            text=f"{len(loop)} ports wait for each other in a circle, and nothing moves: {names}",
            evidence=(
                Evidence("ports in the circle", len(loop), "ports"),
                Evidence("time held", round(float(graph.share[loop].min()) * 100, 1), "%"),
            ),
            advice="Turn the PFC watchdog on, and find the route that goes up after it went down.",
            confidence=0.95,
            lost=1.0,
        )


def _storming_switches(inputs: DetectorInput) -> Iterator[Condition]:
    """Switches at the root of much waiting whose own congested port is not seen."""
    graph, structure = pause_graph(inputs), inputs.structure
    with np.errstate(invalid="ignore"):
        hot = (inputs.util("tx")[:, -5:] >= _HOT).sum(axis=1) >= 3
    for node, rows in graph.roots.items():
        about = structure.fabric.nodes[node]
        if about.role != SWITCH or (hot & (structure.node == node)).any():
            continue
        victims = graph.victims(node)
        share = max((float(graph.share[row]) for row in victims), default=0.0)
        if share < _STORM:
            continue
        yield Condition(
            cause="pause_storm",
            severity=CRITICAL,
            subject=about.name,
            rows=(*(int(row) for row in rows), *victims),
            text=(
                f"{about.name} makes {len(victims)} ports wait, up to {rounded_percent(share)} of"
                " the time, and none of its own ports is full"
            ),
            evidence=(
                Evidence("ports that wait", len(victims), "ports"),
                Evidence("longest", round(share * 100, 1), "%"),
            ),
            advice="Look at the switch: a port that is not watched, its buffers, its PFC watchdog.",
            confidence=0.7,
            lost=round(share, 3),
            victims=tuple(structure.fabric.ports[row].id for row in victims),
            unseen="which of its ports is congested",
            unless=(Trait.MAKES_PAUSE, Trait.STOPS_PAUSE_FRAMES),
        )


def _victim(inputs: DetectorInput, neighbour: str, rows: list[int]) -> Condition:
    """Ports that one unwatched neighbour holds, or, where nobody tells of it, some of these."""
    graph, structure = pause_graph(inputs), inputs.structure
    worst = max(rows, key=lambda row: float(graph.share[row]))
    share = float(graph.share[worst])
    nodes = len(set(structure.node[rows].tolist()))
    are = "is" if len(rows) == 1 else "are"
    return Condition(
        cause="pause_victim",
        severity=WARNING,
        subject=neighbour or _NOT_NAMED,
        rows=(worst, *(row for row in rows if row != worst)),
        text=(
            f"{plural(len(rows), 'port')} of {plural(nodes, 'node')}"
            f" ({structure.labels(np.array(rows), 3)}) {are} told to wait, up to"
            f" {rounded_percent(share)} of the time:"
            f" {neighbour or 'what they are cabled to'} is congested"
        ),
        evidence=(
            Evidence("time held", round(share * 100, 1), "%"),
            Evidence("ports", len(rows), "ports"),
            Evidence("nodes", nodes, "nodes"),
        ),
        advice="Watch the switch too (role=switch in the hosts file): the root is behind it.",
        confidence=0.6,
        lost=round(share, 3),
        unseen="the neighbour, and what is behind it",
    )
