"""The score on a few seconds of a few fabrics: that it plays, judges and prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.score import __main__ as command
from tests.score.match import score
from tests.score.play import play
from tests.score.table import report
from tests.world.plans import Plan, draw_plan


def test_a_short_score() -> None:
    plans = [draw_plan(3, "healthy", "ring"), draw_plan(3, "fault", "ring", "slow_receiver")]
    scores = [score(play(replace(each, seconds=70))) for each in plans]
    assert scores[0].healthy
    assert [truth.cause for truth in scores[1].played.truths if not truth.natural] == [
        "slow_receiver"
    ]
    text = report(scores)
    assert "| slow_receiver |" in text
    assert "| ring | 2 |" in text


def test_a_kept_score_is_that_of_the_same_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "one", lambda plan: plan)

    def kept(plan: Plan) -> object:
        return command.kept(tmp_path, plan)

    any_fault = draw_plan(3, "fault", "ring")
    only_one = draw_plan(3, "fault", "ring", "slow_receiver")
    assert any_fault.fault != only_one.fault
    assert [kept(any_fault), kept(only_one), kept(any_fault)] == [any_fault, only_one, any_fault]
    monkeypatch.setattr(command, "one", lambda plan: "played again")
    assert kept(only_one) == only_one
