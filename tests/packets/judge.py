"""Which findings of a scene are right, which are wrong, and what was missed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fabmon.analysis.detectors import ecmp_collision, oversubscription, polarization
from tests.packets.archive import CongestedLink, SceneTruth, Wanted
from tests.score.play import Reported

_COLLISION, _POLARIZATION = ecmp_collision.CAUSE.name, polarization.CAUSE.name
_OF_GROUP = frozenset({_POLARIZATION, oversubscription.CAUSE.name})
"""Causes whose subject is `LEAF/uplinks`."""
_ANY = "*"


class Verdict(StrEnum):
    """What a finding is; an allowed one counts neither as right nor as wrong."""

    RIGHT = "right"
    ALLOWED = "allowed"
    WRONG = "wrong"


@dataclass(frozen=True)
class Judged:
    """A finding and what it is, with the reason.

    `link` is the congested link that it is about; None where it names none, or is not right.
    """

    finding: Reported
    verdict: Verdict
    reason: str
    link: CongestedLink | None = None


@dataclass(frozen=True)
class Searched:
    """What had to be found, and after how many seconds it was: None if it was missed."""

    wanted: Wanted
    flagged_s: float | None


@dataclass(frozen=True)
class Judgement:
    """Every finding of a scene, and everything that had to be found."""

    findings: tuple[Judged, ...]
    searched: tuple[Searched, ...]

    def count(self, verdict: Verdict) -> int:
        """Findings of a verdict."""
        return sum(each.verdict is verdict for each in self.findings)


def judge(truth: SceneTruth, reported: Sequence[Reported]) -> Judgement:
    """Judge the findings of a scene."""
    findings = tuple(_judged(truth, each) for each in reported)
    return Judgement(findings, tuple(_searched(truth, each, reported) for each in truth.want))


def _judged(truth: SceneTruth, finding: Reported) -> Judged:
    if truth.healthy:
        return Judged(finding, Verdict.WRONG, "nothing is wrong in this scene")
    if _is_early(truth, finding):
        return Judged(finding, Verdict.WRONG, "before the fault")
    places = _places(finding)
    link = _congested_link(truth, finding)
    if any(_states(finding, wanted) for wanted in truth.want):
        return Judged(finding, Verdict.RIGHT, "wanted", link)
    if link is not None and finding.cause in (_COLLISION, _POLARIZATION):
        return Judged(finding, Verdict.RIGHT, "congested link", link)
    if any(_states(finding, allowed) for allowed in truth.allowed):
        return Judged(finding, Verdict.ALLOWED, "allowed")
    if places & {shared.port for shared in truth.shared}:
        return Judged(finding, Verdict.WRONG, "shared link, which is not full")
    return Judged(finding, Verdict.WRONG, "not true there")


def _searched(truth: SceneTruth, wanted: Wanted, reported: Sequence[Reported]) -> Searched:
    """When the last subject that is needed was flagged."""
    first: dict[str, float] = {}
    for finding in reported:
        if _is_early(truth, finding):
            continue
        for subject in _stated(finding, wanted):
            first[subject] = min(finding.opened_s, first.get(subject, finding.opened_s))
    times = sorted(first.values())
    if len(times) < wanted.need:
        return Searched(wanted, None)
    return Searched(wanted, times[wanted.need - 1] - (truth.onset_s or 0.0))


def _is_early(truth: SceneTruth, finding: Reported) -> bool:
    """Whether it opened while the scene was still healthy."""
    return truth.onset_s is not None and finding.opened_s < truth.onset_s


def _states(finding: Reported, wanted: Wanted) -> bool:
    return bool(_stated(finding, wanted))


def _stated(finding: Reported, wanted: Wanted) -> set[str]:
    """The subjects that a finding names under the cause that is wanted.

    Both ends of a cable are one subject. Where any subject will do, that is `*`.
    """
    if finding.cause != wanted.cause:
        return set()
    if _ANY in wanted.subjects:
        return {_ANY}
    return _places(finding) & set(wanted.subjects)


def _places(finding: Reported) -> set[str]:
    """The ids that a finding is about: its subject, and the port that it shows first.

    That port sends into the link: of a queue in front of a NIC it is the switch's.
    """
    return {finding.subject, *finding.ports[:1]}


def _congested_link(truth: SceneTruth, finding: Reported) -> CongestedLink | None:
    """The congested link that a finding is about: the first one that it names.

    The finding of a group is about the first of the group's links that is congested.
    """
    ports = finding.ports if finding.cause in _OF_GROUP else finding.ports[:1]
    by_port = {link.port: link for link in truth.congested}
    for place in (finding.subject, *ports):
        if place in by_port:
            return by_port[place]
    return None
