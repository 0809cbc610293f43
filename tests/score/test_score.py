"""The score on a few seconds of a few fabrics: that it plays, judges and prints."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.score import __main__ as command
from tests.score.revisions import IN_USE, scores_at
from tests.score.size import size
from tests.score.table import numbers, report
from tests.world.plans import Plan, draw_plan


def test_a_short_score() -> None:
    plans = [draw_plan(3, "healthy", "ring"), draw_plan(3, "fault", "ring", "slow_receiver")]
    runs = [command.one(replace(each, seconds=70)) for each in plans]
    healthy, fault = runs
    assert healthy.healthy
    assert [truth.cause for truth in fault.played.truths if not truth.natural] == ["slow_receiver"]
    scores, sizes = {IN_USE: runs}, {IN_USE: size()}
    assert "| slow_receiver | fabmon |" in report(scores, sizes)
    assert set(json.loads(json.dumps(numbers(scores, sizes)))) == {IN_USE}


def test_kept_scores_are_those_of_the_same_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[Plan] = []

    def one(plan: Plan) -> str:
        played.append(plan)
        return plan.fault

    monkeypatch.setattr(command, "one", one)
    any_fault = draw_plan(3, "fault", "ring")
    only_one = draw_plan(3, "fault", "ring", "slow_receiver")
    assert any_fault.fault != only_one.fault
    for plan in (any_fault, only_one, any_fault):
        known: object = command.kept(tmp_path, plan)
        assert known == plan.fault
    assert played == [any_fault, only_one]


def test_a_commit_is_scored_beside_this_tree_in_the_same_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fabmon.analysis.detectors.slow_receiver.host_pauses", no_findings)
    words = "--healthy 0 --faults 1 --first 3 --workers 1 --only slow_receiver --beside HEAD --list"
    monkeypatch.setattr(sys, "argv", ["score", *words.split(), "--out", str(tmp_path / "score.md")])
    command.main()
    printed = capsys.readouterr().out
    assert "MISSED fabmon     3 " in printed, "this tree was made blind"
    assert "MISSED HEAD" not in printed
    assert re.search(
        r"^\| all \| fabmon \| 1 \| 0 \|.*\n\| all \| HEAD \| 1 \| 1 \|", printed, re.M
    )
    assert (tmp_path / "score.md").read_text().startswith("# How good the findings are")


def test_a_commit_that_does_not_exist_is_said() -> None:
    with pytest.raises(SystemExit, match=r"--beside nothing: .*nothing"):
        scores_at("nothing", "tests.score", [])


def no_findings(*_: object, **__: object) -> tuple[()]:
    """A detector that finds nothing."""
    return ()
