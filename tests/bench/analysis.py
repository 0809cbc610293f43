"""CPU of judging one tick of 1,024 hosts of 8 rails: healthy and with trouble.

`64 of 64`: 64 switches of 64 ports are watched, 12,288 ports in all. `all`: more ports than such
switches have, 128 hosts a leaf, and eight to one above.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from fabmon.analysis.analyst import Analyst
from fabmon.fabric.garbage_collection import GarbageSchedule
from fabmon.fabric.model import Host
from fabmon.fabric.snapshot import AlignedHistory, Floats, Rows
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Hello
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import FabricShape, Fault, Job, Scenario
from fabmon.history.history import History
from fabmon.session.config import load
from tests.bench.measure import tell

TICKS, FROM = 40, 15
SIZES = {
    "64 of 64": (
        FabricShape(kind="rail", hosts=1024, rails=8, hosts_per_leaf=32, spines=32),
        [f"leaf{number}" for number in range(1, 65)],
    ),
    "all": (
        FabricShape(kind="rail", hosts=1024, rails=8, hosts_per_leaf=128, oversubscription=8.0),
        [],
    ),
}
"""Topologies, and the switches that are watched; all where none is named."""
TROUBLE = (
    Fault(kind="slow_receiver", at=10.0),
    Fault(kind="error_burst", at=10.0),
    Fault(kind="incast", at=12.0, flows=16),
)


HELLOS = "collision, a hello every 10 ticks"
ERRORS = "errors at every port"


class Damaged(NamedTuple):
    """Rates of ports of which every one receives damaged data."""

    rates: AlignedHistory

    def window(self, column: str, ticks: int, end_seq: int, rows: Rows | None = None) -> Floats:
        values = self.rates.window(column, ticks, end_seq, rows)
        return np.full_like(values, 1e4) if column == "damage" else values

    def spread_s(self, ticks: int, end_seq: int) -> float:
        return self.rates.spread_s(ticks, end_seq)


def scenarios(topology: FabricShape) -> dict[str, Scenario]:
    """By what goes on in it."""
    calm = Job(demand=0.1, payload_gb=80.0, placement="packed")
    busy = msgspec.structs.replace(calm, demand=0.6)
    spread = msgspec.structs.replace(busy, placement="scattered")
    collision = Fault(kind="ecmp_collision", at=2.0, where="leaf1/up3")
    return {
        "healthy": Scenario(topology=topology, job=(calm,)),
        ERRORS: Scenario(topology=topology, job=(calm,)),
        "trouble": Scenario(topology=topology, job=(busy,), fault=TROUBLE),
        HELLOS: Scenario(topology=topology, job=(spread,), fault=(collision,)),
    }


def watched(hosts: list[Host], switches: list[str]) -> list[Host]:
    """Those of the nodes that are watched."""
    return [each for each in hosts if each.role != "switch" or each.name in switches]


def with_other_firmware(hello: Hello, number: int) -> Hello:
    """A hello in which a fact of the first port is another one."""
    first, *blocks = hello.blocks
    port, *others = first.objects
    port = msgspec.structs.replace(port, info={**port.info, "firmware": f"28.{number}"})
    first = msgspec.structs.replace(first, objects=(port, *others))
    return msgspec.structs.replace(hello, blocks=(first, *blocks))


def of(tick: Tick, names: set[str]) -> Tick:
    """What a tick has of these nodes."""
    return msgspec.structs.replace(
        tick,
        hellos=tuple(each for each in tick.hellos if each[0] in names),
        frames=tuple(each for each in tick.frames if each[0] in names),
        statuses=tuple(each for each in tick.statuses if each.node in names),
        notices=tuple(each for each in tick.notices if each[0] in names),
    )


class Second(NamedTuple):
    """One tick: ports, open findings, CPU time of history and analysis, whether a hello came."""

    ports: int
    found: int
    history_s: float
    analysis_s: float
    is_hello: bool


def seconds(size: str, case: str, ticks: int) -> Iterator[Second]:
    """The ticks of a case at a size, one after the other."""
    topology, switches = SIZES[size]
    feed = DemoFeed(scenarios(topology)[case])
    hosts = watched(feed.hosts, switches) if switches else feed.hosts
    names = {each.name for each in hosts}
    history = History(hosts)
    analyst = Analyst(load(Path("/dev/null")).thresholds)
    garbage = GarbageSchedule()
    hello: tuple[str, Hello] | None = None
    for number in range(ticks):
        tick = of(feed.step(), names)
        hello = hello or tick.hellos[5]
        is_hello = case == HELLOS and number >= FROM and number % 10 == 0
        if is_hello:
            node, said = hello
            said = with_other_firmware(said, number)
            tick = msgspec.structs.replace(tick, hellos=((node, said),))
        garbage.accept(tick)
        begin = time.process_time()
        snapshot = history.accept(tick)
        history_s = time.process_time() - begin
        if case == ERRORS:
            snapshot = replace(snapshot, aligned=Damaged(snapshot.aligned))
        begin = time.process_time()
        scene = analyst.accept(snapshot)
        analysis_s = time.process_time() - begin
        ports, found = len(snapshot.up), len(scene.findings)
        yield Second(ports, found, history_s, analysis_s, is_hello)


def main() -> None:
    """Medians over ticks, once every window is full."""
    for size, (topology, _) in SIZES.items():
        for case in scenarios(topology):
            *_, last = measured = list(seconds(size, case, TICKS))[FROM:]
            figures = {"switches": size, "case": case, "ports": last.ports, "open": last.found}
            tell("analysis_tick", figures, [each.analysis_s for each in measured])
            with_hello = [each.history_s for each in measured if each.is_hello]
            if with_hello:
                usual_ms = 1e3 * statistics.median(
                    each.history_s for each in measured if not each.is_hello
                )
                tell("history_hello", {**figures, "usual_ms": usual_ms}, with_hello)


if __name__ == "__main__":
    main()
