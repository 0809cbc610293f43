"""The score on a few seconds of a few fabrics: that it plays, judges and prints."""

from __future__ import annotations

from tests.score.match import score
from tests.score.play import play
from tests.score.table import report
from tests.world import draw


def test_a_short_score() -> None:
    plans = [draw.plan(3, "healthy", "ring"), draw.plan(3, "fault", "ring", "slow_receiver")]
    scores = [score(play(draw.shorter(plan, 70))) for plan in plans]
    assert scores[0].healthy
    assert [truth.cause for truth in scores[1].played.truths if not truth.natural] == [
        "slow_receiver"
    ]
    text = report(scores)
    assert "| slow_receiver |" in text
    assert "| ring | 2 |" in text
