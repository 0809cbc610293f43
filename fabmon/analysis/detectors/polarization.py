"""Many flows use few links of a group: the switch's hash distinguishes far fewer flows.

The probability that so many flows, hashed independently, use so few links can be computed. Where it
is tiny, the flows were not hashed independently: they have one UDP source port for all queue pairs,
or two tiers use the same hash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput, without_nan
from fabmon.analysis.evidence.null_model import occupied_at_most
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.model import causes
from fabmon.analysis.model.bottlenecks import BY_LOAD, Bottleneck, BottleneckModel, Place
from fabmon.analysis.model.crossing import take_part
from fabmon.analysis.model.ends import sent_and_received
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
        "At most half of the uplinks of a leaf, of model.min_links or more, carry"
        " model.most_traffic of what goes up, and random hashing of as many flows, at least"
        " model.min_flows, uses as few with a probability below model.chance: of the flows that"
        " are sent while a link is full, or of those of the last ten ticks, if these used as few."
        " The flows are the fewest senders, the biggest first, that could have sent what the group"
        " carries; one that reports queue pairs counts as half of those to the peer with the"
        " fewest. One of the links holds NICs as in an ECMP collision, or has had no room"
        " (model.no_room) for model.window seconds while one flow of each sender excludes chance."
        " The latter does not count for several links that are evenly loaded beside others that"
        " carry nothing, which may be out of service."
    ),
    inputs="As for an ECMP collision; queue pairs of the hosts, where they report them",
    not_observable=(
        "Which header fields the switch hashes, and which queue pairs carry traffic. Uplinks that"
        " are drained or have no route, which the advice names where they carry nothing."
        " InfiniBand, which does not hash"
    ),
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

_SPORTS = 1 << 16
"""UDP source ports are below this."""


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
        if each.group is None or each.group.is_inward or each.util.min() < t.no_room:
            continue
        found = Bottleneck(
            place=Place.LINK,
            link=replace(each, sharers=each.sharers[:0], rates=each.rates[:0]),
            lost=0.0,
            is_upper_bound=False,
            named=each.sharers[:0],
            flows=0,
            slowed_by="",
            lasted_ticks=len(each.util),
            peak_util=float(each.util.max()),
            confidence=BY_LOAD,
            ticks=len(each.util),
        )
        used, unused = _used_and_unused(found.level, t)
        is_even = len(used) > 1 and used.min() > t.as_busy * used.max()
        is_in_service = not is_even or unused.max(initial=0.0) > t.nothing
        if is_in_service and _is_improbable(found.level, _flows(inputs, found, t).senders, t):
            yield found


def is_polarized(inputs: DetectorInput, found: Bottleneck, t: ModelThresholds) -> bool:
    """Whether random hashing does not explain how few links the flows of a link's group use.

    Only of a leaf's uplinks, and where it hashes: forwarding tables may send many flows over few
    links.
    """
    group = found.group
    if group.is_inward or not group.is_leaf or not group.routing.may_hash:
        return False
    full = _level_when_full(inputs, found, t)
    used, unused = _used_and_unused(full, t)
    most = max(len(used), len(_used_and_unused(found.level, t)[0]))
    if len(used) + len(unused) < t.min_links or 2 * most > len(used) + len(unused):
        return False
    flows = _flows(inputs, found, t)
    # Those that wait for the others send nothing while a link is full.
    now = sent_and_received(inputs, group.ends, _ticks_since_full(found, t))[0][:, 0]
    senders = min(flows.senders, int(take_part(now, t).sum()))
    if _carry_most(full, t) and _is_improbable(full, senders, t):
        return True
    # A flow that lost packets pauses in that tick, and what answers other traffic may use the other
    # links then. Most queue pairs may be silent, and those of another job may have used other links
    # before.
    some = flows.least * senders // (2 * max(flows.senders, 1))
    many = max(flows.senders, some)
    lately = _level(inputs, found, without_nan(inputs.leaving(group.rows, TICKS)).mean(axis=1))
    are_few = _is_improbable(full, many, t) and _is_improbable(lately, many, t)
    return are_few and _carry_most(lately, t)


def _level_when_full(inputs: DetectorInput, found: Bottleneck, t: ModelThresholds) -> Floats:
    """[links of the group] utilisation in the last tick in which a link of it was full, NaN of
    those that are down: a mean over its begin or end counts links that are used before or after."""
    since = inputs.leaving(found.group.rows, _ticks_since_full(found, t))
    return _level(inputs, found, without_nan(since[:, 0]))


def _level(inputs: DetectorInput, found: Bottleneck, bps: Floats) -> Floats:
    """[links of the group] utilisation of links that carry `bps`, NaN of those that are down."""
    rows = found.group.rows
    lines = np.append(inputs.snapshot.line_rate_bps, np.float32(np.nan))
    line = np.fmax(lines[rows], lines[inputs.structure.peer[rows]])
    level = np.where(np.isfinite(found.level), np.nan_to_num(bps / line), np.nan)
    return level.astype(np.float32, copy=False)


def _ticks_since_full(found: Bottleneck, t: ModelThresholds) -> int:
    """The ticks since a link was as full as it ever was, that one included."""
    util = found.link.util
    return int(np.argmax(util[::-1] >= t.nearly * util.max())) + 1


def _used_and_unused(level: Floats, t: ModelThresholds) -> tuple[Floats, Floats]:
    """The utilisation of the links of a group that are up, of those that carry a notable part of
    its traffic and of the others."""
    up = level[np.isfinite(level)]
    is_used = up > t.some * up.max(initial=0)
    return up[is_used], up[~is_used]


def _carry_most(level: Floats, t: ModelThresholds) -> bool:
    """Whether the used links of a group carry nearly all of its traffic."""
    used, unused = _used_and_unused(level, t)
    return bool(used.sum() >= t.most_traffic * (used.sum() + unused.sum()))


def _is_improbable(level: Floats, flows: int, t: ModelThresholds) -> bool:
    """Whether so many flows, hashed at random, hardly ever use so few links of a group."""
    return flows >= t.min_flows and _probability(level, flows, t) < t.chance


def _probability(level: Floats, flows: int, t: ModelThresholds) -> float:
    """That so many flows, hashed at random, use so few links of a group."""
    used, unused = _used_and_unused(level, t)
    return occupied_at_most(len(used), flows, len(used) + len(unused))


@dataclass(frozen=True, slots=True)
class _Flows:
    """The flows in a group: `senders` with one each, `least` so many where enough of their queue
    pairs carry traffic. `which` are the queue pairs that may be in it, places in the flow table."""

    senders: int
    least: int
    which: Rows

    @property
    def queue_pairs(self) -> int:
        """The number of queue pairs that may be in the group, idle ones among them."""
        return len(self.which)


@dataclass(frozen=True, slots=True)
class _SourcePorts:
    """The hash has `sports` UDP source ports of so many `queue_pairs`, and can distinguish
    `distinct` of them: by NICs and ports. 0 where this is not known."""

    queue_pairs: int
    sports: int = 0
    distinct: int = 0

    are_many: bool = False

    @property
    def has_one_sport(self) -> bool:
        """Whether the hash has one UDP source port for all queue pairs, and these are many."""
        return self.sports == 1 and self.are_many


def _source_ports(inputs: DetectorInput, flows: _Flows, t: ModelThresholds) -> _SourcePorts:
    table, which = inputs.snapshot.connections.flows_if_quick, flows.which
    if not table or not (table.sport[which] > 0).all():
        return _SourcePorts(len(which))
    pair = table.src[which] * len(inputs.snapshot.fabric.ports) + table.dst[which]
    distinct = len(np.unique(pair * _SPORTS + table.sport[which]))
    are_many = len(which) >= t.min_flows
    return _SourcePorts(len(which), table.distinct_sports(which), distinct, are_many)


def _flows(inputs: DetectorInput, found: Bottleneck, t: ModelThresholds) -> _Flows:
    """The flows in a link's group, computed once a tick."""
    computed = inputs.once(_computed)
    key = id(found.group)
    if key not in computed:
        computed[key] = _flows_of(inputs, found, t)
    return computed[key]


def _computed(inputs: DetectorInput) -> dict[int, _Flows]:
    """By identity of a group; empty at first."""
    return {}


def _flows_of(inputs: DetectorInput, found: Bottleneck, t: ModelThresholds) -> _Flows:
    """The least number of flows in a group: those of as few NICs below it as could have sent what
    it carries and what its switch drops, the biggest first, since the smaller ones may send within
    their leaf.

    A NIC has one flow; where it reports queue pairs, half of the fewest that it has to one NIC
    elsewhere. Connections to some NICs may be idle, and half of those to one may only acknowledge.
    """
    node, nics = inputs.structure.node, found.group.ends
    own = np.flatnonzero(node == node[found.row])
    sent = sent_and_received(inputs, nics, TICKS)[0].sum(axis=1)
    carried, enters, leaves = (
        float(np.nan_to_num(of(rows, TICKS)).sum())
        for of, rows in (
            (inputs.leaving, found.group.rows),
            (inputs.entering, own),
            (inputs.leaving, own),
        )
    )
    senders = take_part(sent, t)
    sent_bps = t.most_traffic * (carried + max(enters - leaves, 0.0))
    least = int(np.searchsorted(np.cumsum(np.sort(sent)[::-1]), sent_bps)) + 1
    least, nics = min(least, int(senders.sum())), nics[senders]
    snapshot = inputs.snapshot
    table = snapshot.connections.flows_if_quick
    may = possible_ends(snapshot.connections, found.row, "tx") if table else None
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


def _advice(flows: _SourcePorts) -> str:
    """What to do: at the senders where their queue pairs have one UDP source port, at the switch
    where they have many."""
    if flows.has_one_sport:
        return (
            f"All {flows.queue_pairs} queue pairs have one UDP source port, as of NVSHMEM or old"
            " drivers: give each a source port or flow label of its own, or use E-ECMP on the queue"
            " pair."
        )
    if flows.distinct and 2 * flows.distinct >= flows.queue_pairs:
        return (
            f"The {flows.queue_pairs} queue pairs have {flows.sports} UDP source ports, so the"
            " senders are not the reason: check that the switch hashes the source port, and give"
            " the tiers different hash seeds, or use E-ECMP on the queue pair."
        )
    return CAUSE.advice


def _in_service(level: Floats, t: ModelThresholds) -> str:
    """Why the unused links may carry nothing at all: a hash leaves them some small flows."""
    if _used_and_unused(level, t)[1].max(initial=0.0) > t.nothing:
        return ""
    return " Or the unused uplinks are drained, or have no route."


def _condition(inputs: DetectorInput, found: Bottleneck, t: ModelThresholds) -> Condition:
    is_known = causes.is_loss_known(found, t)
    node, rows = found.group.node, found.group.rows
    level = _level_when_full(inputs, found, t)
    order = rows[np.argsort(-np.nan_to_num(level), kind="stable")]
    known = _flows(inputs, found, t)
    ports = _source_ports(inputs, known, t)
    flows = known.least
    # Else it depends on how many of the queue pairs carry traffic.
    is_sure = _is_improbable(level, known.senders, t)
    odds = _odds(_probability(level, flows, t))
    count = len(_used_and_unused(level, t)[0])
    used = [inputs.structure.fabric.ports[row].label for row in order[:count].tolist()]
    used.sort(key=natural)
    lose = f" and lose {causes.loss(found)}"
    if not is_known:
        lose = f", uneven by {rounded_percent(found.imbalance)}, and what they lose is not known"
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity if is_known and is_sure else WARNING,
        subject=f"{node}/uplinks",
        rows=tuple(order.tolist()),
        text=(
            f"{f'{flows} or more flows' if is_sure else f'up to {known.queue_pairs} queue pairs'}"
            f" of {node} use {count} of {found.links} uplinks ({', '.join(used)}){lose}"
            f" (chance{'' if is_sure else f' if {flows} of them send'}: {odds})"
            f"{'; all queue pairs have one UDP source port' if ports.has_one_sport else ''}"
        ),
        evidence=(
            Evidence("flows, at least", flows, "flows"),
            Evidence("links used", count, f"of {found.links}"),
            Evidence("chance", odds),
            Evidence("group links", found.links, "links"),
            *causes.hashing(inputs.snapshot, found, flows),
            *causes.loss_evidence(found, is_known),
            *causes.time_evidence(found, inputs.snapshot.interval_s),
            causes.queue_evidence(found),
            causes.routing_evidence(found.group.routing),
        ),
        advice=f"{_advice(ports)}{_in_service(level, t)}",
        confidence=found.confidence if is_sure else BY_LOAD,
        lost=round(found.lost, 3) if is_known else 0.0,
        lost_is_upper_bound=is_known and found.is_upper_bound,
        unseen="" if is_known else "which ports share the links, and what they lose",
    )


def _odds(probability: float) -> str:
    """`1 in 12,345`."""
    is_bound = probability < _NEVER
    return f"{'under ' if is_bound else ''}1 in {round(1 / max(probability, _NEVER)):,}"
