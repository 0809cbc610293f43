"""Many flows, and yet they use few links: the hash sees far fewer flows than there are.

How few of its senders, the biggest first, could have sent what the group carries is the least
number of flows in it. So many flows that are hashed independently use so few links with a
probability that can be computed; when it is tiny, they were not independent: one UDP source port
for all queue pairs, or the same hash at two tiers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence import null_model
from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.flows_on_link import effective_flows
from fabmon.analysis.evidence.group_load import Load, loads
from fabmon.analysis.evidence.null_model import occupied_at_most
from fabmon.analysis.finding import CRITICAL, Cause, Condition, Evidence, Trait
from fabmon.analysis.thresholds import EcmpGroups
from fabmon.fabric.wording import rounded_percent

CAUSE = Cause(
    name="polarization",
    title="Polarization",
    severity=CRITICAL,
    picture="link_group",
    tables=("ecmp_groups",),
    traits=(
        Trait.NEEDS_TRAFFIC,
        Trait.OF_HASHING,
        Trait.FULL_GROUP,
        Trait.HAS_SENDERS,
    ),
)


_CHANCE = 0.0001
_NEVER = 1e-6
"""No model of chance holds so far out that a smaller one could be told as a number."""
_FEW_FLOWS = 6
_FEW_LINKS = 4
_MOST = 0.97
"""Share of the traffic that the used links must carry: flows of other sizes blur the count."""


def is_polarized(inputs: DetectorInput, load: Load) -> bool:
    """Whether chance does not explain how few links are used."""
    flows = load.streams
    if load.group.is_inward or flows is None or flows < _FEW_FLOWS or load.links < _FEW_LINKS:
        return False
    if 2 * load.used > load.links or load.share_of_used < _MOST or _is_static(inputs, load):
        return False
    return occupied_at_most(load.used, flows, load.links) < _CHANCE


def _is_static(inputs: DetectorInput, load: Load) -> bool:
    """InfiniBand does not hash: its tables may well send many flows over few links."""
    ports = inputs.structure.fabric.ports
    return ports[int(load.group.rows[0])].kind == "infiniband"


class Polarization:
    """Judges the groups with a hot link, by how many links their senders use."""

    def __init__(self, thresholds: EcmpGroups) -> None:
        self._t = thresholds

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition a group."""
        for load in loads(inputs, self._t):
            if load.lost >= self._t.lost_min and is_polarized(inputs, load):
                yield _condition(inputs, load)


def _condition(inputs: DetectorInput, load: Load) -> Condition:
    structure, rows = inputs.structure, load.group.rows
    order = rows[np.argsort(-np.nan_to_num(load.level))]
    node = load.group.node
    flows = load.streams or 0
    probability = occupied_at_most(load.used, flows, load.links)
    seen, usual = null_model.hashing_evidence(load.top / load.mean, flows, load.links)
    lost = load.lost
    used = [structure.fabric.ports[int(row)].label for row in order[: load.used]]
    return Condition(
        cause="polarization",
        severity=CRITICAL,
        subject=f"{node}/uplinks",
        rows=tuple(int(row) for row in order),
        text=(
            f"{flows} flows or more of {node} use {load.used} of {load.links} uplinks"
            f" ({', '.join(used)}); chance does that {_seldom(probability)};"
            f" the group loses {rounded_percent(lost)}"
        ),
        evidence=(
            Evidence("flows, at least", flows, "flows"),
            Evidence("links used", load.used, f"of {load.links}"),
            Evidence("chance", float(f"{probability * 100:.2g}"), "%"),
            Evidence("group links", load.links, "links"),
            seen,
            usual,
            *effective_flows(inputs.snapshot, int(rows[0]), round(load.effective_flows, 1)),
            Evidence("lost bandwidth", round(lost * 100, 1), "%"),
        ),
        advice=(
            "Look for one UDP source port for all queue pairs (NVSHMEM, old drivers), then give the"
            " tiers different hash seeds, or E-ECMP on the queue pair."
        ),
        confidence=round(min(0.98, 1 - probability * 10), 2),
        lost=lost,
    )


def _seldom(probability: float) -> str:
    if probability < _NEVER:
        return f"less than once in {round(1 / _NEVER):,} times"
    return f"once in {round(1 / probability):,} times"
