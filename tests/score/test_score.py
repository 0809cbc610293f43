"""The score on a few seconds of a few fabrics: that it plays, judges and prints."""

from __future__ import annotations

from dataclasses import replace

from tests.score.match import score
from tests.score.play import play
from tests.score.table import report
from tests.world.plans import draw_plan


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
