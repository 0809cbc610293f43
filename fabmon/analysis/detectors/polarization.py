"""Many flows use few links of a group: the switch's hash distinguishes far fewer flows.

How few of its senders, the biggest first, could have sent what the group carries is the least
number of flows in it. The probability that so many flows, hashed independently, use so few links
can be computed. Where it is tiny, the flows were not hashed independently: they have one UDP source
port for all queue pairs, or two tiers use the same hash.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.flows_on_link import effective_flows_on_link
from fabmon.analysis.evidence.group_load import EcmpGroupThresholds, Load, group_loads
from fabmon.analysis.evidence.null_model import hashing_evidence, occupied_at_most
from fabmon.analysis.finding import CRITICAL, Cause, Condition, Evidence, Trait
from fabmon.fabric.wording import rounded_percent

CAUSE = Cause(
    name="polarization",
    title="Polarization",
    meaning="many flows use few links of a group: the hash of the switch sees few differences",
    severity=CRITICAL,
    picture="link_group",
    advice=(
        "Look for one UDP source port for all queue pairs (NVSHMEM, old drivers); then give the"
        " tiers different hash seeds, or use E-ECMP on the queue pair."
    ),
    tables=("ecmp_groups",),
    traits=(Trait.NEEDS_TRAFFIC, Trait.OF_HASHING, Trait.FULL_GROUP, Trait.HAS_SENDERS),
)

_NEVER = 1e-6
"""Probability below which only a bound is printed: no model of hashing is exact so far out."""

_MAX_CONFIDENCE = 0.98
"""Confidence, 0 to 1, where chance is all but excluded."""


def polarization(inputs: DetectorInput, t: EcmpGroupThresholds) -> Iterator[Condition]:
    """One condition for each group with a hot link whose flows use too few links."""
    for load in group_loads(inputs, t):
        if load.lost >= t.lost_min and load.is_polarized(inputs):
            yield _condition(inputs, load)


def _condition(inputs: DetectorInput, load: Load) -> Condition:
    structure, rows = inputs.structure, load.group.rows
    order = rows[np.argsort(-np.nan_to_num(load.level))]
    node = load.group.node
    flows = load.streams or 0
    probability = occupied_at_most(load.used, flows, load.links)
    seen, usual = hashing_evidence(load.top / load.mean, flows, load.links)
    lost = load.lost
    used = [structure.fabric.ports[int(row)].label for row in order[: load.used]]
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=f"{node}/uplinks",
        rows=tuple(int(row) for row in order),
        text=(
            f"{flows} or more flows of {node} use {load.used} of {load.links} uplinks"
            f" ({', '.join(used)}): the job gets {rounded_percent(1 - lost)} of what all"
            f" {load.links} could carry (chance: {_odds(probability)})"
        ),
        evidence=(
            Evidence("flows, at least", flows, "flows"),
            Evidence("links used", load.used, f"of {load.links}"),
            Evidence("chance", float(f"{probability * 100:.2g}"), "%"),
            Evidence("group links", load.links, "links"),
            seen,
            usual,
            *effective_flows_on_link(inputs.snapshot, int(rows[0]), round(load.effective_flows, 1)),
            Evidence("lost bandwidth", round(lost * 100, 1), "%"),
        ),
        advice=CAUSE.advice,
        confidence=round(min(_MAX_CONFIDENCE, 1 - probability * 10), 2),
        lost=lost,
    )


def _odds(probability: float) -> str:
    """`1 in 12,345`."""
    is_bound = probability < _NEVER
    return f"{'under ' if is_bound else ''}1 in {round(1 / max(probability, _NEVER)):,}"
