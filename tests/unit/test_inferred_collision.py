"""A collision behind an unwatched switch is inferred, whatever other switches are watched."""

from __future__ import annotations

import msgspec
import pytest

from fabmon.analysis.finding import Change
from fabmon.feeds.demo.feed import DemoFeed
from tests.builders import new_pipeline
from tests.scenario.test_scenarios import HERE, read

SECONDS = 25


def told(watched: set[str], silent_from: int = SECONDS) -> list[str]:
    """The subjects of collisions, of a fabric with one at leaf1 from second 15 on."""
    scenario, _ = read(HERE / "collision.toml")
    feed = DemoFeed(scenario)

    def hears(node: str, second: int) -> bool:
        is_switch = node.startswith(("leaf", "spine"))
        return not is_switch or (node in watched and second < silent_from)

    pipeline = new_pipeline([host for host in feed.hosts if hears(host.name, 0)])
    subjects = []
    for second in range(SECONDS):
        tick = feed.step()
        tick = msgspec.structs.replace(
            tick,
            hellos=tuple(each for each in tick.hellos if hears(each[0], second)),
            frames=tuple(each for each in tick.frames if hears(each[0], second)),
            statuses=tuple(each for each in tick.statuses if hears(each.node, second)),
        )
        for change, finding in pipeline.accept(tick).changes:
            if change is Change.OPEN and finding.cause == "ecmp_collision":
                subjects.append(finding.subject)
    return subjects


@pytest.mark.parametrize("watched", [set(), {"leaf2"}, {"spine1"}])
def test_switches_that_do_not_see_it_do_not_silence_the_hosts(watched: set[str]) -> None:
    assert len(told(watched)) == 1


def test_switches_that_fell_silent_do_not_silence_the_hosts() -> None:
    every = {"leaf1", "leaf2", *(f"spine{number}" for number in range(1, 5))}
    assert told(every, silent_from=12) == ["leaf1 to leaf2"]


def test_a_switch_that_sees_it_tells_it_alone() -> None:
    assert told({"leaf1"}) == ["leaf1/swp19"]
