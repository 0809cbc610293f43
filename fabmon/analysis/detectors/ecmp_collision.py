"""A link is full while other links of its ECMP group have room, and slows the flows on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
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
        "A link between switches is busier by model.apart than the NICs that share it, and they"
        " lose as much, while the others of its group are on average less than"
        " model.nearly as busy. Evidence adds up tick by tick until it reaches model.flags:"
        " how much busier and how full the link is, and what its own queue (marks, drops, bytes"
        " that vanish in its switch), its NICs and the ports before it (CNPs, marks, waiting) show."
        " A link whose traffic is that of one NIC or of one other link, or whose NICs share a"
        " busier one, is no collision unless its own queue shows one. Neither is a link on which"
        " the NICs take turns; nor one that shows no queue though its switch counts marks or its"
        " NICs CNPs, or though it is never full (model.full_util)."
    ),
    inputs=(
        "Byte counters of the switch and of the NICs below it, or of its ports towards them; where"
        " counted, marks and drops of switches, and CNPs, marks, pause and waiting for credits of"
        " NICs: the confidence is higher where they show a queue"
    ),
    not_observable=(
        "Links whose NICs, and the ports towards them, are not watched. Where nothing shows a"
        " queue: links that are full for less than a second at a time, which of several equally"
        " fast NICs share one, and whether a sender has more to send"
    ),
    picture="link_group",
    advice=hot_link_advice(Routing(HASHED)),
    tables=("model",),
    traits=(
        Trait.NEEDS_TRAFFIC,
        Trait.OF_HASHING,
        Trait.FULL_LINK_OF_GROUP,
        Trait.HAS_SENDERS,
    ),
    other_title=OtherTitle("Overloaded link", of_credits=False),
)

_ADVICE_UNKNOWN = (
    "A single flow at its sender's line rate may fill this link, which is no fault. Watch all ports"
    " of {node}, or its hosts, to see which ports share it and what they lose."
)
"""Advice where it is not known which ports share the link: more flows or another route may change
nothing."""


def ecmp_collisions(
    inputs: DetectorInput,
    model: BottleneckModel,
    is_polarized: Callable[[DetectorInput, Bottleneck, ModelThresholds], bool],
) -> Iterator[Condition]:
    """One condition for each link that holds flows while its group has room.

    Links for which `is_polarized` is true are left to the detector of polarization. A link may have
    a group for each set of destinations; the group that loses most is reported.
    """
    done: set[int] = set()
    for found in model.bottlenecks(inputs):
        is_link = found.place is Place.LINK and found.row not in done
        if is_link and not is_polarized(inputs, found, model.t):
            done.add(found.row)
            yield _condition(inputs, found, model.t)


def _condition(inputs: DetectorInput, found: Bottleneck, t: ModelThresholds) -> Condition:
    is_known = causes.is_loss_known(found, t)
    structure, group, row = inputs.structure, found.group, found.row
    ports = structure.fabric.ports
    idle = [
        structure.label(each) if group.is_inward else ports[each].label
        for each, util in zip(group.rows.tolist(), found.level, strict=True)
        if util < t.busy
    ]
    idle.sort(key=natural)
    peer = int(structure.peer[row])
    towards = f" to {ports[peer].node}" if peer >= 0 else ""
    links = (
        f"the {found.links} links into {group.node}"
        if group.is_inward
        else f"the {found.links} links of its group"
    )
    is_wrong = float(np.nanmax(found.level)) > MOST_OF_LINE_RATE
    pairs, are_of_named = _pairs(inputs, found)
    who = f" ({name_list(pairs)})" if are_of_named else ""
    who = who or causes.names(structure, found)
    does = "receive" if group.is_inward else "send"
    lost = f"{causes.how_many(found)} share it{who} and lose {causes.loss(found)}"
    if not is_known:
        uneven = rounded_percent(found.imbalance)
        lost = f"uneven by {uneven}, and it is not known who shares it"
    slowed = Evidence(
        "slowed ports", causes.sharers(found), f"of {causes.may_share(found)} that {does}"
    )
    is_critical = is_known and found.lost >= t.critical_lost and not found.is_upper_bound
    return Condition(
        cause=CAUSE.name,
        severity=CRITICAL if is_critical else CAUSE.severity,
        subject=ports[row].id,
        rows=(row, *(int(each) for each in group.rows if each != row)),
        text=(
            f"{structure.label(row)}{towards} sends at"
            f" {causes.utilisation(inputs.snapshot, found, t)} while {links} average"
            f" {rounded_percent(found.group_busy)}: {lost}"
            f"{f'; idle: {name_list(idle)}' if idle else ''}"
            f"{_by_routing(group.routing)}"
            f"{'; above 100 % is impossible: its line rate is wrong' if is_wrong else ''}"
        ),
        evidence=(
            Evidence(causes.LINK_UTIL, round(found.busy * 100, 1), "%"),
            Evidence("group mean", round(found.group_busy * 100, 1), "%"),
            *causes.loss_evidence(found, is_known),
            *([slowed] if is_known else []),
            Evidence("group links", found.links, "links"),
            Evidence("idle links", len(idle), "links"),
            *causes.time_evidence(found, inputs.snapshot.interval_s),
            *causes.hashing(inputs.snapshot, found),
            causes.queue_evidence(found),
            *([Evidence("pairs on the link", name_list(pairs))] if pairs else []),
            causes.routing_evidence(group.routing),
        ),
        advice=(
            hot_link_advice(group.routing) if is_known else _ADVICE_UNKNOWN.format(node=group.node)
        ),
        confidence=found.confidence,
        lost=round(found.lost, 3) if is_known else 0.0,
        lost_is_upper_bound=is_known and found.is_upper_bound,
        victims=causes.victims(structure, found.named),
        unseen=causes.unseen(found, "" if is_known else "what they lose"),
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


def _by_routing(routing: Routing) -> str:
    """What is unusual about a full link where no hash selects links."""
    if routing.mode == STATIC:
        return "; forwarding tables, not a hash, put this traffic on it"
    if routing.mode == ADAPTIVE:
        return "; packets should be spread over all links: a hash is not the reason"
    return ""
