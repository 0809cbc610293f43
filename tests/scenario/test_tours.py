"""The tours of `fabmon demo`: their faults are found with the right cause, and nothing else is."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from fabmon.analysis.finding import Change
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import KINDS, Scenario, tour
from tests.builders import new_pipeline

AFTER_S = 30
"""A finding may open this long after its fault began, and close as long after its end."""


def opened(scenario: Scenario, seconds: int) -> list[tuple[int, str, str]]:
    """When which cause opened on which subject; no detector fails."""
    feed = DemoFeed(scenario)
    pipeline = new_pipeline(feed.hosts)
    found = []
    for second in range(seconds):
        scene = pipeline.accept(feed.step())
        assert scene.failed_detectors == ()
        changes = [each for change, each in scene.changes if change is Change.OPEN]
        found += [(second, each.cause, each.subject) for each in changes]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_of_a_tour_is_found_and_nothing_else(kind: str) -> None:
    scenario = tour(kind)
    found = opened(scenario, int(scenario.fault[-1].until) + 10)
    faults = [(fault.kind, fault.at) for fault in scenario.fault]
    # The first time that a link goes down, it is a link that is down.
    rest = [(second, cause) for second, cause, _ in found if cause != "link_down"]
    assert [cause for _, cause in rest] == [cause for cause, _ in faults]
    for (second, _), (_, at) in zip(rest, faults, strict=True):
        assert at < second <= at + AFTER_S


@pytest.mark.parametrize("kind", KINDS)
def test_the_tip_that_names_enter_comes_with_the_finding(kind: str) -> None:
    """Before that `enter` opens the cell."""
    scenario = tour(kind)
    [tip] = [each for each in scenario.caption if "enter on the finding" in each.text]
    [(second, cause, _)] = opened(scenario, round(tip.at) + 2)
    assert cause == scenario.fault[0].kind
    assert second <= tip.at <= second + 1
    assert tip.at + tip.duration <= scenario.fault[0].until


@pytest.mark.parametrize("kind", KINDS)
def test_the_jobs_of_a_tour_alone_are_healthy(kind: str) -> None:
    assert opened(msgspec.structs.replace(tour(kind), fault=()), 180) == []


def test_the_tour_looks_like_a_cluster() -> None:
    """Hosts differ, two are idle, checkpoints reach the storage servers, uplinks are uneven."""
    scenario = msgspec.structs.replace(tour("leaf-spine"), fault=())
    world = DemoFeed(scenario).world
    hardware = world.hardware
    sent = np.array([world.advance(1.0).sent for _ in range(90)])
    nics = sent[:, : hardware.nics].reshape(90, hardware.hosts, hardware.rails)
    of_host = nics.mean(axis=(0, 2)) / hardware.speed[0]
    working = set(range(hardware.training_hosts)) - {
        host for host in range(hardware.hosts) if of_host[host] == 0
    }
    assert len(working) == 12
    assert len({round(share, 2) for share in of_host[sorted(working)]}) >= 6
    to_storage = sent[:, hardware.cabling[hardware.training_hosts * hardware.rails]]
    assert to_storage.max() > 5 * np.median(to_storage)
    uplinks = sent[:, hardware.uplinks(0)].mean(axis=0)
    assert 1.1 < uplinks.max() / uplinks.mean() < 1.5


def test_a_switch_that_is_not_read_for_a_while_takes_no_detector_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With NVLinks the values of adjacent ports are views of what is kept: nobody changes them."""
    feed = DemoFeed(tour("leaf-spine"))
    pipeline = new_pipeline(feed.hosts)
    for second in range(30):
        made = feed.step()
        if second >= 20:
            frames = tuple(each for each in made.frames if each[0] != "leaf1")
            made = msgspec.structs.replace(made, frames=frames)
        pipeline.accept(made)
    assert not caplog.records
