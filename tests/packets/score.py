"""The score of scenes: that of one, the totals of many, and all of it as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tests.packets.judge import Judged, Judgement, Searched, Verdict, judge
from tests.packets.play import play
from tests.packets.scene import PacketScene


@dataclass(frozen=True)
class SceneScore:
    """The judgement of a scene."""

    name: str
    title: str
    healthy: bool
    judgement: Judgement

    @property
    def right(self) -> int:
        """Findings that are right."""
        return self.judgement.count(Verdict.RIGHT)

    @property
    def wrong(self) -> int:
        """Findings that are wrong."""
        return self.judgement.count(Verdict.WRONG)

    @property
    def wanted(self) -> int:
        """What had to be found."""
        return len(self.judgement.searched)

    @property
    def flag_times_s(self) -> list[float]:
        """How long each of what was found took."""
        times = [each.flagged_s for each in self.judgement.searched]
        return [each for each in times if each is not None]

    @property
    def missed(self) -> list[Searched]:
        """What was not found."""
        return [each for each in self.judgement.searched if each.flagged_s is None]


@dataclass(frozen=True)
class Totals:
    """The figures of many scenes; None where there is nothing to divide by."""

    right: int
    wrong: int
    precision: float | None
    found: int
    wanted: int
    recall: float | None
    healthy: int
    disturbed: int
    """Healthy scenes with a finding."""
    flag_s: float | None
    """Median seconds from the onset until what was found was flagged."""


def score(scene: PacketScene) -> SceneScore:
    """Play and judge a scene."""
    truth = scene.truth
    judgement = judge(truth, play(scene))
    return SceneScore(scene.name, scene.meta.title, truth.healthy, judgement)


def totals(scores: Sequence[SceneScore]) -> Totals:
    """The figures of all scenes."""
    right, wrong = sum(each.right for each in scores), sum(each.wrong for each in scores)
    times = [time for each in scores for time in each.flag_times_s]
    wanted = sum(each.wanted for each in scores)
    healthy = [each for each in scores if each.healthy]
    return Totals(
        right=right,
        wrong=wrong,
        precision=right / (right + wrong) if right + wrong else None,
        found=len(times),
        wanted=wanted,
        recall=len(times) / wanted if wanted else None,
        healthy=len(healthy),
        disturbed=sum(each.wrong > 0 for each in healthy),
        flag_s=median(times) if times else None,
    )


def as_values(scores: Sequence[SceneScore]) -> dict[str, Any]:
    """Everything as plain values: the totals, the scenes, and two lists for the amounts.

    `calibration` has the confidence of each finding and whether it is right, `losses` the share of
    bandwidth that a right finding says is lost, and that by which the simulator measured the
    senders of its link to be slowed.
    """
    judged = [(each.name, one) for each in scores for one in each.judgement.findings]
    return {
        "totals": vars(totals(scores)),
        "scenes": [_scene(each) for each in scores],
        "calibration": [
            {"confidence": one.finding.confidence, "right": one.verdict is Verdict.RIGHT}
            for _, one in judged
            if one.verdict is not Verdict.ALLOWED
        ],
        "losses": [
            {
                "scene": name,
                "cause": one.finding.cause,
                "port": one.link.port,
                "lost": one.finding.lost,
                "is_upper_bound": one.finding.is_upper_bound,
                "slowed_by": one.link.slowed_by,
            }
            for name, one in judged
            if one.verdict is Verdict.RIGHT and one.link is not None
        ],
    }


def _scene(score: SceneScore) -> dict[str, Any]:
    return {
        "name": score.name,
        "title": score.title,
        "healthy": score.healthy,
        "right": score.right,
        "wrong": score.wrong,
        "wanted": score.wanted,
        "found": len(score.flag_times_s),
        "flag_s": median(score.flag_times_s) if score.flag_times_s else None,
        "findings": [_finding(each) for each in score.judgement.findings],
        "missed": [
            {"cause": each.wanted.cause, "subjects": list(each.wanted.subjects)}
            for each in score.missed
        ],
    }


def _finding(judged: Judged) -> dict[str, Any]:
    finding = judged.finding
    return {
        "verdict": judged.verdict.value,
        "reason": judged.reason,
        "cause": finding.cause,
        "subject": finding.subject,
        "opened_s": finding.opened_s,
        "closed_s": finding.closed_s,
        "confidence": finding.confidence,
        "lost": finding.lost,
        "is_upper_bound": finding.is_upper_bound,
        "slowed_by": judged.link.slowed_by if judged.link is not None else None,
        "ports": finding.ports,
        "text": finding.text,
        "evidence": finding.evidence,
    }
