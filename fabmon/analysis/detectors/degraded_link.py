"""A link runs below the speed of its peers, or loses much of what it carries to damaged packets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.link_health import (
    CHECK_CABLE,
    LinkDamage,
    LinkHealthThresholds,
    link_condition,
    one_per_cable,
)
from fabmon.analysis.fabric_structure import FabricStructure
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.median import median
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import bit_rate

CAUSE = Cause(
    name="degraded_link",
    title="Degraded link",
    meaning="a link is slower than its peers, or loses much of its traffic to damaged packets",
    severity=WARNING,
    picture="link_ends",
    advice=CHECK_CABLE,
    tables=("link_health",),
    traits=(
        Trait.OF_LINK,
        Trait.DAMAGES_PACKETS,
        Trait.MAKES_QUEUES,
        Trait.FULL_LINK,
        Trait.HAS_SENDERS,
    ),
)

_MIN_PEERS = 3
"""Ports of a rail or group with a known line rate from which on their median is usual."""


class DegradedLinks:
    """Judges every port by its line rate, and by the damage that `damage` measures."""

    def __init__(self, thresholds: LinkHealthThresholds, damage: LinkDamage) -> None:
        self._t = thresholds
        self._damage = damage
        self._structure: FabricStructure | None = None
        self._rates: Floats = np.empty(0, np.float32)
        self._usual: Floats = np.empty(0, np.float32)

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition for each cable."""
        snapshot = inputs.snapshot
        usual = self._usual_rates(inputs)
        with np.errstate(invalid="ignore"):
            slow = (snapshot.line_rate_bps < self._t.slower_than_peers * usual) & (snapshot.up != 0)
        for row in one_per_cable(inputs, np.flatnonzero(slow)):
            own, peers = float(snapshot.line_rate_bps[row]), float(usual[row])
            yield link_condition(
                inputs,
                row,
                CAUSE,
                f"runs at {bit_rate(own)} while its peers run at {bit_rate(peers)}",
                (Evidence("line rate", round(own), "bps"), Evidence("peers", round(peers), "bps")),
                advice=f"{CAUSE.advice} Then compare FEC and auto-negotiation of both ends.",
                confidence=0.95,
                lost=1.0 - own / peers,
            )
        yield from self._damage.conditions(inputs, CAUSE)

    def _usual_rates(self, inputs: DetectorInput) -> Floats:
        """[ports]: the median line rate of a port's rail or group; NaN where too few are known.

        Computed again only when a line rate or the fabric changes.
        """
        structure, rates = inputs.structure, inputs.snapshot.line_rate_bps
        if structure is self._structure and np.array_equal(rates, self._rates, equal_nan=True):
            return self._usual
        usual: Floats = np.full(len(rates), np.nan, np.float32)
        for rows in (*structure.rails.values(), *(group.rows for group in structure.groups)):
            known = rates[rows][np.isfinite(rates[rows])]
            if len(known) >= _MIN_PEERS:
                usual[rows] = np.fmax(usual[rows], median(known))
        self._structure, self._rates, self._usual = structure, rates, usual
        return usual
