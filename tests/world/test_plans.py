"""Plans: stratified over causes and axes, and functions of their seeds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.world.faults.registry import FAULTS, NEEDS
from tests.world.plans import HOSTS_ONLY, MARKS, SKEWS_S, TOPOLOGIES, TRANSPORTS, Plan, draw_plan
from tests.world.runs import build, truths
from tests.world.topology import RAIL_KIND, STATIC
from tests.world.transport import INFINIBAND

ROUND = len(FAULTS)
TURNS = 12
"""Runs of a cause that have each value of each axis equally often."""


def test_every_cause_has_as_many_runs_and_each_of_its_axes_is_even() -> None:
    plans = [draw_plan(seed, "fault") for seed in range(ROUND * TURNS)]
    for name in FAULTS:
        mine = [plan for plan in plans if plan.fault == name]
        assert len(mine) == TURNS
        assert set(Counter(plan.marks for plan in mine).values()) == {TURNS // len(MARKS)}
        assert set(Counter(plan.skew_s for plan in mine).values()) == {TURNS // len(SKEWS_S)}
        used = Counter(plan.transport for plan in mine)
        assert set(used) == set(NEEDS.get(name, TRANSPORTS))
        assert len(set(used.values())) == 1
        watched = Counter(plan.topology for plan in mine)
        assert len(set(watched.values())) == 1
        assert set(watched) >= set(TOPOLOGIES) - {HOSTS_ONLY}


@pytest.mark.parametrize("first", [1, 250_001])
def test_consecutive_seeds_have_each_cause_once_or_twice(first: int) -> None:
    causes = Counter(draw_plan(seed, "fault").fault for seed in range(first, first + 3 * ROUND))
    assert set(causes) == set(FAULTS)
    assert set(causes.values()) <= {2, 3, 4}


def test_the_runs_of_one_cause_differ_in_their_axes() -> None:
    plans = [draw_plan(seed, "fault", fault="incast") for seed in range(TURNS)]
    assert {plan.fault for plan in plans} == {"incast"}
    assert Counter(plan.marks for plan in plans) == dict.fromkeys(MARKS, TURNS // len(MARKS))
    assert len({(plan.marks, plan.skew_s, plan.transport) for plan in plans}) > TURNS // 2


def test_a_fault_that_a_workload_cannot_have_is_played_with_another() -> None:
    # A pipeline crosses each leaf's uplinks once: no two destinations can share one.
    plan = Plan(1, RAIL_KIND, INFINIBAND, 0.0, 0.0, "pipeline", "ecmp_collision")
    assert build(plan).plan.workload != plan.workload


def test_a_static_table_sends_several_destinations_over_one_link() -> None:
    seeds = range(200)
    plans = (draw_plan(seed, "fault", "ring", "ecmp_collision") for seed in seeds)
    run = build(next(plan for plan in plans if plan.transport == INFINIBAND))
    assert run.routing == STATIC
    world = run.world
    for second in range(1, 76):
        world.advance(float(second), np.full(world.topology.ports, 1e9), lambda *_: None)
    found = [t for t in truths(run) if t.cause == "ecmp_collision" and t.end_s > 55]
    assert any(truth.required for truth in found)
    assert "congested_path" in found[0].names
