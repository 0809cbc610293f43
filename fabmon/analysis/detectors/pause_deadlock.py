"""Ports of switches pause each other in a cycle, and nothing moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.flow_control import time_waiting, uses_credits
from fabmon.analysis.evidence.pause_graph import PauseGraph, pause_graph
from fabmon.analysis.evidence.senders_place import LastSeen
from fabmon.analysis.fabric_structure import NONE, Mask
from fabmon.analysis.finding import CRITICAL, Cause, Condition, Evidence, OtherTitle, Trait
from fabmon.analysis.thresholds import ModelThresholds

CAUSE = Cause(
    name="pause_deadlock",
    title="Pause deadlock",
    meaning="ports of switches pause each other in a cycle, and nothing moves",
    severity=CRITICAL,
    rule=(
        "Ports of switches pause each other in a cycle, each for more than 90 % of the time in"
        " three seconds running, and send less than 0.3 % of line rate. Cycles whose ports wait for"
        " each other are one finding, which opens at the shortest at a leaf. A pause storm whose"
        " ports it shares explains it."
    ),
    inputs="Pause counters of all switches in the cycle",
    not_observable=(
        "Cycles through a switch that is not watched. Which of several cycles was the first: pause"
        " spreads within milliseconds"
    ),
    confidence=0.95,
    picture="pause_cycle",
    advice=(
        "Turn the PFC watchdog on, and find the route that goes down to a leaf and up to a spine"
        " again."
    ),
    traits=(Trait.MAKES_QUEUES,),
    other_title=OtherTitle("Credit loop"),
)

_ADVICE_CREDITS = (
    "Take one of these links down to end it. Then check the subnet manager's routing engine: minhop"
    " may close a loop of credits in this topology, updn and ftree do not (ibdiagnet checks this)."
)

_PAUSED = 0.9
"""Share of time, 0 to 1, above which a port of the cycle is paused in each of ..."""

_TICKS = 3
"""... so many ticks running, in which it sends ..."""

_SENDS = 0.003
"""... less than this share of line rate, 0 to 1, in their mean: the first of them may be the second
in which the traffic stopped."""


def pause_deadlocks(
    inputs: DetectorInput, seen: LastSeen, t: ModelThresholds
) -> Iterator[Condition]:
    """One condition for all switches that wait for a cycle in which nothing moves.

    Pause spreads from a cycle within milliseconds and makes further cycles of ports that wait for
    it. Seconds later no counter shows which was the first; the shortest one at a leaf is named,
    where routes that go down and up again usually turn.
    """
    graph, structure = pause_graph(inputs, t), inputs.structure
    if not graph.paused.any():
        return
    sent = inputs.sent[:, -_TICKS:].mean(axis=1)
    paused = np.fmax(inputs.window("pause_rx"), inputs.window("stall"))[:, -_TICKS:]
    with np.errstate(invalid="ignore"):
        stuck = graph.paused & (paused > _PAUSED).all(axis=1) & (sent < _SENDS)
    leaves = set(structure.leaves)
    cycles = [
        (structure.fabric.ports[cycle[0]].node not in leaves, len(cycle), cycle)
        for node in sorted(set(structure.node[stuck].tolist()) - {NONE})
        if (cycle := cycle_of(graph, node, stuck))
    ]
    reported: set[int] = set()
    for _, _, cycle in sorted(cycles, key=lambda each: each[:2]):
        if not reported.isdisjoint(cycle):
            continue
        waiting = graph.victims(int(structure.node[cycle[0]]))
        reported.update(waiting)
        are_several = len({frozenset(c) for *_, c in cycles if not set(waiting).isdisjoint(c)}) > 1
        others = [row for row in waiting if row not in cycle]
        names = structure.labels(np.array(cycle))
        port = structure.fabric.ports[cycle[0]]
        waits = "wait for each other's credits" if uses_credits(port) else "pause each other"
        share = float(graph.share[cycle].min())
        yield CAUSE.condition(
            subject=seen.subject(inputs, np.array(waiting, np.intp), port.id),
            rows=cycle,
            text=f"{len(cycle)} ports {waits} in a cycle, and nothing moves: {names}",
            evidence=(
                Evidence("ports in the cycle", len(cycle), "ports"),
                time_waiting(port, share),
            ),
            advice=_ADVICE_CREDITS if uses_credits(port) else CAUSE.advice,
            lost=1.0,
            victims=structure.ids(others),
            unseen="which of several cycles was the first" if are_several else "",
        )


def cycle_of(graph: PauseGraph, node: int, among: Mask) -> list[int]:
    """The rows of the shortest cycle of pauses `among` some ports [ports] that a node is in; empty
    when there is none."""
    came: dict[int, tuple[int, int]] = {}
    queue = deque([node])
    while queue:
        at = queue.popleft()
        for row in graph.by_pauser.get(at, ()):
            further = int(graph.node_of[row])
            if not among[row]:
                continue
            if further == node:
                path = [row]
                while at != node:
                    row_before, at = came[at]
                    path.append(row_before)
                return path
            if further not in came:
                came[further] = row, at
                queue.append(further)
    return []
