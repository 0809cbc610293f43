"""Many flows use few links of a group: the switch's hash distinguishes far fewer flows.

The probability that so many flows, hashed independently, use so few links can be computed. Where it
is tiny, the flows were not hashed independently: they have one UDP source port for all queue pairs,
or two tiers use the same hash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput, without_nan
from fabmon.analysis.evidence.null_model import occupied_at_most
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.model import causes
from fabmon.analysis.model.bottlenecks import Bottleneck, BottleneckModel, Place
from fabmon.analysis.model.ends import sent_and_received, take_part
from fabmon.analysis.model.shared_links import SharedLinks
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.flows.possible_ends import possible_ends
from fabmon.fabric.names import natural
from fabmon.fabric.port_arrays import NONE
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.topology.leaves import Rows
from fabmon.fabric.wording import rounded_percent

CAUSE = Cause(
    name="polarization",
    title="Polarization",
    meaning="many flows use few links of a group: the hash of the switch sees few differences",
    severity=CRITICAL,
    other_severity=(
        "warning where it is not known who shares the links, or where only queue pairs exclude"
        " chance"
    ),
    rule=(
        "At most half of the uplinks of a leaf carry more than model.some of what the fullest one"
        " does, and random hashing of as many flows uses as few with a probability below"
        " model.chance. The flows are the fewest senders, the biggest first, that could have sent"
        " what the group carries, one for each; where they report queue pairs, a quarter of those"
        " to the peer with the fewest. One of the links holds NICs as in an ECMP collision, or has"
        " had no room (model.nearly) for model.window seconds while one flow of each sender"
        " excludes chance. The latter does not count for several links that are evenly loaded"
        " beside others that carry nothing, which may be out of service."
    ),
    inputs="As for an ECMP collision; queue pairs of the hosts, where they report them",
    not_observable=(
        "Which header fields the switch hashes, and which queue pairs carry traffic. Uplinks that"
        " are drained or have no route, which the advice names where they carry nothing."
        " InfiniBand, which does not hash"
    ),
    confidence=0.9,
    picture="link_group",
    advice=(
        "Look for one UDP source port for all queue pairs (NVSHMEM, old drivers); then give the"
        " tiers different hash seeds, or use E-ECMP on the queue pair."
    ),
    tables=("model",),
    traits=(Trait.NEEDS_TRAFFIC, Trait.OF_HASHING, Trait.FULL_GROUP, Trait.HAS_SENDERS),
    family="group",
)

_NEVER = 1e-6
"""Probability below which only a bound is printed: no model of hashing is exact so far out."""


def polarization(inputs: DetectorInput, model: BottleneckModel) -> Iterator[Condition]:
    """One condition for each switch whose flows use too few links, one of which is full, or has no
    room while it is certain that they use so few."""
    done: set[str] = set()
    for found in (*model.bottlenecks(inputs), *_without_room(inputs, model)):
        is_link = found.place is Place.LINK and found.group.node not in done
        if is_link and is_polarized(inputs, found, model.t):
            done.add(found.group.node)
            yield _condition(inputs, found, model.t)


def _without_room(inputs: DetectorInput, model: BottleneckModel) -> Iterator[Bottleneck]:
    """The links of groups of uplinks that have no room in any of the last ticks.

    Such a link may be full for nine tenths of every second, which no counter of TCP shows. So it is
    not known what its flows lose. Several links that are evenly loaded, beside others that carry
    nothing at all, may be all that are in service.
    """
    t = model.t
    for each in model.candidates(inputs):
        if each.group is None or each.group.is_inward or each.util.min() < t.nearly:
            continue
        found = Bottleneck(
            Place.LINK, each, lasted_ticks=len(each.util), peak_util=float(each.util.max())
        )
        used, unused = _used_and_unused(each.level, t)
        is_even = len(used) > 1 and used.min() > t.nearly * used.max()
        is_in_service = not is_even or unused.max(initial=0.0) > t.nothing
        senders = inputs.once(_flows, each.group, t).senders
        if is_in_service and _probability(each.level, senders, t) < t.chance:
            yield found


def is_polarized(inputs: DetectorInput, found: Bottleneck, t: ModelThresholds) -> bool:
    """Whether random hashing does not explain how few links the flows of a link's group use.

    Only of a leaf's uplinks, and where it hashes: forwarding tables may send many flows over few
    links.
    """
    group = found.group
    if group.is_inward or not group.is_leaf or not group.routing.may_hash:
        return False
    used, unused = _used_and_unused(found.link.level, t)
    flows = inputs.once(_flows, group, t)
    level, ticks = _level_when_full(inputs, found, t)
    now = int(take_part(sent_and_received(inputs, group.ends, ticks)[0][:, 0], t).sum())
    # Half of the queue pairs may be silent, and those of a sender that waits for the others are.
    many = max(flows.senders, flows.least * now // (2 * max(flows.senders, 1)))
    return len(used) <= len(unused) and _probability(level, many, t) < t.chance


def _level_when_full(
    inputs: DetectorInput, found: Bottleneck, t: ModelThresholds
) -> tuple[Floats, int]:
    """[links of the group] utilisation in the last tick in which a link of it was as full as it
    ever was, NaN of those that are down, and the ticks since, that one included: a mean counts
    links that are used before or after."""
    util, rows = found.link.util, found.group.rows
    ticks = int(np.argmax(util[::-1] >= t.nearly * util.max())) + 1
    level = without_nan(inputs.leaving(rows, ticks)[:, 0] / inputs.link_lines_bps(rows))
    return np.where(np.isfinite(found.link.level), level, np.float32(np.nan)), ticks


def _used_and_unused(level: Floats, t: ModelThresholds) -> tuple[Floats, Floats]:
    """The utilisation of the links of a group that are up, of those that carry a notable part of
    its traffic and of the others."""
    up = level[np.isfinite(level)]
    is_used = up > t.some * up.max(initial=0)
    return up[is_used], up[~is_used]


def _probability(level: Floats, flows: int, t: ModelThresholds) -> float:
    """That so many flows, hashed at random, use so few links of a group, 0 to 1."""
    used, unused = _used_and_unused(level, t)
    return occupied_at_most(len(used), flows, len(used) + len(unused))


@dataclass(frozen=True, slots=True)
class _Flows:
    """The flows in a group: `senders` with one each, `least` so many where enough of their queue
    pairs carry traffic. `which` are the queue pairs that may be in it, places in the flow table."""

    senders: int
    least: int
    which: Rows


def _flows(inputs: DetectorInput, group: SharedLinks, t: ModelThresholds) -> _Flows:
    """The least number of flows in a group: those of as few NICs below it as could have sent what
    it carries and what its switch drops, the biggest first, since the smaller ones may send within
    their leaf.

    A NIC has one flow; where it reports queue pairs, half of the fewest that it has to one NIC
    elsewhere. Connections to some NICs may be idle, and half of those to one may only acknowledge.
    """
    node, nics = inputs.structure.node, group.ends
    own = np.flatnonzero(node == node[group.rows[0]])
    sent = sent_and_received(inputs, nics, TICKS)[0].sum(axis=1)
    carried, enters, leaves = (
        float(np.nan_to_num(of(rows, TICKS)).sum())
        for of, rows in (
            (inputs.leaving, group.rows),
            (inputs.entering, own),
            (inputs.leaving, own),
        )
    )
    senders = take_part(sent, t)
    sent_bps = (1 - t.takes_part) * (carried + max(enters - leaves, 0.0))
    least = int(np.searchsorted(np.cumsum(np.sort(sent)[::-1]), sent_bps)) + 1
    least, nics = min(least, int(senders.sum())), nics[senders]
    snapshot = inputs.snapshot
    table = snapshot.connections.flows_if_quick
    may = possible_ends(snapshot.connections, int(group.rows[0]), "tx") if table else None
    if not table or may is None:
        return _Flows(least, least, np.empty(0, np.intp))
    over = may.src[table.src] & np.append(may.dst, False)[table.dst] & (table.dst != NONE)
    over &= np.isin(table.src, nics)
    ports = len(snapshot.fabric.ports)
    pairs, count = np.unique(table.src[over] * ports + table.dst[over], return_counts=True)
    fewest = np.full(ports, 1, np.intp)
    src, first = np.unique(pairs // ports, return_index=True)
    if len(src):
        fewest[src] = (np.minimum.reduceat(count, first) + 1) // 2
    return _Flows(least, int(np.sort(fewest[nics])[:least].sum()), np.flatnonzero(over))


def _source_ports(inputs: DetectorInput, which: Rows) -> tuple[int, int]:
    """The UDP source ports of some queue pairs, and the number of these that a hash of NICs and
    ports can distinguish; 0 where not known."""
    table = inputs.snapshot.connections.flows_if_quick
    if not table or not (table.sport[which] > 0).all():
        return 0, 0
    hashed = np.stack((table.src[which], table.dst[which], table.sport[which]))
    return table.distinct_sports(which), np.unique(hashed, axis=1).shape[1]


def _advice(pairs: int, sports: int, distinct: int) -> str:
    """What to do: at the senders where their queue pairs have one UDP source port, at the switch
    where they have many."""
    if sports == 1 < pairs:
        return (
            f"All {pairs} queue pairs have one UDP source port, as of NVSHMEM or old drivers: give"
            " each a source port or flow label of its own, or use E-ECMP on the queue pair."
        )
    if sports and 2 * distinct >= pairs:
        return (
            f"The {pairs} queue pairs have {sports} UDP source ports, so the senders are not"
            " the reason: check that the switch hashes the source port, and give the tiers"
            " different hash seeds, or use E-ECMP on the queue pair."
        )
    return CAUSE.advice


def _in_service(level: Floats, t: ModelThresholds) -> str:
    """Why the unused links may carry nothing at all: a hash leaves them some small flows."""
    if _used_and_unused(level, t)[1].max(initial=0.0) > t.nothing:
        return ""
    return " Or the unused uplinks are drained, or have no route."


def _condition(inputs: DetectorInput, found: Bottleneck, t: ModelThresholds) -> Condition:
    structure, node, level = (
        inputs.structure,
        found.group.node,
        _level_when_full(inputs, found, t)[0],
    )
    order = found.group.rows[np.argsort(-np.nan_to_num(level), kind="stable")]
    known = inputs.once(_flows, found.group, t)
    flows, pairs = known.least, len(known.which)
    sports, distinct = _source_ports(inputs, known.which)
    # Else it depends on how many of the queue pairs carry traffic.
    is_sure = _probability(level, known.senders, t) < t.chance
    odds = _odds(_probability(level, flows, t))
    count = len(_used_and_unused(level, t)[0])
    used = sorted((structure.fabric.ports[row].label for row in order[:count]), key=natural)
    lose = f" and lose {causes.loss(found)}"
    if not found.lost:
        lose = f", uneven by {rounded_percent(found.imbalance)}, and what they lose is not known"
    return CAUSE.condition(
        severity="" if found.lost and is_sure else WARNING,
        subject=f"{node}/uplinks",
        rows=order.tolist(),
        text=(
            f"{f'{flows} or more flows' if is_sure else f'up to {pairs} queue pairs'}"
            f" of {node} use {count} of {found.links} uplinks ({', '.join(used)}){lose}"
            f" (chance{'' if is_sure else f' if {flows} of them send'}: {odds})"
            f"{'; all queue pairs have one UDP source port' if sports == 1 < pairs else ''}"
        ),
        evidence=(
            Evidence("flows, at least", flows, "flows"),
            Evidence("links used", count, f"of {found.links}"),
            Evidence("chance", odds),
            Evidence("group links", found.links, "links"),
            *causes.hashing(inputs.snapshot, found, flows),
            *causes.evidence(inputs, found),
        ),
        advice=f"{_advice(pairs, sports, distinct)}{_in_service(level, t)}",
        lost=found.lost,
        lost_is_upper_bound=found.is_upper_bound,
        unseen="" if found.lost else "which ports share the links, and what they lose",
    )


def _odds(probability: float) -> str:
    """`1 in 12,345`."""
    is_bound = probability < _NEVER
    return f"{'under ' if is_bound else ''}1 in {round(1 / max(probability, _NEVER)):,}"
