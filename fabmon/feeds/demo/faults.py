"""Every kind of fault by its name.

A kind is one function: it takes the fault and the ground (plant, jobs, lots), and plans it. What
the scenario leaves open is drawn by lot once, so that the truth is known before anything happens.
"""

from __future__ import annotations

from collections.abc import Callable

from fabmon.feeds.demo import host_faults, link_faults
from fabmon.feeds.demo.ground import Ground, Planned
from fabmon.feeds.demo.scenario import Fault

_KINDS: dict[str, Callable[[Fault, Ground], Planned]] = {
    "collision": link_faults.collision,
    "polarization": link_faults.polarization,
    "oversubscription": link_faults.oversubscription,
    "incast": host_faults.incast,
    "degraded_link": link_faults.degraded_link,
    "flap": link_faults.flap,
    "pause_storm": host_faults.pause_storm,
    "pause_deadlock": link_faults.pause_deadlock,
    "slow_receiver": host_faults.slow_receiver,
    "straggler": host_faults.straggler,
    "pcie_limit": host_faults.pcie_limit,
    "error_burst": link_faults.error_burst,
    "saturated_counter": link_faults.saturated_counter,
    "miscabled": link_faults.miscabled,
    "uneven_rails": host_faults.uneven_rails,
    "node_lost": host_faults.node_lost,
}


def plan(fault: Fault, ground: Ground) -> Planned:
    """Aim a fault. Raises ScenarioError where that is not possible."""
    return _KINDS[fault.kind](fault, ground)
