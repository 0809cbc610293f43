"""Many flows use few links of a group: the switch's hash distinguishes far fewer flows.

The probability that so many flows, hashed independently, use so few links can be computed. Where it
is tiny, the flows were not hashed independently: they have one UDP source port for all queue pairs,
or two tiers use the same hash.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput
from fabmon.analysis.evidence.flows_on_link import effective_flows_on_link
from fabmon.analysis.evidence.full_link import (
    EcmpGroupThresholds,
    FullLink,
    loss_evidence,
    routing_evidence,
)
from fabmon.analysis.evidence.group_load import group_loads
from fabmon.analysis.evidence.null_model import hashing_evidence, occupied_at_most
from fabmon.analysis.evidence.queue_signals import QueueThresholds
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence, Trait
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
    tables=("ecmp_groups", "queue"),
    traits=(Trait.NEEDS_TRAFFIC, Trait.OF_HASHING, Trait.FULL_GROUP, Trait.HAS_SENDERS),
    family="group",
)

_CHANCE = 0.0001
"""Probability, 0 to 1, below which random hashing does not explain how few links are used."""

_MIN_FLOWS, _MIN_LINKS = 6, 4
"""Flows and links below which random hashing often uses half of the links only."""

_MOST_TRAFFIC = 0.97
"""Share of the traffic, 0 to 1, that the used links must carry: smaller flows blur the count."""

_ALL_TRAFFIC = 0.85
"""Share of what the feeding ports bring, 0 to 1, that the group must carry for each of them to have
a flow in it: else some of it stays below the switch."""

_TAKES_PART = 0.02
"""Share of the largest feeder's traffic, 0 to 1, from which on a port counts as a sender."""

_NEVER = 1e-6
"""Probability below which only a bound is printed: no model of hashing is exact so far out."""

_MAX_CONFIDENCE = 0.98
"""Confidence, 0 to 1, where chance is all but excluded."""


def polarization(
    inputs: DetectorInput, t: EcmpGroupThresholds, queue: QueueThresholds
) -> Iterator[Condition]:
    """One condition for each switch with a full link whose flows use too few links."""
    worst: dict[str, FullLink] = {}
    for link in group_loads(inputs, t, queue).links:
        before = worst.get(link.group.node)
        is_worse = before is None or before.severity_order < link.severity_order
        if is_worse and is_polarized(inputs, link):
            worst[link.group.node] = link
    for link in worst.values():
        yield _condition(inputs, link)


def is_polarized(inputs: DetectorInput, link: FullLink) -> bool:
    """Whether random hashing does not explain how few links the flows of a full link's group use.

    Only where the switch hashes: forwarding tables may send many flows over few links.
    """
    group = link.group
    if group.is_inward or link.links < _MIN_LINKS or 2 * link.used > link.links:
        return False
    level = np.nan_to_num(link.level)
    used = level > 0.1 * level.max()
    if not group.routing.may_hash or level[used].sum() < _MOST_TRAFFIC * level.sum():
        return False
    flows = _least_flows(inputs, link)
    return flows >= _MIN_FLOWS and occupied_at_most(link.used, flows, link.links) < _CHANCE


def _least_flows(inputs: DetectorInput, link: FullLink) -> int:
    """The least number of flows in a group: its senders, where all that they send goes over it,
    else how few of them, the biggest first, could have sent what it carries."""
    sent = np.nan_to_num(inputs.entering(link.group.edges, TICKS)).sum(axis=1)
    carried = float(np.nan_to_num(inputs.leaving(link.group.rows, TICKS)).sum())
    if carried >= _ALL_TRAFFIC * float(sent.sum()):
        return int((sent > _TAKES_PART * sent.max(initial=0)).sum())
    return int(np.searchsorted(np.cumsum(np.sort(sent)[::-1]), 0.98 * carried)) + 1


def _condition(inputs: DetectorInput, link: FullLink) -> Condition:
    structure, rows = inputs.structure, link.group.rows
    order = rows[np.argsort(-np.nan_to_num(link.level))]
    node = link.group.node
    flows = _least_flows(inputs, link)
    probability = occupied_at_most(link.used, flows, link.links)
    seen, usual = hashing_evidence(link.util / link.mean, flows, link.links)
    used = [structure.fabric.ports[int(row)].label for row in order[: link.used]]
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity if link.is_loss_known else WARNING,
        subject=f"{node}/uplinks",
        rows=tuple(int(row) for row in order),
        text=(
            f"{flows} or more flows of {node} use {link.used} of {link.links} uplinks"
            f" ({', '.join(used)}){_loss(link)} (chance: {_odds(probability)})"
        ),
        evidence=(
            Evidence("flows, at least", flows, "flows"),
            Evidence("links used", link.used, f"of {link.links}"),
            Evidence("chance", float(f"{probability * 100:.2g}"), "%"),
            Evidence("group links", link.links, "links"),
            seen,
            usual,
            *effective_flows_on_link(inputs.snapshot, int(rows[0]), round(link.effective_flows, 1)),
            *loss_evidence(link),
            routing_evidence(link.group.routing),
        ),
        advice=CAUSE.advice,
        confidence=round(min(_MAX_CONFIDENCE, 1 - probability * 10), 2),
        lost=round(link.lost, 3),
        unseen="" if link.is_loss_known else "which ports share the links, and what they lose",
    )


def _loss(link: FullLink) -> str:
    if not link.is_loss_known:
        return f", uneven by {rounded_percent(link.imbalance)}, and what they lose is not known"
    return f" and lose {rounded_percent(link.lost)}"


def _odds(probability: float) -> str:
    """`1 in 12,345`."""
    is_bound = probability < _NEVER
    return f"{'under ' if is_bound else ''}1 in {round(1 / max(probability, _NEVER)):,}"
