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
    rule=(
        "A host pauses its switch for more than model.waiting of model.ticks of model.window"
        " seconds, and for model.rise times what the quieter quarter of the busy ports has or"
        " model.half, while it receives less than model.accounts of line rate. On InfiniBand its"
        " switch also waits for credits for model.no_credits of these seconds, or for model.waiting"
        " of ten and model.scatter times the median of eight ports towards hosts that send half as"
        " much. A host PCIe limit of the same NIC explains it."
    ),
    inputs="Pause counters at either end; on InfiniBand ib_tx_wait of the switch port",
    not_observable=(
        "What waits for it, where its switch is not watched. Why it is slow: PCIe, IOMMU or memory."
        " On InfiniBand a receiver whose switch is not watched or whose ib_tx_wait is at its"
        " maximum, as after 0.7 s of waiting at 400 Gb/s"
    ),
    picture="pause_tree",
    advice=(
        "The network is not the cause. Look at the host: PCIe (width, speed, relaxed ordering,"
        " errors), IOMMU or address-translation misses, memory bandwidth, NUMA distance of the NIC"
        " to the memory or GPU."
    ),
    tables=("model",),
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
