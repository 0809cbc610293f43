"""A switch that falls silent while its collision is open: no other link is blamed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest

from fabmon.analysis.finding import Change
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import Scenario
from tests.builders import new_pipeline

SCENARIOS = Path(__file__).parent.parent / "scenario"


@pytest.mark.parametrize("name", ["collision", "polarization"])
def test_ports_that_carry_the_same_job_are_not_blamed_while_the_leaf_is_silent(name: str) -> None:
    table = tomllib.loads((SCENARIOS / f"{name}.toml").read_text(encoding="utf-8"))
    del table["expect"]
    feed = DemoFeed(msgspec.convert(table, Scenario))
    pipeline = new_pipeline(feed.hosts)
    opened = []
    for second in range(36):
        tick = feed.step()
        if 20 <= second < 26:
            heard = tuple((node, frame) for node, frame in tick.frames if node != "leaf1")
            tick = msgspec.structs.replace(tick, frames=heard)
        scene = pipeline.accept(tick)
        opened += [each for change, each in scene.changes if change is Change.OPEN]
    # Meanwhile the hosts still show a queue, without the link that it is at.
    of_links = [each.subject for each in opened if each.cause != "congested_path"]
    assert len(of_links) == 1
    assert of_links[0].startswith("leaf1/")
    assert len(opened) <= 2
