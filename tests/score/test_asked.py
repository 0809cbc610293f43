"""The figures of runs, and what the page says is reached."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.score.asked import CASES_OF_CAUSE, Asked, asked
from tests.score.figures import (
    brier_score,
    calibration,
    confidences,
    figures,
    health,
    injected,
    losses,
)
from tests.score.match import Score
from tests.score.play import Played, Reported
from tests.score.revisions import IN_USE
from tests.score.size import Size
from tests.score.table import report
from tests.world.faults.registry import FAULTS
from tests.world.plans import HOSTS_ONLY, MARKS, SKEWS_S, TOPOLOGIES, TRANSPORTS, Plan
from tests.world.topology import CLOS
from tests.world.transport import ROCE, TCP
from tests.world.truth import Truth

SIZE = Size(lines=2501, settings=30, constants=0)
SIZES = {IN_USE: SIZE, "other": SIZE}
PLAN = Plan(1, CLOS, ROCE, 0.0, 0.0, "ring", "incast")


def finding(cause: str = "incast", confidence: float = 0.95, lost: float = 0.5) -> Reported:
    return Reported(50.0, "leaf1/swp1", causes=[cause], confidences=[confidence], losses=[lost])


def truth(cause: str = "incast", lost: float = 0.5) -> Truth:
    return Truth(
        *(cause, frozenset({cause}), 50.0, 90.0),
        active_s=10.0,
        lost_sum=10 * lost,
        full_s=10.0,
        more_s=10 * lost / (1 - lost),
        natural=False,
    )


def run(
    found: int = 0,
    missed: int = 0,
    wrong: int = 0,
    cause: str = "incast",
    plan: Plan = PLAN,
    after_s: float = 2.0,
) -> Score:
    """A run with so many faults of a cause, all of them true."""
    truths = [truth(cause) for _ in range(found + missed)]
    right = [(finding(cause), each) for each in truths[:found]]
    false = [finding(cause) for _ in range(wrong)]
    played = Played(plan, truths, [*(r for r, _ in right), *false], "")
    return Score(played, right, false, [(t, after_s) for t in truths[:found]], truths[found:])


def every_value() -> list[Score]:
    """Runs in which every axis value and every cause is found often enough."""
    plans = [
        Plan(1, topology, transport, marks, skew, "ring", "any")
        for topology in TOPOLOGIES
        for transport in TRANSPORTS
        for marks in MARKS
        for skew in SKEWS_S
    ]
    runs = [run(found=1, cause=cause, plan=plan) for plan in plans for cause in FAULTS]
    for mine in runs:
        mine.right[0][1].ports = {mine.right[0][0].subject}
    healthy = replace(PLAN, fault="", seconds=300)
    return runs + [run(plan=healthy) for _ in range(120)]


def line(lines: list[Asked], *words: str) -> Asked:
    """The line that has all these words."""
    [found] = [each for each in lines if all(word in each.text for word in words)]
    return found


def test_recall_by_run_counts_a_run_with_many_faults_once() -> None:
    f = figures([run(missed=12), run(found=1)])
    assert f.recall == 1 / 13
    assert f.by_run == 0.5


def test_figures_of_a_cause_are_of_what_is_said_and_of_what_is_true() -> None:
    scores = [run(found=3, wrong=1), run(found=1, missed=1, cause="straggler")]
    mine = figures(scores, "incast")
    assert (mine.findings, mine.precision, mine.recall) == (4, 0.75, 1.0)
    assert figures(scores, "straggler").recall == 0.5


def test_a_critical_finding_in_a_healthy_run_counts_even_when_it_is_right() -> None:
    healthy = run(plan=replace(PLAN, fault="", seconds=300))
    healthy.played.reported.append(replace(finding("saturated_counter"), critical=True))
    assert health([healthy, run(found=1)]).critical_runs == 1
    reached = line(asked([healthy] * 120, SIZE), "critical")
    assert (reached.reached, reached.is_reached) == ("120 of 120", False)


def test_the_time_to_flag_is_that_of_injected_faults() -> None:
    mine = run(found=1, after_s=2.0)
    others = run(found=1, cause="oversubscription", after_s=30.0)
    others.found[0][0].natural = True
    assert injected([mine, others]) == [2.0]


def test_calibration_is_of_the_findings_that_are_sure() -> None:
    unsure = run(found=2)
    unsure.right[0] = (finding(confidence=0.8), unsure.right[0][1])
    c = calibration([unsure, run(wrong=1)])
    assert (c.kept, c.said) == (0.5, 0.5)


def test_the_brier_score_is_of_all_findings() -> None:
    pairs = confidences([run(found=1), run(wrong=1)])
    assert pairs == [(0.95, True), (0.95, False)]
    assert brier_score(pairs) == pytest.approx((0.05**2 + 0.95**2) / 2)
    assert brier_score([]) is None


def collision(said: float, is_upper_bound: bool = False) -> Score:
    """A run with a right collision that loses 20 %."""
    found = finding("ecmp_collision", lost=said)
    found.upper_bounds = int(is_upper_bound)
    result = run(cause="ecmp_collision")
    true = truth("ecmp_collision", lost=0.2)
    true.ports = {found.subject}
    result.right = [(found, true)]
    return result


def test_a_measured_loss_is_right_within_ten_points() -> None:
    mine = losses([collision(0.25), collision(0.5)])
    assert [round(more, 3) for more in mine.measured] == [0.05, 0.3]
    assert (mine.close, mine.up_to) == (0.5, [])


def test_an_upper_bound_of_a_loss_is_wrong_only_below_the_simulators() -> None:
    scores = [collision(0.8, is_upper_bound=True), collision(0.05, is_upper_bound=True)]
    mine = losses(scores)
    assert (mine.held, mine.measured) == (0.5, [])
    assert "50% of 2, +23 points" in line(asked(scores, SIZE), "up to").reached


def test_a_loss_that_is_not_given_is_neither() -> None:
    mine = losses([collision(0.0)])
    assert (mine.measured, mine.up_to, mine.not_given) == ([], [], 1)


def test_what_is_reached_needs_enough_cases() -> None:
    few = asked([run(found=1)], SIZE)
    assert not any(each.is_reached for each in few)
    lines = asked(every_value(), SIZE)
    not_reached = [each.text for each in lines if not each.is_reached]
    # No hours of training, nothing said with 0.8 to 0.9 or as "up to", and a line too many.
    assert len(not_reached) == 4, not_reached


def test_one_value_below_is_named_and_not_reached() -> None:
    scores = every_value()
    of_tcp = [s for s in scores if s.played.plan.transport == TCP]
    lines = asked([*scores, *(run(missed=1, plan=s.played.plan) for s in of_tcp[::8])], SIZE)
    recall = line(lines, "every axis value", "recall")
    assert not recall.is_reached
    assert "(transport tcp)" in recall.reached, recall
    assert line(lines, "every axis value", "precision").is_reached


def test_a_cause_without_cases_is_not_reached() -> None:
    lines = asked(
        [s for s in every_value() if not any(t.cause == "incast" for t, _ in s.found)], SIZE
    )
    recall = line(lines, "every cause", "recall")
    assert not recall.is_reached
    assert "incast" in recall.reached
    assert line(lines, "every cause", f"{CASES_OF_CAUSE} faults").reached.startswith("0 (incast)")


def test_hosts_alone_are_in_no_table_of_fabrics_whose_switches_are_watched() -> None:
    alone = replace(PLAN, topology=HOSTS_ONLY)
    text = report({IN_USE: [run(found=3), run(missed=2, plan=alone)]}, SIZES)
    seen, hosts = text.split("## Switches watched")[1].split("## Time to flag")[0].split("## Hosts")
    assert "| roce | fabmon | 1 | 3 | 1.000 | 3 | 1.000 |" in seen
    assert "| roce | fabmon | 1 | 0 | - | 2 | 0.000 |" in hosts
    assert "Topology" not in hosts


def test_sets_of_detectors_are_under_one_another_and_side_by_side() -> None:
    text = report({IN_USE: [run(found=2)], "other": [run(found=1, missed=1, wrong=1)]}, SIZES)
    rows = text.splitlines()
    at = rows.index("| clos | fabmon | 1 | 2 | 1.000 | 2 | 1.000 | 1.000 | 2.0 s | 2.0 s |")
    assert rows[at + 1] == "| clos | other | 1 | 2 | 0.500 | 2 | 0.500 | 0.500 | 2.0 s | 2.0 s |"
    assert "| incast | other | 2 | 1 | 0.500 | 2 | 0.500 |" in text
    assert "| Asked | fabmon | | other | |" in text
    assert "faults or more | 2 (topology clos)" in text
    assert "| 0.9 to 1.0 | other | 2 | 0.95 | 50% | 0.453 |" in text


def test_a_cause_that_one_set_reports_has_a_row_of_each() -> None:
    text = report(
        {IN_USE: [run(found=1)], "other": [run(missed=1), run(wrong=1, cause="straggler")]}, SIZES
    )
    assert "| straggler | fabmon | 0 | 0 | - | 0 | - |" in text
    assert "| straggler | other | 1 | 0 | 0.000 | 0 | - |" in text
