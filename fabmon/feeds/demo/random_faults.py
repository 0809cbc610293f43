"""Random faults after the tour, one after the other, drawn from the seed, each with a caption."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import msgspec
import numpy as np

from fabmon.feeds.demo import faults
from fabmon.feeds.demo.fault_planner import Truth
from fabmon.feeds.demo.scenario import FAT_TREE, LEAF_SPINE, Caption, Fault, Scenario
from fabmon.feeds.demo.world import World

KINDS = tuple(
    kind.__name__
    for kind in (
        faults.ecmp_collision,
        faults.slow_receiver,
        faults.degraded_link,
        faults.straggler,
        faults.incast,
        faults.flapping_link,
        faults.node_lost,
        faults.error_burst,
        faults.polarization,
        faults.pause_storm,
        faults.host_pcie_limit,
    )
)
"""Drawn in random order; each occurs once before any occurs again, where the fabric can have it."""

HOURS = 12.0
_LASTS_S = (25.0, 40.0)
_CALM_S = (20.0, 35.0)
"""Shortest and longest duration of a fault and of the pause after it, s: a finding needs time to
open and to close."""
_IB_ERRORS_PER_S = 300.0
"""Errors of an InfiniBand port; more would saturate its 16-bit counter."""


def with_random_faults(scenario: Scenario, hours: float = HOURS) -> Scenario:
    """The scenario with random faults after its last one, up to so many hours."""
    return msgspec.structs.replace(scenario, fault=(*scenario.fault, *_drawn(scenario, hours)))


def _drawn(scenario: Scenario, hours: float) -> Iterator[Fault]:
    kinds = _kinds(scenario)
    lots = np.random.default_rng([scenario.seed, 4])
    at = max((fault.until for fault in scenario.fault), default=0.0)
    for turn in count():
        if turn % len(kinds) == 0:
            order = lots.permutation(len(kinds))
        at += round(lots.uniform(*_CALM_S))
        lasts = float(round(lots.uniform(*_LASTS_S)))
        if at + lasts > hours * 3600:
            return
        fault = Fault(kind=kinds[order[turn % len(kinds)]], at=at, duration=lasts)
        if scenario.topology.kind == FAT_TREE:
            fault = msgspec.structs.replace(fault, rate=_IB_ERRORS_PER_S)
        yield fault
        at += lasts


def _kinds(scenario: Scenario) -> list[str]:
    """The kinds that this fabric can have: InfiniBand routes by tables, without a hash, and where
    a leaf has one rail, polarization of its few flows is a collision."""
    hashes = scenario.topology.kind == LEAF_SPINE
    return [kind for kind in KINDS if hashes or kind != faults.polarization.__name__]


def captions(world: World, from_s: float, title: Callable[[str], str] = str) -> list[Caption]:
    """A caption for every fault that begins at `from_s` or later, while it is active.

    `title` gives the title of a cause.
    """
    return [
        Caption(
            at=truth.since_s,
            text=f"Demo: injected {title(truth.cause)} on {_subject(truth, world)}",
            duration=truth.until_s - truth.since_s,
        )
        for truth in world.truth
        if truth.since_s >= from_s and truth.until_s is not None
    ]


def _subject(truth: Truth, world: World) -> str:
    hardware = world.hardware
    where = truth.subject
    if "/" in where:
        port = hardware.find_port(where)
        where = f"{hardware.node_of(port)} {hardware.port_label(port)}"
    return where
