"""All faults by name, and the fabrics that can have them."""

from __future__ import annotations

from collections.abc import Callable

from tests.world.faults.links import degraded_link, error_burst, flapping_link, link_down
from tests.world.faults.nodes import node_lost, saturated_counter, straggler, uneven_rails
from tests.world.faults.paths import ecmp_collision, oversubscription, polarization
from tests.world.faults.receivers import (
    host_pcie_limit,
    incast,
    pause_deadlock,
    pause_storm,
    slow_receiver,
)
from tests.world.faults.scene import Scene
from tests.world.transport import INFINIBAND, ROCE, TCP

Fault = Callable[[Scene], None]

FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        ecmp_collision,
        polarization,
        oversubscription,
        incast,
        slow_receiver,
        pause_storm,
        pause_deadlock,
        host_pcie_limit,
        straggler,
        uneven_rails,
        link_down,
        flapping_link,
        degraded_link,
        error_burst,
        node_lost,
        saturated_counter,
    )
}


BEFORE_JOBS = frozenset({"uneven_rails"})
"""Faults of the jobs themselves: there before these start."""

NEEDS = {
    "slow_receiver": (ROCE, INFINIBAND),
    "host_pcie_limit": (ROCE, INFINIBAND),
    "pause_storm": (ROCE,),
    "pause_deadlock": (ROCE,),
    "saturated_counter": (INFINIBAND,),
    "polarization": (ROCE, TCP),
}
"""Transports that can have a fault, where not all can. Static tables send many destinations over
one link (a collision) as hashes do; polarization is a property of hashes."""

NEEDS_SWITCHES = frozenset({"pause_deadlock", "error_burst"})
"""Faults that are not played where only hosts are watched."""
