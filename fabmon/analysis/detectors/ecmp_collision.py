"""A link is full while other links of its ECMP group have room, and slows the flows on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import NONE, Rows
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence, OtherTitle, Trait
from fabmon.analysis.model import causes
from fabmon.analysis.model.bottlenecks import Bottleneck, BottleneckModel, Place
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.names import natural
from fabmon.fabric.routing_mode import ADAPTIVE, HASHED, STATIC, Routing, hot_link_advice
from fabmon.fabric.snapshot import MOST_OF_LINE_RATE
from fabmon.fabric.wording import name_list, rounded_percent

CAUSE = Cause(
    name="ecmp_collision",
    title="ECMP collision",
    meaning="a link is full while others of its group have room, and slows the flows on it",
    severity=WARNING,
    other_severity="critical from model.critical_lost on, where that is not an upper bound",
    rule=(
        "A link between switches is busier by model.apart than the NICs that share it, which lose"
        " as much, while the others of its group are on average less than model.nearly as busy."
        " Evidence adds up tick by tick to model.flags: how busy the link is, and what its own"
        " queue (marks, drops, bytes that vanish in its switch), its NICs and the ports before it"
        " (CNPs, marks, waiting) show. A link whose traffic is that of one NIC or of one other"
        " link, or may be that of a full one while it has room (model.nearly), is none unless its"
        " own queue shows one and it does not wait; nor is one whose NICs share a busier link"
        " or take turns, or that shows no queue though its switch counts marks or its NICs CNPs,"
        " or though it is never full (model.full_util)."
    ),
    inputs=(
        "Byte counters of the switch and of the NICs below it, or of its ports towards them; where"
        " counted, marks and drops of switches, and CNPs, marks, pause and waiting for credits of"
        " NICs"
    ),
    not_observable=(
        "Links whose NICs, and the ports towards them, are not watched. Where nothing shows a"
        " queue: links that are full for less than a second at a time, which of several equally"
        " fast NICs share one, and whether a sender has more to send"
    ),
    confidence=0.85,
    picture="link_group",
    advice=hot_link_advice(Routing(HASHED)),
    tables=("model",),
    traits=(Trait.NEEDS_TRAFFIC, Trait.OF_HASHING, Trait.FULL_LINK_OF_GROUP, Trait.HAS_SENDERS),
    other_title=OtherTitle("Overloaded link", of_credits=False),
)

_BY_ROUTING = {
    STATIC: "; forwarding tables, not a hash, put this traffic on it",
    ADAPTIVE: "; packets should be spread over all links: a hash is not the reason",
}
"""What is unusual about a full link where no hash selects links."""


def ecmp_collisions(
    inputs: DetectorInput,
    model: BottleneckModel,
    polarized_use: Callable[[DetectorInput, Bottleneck, ModelThresholds], object | None],
) -> Iterator[Condition]:
    """One condition for each link that holds flows while its group has room.

    Links of groups with a `polarized_use` are left to the detector of polarization. A link may have
    a group for each set of destinations; the group that loses most is reported.
    """
    done: set[int] = set()
    shared = np.array([each.row for each in model.bottlenecks(inputs)], np.intp)
    for found in model.bottlenecks(inputs):
        is_link = found.place is Place.LINK and found.row not in done
        if is_link and polarized_use(inputs, found, model.t) is None:
            done.add(found.row)
            yield _condition(inputs, found, shared, model.t)


def _condition(
    inputs: DetectorInput, found: Bottleneck, shared: Rows, t: ModelThresholds
) -> Condition:
    structure, group, row = inputs.structure, found.group, found.row
    ports = structure.fabric.ports
    idle = [
        structure.label(each) if group.is_inward else ports[each].label
        for each in group.rows[found.link.level < t.busy].tolist()
    ]
    idle.sort(key=natural)
    peer = int(structure.peer[row])
    towards = f" to {ports[peer].node}" if peer != NONE else ""
    links = f"links into {group.node}" if group.is_inward else "links of its group"
    is_wrong = float(np.nanmax(found.link.level)) > MOST_OF_LINE_RATE
    pairs, are_of_named = _pairs(inputs, found)
    who = f" ({name_list(pairs)})" if are_of_named else causes.names(structure, found)
    does = "receive" if group.is_inward else "send"
    is_critical = found.lost >= t.critical_lost and not found.is_upper_bound
    return CAUSE.condition(
        severity=CRITICAL if is_critical else "",
        subject=ports[row].id,
        rows=(row, *group.rows.tolist()),
        text=(
            f"{structure.label(row)}{towards} sends at"
            f" {causes.utilisation(inputs.snapshot, found, t)} while the {found.links} {links}"
            f" average {rounded_percent(found.group_busy)}: {causes.how_many(found)} share it{who}"
            f" and lose {causes.loss(found)}"
            f"{f'; idle: {name_list(idle)}' if idle else ''}"
            f"{_BY_ROUTING.get(group.routing.mode, '')}"
            f"{'; above 100 % is impossible: its line rate is wrong' if is_wrong else ''}"
        ),
        evidence=(
            Evidence.percent("link util", found.busy),
            Evidence.percent("group mean", found.group_busy),
            Evidence(
                "slowed ports", causes.sharers(found), f"of {causes.may_share(found)} that {does}"
            ),
            Evidence("group links", found.links, "links"),
            Evidence("idle links", len(idle), "links"),
            *causes.hashing(inputs.snapshot, found),
            *([Evidence("pairs on the link", name_list(pairs))] if pairs else []),
            *causes.evidence(inputs, found),
        ),
        advice=hot_link_advice(group.routing),
        lost=found.lost,
        lost_is_upper_bound=found.is_upper_bound,
        victims=causes.victims(structure, found.named),
        unseen=causes.unseen(found, "" if pairs else causes.as_full(structure, found, shared, t)),
    )


def _pairs(inputs: DetectorInput, found: Bottleneck) -> tuple[list[str], bool]:
    """`gpu001 r0 to gpu005 r0`: the connections over a full link that forwarding tables and queue
    pairs show exactly; whether they are those of the NICs that are named, which all have some."""
    known = inputs.snapshot.connections.known_on_link(found.row)
    if known is None or not known.are_connections:
        return [], False
    structure, named = inputs.structure, found.named
    ends = known.dst if found.group.is_inward else known.src
    are_of_named = len(named) > 0 and bool(np.isin(named, ends).all())
    shown = np.isin(ends, named) | (not are_of_named)
    pairs = zip(known.src[shown].tolist(), known.dst[shown].tolist(), strict=True)
    return [f"{structure.label(src)} to {structure.label(dst)}" for src, dst in pairs], are_of_named
