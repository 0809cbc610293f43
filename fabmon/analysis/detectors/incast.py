"""Many senders, one receiver: the last hop to a host is full, and several senders share it."""

from __future__ import annotations

from collections.abc import Iterator

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.pause_graph import pause_graph
from fabmon.analysis.fabric_structure import NONE
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.model import causes
from fabmon.analysis.model.bottlenecks import Bottleneck, BottleneckModel, Place
from fabmon.analysis.thresholds import ModelThresholds

CAUSE = Cause(
    name="incast",
    title="Incast",
    meaning="many senders, one receiver: the last hop to a host is full, and its senders share it",
    severity=WARNING,
    rule=(
        "The link to a NIC is busier by model.apart than the NICs that send over it, and than"
        " what that NIC sends, and they lose as much. Where neither end shows a queue, a NIC is as"
        " busy as the direction in which it moves more. Evidence adds up as for an ECMP collision,"
        " from a lower base (model.of_place): short incasts are normal. A receiver that gets what"
        " one NIC sends has that NIC as its sender, unless its own queue shows more. Nothing is"
        " reported where both all NICs and those of its rail receive more than they send, or one"
        " gets more than can reach its leaf."
    ),
    inputs="Byte counters of the hosts; signs of a queue as for an ECMP collision",
    not_observable=(
        "Which flows make the incast, where neither queue pairs nor signs of a queue account for"
        " what it gets. Senders that are not watched, as those of storage"
    ),
    confidence=0.95,
    picture="receiver",
    advice=(
        "Find what the job gathers there (all-to-all, parameter server, checkpoint); spread the"
        " receivers over rails, or stagger the senders (NCCL_P2P_NET_CHUNKSIZE, fewer channels)."
    ),
    tables=("model",),
    traits=(
        Trait.NEEDS_TRAFFIC,
        Trait.LAST_HOP,
        Trait.MAKES_QUEUES,
        Trait.ONE_RAIL,
        Trait.HAS_SENDERS,
    ),
)

_QUEUES_BEFORE = (Trait.FULL_GROUP, Trait.FULL_LINK_OF_GROUP, Trait.OF_LINK)
"""What marks the traffic of a receiver as well, where that fills no whole seconds."""


def incasts(inputs: DetectorInput, model: BottleneckModel) -> Iterator[Condition]:
    """One condition for each receiver whose last hop holds several senders."""
    for found in model.bottlenecks(inputs):
        if found.place is Place.LAST_HOP:
            yield _condition(inputs, found, model.t)


def _condition(inputs: DetectorInput, found: Bottleneck, t: ModelThresholds) -> Condition:
    structure, row = inputs.structure, found.row
    edge = int(structure.peer[row])
    # What waits for the switch before it waits for this receiver, unless that switch waits, too.
    graph, before = pause_graph(inputs, t), structure.node == structure.node[edge]
    is_last = edge != NONE and not graph.paused[before].any()
    waiting = graph.victims(int(structure.node[edge]), but=row) if is_last else []
    senders = causes.how_many(found).replace("ports", "senders", 1)
    return CAUSE.condition(
        subject=structure.fabric.ports[row].id,
        rows=(each for each in (edge, row, *waiting) if each != NONE),
        text=(
            f"{structure.label(row)} receives at {causes.utilisation(inputs.snapshot, found, t)}"
            f" from {senders}{causes.names(structure, found)}, which lose {causes.loss(found)}"
        ),
        evidence=(
            Evidence.percent("received", found.busy),
            Evidence("slowed senders", causes.sharers(found), "ports"),
            Evidence("ports that wait for it", len(waiting), "ports"),
            *causes.evidence(inputs, found),
        ),
        lost=found.lost,
        lost_is_upper_bound=found.is_upper_bound,
        victims=structure.ids([*found.named.tolist(), *waiting]),
        unseen=causes.unseen(found, "" if edge != NONE else "the switch in front of it"),
        unless=(Trait.FULL_GROUP,) if found.peak_util >= t.full_util else _QUEUES_BEFORE,
    )
