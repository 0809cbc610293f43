"""A host takes its data too slowly, so that its NIC pauses the switch."""

from __future__ import annotations

from collections.abc import Iterator

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.pause_graph import HostPauses
from fabmon.analysis.finding import WARNING, Cause, Condition, Trait

CAUSE = Cause(
    name="slow_receiver",
    title="Slow receiver",
    meaning=(
        "a host takes its data too slowly, so that its NIC pauses the switch (InfiniBand: gives it"
        " too few credits)"
    ),
    severity=WARNING,
    picture="pause_tree",
    advice=(
        "The network is not the cause. Look at the host: PCIe (width, speed, relaxed ordering,"
        " errors), IOMMU or address-translation misses, memory bandwidth, NUMA distance of the NIC"
        " to the memory or GPU."
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
