"""What the score counts as right, wrong and missed."""

from __future__ import annotations

import pytest

from tests.score.match import Score, score
from tests.score.play import Played, Reported
from tests.world.plans import HOSTS_ONLY, Plan
from tests.world.topology import CLOS
from tests.world.transport import ROCE
from tests.world.truth import Truth

UPLINK, AFFECTED = "leaf1/swp17", frozenset({"gpu1/mlx5_0", "gpu2/mlx5_0"})


def truth(cause: str = "ecmp_collision", port: str = UPLINK, required: bool = True) -> Truth:
    """A queue at a port, from second 50 to 90."""
    return Truth(
        cause,
        frozenset({cause}),
        50.0,
        90.0,
        ports={port},
        nodes={port.partition("/")[0]},
        affected=set(AFFECTED),
        active_s=40.0,
        first_s=52.0,
        required=required,
        inside=True,
    )


def finding(
    cause: str = "ecmp_collision", subject: str = UPLINK, opened_s: float = 55.0
) -> Reported:
    return Reported(opened_s, subject, opened_s + 30, [cause] * 30, [subject])


def judged(reported: list[Reported], truths: list[Truth], topology: str = CLOS) -> Score:
    plan = Plan(1, topology, ROCE, 0.0, 0.0, "ring")
    return score(Played(plan, truths, reported, ""))


def test_a_finding_at_its_place_is_right_and_has_found_the_fault() -> None:
    result = judged([finding()], [truth()])
    assert [after for _, after in result.found] == [3.0]
    assert not result.wrong
    assert not result.missed


@pytest.mark.parametrize(
    "reported",
    [
        finding(subject="leaf2/swp17"),
        finding(cause="incast"),
        finding(opened_s=15.0),
        finding(opened_s=106.0),
    ],
    ids=["elsewhere", "another cause", "long before", "long after"],
)
def test_other_findings_are_wrong_and_the_fault_is_missed(reported: Reported) -> None:
    result = judged([reported], [truth()])
    assert result.wrong == [reported]
    assert len(result.missed) == 1


def test_a_finding_of_an_open_fault_counts_by_the_cause_of_most_of_its_time() -> None:
    reported = finding()
    reported.causes = ["incast"] * 5 + ["ecmp_collision"] * 20 + ["incast"] * 5
    assert not judged([reported], [truth()]).wrong


def test_from_hosts_alone_only_the_congested_path_is_right() -> None:
    congested = finding("congested_path", "gpu1")
    congested.ports = sorted(AFFECTED)
    named = finding("oversubscription", "gpu1")
    named.ports = sorted(AFFECTED)
    result = judged([congested, named], [truth()], HOSTS_ONLY)
    assert result.wrong == [named]
    assert not result.missed
    assert judged([congested], [truth()]).wrong == [congested]


def test_a_congested_path_may_be_about_the_queues_of_several_rails() -> None:
    rails = [truth(port=f"leaf{rail}/swp17") for rail in range(4)]
    for rail, each in enumerate(rails):
        each.affected = {f"gpu{host}/mlx5_{rail}" for host in range(16)}
    congested = finding("congested_path", "paths between hosts")
    congested.ports = [f"gpu{host}/mlx5_{rail}" for host in range(4) for rail in range(4)]
    assert not judged([congested], rails, HOSTS_ONLY).wrong
    congested.ports = [f"gpu{host}/mlx5_7" for host in range(16)]
    assert judged([congested], rails, HOSTS_ONLY).wrong == [congested]


def test_two_links_with_the_same_flows_need_one_finding() -> None:
    result = judged([finding()], [truth(), truth(port="spine1/swp2")])
    assert len(result.found) == 1
    assert not result.missed


def test_a_fault_that_need_not_be_found_is_not_missed() -> None:
    assert not judged([], [truth(required=False)]).missed
