"""Ports are paused by a neighbour that is not watched, so that the root cannot be found."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.pause_graph import pause_graph
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence
from fabmon.fabric.wording import plural, rounded_percent

CAUSE = Cause(
    name="pause_victim",
    title="Pause victim",
    meaning="ports are paused by a neighbour that is not watched: the root cannot be found",
    severity=WARNING,
    picture="paused_ports",
    advice="Watch the switch too (role=switch in the hosts file): the root is behind it.",
)

_UNKNOWN_NEIGHBOUR = "unwatched switches"
"""Subject where no cable says who the neighbour is."""


def pause_victims(inputs: DetectorInput) -> Iterator[Condition]:
    """One condition for each neighbour, and one for all ports whose neighbour is not known."""
    by_neighbour: dict[str, list[int]] = {}
    for row in pause_graph(inputs).orphans.tolist():
        cable = inputs.structure.fabric.ports[row].cable
        by_neighbour.setdefault(cable.node if cable else "", []).append(row)
    for neighbour, rows in by_neighbour.items():
        yield _condition(inputs, neighbour, rows)


def _condition(inputs: DetectorInput, neighbour: str, rows: list[int]) -> Condition:
    structure, paused = inputs.structure, pause_graph(inputs).share
    worst = max(rows, key=lambda row: float(paused[row]))
    share = float(paused[worst])
    nodes = len(set(structure.node[rows].tolist()))
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=neighbour or _UNKNOWN_NEIGHBOUR,
        rows=(worst, *(row for row in rows if row != worst)),
        text=(
            f"{plural(len(rows), 'port')} of {plural(nodes, 'node')}"
            f" ({structure.labels(np.array(rows), 3)}) {'is' if len(rows) == 1 else 'are'} paused,"
            f" up to {rounded_percent(share)} of the time:"
            f" {neighbour or 'the switch they are cabled to'} is congested"
        ),
        evidence=(
            Evidence("time paused", round(share * 100, 1), "%"),
            Evidence("ports", len(rows), "ports"),
            Evidence("nodes", nodes, "nodes"),
        ),
        advice=CAUSE.advice,
        confidence=0.6,
        lost=round(share, 3),
        unseen="the neighbour, and what is behind it",
    )
