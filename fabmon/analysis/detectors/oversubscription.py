"""A whole ECMP group is full while its hosts are slowed: they send more than its links carry."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.model import causes
from fabmon.analysis.model.bottlenecks import Bottleneck, BottleneckModel, Place
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.wording import number, rounded_percent

CAUSE = Cause(
    name="oversubscription",
    title="Oversubscription",
    meaning="a whole ECMP group is full: its hosts send more than its links can carry",
    severity=WARNING,
    rule=(
        "A link holds NICs, as in an ECMP collision, but the others of its group are on average"
        " model.nearly as busy or more. NICs share at least half of the links, and lose"
        " model.apart of what they could send. A leaf with as many uplinks as hosts may be full:"
        " its hosts send all they can. A link of the group that is down or flaps explains it."
    ),
    inputs="As for an ECMP collision",
    not_observable="How much more the hosts would send",
    picture="link_group",
    advice=(
        "No hash or other routing can help: place the job under fewer leaves, or add uplinks; check"
        " that no uplink is down."
    ),
    tables=("model",),
    traits=(Trait.NEEDS_TRAFFIC, Trait.FULL_GROUP, Trait.HAS_SENDERS),
    family="group",
)


def oversubscription(inputs: DetectorInput, model: BottleneckModel) -> Iterator[Condition]:
    """One condition for each switch whose links, in one direction or both, are all full."""
    done: set[str] = set()
    for found in model.bottlenecks(inputs):
        if found.place is Place.GROUP and found.group.node not in done:
            done.add(found.group.node)
            yield _condition(inputs, found, model.t)


def _condition(inputs: DetectorInput, found: Bottleneck, t: ModelThresholds) -> Condition:
    structure, group = inputs.structure, found.group
    which = f"links into {group.node}" if group.is_inward else f"uplinks of {group.node}"
    window, in_bursts = causes.window(inputs.snapshot, found), ""
    if causes.is_in_bursts(found, t):
        in_bursts = f" in bursts, {rounded_percent(found.busy / found.peak_util)} of {window}"
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=f"{group.node}/uplinks",
        rows=tuple(group.rows[np.argsort(-np.nan_to_num(found.level), kind="stable")].tolist()),
        text=(
            f"all {found.links} {which} are full{in_bursts}:"
            f" {rounded_percent(found.group_busy)} of line rate over {window};"
            f" {len(found.link.sharers)} ports below lose {causes.loss(found)}"
        ),
        evidence=(
            Evidence("group mean", round(found.group_busy * 100, 1), "%"),
            Evidence("group links", found.links, "links"),
            Evidence("capacity below to above", number(_below_to_above(inputs, found), 2)),
            causes.lost_evidence(found),
            Evidence("slowed ports", len(found.link.sharers), "ports"),
            *causes.time_evidence(found, inputs.snapshot.interval_s),
            causes.queue_evidence(found),
            causes.routing_evidence(group.routing),
        ),
        advice=CAUSE.advice,
        confidence=found.confidence,
        lost=round(found.lost, 3),
        lost_is_upper_bound=found.is_upper_bound,
        victims=causes.victims(structure, found.link.sharers),
        unseen="" if found.slowed_by else "a queue at the hosts that share it",
    )


def _below_to_above(inputs: DetectorInput, found: Bottleneck) -> float:
    """The line rate of the NICs below a group over that of its links that are up."""
    lines = np.append(inputs.snapshot.line_rate_bps, np.float32(np.nan))
    up = found.group.rows[np.isfinite(found.level)]
    above = float(np.nansum(np.fmax(lines[up], lines[inputs.structure.peer[up]])))
    return float(np.nansum(lines[found.group.ends])) / above if above > 0 else 0.0
