"""The demo feed at a thousand hosts: traffic, counters and frames, without who reads them."""

from __future__ import annotations

import statistics
import time

from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import FabricShape, Fault, Job, Scenario
from tests.bench.measure import tell

TICKS = 60

SCENARIO = Scenario(
    topology=FabricShape(
        kind="rail", hosts=1024, rails=8, hosts_per_leaf=256, spines=32, oversubscription=4
    ),
    job=(
        Job(name="ring", hosts=512, demand=0.2, qps=2),
        Job(name="tree", hosts=256, collective="tree", demand=0.2),
        Job(name="moe", collective="all-to-all", group=16, demand=0.2),
    ),
    fault=(
        Fault(kind="slow_receiver", at=15, duration=15),
        Fault(kind="flapping_link", at=35, duration=15),
    ),
)
"""1,024 hosts x 8 rails, 64 switches, three jobs out of step, and now and then a fault."""


def main() -> None:
    """Print the share of a core that the whole simulation takes at one tick a second."""
    start = time.process_time()
    feed = DemoFeed(SCENARIO)
    feed.step()
    began_s = time.process_time() - start
    taken = []
    for _ in range(TICKS):
        start = time.process_time()
        tick = feed.step()
        taken.append(time.process_time() - start)
    hardware = feed.world.hardware
    values = sum(len(block) for _, frame in tick.frames for block in frame.blocks if block)
    tell(
        "demo",
        {
            "hosts": hardware.hosts,
            "rails": hardware.rails,
            "switches": hardware.leaves + hardware.spines,
            "ports": hardware.ports,
            "values_per_tick": values,
            "cores_at_1hz": round(statistics.mean(taken), 4),
            "first_tick_ms": round(began_s * 1e3, 1),
        },
        taken,
    )


if __name__ == "__main__":
    main()
