"""Many flows use few links of a group: the switch's hash distinguishes far fewer flows.

The probability that so many flows, hashed independently, use so few links can be computed. Where it
is tiny, the flows were not hashed independently: they have one UDP source port for all queue pairs,
or two tiers use the same hash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput
from fabmon.analysis.evidence.flows_on_link import effective_flows_on_link, possible_ends
from fabmon.analysis.evidence.full_link import (
    EcmpGroupThresholds,
    FullLink,
    loss_evidence,
    routing_evidence,
)
from fabmon.analysis.evidence.group_load import group_loads
from fabmon.analysis.evidence.group_rates import rates_of_group
from fabmon.analysis.evidence.null_model import hashing_evidence, occupied_at_most
from fabmon.analysis.evidence.queue_signals import QueueThresholds
from fabmon.analysis.evidence.sharing import last_ticks
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence, Trait
from fabmon.fabric.names import natural
from fabmon.fabric.topology.leaves import NONE, Rows
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

_USED = 0.1
"""Share of the fullest link's load, 0 to 1, above which a link counts as used."""

_EVEN = 0.85
"""The least over the most that used links carry, 0 to 1, from which on they are evenly loaded."""

_NOTHING = 0.0001
"""Share of line rate, 0 to 1, that the protocols of switches stay below."""

_MOST_TRAFFIC = 0.97
"""Share of the traffic, 0 to 1, that the used links must carry: smaller flows blur the count."""

_OF_TRAFFIC = 0.98
"""Share of what a group carries, 0 to 1, that the counted senders must account for: the two sums
are of different counters."""

_TAKES_PART = 0.02
"""Share of the largest feeder's traffic, 0 to 1, from which on a port counts as a sender."""

_NEVER = 1e-6
"""Probability below which only a bound is printed: no model of hashing is exact so far out."""

_MAX_CONFIDENCE, _OF_QUEUE_PAIRS = 0.98, 0.8
"""Confidence, 0 to 1, where chance is all but excluded, and where it is only if enough queue pairs
carry traffic."""

_SPORTS = 1 << 16
"""UDP source ports are below this."""


def polarization(
    inputs: DetectorInput, t: EcmpGroupThresholds, queue: QueueThresholds
) -> Iterator[Condition]:
    """One condition for each switch whose flows use too few links, one of which is full, or has no
    room while it is certain that they use so few."""
    worst: dict[str, FullLink] = {}
    for link in group_loads(inputs, t, queue).links:
        before = worst.get(link.group.node)
        is_worse = before is None or before.severity_order < link.severity_order
        if is_worse and is_polarized(inputs, link):
            worst[link.group.node] = link
    for link in _without_room(inputs, t, queue):
        is_new = link.group.node not in worst and is_polarized(inputs, link)
        if is_new and _is_improbable(link, _flows(inputs, link).senders):
            worst[link.group.node] = link
    for link in worst.values():
        yield _condition(inputs, link)


def _without_room(
    inputs: DetectorInput, t: EcmpGroupThresholds, queue: QueueThresholds
) -> Iterator[FullLink]:
    """The busiest link of each group of uplinks, where it has no room in enough seconds.

    It may be full for nine tenths of every second, which no counter of TCP shows. So it is not
    known who shares it, nor what they lose. Several links that are evenly loaded, beside others
    that carry nothing at all, may be all that are in service.
    """
    structure = inputs.structure
    is_busy = structure.group_links.touched(inputs.peak_sent >= t.room_util)
    for place in np.flatnonzero(is_busy).tolist():
        group = structure.groups[place]
        if group.is_inward or len(group.rows) < _MIN_LINKS or len(group.edges) < _MIN_FLOWS:
            continue
        sent = inputs.sent[group.rows, -t.unseen_ticks :].sum(axis=1)
        if 2 * np.count_nonzero(sent > _USED * sent.max()) > len(sent):
            continue
        rates = rates_of_group(inputs, t, queue, place)
        has_none = rates.known_util >= t.room_util
        member = int(has_none.sum(axis=1).argmax())
        ticks = last_ticks(has_none[member])
        if ticks.sum() < t.unseen_ticks or not ticks[-TICKS:].any():
            continue
        level = rates.level(ticks)
        is_used = level > _USED * level[member]
        used, unused = level[is_used], np.nan_to_num(level[~is_used])
        is_even = len(used) > 1 and used.min() > _EVEN * used.max()
        if is_even and unused.max(initial=0) <= _NOTHING:
            continue
        yield FullLink(
            row=int(group.rows[member]),
            group=group,
            level=level,
            full_ticks=int(ticks.sum()),
            feeders=group.edges[:0],
            named=group.edges[:0],
            lost=0.0,
            slowed_by="",
            active=0,
        )


def is_polarized(inputs: DetectorInput, link: FullLink) -> bool:
    """Whether random hashing does not explain how few links the flows of a link's group use.

    Only where the switch hashes: forwarding tables may send many flows over few links.
    """
    group = link.group
    if group.is_inward or link.links < _MIN_LINKS or 2 * link.used > link.links:
        return False
    level = np.nan_to_num(link.level)
    used = level > _USED * level.max()
    if not group.routing.may_hash or level[used].sum() < _MOST_TRAFFIC * level.sum():
        return False
    return _is_improbable(link, _flows(inputs, link).least)


def _is_improbable(link: FullLink, flows: int) -> bool:
    """Whether so many flows, hashed at random, hardly ever use so few links of a group."""
    return flows >= _MIN_FLOWS and occupied_at_most(link.used, flows, link.links) < _CHANCE


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

    @property
    def has_one_sport(self) -> bool:
        """Whether the hash has one UDP source port for all queue pairs."""
        return self.sports == 1 and self.queue_pairs >= _MIN_FLOWS


def _source_ports(inputs: DetectorInput, flows: _Flows) -> _SourcePorts:
    table, which = inputs.snapshot.connections.flows_if_quick, flows.which
    if not table or not (table.sport[which] > 0).all():
        return _SourcePorts(len(which))
    pair = table.src[which] * len(inputs.snapshot.fabric.ports) + table.dst[which]
    distinct = len(np.unique(pair * _SPORTS + table.sport[which]))
    return _SourcePorts(len(which), table.distinct_sports(which), distinct)


def _flows(inputs: DetectorInput, link: FullLink) -> _Flows:
    """The flows in a link's group, computed once a tick."""
    computed = inputs.once(_computed)
    if link.row not in computed:
        computed[link.row] = _flows_of(inputs, link)
    return computed[link.row]


def _computed(inputs: DetectorInput) -> dict[int, _Flows]:
    """By row of a full link; empty at first."""
    return {}


def _flows_of(inputs: DetectorInput, link: FullLink) -> _Flows:
    """The least number of flows in a group: those of as few senders as could have sent what it
    carries and what its switch drops, the biggest first, since the smaller ones may send within
    their leaf.

    A sender has one flow; where it reports queue pairs, half of the fewest that it has to one NIC
    elsewhere. Connections to some NICs may be idle, and half of those to one may only acknowledge.
    """
    sent = np.nan_to_num(inputs.entering(link.group.edges, TICKS)).sum(axis=1)
    carried = float(np.nan_to_num(inputs.leaving(link.group.rows, TICKS)).sum())
    senders = sent > _TAKES_PART * sent.max(initial=0)
    node = inputs.structure.node
    own = np.flatnonzero(node == node[link.row])
    enters, leaves = (
        float(np.nan_to_num(of(own, TICKS)).sum()) for of in (inputs.entering, inputs.leaving)
    )
    sent_bps = _OF_TRAFFIC * (carried + max(enters - leaves, 0.0))
    least = int(np.searchsorted(np.cumsum(np.sort(sent)[::-1]), sent_bps)) + 1
    least = min(least, int(senders.sum()))
    snapshot, nics = inputs.snapshot, inputs.structure.peer[link.group.edges[senders]]
    table = snapshot.connections.flows_if_quick
    may = possible_ends(snapshot.connections, link.row, "tx") if table else None
    if not table or may is None:
        return _Flows(least, least, np.empty(0, np.intp))
    over = may.src[table.src] & np.append(may.dst, False)[table.dst] & (table.dst != NONE)
    over &= np.isin(table.src, nics)
    ports = len(snapshot.fabric.ports)
    pairs, count = np.unique(table.src[over] * ports + table.dst[over], return_counts=True)
    fewest = np.full(ports + 1, 1, np.intp)
    src, first = np.unique(pairs // ports, return_index=True)
    if len(src):
        fewest[src] = (np.minimum.reduceat(count, first) + 1) // 2
    of_senders = np.sort(fewest[nics])[:least]
    # More may have sent it than are counted as senders.
    flows = int(of_senders.sum()) + least - len(of_senders)
    return _Flows(least, flows, np.flatnonzero(over))


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


def _in_service(link: FullLink) -> str:
    """Why the unused links may carry nothing at all: a hash leaves them some small flows."""
    unused = np.sort(np.nan_to_num(link.level))[: -link.used]
    if unused.max(initial=0.0) > _NOTHING:
        return ""
    return " Or the unused uplinks are drained, or have no route."


def _condition(inputs: DetectorInput, link: FullLink) -> Condition:
    structure, rows = inputs.structure, link.group.rows
    order = rows[np.argsort(-np.nan_to_num(link.level))]
    node = link.group.node
    known = _flows(inputs, link)
    ports = _source_ports(inputs, known)
    flows = known.least
    # Else it depends on how many of the queue pairs carry traffic.
    is_sure = _is_improbable(link, known.senders)
    probability = occupied_at_most(link.used, flows, link.links)
    seen, usual = hashing_evidence(link.util / link.mean, flows, link.links)
    used = [structure.fabric.ports[int(row)].label for row in order[: link.used]]
    used.sort(key=natural)
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity if link.is_loss_known and is_sure else WARNING,
        subject=f"{node}/uplinks",
        rows=tuple(int(row) for row in order),
        text=(
            f"{f'{flows} or more flows' if is_sure else f'up to {known.queue_pairs} queue pairs'}"
            f" of {node} use {link.used} of {link.links} uplinks"
            f" ({', '.join(used)}){_loss(link)}"
            f" (chance{'' if is_sure else f' if {flows} of them send'}: {_odds(probability)})"
            f"{'; all queue pairs have one UDP source port' if ports.has_one_sport else ''}"
        ),
        evidence=(
            Evidence("flows, at least", flows, "flows"),
            Evidence("links used", link.used, f"of {link.links}"),
            Evidence("chance", _odds(probability)),
            Evidence("group links", link.links, "links"),
            seen,
            usual,
            *effective_flows_on_link(inputs.snapshot, int(rows[0]), round(link.effective_flows, 1)),
            *loss_evidence(link),
            routing_evidence(link.group.routing),
        ),
        advice=f"{_advice(ports)}{_in_service(link)}",
        confidence=round(
            min(_MAX_CONFIDENCE if is_sure else _OF_QUEUE_PAIRS, 1 - probability * 10), 2
        ),
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
