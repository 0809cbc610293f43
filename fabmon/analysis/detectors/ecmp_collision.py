"""A link is full while other links of its ECMP group have room, and slows the flows on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.flows_on_link import effective_flows_on_link
from fabmon.analysis.evidence.full_link import (
    LINK_UTIL,
    EcmpGroupThresholds,
    FullLink,
    loss_evidence,
    routing_evidence,
)
from fabmon.analysis.evidence.group_load import group_loads
from fabmon.analysis.evidence.null_model import hashing_evidence
from fabmon.analysis.evidence.queue_signals import QueueThresholds
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence, Trait
from fabmon.fabric.names import natural
from fabmon.fabric.routing_mode import (
    ADAPTIVE,
    HASHED,
    STATIC,
    Routing,
    hot_link_advice,
)
from fabmon.fabric.wording import name_list, rounded_percent

CAUSE = Cause(
    name="ecmp_collision",
    title="ECMP collision",
    meaning="a link is full while others of its group have room, and slows the flows on it",
    severity=WARNING,
    picture="link_group",
    advice=hot_link_advice(Routing(HASHED)),
    tables=("ecmp_groups", "queue"),
    traits=(
        Trait.NEEDS_TRAFFIC,
        Trait.OF_HASHING,
        Trait.FULL_LINK_OF_GROUP,
        Trait.HAS_SENDERS,
    ),
)

_CRITICAL_LOST = 0.55
"""Lost bandwidth, 0 to 1, from which on a collision is critical: more than two flows at line rate
share a link, and the job takes more than twice as long."""

_IDLE_UTIL = 0.02
"""Share of line rate, 0 to 1, below which a link of the group is named as idle."""

_MAX_IDLE_NAMED = 4
"""Idle links named in the sentence."""

_MAX_PAIRS_IN_TEXT, _MAX_PAIRS = 2, 6
"""Pairs of NICs named in the sentence, and in the evidence."""

IMPOSSIBLE_UTIL = 1.05
"""Share of line rate above which the line rate must be wrong: counters are read up to a few per
cent earlier or later than a second apart."""

_FULL, _INFERRED, _UNKNOWN, _QUEUE = 0.85, 0.8, 0.5, 0.11
"""Confidence, 0 to 1: of a full link whose feeders are slowed, of one that is inferred from their
queue, of one whose feeders are not known, and how much a queue at the hosts adds to it."""

_ADVICE_UNKNOWN = (
    "A single flow at its sender's line rate may fill this link, which is no fault. Watch all ports"
    " of {node}, or its hosts, to see which ports share it and what they lose."
)
"""Advice where it is not known which ports share the link: more flows or another route may change
nothing."""


def ecmp_collisions(
    inputs: DetectorInput,
    t: EcmpGroupThresholds,
    queue: QueueThresholds,
    is_polarized: Callable[[DetectorInput, FullLink], bool],
) -> Iterator[Condition]:
    """One condition for each full link that slows its flows while its group has room.

    Links for which `is_polarized` is true are left to the detector of polarization. A link has a
    group for each set of destinations; the group that loses most is reported.
    """
    worst: dict[int, FullLink] = {}
    for link in group_loads(inputs, t, queue).links:
        before = worst.get(link.row)
        is_worse = before is None or before.severity_order < link.severity_order
        if is_worse and not is_polarized(inputs, link):
            worst[link.row] = link
    for link in worst.values():
        yield _condition(inputs, link)


def _condition(inputs: DetectorInput, link: FullLink) -> Condition:
    structure, level, group, row = inputs.structure, link.level, link.group, link.row
    ports = structure.fabric.ports
    idle = [
        structure.label(each) if group.is_inward else ports[each].label
        for each, util in zip(group.rows.tolist(), level, strict=True)
        if util < _IDLE_UTIL
    ]
    idle.sort(key=natural)
    peer = int(structure.peer[row])
    towards = f" to {ports[peer].node}" if peer >= 0 else ""
    links = (
        f"the {link.links} links into {group.node}"
        if group.is_inward
        else f"the {link.links} links of its group"
    )
    is_wrong = float(np.nanmax(level)) > IMPOSSIBLE_UTIL
    pairs, are_of_named = _pairs(inputs, link)
    slowed_ports: tuple[Evidence, ...] = ()
    if link.is_loss_known:
        does = "receive" if link.slows_receivers else "send"
        of = f"of {link.active} that {does}"
        slowed_ports = (Evidence("slowed ports", len(link.feeders), of),)
    sure = _INFERRED if link.is_inferred else _FULL if link.is_loss_known else _UNKNOWN
    confidence = sure + (_QUEUE if link.slowed_by else 0)
    is_critical = link.lost >= _CRITICAL_LOST and not link.is_upper_bound
    in_bursts = f" in bursts, {rounded_percent(link.busy)} of the time," if link.busy < 1 else ""
    return Condition(
        cause=CAUSE.name,
        severity=CRITICAL if is_critical else CAUSE.severity,
        subject=ports[row].id,
        rows=(row, *(int(each) for each in group.rows if each != row)),
        text=(
            f"{structure.label(row)}{towards} sends at {rounded_percent(link.util)} of line rate"
            f"{in_bursts} while {links} average {rounded_percent(link.mean)}: {_loss(link)}"
            f"{f' ({name_list(pairs, _MAX_PAIRS_IN_TEXT)})' if are_of_named else ''}"
            f"{f'; idle: {name_list(idle, _MAX_IDLE_NAMED)}' if idle else ''}"
            f"{_by_routing(group.routing)}"
            f"{'; above 100 % is impossible: its line rate is wrong' if is_wrong else ''}"
        ),
        evidence=(
            Evidence(LINK_UTIL, round(link.util * 100, 1), "%"),
            Evidence("group mean", round(link.mean * 100, 1), "%"),
            *loss_evidence(link),
            *slowed_ports,
            Evidence("group links", link.links, "links"),
            Evidence("idle links", len(idle), "links"),
            Evidence("time full", round(link.full_ticks * inputs.snapshot.interval_s, 1), "s"),
            *_hashing(inputs, link),
            Evidence("queue", link.slowed_by or "not seen at the hosts"),
            *([Evidence("pairs on the link", name_list(pairs, _MAX_PAIRS))] if pairs else []),
            routing_evidence(group.routing),
        ),
        advice=(
            hot_link_advice(group.routing)
            if link.is_loss_known
            else _ADVICE_UNKNOWN.format(node=group.node)
        ),
        confidence=round(confidence, 2),
        lost=round(link.lost, 3),
        lost_is_upper_bound=link.is_upper_bound,
        victims=tuple(ports[each].id for each in link.named.tolist()),
        unseen=_unseen(link),
    )


def _pairs(inputs: DetectorInput, link: FullLink) -> tuple[list[str], bool]:
    """`gpu001 r0 to gpu005 r0`: the connections over a full link that forwarding tables and queue
    pairs show exactly; whether they are those of the ports that are named, which all have some."""
    known = inputs.snapshot.connections.known_on_link(link.row)
    if known is None or not known.are_connections:
        return [], False
    structure = inputs.structure
    named = structure.peer[link.named]
    ends = known.dst if link.slows_receivers else known.src
    are_of_named = len(named) > 0 and bool(np.isin(named, ends).all())
    shown = np.isin(ends, named) | (not are_of_named)
    pairs = zip(known.src[shown].tolist(), known.dst[shown].tolist(), strict=True)
    return [f"{structure.label(src)} to {structure.label(dst)}" for src, dst in pairs], are_of_named


def _hashing(inputs: DetectorInput, link: FullLink) -> tuple[Evidence, ...]:
    """Evidence: the group beside random hashing; none where no hash selects its links."""
    if not link.group.routing.may_hash:
        return ()
    flows = round(min(link.effective_flows, 1e6))
    seen, usual = hashing_evidence(link.util / link.mean, flows, link.links)
    return seen, *effective_flows_on_link(inputs.snapshot, link.row, flows), usual


def _loss(link: FullLink) -> str:
    if not link.is_loss_known:
        return f"uneven by {rounded_percent(link.imbalance)}, and it is not known who shares it"
    lost = f"{'up to ' if link.is_upper_bound else ''}{rounded_percent(link.lost)}"
    if not len(link.named):
        return f"ports that share it, or wait for those that do, lose {lost}"
    return f"{len(link.named)} ports that share it lose {lost}"


def _unseen(link: FullLink) -> str:
    """What is not visible of a full link, in words."""
    queue = "" if link.slowed_by else "a queue at the hosts that share it"
    sharers = "" if len(link.named) else "which ports share it"
    if not link.is_loss_known:
        sharers = "which ports share it, and what they lose"
    how_long = "for how much of each second it is full" if link.is_upper_bound else ""
    return "; ".join(filter(None, (queue, sharers, how_long)))


def _by_routing(routing: Routing) -> str:
    """What is unusual about a full link where no hash selects links."""
    if routing.mode == STATIC:
        return "; forwarding tables, not a hash, put this traffic on it"
    if routing.mode == ADAPTIVE:
        return "; packets should be spread over all links: a hash is not the reason"
    return ""
