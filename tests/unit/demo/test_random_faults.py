"""The tour continues: faults of every kind keep coming, and each is reported while it lasts."""

from __future__ import annotations

import pytest

from fabmon.analysis.causes import title
from fabmon.feeds.demo.random_faults import KINDS, captions, with_random_faults
from fabmon.feeds.demo.scenario import KINDS as FABRICS
from fabmon.feeds.demo.scenario import resized, tour
from fabmon.feeds.demo.world import World


@pytest.mark.parametrize("fabric", FABRICS)
def test_after_the_tour_one_fault_follows_the_other(fabric: str) -> None:
    guided = tour(fabric)
    scenario = with_random_faults(guided, hours=0.5)
    world = World(scenario)
    assert scenario.fault[: len(guided.fault)] == guided.fault
    after = scenario.fault[len(guided.fault) :]
    kinds = set(KINDS) - (set() if fabric == "leaf-spine" else {"polarization"})
    assert {fault.kind for fault in after[: len(kinds)]} == kinds
    pairs = list(zip(scenario.fault[len(guided.fault) - 1 :], after, strict=False))
    assert all(20 <= later.at - fault.until <= 35 for fault, later in pairs)
    assert 1800 - 75 <= after[-1].until <= 1800
    assert len(captions(world, guided.fault[-1].until)) == sum(
        truth.since_s >= after[0].at for truth in world.truth
    )


def test_the_seed_draws_them() -> None:
    guided = tour("leaf-spine")
    assert with_random_faults(guided) == with_random_faults(guided)
    assert with_random_faults(guided).fault != with_random_faults(resized(guided, None, 8)).fault


def test_captions_have_the_causes_and_ports_as_the_screen_does() -> None:
    lines = captions(World(tour("leaf-spine")), 132, title)
    assert [(line.at, line.duration, line.text) for line in lines] == [
        (150, 25, "Demo: injected Degraded link on leaf3 up12"),
        (205, 40, "Demo: injected Straggler on gpu009"),
        (285, 25, "Demo: injected Incast on leaf4 dn17"),
        (350, 20, "Demo: injected Flapping link on leaf2 up7"),
        (420, 30, "Demo: injected Polarization on leaf4"),
    ]
