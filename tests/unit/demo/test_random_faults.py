"""The tour goes on: faults of every kind keep coming, and each is told while it lasts."""

from __future__ import annotations

import pytest

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
    kinds = set(KINDS) - ({"polarization"} if fabric == "fat-tree" else set())
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


def test_what_goes_wrong_is_told_in_the_words_of_the_screen() -> None:
    lines = captions(World(tour("leaf-spine")), 70)
    assert [(line.at, line.duration, line.text.partition(": ")[2]) for line in lines] == [
        (75, 25, "degraded link, leaf3 up12."),
        (110, 30, "straggler, gpu003."),
        (150, 20, "incast, leaf4 dn17."),
        (180, 20, "flapping link, leaf2 up7."),
        (215, 30, "polarization, leaf4."),
    ]
