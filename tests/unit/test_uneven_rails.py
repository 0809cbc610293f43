"""Rails that a job leaves out: one root keeps one name, whoever is heard and however many."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fabmon.analysis.finding import Change
from fabmon.fabric.tick import Tick
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import parse
from tests.builders import new_pipeline

JOB = """
[topology]
kind = "rail"
hosts = 8
rails = 4
routing = "spray"
[[job]]
name = "train"
compute_s = 1.0
payload_gb = 60.0
demand = 0.7
"""
LEAVES_OUT_R3 = """
[[fault]]
kind = "uneven_rails"
at = 8.0
for = 22.0
shares = [1.0, 1.0, 1.0, 0.2]
"""
THEN_R2_TOO = """
[[fault]]
kind = "uneven_rails"
at = 30.0
for = 22.0
shares = [1.0, 1.0, 0.2, 0.2]
"""


def lives(text: str, seconds: int, heard: Callable[[int, Tick], Tick]) -> list[str]:
    """What opens and closes; `heard` is what of a tick comes through."""
    feed = DemoFeed(parse(text))
    pipeline = new_pipeline(feed.hosts)
    told = []
    for second in range(seconds):
        scene = pipeline.accept(heard(second, feed.step()))
        told += [
            f"{change} {finding.subject}"
            for change, finding in scene.changes
            if change is not Change.UPDATE
        ]
    return told


def test_hosts_that_are_heard_late_join_the_finding_of_the_first() -> None:
    def first_only(second: int, tick: Tick) -> Tick:
        if not 5 <= second < 22:
            return tick
        late = tuple(f for f in tick.frames if f[0] == "gpu001" or not f[0].startswith("gpu"))
        return msgspec.structs.replace(tick, frames=late)

    assert lives(JOB + LEAVES_OUT_R3, 55, first_only) == ["open rails r3", "close rails r3"]


def test_a_finding_keeps_its_name_when_another_rail_is_left_out_too() -> None:
    told = lives(JOB + LEAVES_OUT_R3 + THEN_R2_TOO, 80, lambda _, tick: tick)
    assert told == ["open rails r3", "close rails r3"]
