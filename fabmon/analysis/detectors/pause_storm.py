"""A host or a switch all but stops the ports that send to it with pause, whatever arrives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.pause_graph import HostPauses, pause_graph
from fabmon.analysis.fabric_structure import Rows
from fabmon.analysis.finding import CRITICAL, Cause, Condition, Evidence, Trait
from fabmon.fabric.model import SWITCH
from fabmon.fabric.wording import rounded_percent

CAUSE = Cause(
    name="pause_storm",
    title="Pause storm",
    meaning="a host or a switch pauses its neighbour nearly all the time, whatever arrives",
    severity=CRITICAL,
    picture="pause_tree",
    advice=(
        "Take the host out (drain it, then reset the NIC), and check that the switch's PFC watchdog"
        " is on: it drops what a storm would spread."
    ),
    traits=(
        Trait.OF_HOST_PORT,
        Trait.LAST_HOP,
        Trait.MAKES_QUEUES,
        Trait.MAKES_PAUSE,
        Trait.HAS_SENDERS,
    ),
    family="host port",
)

_SWITCH_ADVICE = "Look at the switch: a port that is not watched, its buffers, its PFC watchdog."

_SWITCH_STORM = 0.5
"""Share of time, 0 to 1, that the ports waiting for a switch must be paused at most: half of their
line rate is lost then."""

_HOT = 0.8
"""Share of line rate, 0 to 1, at which a port of the switch explains the pause that it sends ..."""

_HOT_OF_TICKS, _HOT_TICKS = 5, 3
"""... in so many of the last so many ticks."""


def pause_storms(inputs: DetectorInput, pauses: HostPauses) -> Iterator[Condition]:
    """One condition for each port of a host that `pauses` finds, and for each switch that pauses
    others without a hot port of its own."""
    yield from pauses.conditions(inputs, CAUSE)
    graph, structure = pause_graph(inputs), inputs.structure
    if not graph.paused.any():
        return
    with np.errstate(invalid="ignore"):
        hot = (inputs.util("tx")[:, -_HOT_OF_TICKS:] >= _HOT).sum(axis=1) >= _HOT_TICKS
    for node, rows in graph.roots.items():
        is_switch = structure.fabric.nodes[node].role == SWITCH
        if not is_switch or (hot & (structure.node == node)).any():
            continue
        victims = graph.victims(node)
        share = max((float(graph.share[row]) for row in victims), default=0.0)
        if share >= _SWITCH_STORM:
            yield _switch(inputs, node, rows, victims, share)


def _switch(
    inputs: DetectorInput, node: int, rows: Rows, victims: list[int], share: float
) -> Condition:
    fabric = inputs.structure.fabric
    name = fabric.nodes[node].name
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=name,
        rows=(*rows.tolist(), *victims),
        text=(
            f"{name} pauses {len(victims)} ports, up to {rounded_percent(share)} of the time, and"
            " none of its own ports is full"
        ),
        evidence=(
            Evidence("ports that wait", len(victims), "ports"),
            Evidence("longest", round(share * 100, 1), "%"),
        ),
        advice=_SWITCH_ADVICE,
        confidence=0.7,
        lost=round(share, 3),
        victims=tuple(fabric.ports[row].id for row in victims),
        unseen="which of its ports is congested",
        # Over a cable that is down no pause frames arrive, so that the root is not observable.
        unless=(Trait.MAKES_PAUSE, Trait.STOPS_PAUSE_FRAMES),
    )
