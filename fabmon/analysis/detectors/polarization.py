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
from fabmon.analysis.median import median
from fabmon.analysis.model import causes
from fabmon.analysis.model.bottlenecks import Bottleneck, BottleneckModel, Place
from fabmon.analysis.model.ends import sent_and_received, take_part
from fabmon.analysis.model.shared_links import SharedLinks
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.flows.possible_ends import possible_ends
from fabmon.fabric.names import natural
from fabmon.fabric.port_arrays import NONE
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.topology.leaves import Mask, Rows
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
        " model.chance. The flows are one for each sender, but for the smallest ones that could"
        " have sent what does not leave by these links; where they report queue pairs, a quarter of"
        " those to the peer with the fewest. One of the links holds NICs as in an ECMP collision,"
        " or has had no room (model.nearly) for model.window seconds while one flow of each sender"
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


def polarization(inputs: DetectorInput, model: BottleneckModel) -> Iterator[Condition]:
    """One condition for each switch whose flows use too few links, one of which is full, or has no
    room while it is certain that they use so few."""
    done: set[str] = set()
    for found in (*model.bottlenecks(inputs), *_without_room(inputs, model)):
        if found.place is Place.LINK and found.group.node not in done:
            use = polarized_use(inputs, found, model.t)
            if use is not None:
                done.add(found.group.node)
                yield _condition(inputs, found, use, model.t)


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
        flows = inputs.once(_flows, each.group, t)
        use = _Use(each.level, _used(each.level, t), flows)
        used = each.level[use.used]
        is_even = len(used) > 1 and used.min() > t.nearly * used.max()
        if use.chance(flows.senders) < t.chance and not (is_even and use.may_be_all(t)):
            peak = float(each.util.max())
            yield Bottleneck(Place.LINK, each, lasted_ticks=len(each.util), peak_util=peak)


@dataclass(frozen=True, slots=True)
class _Flows:
    """The flows in a group: `senders` with one each, `least` so many where enough of their queue
    pairs carry traffic. `which` are the queue pairs that may be in it, places in the flow table."""

    senders: int
    least: int
    which: Rows


@dataclass(frozen=True, slots=True)
class _Use:
    """Which links of a group its flows use: `level` [links] is the utilisation, NaN of those that
    are down, `used` [links] those with a notable part of the traffic."""

    level: Floats
    used: Mask
    flows: _Flows

    def chance(self, flows: int) -> float:
        """The probability that so many flows, hashed at random, use so few links, 0 to 1."""
        links = int(np.isfinite(self.level).sum())
        return occupied_at_most(int(self.used.sum()), flows, links)

    def may_be_all(self, t: ModelThresholds) -> bool:
        """Whether the others carry nothing at all: a hash leaves them some small flows."""
        return bool(np.fmax.reduce(self.level[~self.used], initial=0) <= t.nothing)


def _used(level: Floats, t: ModelThresholds) -> Mask:
    """[links]: whether a link carries a notable part of the traffic."""
    used: Mask = level > t.some * np.fmax.reduce(level, initial=0)
    return used


def polarized_use(inputs: DetectorInput, found: Bottleneck, t: ModelThresholds) -> _Use | None:
    """How few links the flows of a link's group use, in the last tick in which a link of it was as
    full as it ever was: a mean counts links that are used before or after. None where random
    hashing explains it.

    Only of a leaf's uplinks, and where it hashes: forwarding tables may send many flows over few
    links.
    """
    group, util, mean = found.group, found.link.util, found.link.level
    if group.is_inward or not group.is_leaf or not group.routing.may_hash:
        return None
    ticks = int(np.argmax(util[::-1] >= t.nearly * util.max())) + 1
    load = without_nan(inputs.leaving(group.rows, ticks)[:, 0])
    level = load / inputs.link_lines_bps(group.rows)
    level = np.where(np.isfinite(mean), level, np.float32(np.nan))
    flows = inputs.once(_flows, group, t)
    used = _used(level, t)
    # NICs that are paused send a little, over links that count as unused.
    rates = sent_and_received(inputs, group.ends, ticks)[0][:, 0]
    elsewhere = _stays(inputs, group, ticks)[0] + load[~used].sum()
    now = _least_senders(rates, float(elsewhere), t)
    # A few of the senders may pause in that tick. Where more do, they have sent all that they had,
    # and have left the others alone with their links.
    senders = flows.senders if now >= t.nearly * flows.senders else now
    # Half of the queue pairs may be silent, and those of a sender that waits for the others are.
    many = max(senders, flows.least * now // (2 * max(flows.senders, 1)))
    least = flows.least * senders // max(flows.senders, 1)
    use = _Use(level, used, replace(flows, senders=senders, least=least))
    are_few = 2 * _used(mean, t).sum() <= found.links
    return use if are_few and use.chance(many) < t.chance else None


def _flows(inputs: DetectorInput, group: SharedLinks, t: ModelThresholds) -> _Flows:
    """The least number of flows in a group: those of the NICs below it, but for the smallest ones
    that may have sent what does not leave by it.

    A NIC has one flow; where it reports queue pairs, half of the fewest that it has to one NIC
    elsewhere. Connections to some NICs may be idle, and half of those to one may only acknowledge.
    """
    nics = group.ends
    sent = sent_and_received(inputs, nics, TICKS)[0].mean(axis=1)
    stays = _stays(inputs, group, TICKS)
    # Not the mean: the first rates of a switch that has just been read may be of other times.
    least = _least_senders(sent, median(stays[np.isfinite(stays)]), t)
    nics = nics[take_part(sent, t)]
    snapshot = inputs.snapshot
    table = snapshot.connections.flows_if_quick
    may = possible_ends(snapshot.connections, int(group.rows[0]), "tx") if table else None
    if not table or may is None:
        return _Flows(least, least, np.empty(0, np.intp))
    over = may.src[table.src] & np.append(may.dst, False)[table.dst] & (table.dst != NONE)
    over &= np.isin(table.src, nics)
    ports = len(snapshot.fabric.ports)
    pairs, count = np.unique(table.src[over] * ports + table.dst[over], return_counts=True)
    fewest = np.full(ports, np.inf)
    np.minimum.at(fewest, pairs // ports, (count + 1) // 2)
    fewest[np.isinf(fewest)] = 1
    return _Flows(least, int(np.sort(fewest[nics])[:least].sum()), np.flatnonzero(over))


def _stays(inputs: DetectorInput, group: SharedLinks, ticks: int) -> Floats:
    """[ticks]: what enters a leaf from below and leaves by other ports than those of a group,
    bits/s; NaN where one of its ports that count at all is not known."""
    structure = inputs.structure
    own = np.flatnonzero(structure.node == structure.node[group.rows[0]])
    leaves = inputs.leaving(np.setdiff1d(own, group.rows), ticks)
    enters = inputs.entering(own[structure.is_uplink[own]], ticks)
    total = [each[np.isfinite(each).any(axis=1)].sum(axis=0) for each in (leaves, enters)]
    stays: Floats = np.maximum(total[0] - total[1], 0)
    return stays


def _least_senders(sent: Floats, elsewhere: float, t: ModelThresholds) -> int:
    """The NICs that take part but for the smallest ones, which may have sent all that went
    `elsewhere`, bits/s; none where that is not known."""
    smallest = np.sort(sent[take_part(sent, t)])
    return len(smallest) - int(np.searchsorted(np.cumsum(smallest), elsewhere, side="right"))


def _of_source_ports(inputs: DetectorInput, which: Rows) -> tuple[str, str]:
    """What UDP source ports say of some queue pairs, to follow a sentence, and what to do: at the
    senders where these have one, at the switch where they have many."""
    table, pairs = inputs.snapshot.connections.flows_if_quick, len(which)
    if not table or not (table.sport[which] > 0).all():
        return "", CAUSE.advice
    sports = table.distinct_sports(which)
    if sports == 1 < pairs:
        return "; all queue pairs have one UDP source port", (
            f"All {pairs} queue pairs have one UDP source port, as of NVSHMEM or old drivers: give"
            " each a source port or flow label of its own, or use E-ECMP on the queue pair."
        )
    hashed = np.stack((table.src[which], table.dst[which], table.sport[which]))
    if sports and 2 * np.unique(hashed, axis=1).shape[1] >= pairs:
        return "", (
            f"The {pairs} queue pairs have {sports} UDP source ports, so the senders are not"
            " the reason: check that the switch hashes the source port, and give the tiers"
            " different hash seeds, or use E-ECMP on the queue pair."
        )
    return "", CAUSE.advice


def _condition(
    inputs: DetectorInput, found: Bottleneck, use: _Use, t: ModelThresholds
) -> Condition:
    node, count, flows = found.group.node, int(use.used.sum()), use.flows
    # Else it depends on how many of the queue pairs carry traffic.
    is_sure = use.chance(flows.senders) < t.chance
    many = f"{flows.least} or more flows" if is_sure else f"up to {len(flows.which)} queue pairs"
    # No model of hashing is exact much further out.
    chance, least = use.chance(flows.least), t.chance**2
    odds = f"{'under ' if chance < least else ''}1 in {round(1 / max(chance, least)):,}"
    order = found.group.rows[np.argsort(-np.nan_to_num(use.level), kind="stable")]
    labels = (inputs.structure.fabric.ports[row].label for row in order[:count])
    lose = f" and lose {causes.loss(found)}"
    if not found.lost:
        lose = f", uneven by {rounded_percent(found.imbalance)}, and what they lose is not known"
    sports, advice = _of_source_ports(inputs, flows.which)
    drained = " Or the unused uplinks are drained, or have no route." * use.may_be_all(t)
    return CAUSE.condition(
        severity="" if found.lost and is_sure else WARNING,
        subject=f"{node}/uplinks",
        rows=order.tolist(),
        text=(
            f"{many} of {node} use {count} of {found.links} uplinks"
            f" ({', '.join(sorted(labels, key=natural))}){lose}"
            f" (chance{'' if is_sure else f' if {flows.least} of them send'}: {odds}){sports}"
        ),
        evidence=(
            Evidence("flows, at least", flows.least, "flows"),
            Evidence("links used", count, f"of {found.links}"),
            Evidence("chance", odds),
            Evidence("group links", found.links, "links"),
            *causes.hashing(inputs.snapshot, found, flows.least),
            *causes.evidence(inputs, found),
        ),
        advice=f"{advice}{drained}",
        lost=found.lost,
        lost_is_upper_bound=found.is_upper_bound,
        unseen="" if found.lost else "which ports share the links, and what they lose",
    )
