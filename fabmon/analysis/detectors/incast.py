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
        "The link to a NIC is busier by model.apart than the NICs that send over it, and than what"
        " that NIC sends, and they lose model.incast_lost_min. Evidence adds up as for an ECMP"
        " collision, from a lower base (model.of_place): short incasts are normal. A receiver that"
        " gets what one NIC sends has that NIC as its sender, unless both ends show a queue."
        " Nothing is reported where NICs together receive more than they send, or one gets more"
        " than can reach its leaf."
    ),
    inputs="Byte counters of the hosts; signs of a queue as for an ECMP collision",
    not_observable=(
        "Which flows make the incast, where neither queue pairs nor signs of a queue account for"
        " what it gets. Senders that are not watched, as those of storage"
    ),
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
    rows = [row] if edge == NONE else [edge, row]
    waiting = _waiting(inputs, row, t)
    senders = causes.how_many(found).replace("ports", "senders", 1)
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=structure.fabric.ports[row].id,
        rows=(*rows, *(each for each in waiting if each not in rows)),
        text=(
            f"{structure.label(row)} receives at {causes.utilisation(inputs.snapshot, found, t)}"
            f" from {senders}"
            f"{causes.names(structure, found)}, which lose {causes.loss(found)}"
        ),
        evidence=(
            Evidence("received", round(found.busy * 100, 1), "%"),
            Evidence("slowed senders", causes.sharers(found), "ports"),
            causes.lost_evidence(found),
            *causes.time_evidence(found, inputs.snapshot.interval_s),
            *_events(inputs, row, edge),
            causes.queue_evidence(found),
            Evidence("ports that wait for it", len(waiting), "ports"),
        ),
        advice=CAUSE.advice,
        confidence=found.confidence,
        lost=round(found.lost, 3),
        lost_is_upper_bound=found.is_upper_bound,
        victims=tuple(dict.fromkeys(structure.ids([*found.named.tolist(), *waiting]))),
        unseen=causes.unseen(found, "" if edge != NONE else "the switch in front of it"),
        unless=(Trait.FULL_GROUP,) if found.peak_util >= t.full_util else _QUEUES_BEFORE,
    )


def _waiting(inputs: DetectorInput, row: int, t: ModelThresholds) -> list[int]:
    """The ports that wait for a receiver: those that its switch pauses, unless that is paused."""
    edge = int(inputs.structure.peer[row])
    node = NONE if edge == NONE else int(inputs.structure.node[edge])
    graph = pause_graph(inputs, t)
    return [each for each in graph.victims(node) if each != row] if node in graph.roots else []


def _events(inputs: DetectorInput, row: int, edge: int) -> Iterator[Evidence]:
    """Evidence: what the receiver counts as marked, and its switch as dropped, in proportion."""
    for name, column, bits, port in (
        ("marks per Gbit", "ecn", "rx_bps", row),
        ("drops per Gbit", "tx_drops", "tx_bps", edge),
    ):
        events = float(inputs.total(column)[port]) if port != NONE else 0.0
        gbit = float(inputs.total(bits)[port]) / 1e9 if port != NONE else 0.0
        if events > 0 and gbit > 0:
            yield Evidence(name, round(events / gbit, 1))
