"""Every declared cause, and the table of all detectors.

A new detector is one module in fabmon/analysis/detectors and one line in `CAUSES` here.
"""

from __future__ import annotations

from fabmon.analysis.detectors import (
    degraded_link,
    ecmp_collision,
    error_burst,
    flapping_link,
    gpu_nic_numa,
    host_pcie_limit,
    incast,
    link_down,
    miscabled,
    node_lost,
    oversubscription,
    pause_deadlock,
    pause_storm,
    pause_victim,
    polarization,
    saturated_counter,
    slow_receiver,
    straggler,
    uneven_rails,
)
from fabmon.analysis.finding import Cause, Trait

CAUSES: dict[str, Cause] = {
    each.name: each
    for each in (
        node_lost.CAUSE,
        link_down.CAUSE,
        flapping_link.CAUSE,
        degraded_link.CAUSE,
        error_burst.CAUSE,
        ecmp_collision.CAUSE,
        polarization.CAUSE,
        oversubscription.CAUSE,
        incast.CAUSE,
        slow_receiver.CAUSE,
        pause_storm.CAUSE,
        host_pcie_limit.CAUSE,
        pause_deadlock.CAUSE,
        pause_victim.CAUSE,
        uneven_rails.CAUSE,
        straggler.CAUSE,
        saturated_counter.CAUSE,
        gpu_nic_numa.CAUSE,
        miscabled.CAUSE,
    )
}
"""Every cause that a finding can have, by name."""


def title(cause: str) -> str:
    """The title of a cause, `Host PCIe limit`.

    A name that is not declared (from a recording by a newer version) is returned in words.
    """
    declared = CAUSES.get(cause)
    if declared is not None:
        return declared.title
    return cause.replace("_", " ").capitalize()


def causes_with(trait: Trait) -> frozenset[str]:
    """Names of the causes that have a trait."""
    return frozenset(name for name, cause in CAUSES.items() if trait in cause.traits)
