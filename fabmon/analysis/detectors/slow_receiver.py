"""A host takes its data too slowly, so that its NIC pauses the switch."""

from __future__ import annotations

from collections.abc import Iterator

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.pause_graph import HostPauses
from fabmon.analysis.finding import WARNING, Cause, Condition, Trait

CAUSE = Cause(
    name="slow_receiver",
    title="Slow receiver",
    meaning="a host takes its data too slowly, so that its NIC pauses the switch",
    severity=WARNING,
    picture="pause_tree",
    advice=(
        "Look at the host: a program that posts receives too late, memory or CPU contention, its"
        " RNR and out-of-buffer counters. The network is not the cause."
    ),
    traits=(
        Trait.NEEDS_TRAFFIC,
        Trait.OF_HOST_PORT,
        Trait.LAST_HOP,
        Trait.MAKES_QUEUES,
        Trait.HAS_SENDERS,
    ),
    family="host port",
)


def slow_receivers(inputs: DetectorInput, pauses: HostPauses) -> Iterator[Condition]:
    """One condition for each port of a host that pauses its switch, as `pauses` finds them."""
    return pauses.conditions(inputs, CAUSE)
