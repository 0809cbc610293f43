"""Simulated fabrics for tests, and what their nodes count, read back from the ticks."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Hello, check
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import FabricShape, Fault, Job, Scenario


def scenario(*faults: Fault, seed: int = 1, job: Job | None = None, **topology: Any) -> Scenario:
    """16 hosts of 4 rails in a rail-optimised fabric, one job, and these faults."""
    shape = {"kind": "rail", "rails": 4, "routing": "spray", **topology}
    return Scenario(seed=seed, topology=FabricShape(**shape), job=(job or Job(),), fault=faults)


class Reader:
    """Counters by port and metric, tick by tick; every frame must fit its hello."""

    def __init__(self, feed: DemoFeed) -> None:
        self.feed = feed
        self.hellos: dict[str, Hello] = {}
        self.now: dict[tuple[str, str], int] = {}
        self.before: dict[tuple[str, str], int] = {}
        self.ticks: list[Tick] = []

    def step(self, ticks: int = 1) -> Reader:
        """Let ticks pass."""
        for _ in range(ticks):
            self.before = dict(self.now)
            tick = self.feed.step()
            self.ticks.append(tick)
            self.hellos.update(tick.hellos)
            for name, frame in tick.frames:
                hello = self.hellos[name]
                check(frame, hello)
                for info, block in zip(hello.blocks, frame.blocks, strict=True):
                    if block is None:
                        continue
                    values = iter(block[1:])
                    for item in info.objects:
                        for metric in item.metrics:
                            value = next(values)
                            assert value is not None
                            self.now[f"{name}/{item.port}", metric] = value
        return self

    def delta(self, port: str, metric: str) -> int:
        """How far a counter has moved in the last tick."""
        return self.now[port, metric] - self.before[port, metric]

    def level(self, port: str, metric: str) -> int:
        """A gauge."""
        return self.now[port, metric]

    def moved(self, metric: str, ticks: int) -> dict[str, int]:
        """How far a counter moves at each port in so many ticks."""
        begin = dict(self.now)
        self.step(ticks)
        total: dict[str, int] = defaultdict(int)
        for (port, name), value in self.now.items():
            if name == metric:
                total[port] = value - begin[port, name]
        return total


def planned_cables(feed: DemoFeed) -> list[tuple[str, str]]:
    """Both ends of every planned cable, as `node/port`."""
    hardware = feed.world.hardware
    ends = enumerate(hardware.cabling.tolist())
    return [(hardware.port_id(a), hardware.port_id(b)) for a, b in ends if a < b]
