"""Plans: what a run is made from, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.world.faults.registry import FAULTS, NEEDS, NEEDS_SWITCHES
from tests.world.job_mixes import DAY, DAY_S, WORKLOADS
from tests.world.topology import CLOS, FAT_TREE, RAIL_KIND
from tests.world.transport import INFINIBAND, ROCE, TCP

MARKS = (0.0, 0.001, 0.01, 0.05)
SKEWS_S = (0.0, 0.2, 0.5)
HOSTS_ONLY = "hosts only"
TOPOLOGIES = (RAIL_KIND, CLOS, FAT_TREE, HOSTS_ONLY)
TRANSPORTS = (ROCE, ROCE, ROCE, INFINIBAND, INFINIBAND, TCP)


@dataclass(frozen=True)
class Plan:
    """All that a run is made from."""

    seed: int
    topology: str
    transport: str
    marks: float
    skew_s: float
    workload: str
    fault: str = ""
    seconds: int = 120


def draw_plan(seed: int, kind: str, workload: str = "", fault: str = "") -> Plan:
    """The plan of a seed; `kind` is `healthy` or `fault`."""
    rng = np.random.default_rng([seed, 1 if kind == "healthy" else 2])
    if kind == "fault":
        fault = fault or str(rng.choice(list(FAULTS)))
    while True:
        topology, transport = str(rng.choice(TOPOLOGIES)), str(rng.choice(TRANSPORTS))
        if transport in NEEDS.get(fault, TRANSPORTS) and not (
            topology == HOSTS_ONLY and fault in NEEDS_SWITCHES
        ):
            break
    marks, skew = float(rng.choice(MARKS)), float(rng.choice(SKEWS_S))
    names = [
        name for name, each in WORKLOADS.items() if name != DAY and (not fault or each.suits(fault))
    ]
    workload = workload or str(rng.choice(names))
    seconds = DAY_S if workload == DAY else 300 if kind == "healthy" else 120
    return Plan(seed, topology, transport, marks, skew, workload, fault, seconds)
