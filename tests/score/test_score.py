"""The scorer itself, and that what it measures does not rot: a few seeds of `make score`."""

from __future__ import annotations

import pytest

from fabmon.feeds.demo.scenario import FabricShape, Fault, Job, Scenario
from tests.score import draw
from tests.score.match import Expected, score
from tests.score.play import ReportedFinding, play
from tests.score.table import report


@pytest.mark.parametrize("seed", [2, 3, 5, 7, 3103])
def test_a_drawn_fabric_is_judged_right(seed: int) -> None:
    result = score(play(draw.scenario(seed), draw.SECONDS))
    assert [reported.text for reported in result.wrong] == []
    assert [each.cause for each in result.expected if each.must and not each.found] == []


def test_a_drawn_fabric_is_the_same_every_time() -> None:
    assert draw.scenario(17) == draw.scenario(17)


def test_a_finding_in_the_wrong_place_is_wrong_and_does_not_find() -> None:
    fault = Fault(kind="degraded_link", at=5.0, where="leaf1/up1")
    topology = FabricShape(hosts=8, rails=2, routing="spray")
    played = play(Scenario(topology=topology, job=(Job(demand=0.5),), fault=(fault,)), 20)
    (reported,) = played.reported
    elsewhere = ReportedFinding(
        reported.second, reported.cause, "leaf2/swp9", ("leaf2/swp9",), "", 1.0
    )
    played.reported = [elsewhere]
    result = score(played)
    assert result.wrong == [elsewhere]
    assert found(result.expected) == []
    played.reported = [
        reported,
        ReportedFinding(
            reported.second + 1, reported.cause, reported.subject, reported.ports, "", 1.0
        ),
    ]
    result = score(played)
    assert len(result.wrong) == 1, "what is reported twice is wrong once"
    assert found(result.expected) == ["degraded_link"]


def test_rails_of_a_job_that_does_not_move_show_nothing() -> None:
    topology = FabricShape(hosts=8, rails=4, routing="spray")
    uneven = Fault(kind="uneven_rails", at=10.0)
    storm = Fault(kind="pause_storm", at=12.0, where="gpu003/r0", share=1.0)
    job = (Job(demand=0.5, payload_gb=80.0),)
    for faults, must in (((uneven,), True), ((uneven, storm), False)):
        result = score(play(Scenario(topology=topology, job=job, fault=faults), 40))
        (rails,) = [each for each in result.expected if each.cause == "uneven_rails"]
        assert rails.must is must
        assert bool(rails.found) is must


def test_collisions_of_healthy_hashing_are_read_from_the_queues() -> None:
    topology = FabricShape(hosts=16, rails=2, routing="hash")
    played = play(Scenario(topology=topology, job=(Job(demand=0.8, payload_gb=80.0),)), 30)
    result = score(played)
    assert {each.cause for each in result.expected if each.must} == {"ecmp_collision"}
    assert "| ecmp_collision |" in report([result], [], [])


def found(expected: list[Expected]) -> list[str]:
    return [each.cause for each in expected if each.found]
