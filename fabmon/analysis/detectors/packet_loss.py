"""RDMA packets are lost on the way: their senders get NAKs, and send them again.

A receiver that gets packets out of order answers with a NAK (InfiniBand specification 9.7.5.2.8),
and the sender resends all since (go-back-N): one packet in a thousand costs a good part of a fast
connection. Nothing else is lost in a lossless fabric, so this is damage or a queue that overflows;
the ports on the way count it, where they are watched.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput, count_ticks
from fabmon.analysis.evidence.flow_control import uses_credits
from fabmon.analysis.evidence.senders_place import LastSeen, senders_place
from fabmon.analysis.evidence.usual_level import usual_level
from fabmon.analysis.fabric_structure import NONE, Mask, Rows
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.thresholds import Ticks
from fabmon.fabric.routing_mode import ADAPTIVE
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import number


def loss_advice(*, has_credits: bool) -> str:
    """What to do about lost packets; InfiniBand has credits, not PFC."""
    drops = (
        "port_xmit_discards counts what a switch discards after its head-of-queue lifetime limit"
        " (HOQLife)."
        if has_credits
        else "check that PFC is on, for the same priority, at every port on the way."
    )
    return (
        "Look at the error and drop counters of the switches on these paths, or watch the switches"
        " (role=switch in the hosts file). Damage: clean or change the cable or the optics."
        f" Drops: {drops}"
    )


CAUSE = Cause(
    name="packet_loss",
    title="Packet loss",
    meaning="RDMA packets are lost on the way, and are sent again",
    severity=WARNING,
    rule=(
        "Of each Gbit that a rail sends, packet_loss.naks_per_gbit NAKs for missing packets come"
        " back (five times as many where fewer than eight rails are busy), and packet_loss.rise"
        " times their median. They come in packet_loss.ticks of ten seconds and in all with"
        " traffic, to fewer than half of the rails that send. One host or leaf sends or receives"
        " nine tenths of these packets: a cable has one place, packets that overtake each other"
        " have many. No node is known to route adaptively. An unhealthy link, a full link or a"
        " full receiver on the way explains it."
    ),
    inputs=(
        "RDMA counters of the hosts: packet_seq_err of senders; out_of_sequence shows the receivers"
    ),
    not_observable=(
        "The link; whether packets are damaged, dropped or overtaken; what bandwidth is lost."
        " Losses of half of the rails, at several places, or in both directions between the only"
        " two leaves; those of responses to RDMA reads"
    ),
    confidence=0.9,
    picture="resending_ports",
    advice=loss_advice(has_credits=False),
    tables=("packet_loss",),
    traits=(Trait.NEEDS_TRAFFIC, Trait.HAS_SENDERS),
)

_BUSY_UTIL = 0.03
"""Mean share of line rate, 0 to 1, from which on a rail is busy: too little is sent below it to
count events per gigabit."""

_STILL, _NONE = 0.8, 0.2
"""Share of the threshold, 0 to 1, at which the senders of an open finding still lose packets, and
below which a tick has no losses."""

_SIMILAR = 0.5
"""Share of the level that is raised, 0 to 1, from which on losses may have the same reason."""

_AT_ONE_NODE = 0.9
"""Share of the lost packets, 0 to 1, that one leaf or host sends or receives where the reason is a
cable of it, and that are behind one leaf where a finding names it."""

_ALONE = 1.5
"""Share of the lost packets of one leaf over that of any other from which on both directions of it
count."""

_OF_FEW = 5.0
"""Without a usual level, the minimum is so many times higher."""


class PacketLossThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [packet_loss]: NAKs per gigabit (10^9 bits) sent, and ticks of the last ten."""

    naks_per_gbit: float
    ticks: Ticks
    rise: float


def packet_losses(
    inputs: DetectorInput, t: PacketLossThresholds, seen: LastSeen
) -> Iterator[Condition]:
    """At most one condition: the senders that get NAKs for lost packets, far more than others.

    None where packets that overtake each other may be what counts as lost: where they are routed
    adaptively, and where senders and receivers at many places have NAKs, be they a few of all.
    Sprayed packets overtake wherever they cross spines; what one cable loses has one place.
    """
    routing = inputs.structure.fabric.routing
    if not inputs.total("naks").any() or any(each.mode == ADAPTIVE for each in routing.values()):
        return
    lines = inputs.snapshot.line_rate_bps
    line = np.where(np.isnan(lines), np.float32(np.inf), lines)
    sends = inputs.structure.is_rail & (inputs.total("tx_bps") / TICKS > _BUSY_UTIL * line)
    naks, sent = inputs.filled("naks"), inputs.filled("tx_bps")
    level = _per_gbit(inputs.total("naks"), inputs.total("tx_bps"), sends)
    raised = _raised_from(level[sends], t.naks_per_gbit, t.rise)
    least = np.full(len(level), raised, np.float32)
    least[seen.rows(inputs)] *= _STILL
    losses = np.float32(t.naks_per_gbit / 1e9) * sent
    with_losses = naks > _STILL * losses
    # One reading of a counter that is read every few seconds is in as many ticks.
    without = (naks < _NONE * losses) & (inputs.sent > _BUSY_UTIL)
    lasting = (count_ticks(with_losses) >= t.ticks) & ~without.any(axis=1)
    senders = np.flatnonzero(sends & lasting & (level >= least))
    if not 0 < 2 * len(senders) < np.count_nonzero(sends):
        return
    # Receivers count every packet that comes after a gap; only this tick's rates are kept.
    received = inputs.filled("rx_bps")[:, -1]
    missed = np.nan_to_num(inputs.snapshot.column("rdma_out_of_sequence"))
    misses = _per_gbit(missed, received, inputs.structure.is_rail & (received > 0))
    receivers = np.flatnonzero(misses >= raised)
    # Others that lose nearly as much count as well: levels vary around the threshold.
    least_similar = _SIMILAR * raised
    lost = np.where(sends & (level >= least_similar), inputs.total("naks"), 0)
    missed = np.where(misses >= least_similar, missed, 0)
    if _share_at_one_node(inputs, lost, missed) < _AT_ONE_NODE:
        return
    structure, worst = inputs.structure, float(level[senders].max())
    subject, where = senders_place(inputs, senders, level, receivers, misses, _AT_ONE_NODE)
    if len(senders) == 1:
        subject = structure.fabric.ports[int(senders[0])].id
    has_credits = all(uses_credits(structure.fabric.ports[row]) for row in senders.tolist())
    yield CAUSE.condition(
        subject=seen.subject(inputs, senders, subject),
        rows=senders.tolist(),
        text=(
            f"packets of {structure.labels(senders, 3)} are lost {where}, and sent again: up to"
            f" {number(worst)} NAKs per Gbit; no watched port shows damage, so the link is not"
            " known"
        ),
        evidence=(
            Evidence("senders with NAKs", len(senders), f"of {sends.sum()}"),
            Evidence("NAKs per Gbit, at most", round(worst, 1)),
            Evidence("receivers of packets out of order", len(receivers), "ports"),
        ),
        advice=loss_advice(has_credits=has_credits),
        victims=structure.ids(receivers.tolist()),
        unseen="the link, and whether packets are damaged, dropped or overtaken by others",
        unless=(Trait.OF_LINK, Trait.LAST_HOP, Trait.FULL_LINK_OF_GROUP, Trait.FULL_GROUP),
    )


def _per_gbit(events: Floats, bps: Floats, counts: Mask) -> Floats:
    """[ports]: events per gigabit, from the totals of both over the same ticks; 0 for ports that do
    not count."""
    gbit = bps / np.float32(1e9)
    share: Floats = np.where(counts, events / np.fmax(gbit, np.float32(1e-6)), 0)
    return share.astype(np.float32, copy=False)


def _raised_from(levels: Floats, least: float, rise: float) -> float:
    """The level from which on one of some ports' levels is raised: a minimum, higher where there
    are too few ports, and `rise` times the usual one."""
    usual = usual_level(levels)
    return _OF_FEW * least if usual is None else max(least, rise * usual)


def _share_at_one_node(inputs: DetectorInput, lost: Floats, missed: Floats) -> float:
    """The largest share, 0 to 1, of lost packets that one leaf or host can be the reason of, `lost`
    at senders and `missed` at receivers [ports].

    What a cable loses passes the nodes at both of its ends, in one direction or in both. But
    packets between two leaves are all of one and for the other, wherever they are lost: both
    directions together count only where one leaf has clearly more of them than any other.
    """
    structure = inputs.structure
    of_host, of_leaf = (
        np.stack([_shares(numbers, events) for events in (lost, missed)])
        for numbers in (structure.node, structure.leaf)
    )
    *_, second, first = np.sort(np.append(of_leaf.sum(axis=0), (0, 0)))
    at_leaf = first if first >= _ALONE * second else of_leaf.max()
    return min(float(max(of_host.sum(axis=0).max(), at_leaf)), 1.0)


def _shares(numbers: Rows, events: Floats) -> Floats:
    """The share, 0 to 1, of some events [ports] that each leaf or host has, by its number."""
    counts = (events > 0) & (numbers != NONE)
    share = np.zeros(int(numbers.max(initial=0)) + 1, np.float32)
    np.add.at(share, numbers[counts], events[counts] / float(events.sum()))
    return share
