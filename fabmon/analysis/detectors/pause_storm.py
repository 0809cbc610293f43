"""A host all but stops the switch port that sends to it, by pause or by giving no credits."""

from __future__ import annotations

from collections.abc import Iterator

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.pause_graph import HostPauses
from fabmon.analysis.finding import CRITICAL, Cause, Condition, OtherTitle, Trait

CAUSE = Cause(
    name="pause_storm",
    title="Pause storm",
    meaning="a host pauses its switch nearly all the time (InfiniBand: gives it no credits)",
    severity=CRITICAL,
    rule=(
        "As a slow receiver, but for more than model.storm of the time in model.ticks seconds"
        " running, or its NIC's storm guard counts an error."
    ),
    inputs="Pause counters at either end; on InfiniBand ib_tx_wait of the switch port",
    not_observable="What waits for it, where its switch is not watched",
    picture="pause_tree",
    advice=(
        "Take the host out (drain it, then reset the NIC), and check that the switch's PFC watchdog"
        " is on: it drops what a storm would spread."
    ),
    tables=("model",),
    traits=(
        Trait.OF_HOST_PORT,
        Trait.LAST_HOP,
        Trait.MAKES_QUEUES,
        Trait.HAS_SENDERS,
    ),
    family="host port",
    other_title=OtherTitle("Credit starvation"),
)


def pause_storms(inputs: DetectorInput, pauses: HostPauses) -> Iterator[Condition]:
    """One condition for each port of a host that `pauses` finds."""
    return pauses.conditions(inputs, CAUSE)
