"""What goes wrong after the tour: one fault after the other, drawn by the seed, and told."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import msgspec
import numpy as np

from fabmon.feeds.demo.fault_planner import Truth
from fabmon.feeds.demo.scenario import FAT_TREE, Caption, Fault, FaultKind, Scenario
from fabmon.feeds.demo.world import World

KINDS: tuple[FaultKind, ...] = (
    "collision",
    "slow_receiver",
    "degraded_link",
    "straggler",
    "incast",
    "flap",
    "node_lost",
    "error_burst",
    "polarization",
    "pause_storm",
    "pcie_limit",
)
"""Every one of them comes once before any comes again, where the fabric can have it."""

HOURS = 12.0
_LASTS_S = (25.0, 40.0)
_CALM_S = (20.0, 35.0)
"""Shortest and longest; a finding needs some of the first to open, some of the second to close."""


def with_random_faults(scenario: Scenario, hours: float = HOURS) -> Scenario:
    """The same, and after its last fault others until so many hours are over."""
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
        yield Fault(kind=kinds[order[turn % len(kinds)]], at=at, duration=lasts)
        at += lasts


def _kinds(scenario: Scenario) -> list[FaultKind]:
    """InfiniBand goes by tables, and hashes nothing."""
    hashes = scenario.topology.kind != FAT_TREE
    return [kind for kind in KINDS if hashes or kind != "polarization"]


def told(world: World, from_s: float) -> list[Caption]:
    """A line for each thing that goes wrong from a time on, while it does."""
    return [
        Caption(
            at=truth.since_s,
            text=f"On purpose now, by the script: {_said(truth, world)}.",
            duration=truth.until_s - truth.since_s,
        )
        for truth in world.truth
        if truth.since_s >= from_s and truth.until_s is not None
    ]


def _said(truth: Truth, world: World) -> str:
    hardware = world.hardware
    where = truth.subject
    if "/" in where:
        port = hardware.find_port(where)
        where = f"{hardware.node_of(port)} {hardware.port_label(port)}"
    return f"{truth.cause.replace('_', ' ')}, {where}"
