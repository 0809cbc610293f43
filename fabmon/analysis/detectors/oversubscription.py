"""A whole ECMP group is full while its hosts are slowed: they send more than its links carry."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.model import causes
from fabmon.analysis.model.bottlenecks import Bottleneck, BottleneckModel, Place
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.wording import number

CAUSE = Cause(
    name="oversubscription",
    title="Oversubscription",
    meaning="a whole ECMP group is full: its hosts send more than its links can carry",
    severity=WARNING,
    rule=(
        "A link holds NICs, as in an ECMP collision, but the others of its group are on average"
        " model.nearly as busy or more. A leaf with as many uplinks as hosts may be full: its"
        " hosts send all they can. A link of the group that is down or flaps explains it, and it"
        " explains collisions on its links."
    ),
    inputs="As for an ECMP collision",
    not_observable="How much more the hosts would send",
    confidence=0.95,
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
    in_bursts = " in bursts" if causes.is_in_bursts(found, t) else ""
    return CAUSE.condition(
        subject=f"{group.node}/uplinks",
        rows=group.rows[np.argsort(-np.nan_to_num(found.link.level), kind="stable")].tolist(),
        text=(
            f"all {found.links} {which} are full{in_bursts}:"
            f" {causes.of_line_rate(inputs.snapshot, found, found.group_busy)};"
            f" {len(found.link.sharers)} ports below lose {causes.loss(found)}"
        ),
        evidence=(
            Evidence.percent("group mean", found.group_busy),
            Evidence("group links", found.links, "links"),
            Evidence("capacity below to above", number(_below_to_above(inputs, found), 2)),
            Evidence("slowed ports", len(found.link.sharers), "ports"),
            *causes.evidence(inputs, found),
        ),
        lost=found.lost,
        lost_is_upper_bound=found.is_upper_bound,
        victims=causes.victims(structure, found.link.sharers),
        unseen="" if found.slowed_by else "a queue at the hosts that share it",
    )


def _below_to_above(inputs: DetectorInput, found: Bottleneck) -> float:
    """The line rate of the NICs below a group over that of its links that are up."""
    up = found.group.rows[np.isfinite(found.link.level)]
    above = float(np.nansum(inputs.link_lines_bps(up)))
    below = float(np.nansum(inputs.snapshot.line_rate_bps[found.group.ends]))
    return below / above if above > 0 else 0.0
