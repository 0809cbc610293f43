"""Plans: what a run is made from, drawn from its seed.

Draws are stratified: of as many consecutive seeds as there are causes, each cause has one, and the
runs of a cause have each value of each axis equally often, as in a Latin hypercube. A plan depends
on its seed alone: the seed is a place in a sequence of random permutations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tests.world.faults.registry import FAULTS, NEEDS, NEEDS_SWITCHES
from tests.world.job_mixes import DAY, DAY_S, WORKLOADS
from tests.world.topology import CLOS, FAT_TREE, RAIL_KIND
from tests.world.transport import INFINIBAND, ROCE, TCP

MARKS = (0.0, 0.001, 0.01, 0.05)
SKEWS_S = (0.0, 0.2, 0.5)
HOSTS_ONLY = "hosts only"
TOPOLOGIES = (RAIL_KIND, CLOS, FAT_TREE, HOSTS_ONLY)
TRANSPORTS = (ROCE, INFINIBAND, TCP)

_CAUSE, _TOPOLOGY, _TRANSPORT, _MARKS, _SKEW, _WORKLOAD = range(6)

_Value = TypeVar("_Value")


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
    """The plan of a seed; `kind` is `healthy` or `fault`.

    With a given workload or fault it is another plan than the seed has without.
    """
    # Which run of its cause it is: seeds that all have one cause follow each other.
    turn = seed
    if kind == "fault" and not fault:
        causes = [name for name in FAULTS if not workload or WORKLOADS[workload].suits(name)]
        fault = _pick(causes or list(FAULTS), seed, _CAUSE)
        turn = seed // len(causes or FAULTS)
    key = 1 + list(FAULTS).index(fault) if fault else 0
    topologies = [t for t in TOPOLOGIES if t != HOSTS_ONLY or fault not in NEEDS_SWITCHES]
    transports = [t for t in TRANSPORTS if t in NEEDS.get(fault, TRANSPORTS)]
    names = [
        name for name, each in WORKLOADS.items() if name != DAY and (not fault or each.suits(fault))
    ]
    workload = workload or _pick(names, turn, _WORKLOAD, key)
    seconds = DAY_S if workload == DAY else 300 if kind == "healthy" else 120
    return Plan(
        seed,
        _pick(topologies, turn, _TOPOLOGY, key),
        _pick(transports, turn, _TRANSPORT, key),
        _pick(MARKS, turn, _MARKS, key),
        _pick(SKEWS_S, turn, _SKEW, key),
        workload,
        fault,
        seconds,
    )


def _pick(values: Sequence[_Value], turn: int, *key: int) -> _Value:
    """The value that it is the turn of: all values once each, then again in another order."""
    again, place = divmod(turn, len(values))
    order = np.random.default_rng([again, *key]).permutation(len(values))
    return values[int(order[place])]
