"""A whole ECMP group is full: its hosts could send more than its links together carry."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.group_load import EcmpGroupThresholds, Load, group_loads
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.fabric.wording import number, rounded_percent

CAUSE = Cause(
    name="oversubscription",
    title="Oversubscription",
    meaning="a whole ECMP group is full: its hosts send more than its links can carry",
    severity=WARNING,
    picture="link_group",
    advice=(
        "No hash can help: place the job under fewer leaves, or add uplinks; check that no uplink"
        " is down."
    ),
    tables=("ecmp_groups",),
    traits=(Trait.NEEDS_TRAFFIC, Trait.MAKES_PAUSE, Trait.FULL_GROUP, Trait.HAS_SENDERS),
)

_MORE = 1.05
"""Line rates below a group over those of the group, above which it can be offered too much: five
per cent is what a difference of port speeds by their line coding can make."""


def oversubscription(inputs: DetectorInput, t: EcmpGroupThresholds) -> Iterator[Condition]:
    """One condition for each group of which no link has room."""
    for load in group_loads(inputs, t):
        if load.group.is_inward or load.lost >= t.lost_min or load.is_lone:
            continue
        ratio = _below_to_above(inputs, load)
        more, full = ratio > _MORE, load.mean >= t.hot_util
        if (load.queue and (more or full)) or (more and full):
            yield _condition(load, ratio)


def _below_to_above(inputs: DetectorInput, load: Load) -> float:
    """The line rates that feed a group over those of the group; 0 when they are not known."""
    rates = inputs.snapshot.line_rate_bps
    above = float(np.nansum(rates[load.group.rows]))
    return float(np.nansum(rates[load.group.edges])) / above if above > 0 else 0.0


def _condition(load: Load, ratio: float) -> Condition:
    node = load.group.node
    slowed_by = {"marks": "CNPs", "pause": "pause", "": "not observable"}[load.queue]
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=f"{node}/uplinks",
        rows=tuple(int(row) for row in load.group.rows[np.argsort(-np.nan_to_num(load.level))]),
        text=(
            f"all {load.links} uplinks of {node} are full: {rounded_percent(load.mean)} of line"
            f" rate on average; the ports below can send {number(ratio, 2)} times as much"
        ),
        evidence=(
            Evidence("group mean", round(load.mean * 100, 1), "%"),
            Evidence("group links", load.links, "links"),
            Evidence("capacity below to above", round(ratio, 2)),
            Evidence("senders are slowed by", slowed_by),
        ),
        advice=CAUSE.advice,
        confidence=0.9 if load.queue else 0.8,
        lost=max(0.0, 1.0 - 1.0 / ratio) if ratio > 1 else 0.0,
        unseen="" if load.queue else "whether any sender is slowed by it",
        unless=() if load.is_full else (Trait.MAKES_QUEUES,),
    )
