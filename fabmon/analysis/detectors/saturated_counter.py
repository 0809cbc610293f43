"""Counters that stick at their maximum: what they count cannot be seen any more."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import NOTE, Cause, Condition, Evidence
from fabmon.fabric.wording import plural

CAUSE = Cause(
    name="saturated_counter",
    title="Saturated counter",
    severity=NOTE,
    picture="affected_ports",
)


_WATCHED = {
    "ib_tx_wait": "stalls",
    "ib_symbol_errors": "symbol errors",
    "ib_link_downed": "links going down",
    "ib_tx_discards": "discards",
}
"""Counters whose loss blinds other findings, and what is not seen without them."""


def saturated_counters(inputs: DetectorInput) -> Iterator[Condition]:
    """One condition a counter, for all ports together."""
    snapshot, structure = inputs.snapshot, inputs.structure
    if not len(snapshot.stuck):
        return
    for name, what in _WATCHED.items():
        rows = np.flatnonzero(snapshot.is_stuck(name))
        if len(rows):
            nodes = len(set(structure.node[rows].tolist()))
            yield Condition(
                cause="saturated_counter",
                severity=NOTE,
                subject=name,
                rows=tuple(rows.tolist()),
                text=f"{name} sticks at its maximum on {plural(len(rows), 'port')} of"
                f" {plural(nodes, 'node')}: {what} cannot be seen there",
                evidence=(
                    Evidence("ports", len(rows), "ports"),
                    Evidence("nodes", nodes, "nodes"),
                ),
                advice="Reset it on these ports when nobody else needs its value: perfquery -R.",
                confidence=1.0,
                unseen=what,
            )
