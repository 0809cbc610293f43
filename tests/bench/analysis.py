"""CPU of judging one tick: 1,024 hosts of 8 rails below 64 leaves, healthy and with trouble."""

from __future__ import annotations

import time
from pathlib import Path

from fabmon.analysis.analyst import Analyst
from fabmon.cli.config import load
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import Fault, Job, Scenario, Topology
from fabmon.history.history import History
from tests.bench.measure import tell

TICKS, FROM = 40, 15


def scenario(*faults: Fault) -> Scenario:
    """More ports than 64 switches of 64 have: 128 hosts a leaf, and eight to one above."""
    return Scenario(
        topology=Topology(
            kind="rail", hosts=1024, rails=8, hosts_per_leaf=128, oversubscription=8.0
        ),
        job=(Job(demand=0.6 if faults else 0.1, payload_gb=80.0, placement="packed"),),
        fault=faults,
    )


def main() -> None:
    """Medians over ticks, once every window is full."""
    cases = {
        "healthy": scenario(),
        "trouble": scenario(
            Fault(kind="slow_receiver", at=10.0),
            Fault(kind="error_burst", at=10.0),
            Fault(kind="incast", at=12.0, flows=16),
        ),
    }
    for name, each in cases.items():
        feed = DemoFeed(each)
        history = History(feed.hosts)
        analyst = Analyst(load(Path("/dev/null")).thresholds)
        taken, ports = [], 0
        for tick in range(TICKS):
            moment = history.accept(feed.step())
            begin = time.process_time()
            scene = analyst.accept(moment)
            if tick >= FROM:
                taken.append(time.process_time() - begin)
            ports = len(moment.up)
        tell("analysis_tick", {"case": name, "ports": ports, "open": len(scene.findings)}, taken)


if __name__ == "__main__":
    main()
