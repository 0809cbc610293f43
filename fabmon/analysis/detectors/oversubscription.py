"""A whole ECMP group is full while its hosts are slowed: they send more than its links carry."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.full_link import (
    EcmpGroupThresholds,
    FullGroup,
    routing_evidence,
)
from fabmon.analysis.evidence.group_load import group_loads
from fabmon.analysis.evidence.queue_signals import QueueThresholds
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.fabric.wording import number, rounded_percent

CAUSE = Cause(
    name="oversubscription",
    title="Oversubscription",
    meaning="a whole ECMP group is full: its hosts send more than its links can carry",
    severity=WARNING,
    picture="link_group",
    advice=(
        "No hash or other routing can help: place the job under fewer leaves, or add uplinks; check"
        " that no uplink is down."
    ),
    tables=("ecmp_groups", "queue"),
    traits=(Trait.NEEDS_TRAFFIC, Trait.FULL_GROUP, Trait.HAS_SENDERS),
    family="group",
)

_CONFIDENCE, _QUEUE = 0.9, 0.06
"""Confidence, 0 to 1, and what a queue at the hosts adds to it."""


def oversubscription(
    inputs: DetectorInput, t: EcmpGroupThresholds, queue: QueueThresholds
) -> Iterator[Condition]:
    """One condition for each switch whose links, in one direction or both, are all full."""
    worst: dict[str, FullGroup] = {}
    for each in group_loads(inputs, t, queue).groups:
        before = worst.get(each.group.node)
        if before is None or before.lost < each.lost:
            worst[each.group.node] = each
    for each in worst.values():
        yield _condition(inputs, each)


def _condition(inputs: DetectorInput, full: FullGroup) -> Condition:
    node, links = full.group.node, int(np.isfinite(full.level).sum())
    mean = float(np.nanmean(full.level))
    which = f"links into {node}" if full.group.is_inward else f"uplinks of {node}"
    ports = inputs.structure.fabric.ports
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=f"{node}/uplinks",
        rows=tuple(int(row) for row in full.group.rows[np.argsort(-np.nan_to_num(full.level))]),
        text=(
            f"all {links} {which} are full: {rounded_percent(mean)} of line rate on average;"
            f" {len(full.feeders)} ports below lose up to {rounded_percent(full.lost)}"
        ),
        evidence=(
            Evidence("group mean", round(mean * 100, 1), "%"),
            Evidence("group links", links, "links"),
            Evidence("capacity below to above", number(full.ratio, 2)),
            Evidence("lost bandwidth", round(full.lost * 100, 1), "%"),
            Evidence("slowed ports", len(full.feeders), "ports"),
            Evidence("queue", full.slowed_by or "not seen at the hosts"),
            routing_evidence(full.group.routing),
        ),
        advice=CAUSE.advice,
        confidence=round(_CONFIDENCE + (_QUEUE if full.slowed_by else 0), 2),
        lost=round(full.lost, 3),
        victims=tuple(ports[each].id for each in full.feeders.tolist()),
        unseen="" if full.slowed_by else "a queue at the hosts that share it",
    )
