"""CPU of judging one tick: 1,024 hosts of 8 rails below 64 leaves, healthy and with trouble."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from fabmon.analysis.analyst import Analyst
from fabmon.cli.config import load
from fabmon.fabric.messages import Hello
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import Fault, Job, Scenario, Topology
from fabmon.history.history import History
from tests.bench.measure import tell

TICKS, FROM = 40, 15
HELLOS = "collision, a hello every 10 ticks"


def scenario(*faults: Fault, placement: Literal["packed", "scattered"] = "packed") -> Scenario:
    """More ports than 64 switches of 64 have: 128 hosts a leaf, and eight to one above."""
    return Scenario(
        topology=Topology(
            kind="rail", hosts=1024, rails=8, hosts_per_leaf=128, oversubscription=8.0
        ),
        job=(Job(demand=0.6 if faults else 0.1, payload_gb=80.0, placement=placement),),
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
        HELLOS: scenario(Fault(kind="collision", at=2.0, where="leaf1/up3"), placement="scattered"),
    }
    for name, each in cases.items():
        feed = DemoFeed(each)
        history = History(feed.hosts)
        analyst = Analyst(load(Path("/dev/null")).thresholds)
        taken, at_hello, ports = [], [], 0
        hello: tuple[str, Hello] | None = None
        for number in range(TICKS):
            tick = feed.step()
            hello = hello or tick.hellos[5]
            is_hello = name == HELLOS and number >= FROM and number % 10 == 0
            if is_hello:
                node, said = hello
                tick = replace(tick, hellos=((node, replace(said, kernel=f"6.1.{number}")),))
            begin = time.process_time()
            moment = history.accept(tick)
            if is_hello:
                at_hello.append(time.process_time() - begin)
            begin = time.process_time()
            scene = analyst.accept(moment)
            if number >= FROM:
                taken.append(time.process_time() - begin)
            ports = len(moment.up)
        tell("analysis_tick", {"case": name, "ports": ports, "open": len(scene.findings)}, taken)
        if at_hello:
            tell("history_hello", {"case": name, "ports": ports}, at_hello)


if __name__ == "__main__":
    main()
