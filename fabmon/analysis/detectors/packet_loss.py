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

from fabmon.analysis.evidence.detector_input import DetectorInput, count_ticks
from fabmon.analysis.evidence.flow_control import uses_credits
from fabmon.analysis.evidence.queue_signals import (
    BUSY_UTIL,
    QueueThresholds,
    per_gbit,
    queue_signals,
    raised_from,
)
from fabmon.analysis.evidence.senders_place import (
    MAX_VICTIMS,
    open_subject,
    senders_place,
    share_at_one_node,
)
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.thresholds import Ticks
from fabmon.fabric.routing_mode import ADAPTIVE
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
    picture="resending_ports",
    advice=loss_advice(has_credits=False),
    tables=("packet_loss", "queue"),
    traits=(Trait.NEEDS_TRAFFIC, Trait.HAS_SENDERS),
)

_STILL, _NONE = 0.8, 0.2
"""Share of the threshold, 0 to 1, at which the senders of an open finding still lose packets, and
below which a tick has no losses."""

_SIMILAR = 0.5
"""Share of the level that is raised, 0 to 1, from which on losses may have the same reason."""

_AT_ONE_NODE = 0.9
"""Share of the lost packets, 0 to 1, that one leaf or host sends or receives where the reason is a
cable of it."""


class PacketLossThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [packet_loss]: NAKs per gigabit (10^9 bits) sent, and ticks of the last ten."""

    naks_per_gbit: float
    ticks: Ticks


def packet_losses(
    inputs: DetectorInput, t: PacketLossThresholds, queue: QueueThresholds
) -> Iterator[Condition]:
    """At most one condition: the senders that get NAKs for lost packets, far more than others.

    None where packets that overtake each other may be what counts as lost: where they are routed
    adaptively, and where senders and receivers at many places have NAKs, be they a few of all.
    Sprayed packets overtake wherever they cross spines; what one cable loses has one place.
    """
    routing = inputs.structure.fabric.routing
    if not inputs.total("naks").any() or any(each.mode == ADAPTIVE for each in routing.values()):
        return
    signals = queue_signals(inputs, queue)
    naks, sent = inputs.filled("naks"), inputs.filled("tx_bps")
    level = per_gbit(inputs.total("naks"), inputs.total("tx_bps"), signals.sends)
    raised = raised_from(level[signals.sends], t.naks_per_gbit, queue.rise)
    least = np.full(len(level), raised, np.float32)
    for finding in inputs.open_of(CAUSE):
        least[list(finding.rows)] *= _STILL
    losses = np.float32(t.naks_per_gbit / 1e9) * sent
    with_losses = naks > _STILL * losses
    # One reading of a counter that is read every few seconds is in as many ticks.
    without = (naks < _NONE * losses) & (inputs.sent > BUSY_UTIL)
    lasting = (count_ticks(with_losses) >= t.ticks) & ~without.any(axis=1)
    senders = np.flatnonzero(signals.sends & lasting & (level >= least))
    if not 0 < 2 * len(senders) < np.count_nonzero(signals.sends):
        return
    # Receivers count every packet that comes after a gap; only this tick's rates are kept.
    received = inputs.filled("rx_bps")[:, -1]
    missed = np.nan_to_num(inputs.snapshot.column("rdma_out_of_sequence"))
    misses = per_gbit(missed, received, inputs.structure.is_rail & (received > 0))
    receivers = np.flatnonzero(misses >= raised)
    # Others that lose nearly as much count as well: levels vary around the threshold.
    least_similar = _SIMILAR * raised
    lost = np.where(signals.sends & (level >= least_similar), inputs.total("naks"), 0)
    missed = np.where(misses >= least_similar, missed, 0)
    if share_at_one_node(inputs, lost, missed) < _AT_ONE_NODE:
        return
    structure, worst = inputs.structure, float(level[senders].max())
    subject, where = senders_place(inputs, senders, level, receivers, misses)
    if len(senders) == 1:
        subject = structure.fabric.ports[int(senders[0])].id
    has_credits = all(uses_credits(structure.fabric.ports[row]) for row in senders.tolist())
    yield Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=open_subject(inputs, CAUSE, senders) or subject,
        rows=tuple(senders.tolist()),
        text=(
            f"packets of {structure.labels(senders, 3)} are lost {where}, and sent again: up to"
            f" {number(worst)} NAKs per Gbit; no watched port shows damage, so the link is not"
            " known"
        ),
        evidence=(
            Evidence("senders with NAKs", len(senders), f"of {signals.sends.sum()}"),
            Evidence("NAKs per Gbit, at most", round(worst, 1)),
            Evidence("receivers of packets out of order", len(receivers), "ports"),
        ),
        advice=loss_advice(has_credits=has_credits),
        confidence=0.9,
        victims=tuple(structure.ids(receivers[:MAX_VICTIMS].tolist())),
        unseen="the link, and whether packets are damaged, dropped or overtaken by others",
        unless=(Trait.OF_LINK, Trait.LAST_HOP, Trait.FULL_LINK_OF_GROUP, Trait.FULL_GROUP),
    )
