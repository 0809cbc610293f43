"""The tour on fabrics of every size that `fabmon demo --hosts` takes."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from fabmon.feeds.demo import scenario as scenarios
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.random_faults import with_random_faults


@pytest.mark.parametrize(
    ("kind", "hosts"),
    [
        *(("leaf-spine", hosts) for hosts in (4, 20, 128, 1024)),
        *(("rail", hosts) for hosts in (4, 256)),
        *(("fat-tree", hosts) for hosts in (20, 256)),
    ],
)
def test_every_size_starts(kind: str, hosts: int) -> None:
    feed = DemoFeed(with_random_faults(scenarios.resized(scenarios.tour(kind), hosts, None)))
    first, second = feed.step(), feed.step()
    assert len(first.hellos) == len(feed.hosts) == len(second.frames) >= hosts


def test_the_uplinks_of_a_large_fabric_are_loaded_evenly() -> None:
    """Flows are spread over some uplinks each, and over all of them together."""
    scenario = scenarios.resized(scenarios.tour("leaf-spine"), 256, None)
    even = msgspec.structs.replace(scenario.topology, hash_noise=0.0)
    feed = DemoFeed(msgspec.structs.replace(scenario, topology=even))
    world = feed.world
    hardware = world.hardware
    loads = np.sum([world.advance(1.0).sent for _ in range(6)], axis=0)
    for leaf in range(hardware.leaves):
        sent = loads[hardware.uplinks(leaf)]
        assert sent.min() > 0
        assert sent.max() / sent.mean() < 1.1
