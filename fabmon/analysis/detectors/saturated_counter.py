"""Counters that other findings need are stuck at their maximum."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import NOTE, Cause, Condition, Evidence, Trait
from fabmon.fabric.wording import plural

CAUSE = Cause(
    name="saturated_counter",
    title="Saturated counter",
    meaning="a counter that other findings need is stuck at its maximum",
    severity=NOTE,
    rule=(
        "A counter that other findings need is at its maximum: ib_tx_wait, ib_symbol_errors,"
        " ib_link_downed or ib_tx_discards. It is one finding for each counter. Damage at all of"
        " its ports explains it."
    ),
    inputs="The counters of InfiniBand ports",
    not_observable="What the counter counts, until it is reset",
    picture="affected_ports",
    advice="Reset it on these ports when nothing else needs its value: perfquery -R.",
    traits=(Trait.OF_NO_PLACE,),
)

_COUNTERS = {
    "ib_tx_wait": "stalls",
    "ib_symbol_errors": "symbol errors",
    "ib_link_downed": "links going down",
    "ib_tx_discards": "discards",
}
"""The counters that findings are made of, and what is not observable without them."""


def saturated_counters(inputs: DetectorInput) -> Iterator[Condition]:
    """One condition for each counter, for all ports together."""
    snapshot, structure = inputs.snapshot, inputs.structure
    if not len(snapshot.stuck):
        return
    for name, what in _COUNTERS.items():
        rows = np.flatnonzero(snapshot.is_stuck(name))
        if len(rows):
            nodes = len(set(structure.node[rows].tolist()))
            yield Condition(
                cause=CAUSE.name,
                severity=CAUSE.severity,
                subject=name,
                rows=tuple(rows.tolist()),
                text=f"{name} is at its maximum on {plural(len(rows), 'port')} of"
                f" {plural(nodes, 'node')}: {what} are not observable there",
                evidence=(
                    Evidence("ports", len(rows), "ports"),
                    Evidence("nodes", nodes, "nodes"),
                ),
                advice=CAUSE.advice,
                confidence=1.0,
                unseen=what,
            )
