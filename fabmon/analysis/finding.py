"""Causes, conditions and findings.

A cause is declared once, as `CAUSE` in its detector's module (fabmon/analysis/detectors). A
detector reports conditions: what holds at one tick. The tracker turns conditions into findings,
which have a start and an end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum
from typing import Any

import msgspec

from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import STALE_READS

NOTE = "note"
WARNING = "warning"
CRITICAL = "critical"
SEVERITIES = (CRITICAL, WARNING, NOTE)
"""Most severe first."""


class Trait(Enum):
    """A property of a cause by which other parts of the program treat its findings.

    The value says what holds for a cause that has the trait.
    """

    NEEDS_TRAFFIC = "visible only while its ports carry traffic"
    HAS_SENDERS = "the flows on its link are shown with the finding"
    OF_HASHING = "depends on which link of a group a flow was hashed to"
    OF_LINK = "a cable or one of its ends is at fault: explains only what is near it"
    OF_HOST_PORT = "one port of a host is at fault"
    LAST_HOP = "the queue is in front of a receiver, not between switches"
    MAKES_QUEUES = "causes ECN marks or pause without a full link between switches"
    STOPS_PAUSE_FRAMES = "a port changes carrier; its cable carries no pause frames meanwhile"
    ONE_RAIL = "its senders use one of their rails only"
    FULL_LINK_OF_GROUP = "its first link is the fullest of its ECMP group"
    FULL_GROUP = "its first links are the fullest of their ECMP group"
    GONE = "its subject is down or lost: shown with another mark and colour"
    OF_NO_PLACE = "its subject is neither a port nor a node, whatever its name is"


SLOW_HOST_PORT = (Trait.OF_HOST_PORT, Trait.LAST_HOP, Trait.MAKES_QUEUES, Trait.HAS_SENDERS)
"""A port of a host takes less than is sent to it."""


class Loss(msgspec.Struct, frozen=True):
    """What `lost` is a share of, as it follows a percentage: in a sentence, and in lists."""

    full: str
    brief: str


LOST_BANDWIDTH = Loss("of the bandwidth lost", "lost")
LOST_LINE_RATE = Loss("below its usual line rate", "slower")
"""The link can carry less; its traffic has lost nothing as long as it fits."""


class OtherTitle(msgspec.Struct, frozen=True):
    """What a cause is called where ports wait for credits; else, not `of_credits`, where traffic
    is not hashed."""

    title: str
    of_credits: bool = True

    @property
    def where(self) -> str:
        """Where it is called so, in words."""
        if self.of_credits:
            return "on InfiniBand, where ports wait for credits"
        return (
            "where forwarding tables (InfiniBand) or adaptive routing select the link, not a hash"
        )


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of a cause; its detector's module has it as `CAUSE`.

    `name` is used in jsonl, recordings and scenarios, `title` everywhere a person reads; `meaning`
    explains it in the glossary of help. `rule` says when it is reported, in five sentences at most,
    with thresholds as `table.key`; `inputs` is what that needs, `not_observable` what it cannot
    see: plain text, of which docs/findings.md is made. `confidence`, 0 to 1, is the share of its
    findings that were right on simulated fabrics whose seeds were used for nothing else
    (decision 0012); 1 is a fact. `loss` is what a finding's `lost` is a share
    of. `severity` and `advice` are what its conditions usually have. `picture` names the drawing on
    the finding's page (fabmon/tui/text/picture). `tables` are the tables of config/thresholds.toml
    that its rule reads. Causes of one `family` are names of one trouble at different moments: an
    open finding may change between them, and stays one finding.
    """

    name: str
    title: str
    meaning: str
    severity: str
    other_severity: str = ""
    rule: str
    inputs: str
    not_observable: str
    confidence: float = 1.0
    picture: str
    advice: str = ""
    loss: Loss = LOST_BANDWIDTH
    tables: tuple[str, ...] = ()
    traits: tuple[Trait, ...] = ()
    family: str = ""
    other_title: OtherTitle | None = None

    @property
    def documentation(self) -> str:
        """Where its rule, thresholds and limits are explained, as `docs/PAGE.md#HEADING`."""
        heading = f"{self.title} {self.name}".lower().replace(" ", "-")
        return f"docs/findings.md#{heading}"

    def condition(
        self,
        *,
        subject: str,
        rows: Iterable[int],
        text: str,
        evidence: tuple[Evidence, ...],
        severity: str = "",
        advice: str = "",
        lost: float = 0.0,
        lost_is_upper_bound: bool = False,
        victims: Iterable[str] = (),
        unseen: str = "",
        unless: tuple[Trait, ...] = (),
    ) -> Condition:
        """A condition of this cause, with its usual severity and advice where these are empty.
        `rows` and `victims` may name one twice."""
        return Condition(
            cause=self.name,
            severity=severity or self.severity,
            subject=subject,
            rows=tuple(dict.fromkeys(rows)),
            text=text,
            evidence=evidence,
            advice=advice or self.advice,
            confidence=self.confidence,
            lost=round(lost, 3),
            lost_is_upper_bound=lost_is_upper_bound,
            victims=tuple(dict.fromkeys(victims)),
            unseen=unseen,
            unless=unless,
        )


class Evidence(msgspec.Struct, frozen=True):
    """One number behind a finding, in its unit (`%`, `bps`, `links`, `s`, empty for a text)."""

    name: str
    value: float | str
    unit: str = ""

    @classmethod
    def percent(cls, name: str, share: float) -> Evidence:
        """A share, 0 to 1, in %."""
        return cls(name, round(share * 100, 1), "%")


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """What a detector reports: a cause that holds for a subject at one tick.

    `cause` is the name of a declared Cause. `subject` is what it is about (`leaf1/up5`, `gpu003`).
    `rows` are the ports to highlight, the one at fault first; `victims` are ids of ports that are
    slowed by it. `text` is one sentence with the most important numbers. `lost` is the share of
    bandwidth lost, 0 to 1 (measured_loss: what is said of it), at most so much where
    `lost_is_upper_bound`; `confidence` is 0 to 1. `unseen` says what was not observable. `unless`
    are traits: the condition was inferred, and a finding whose cause has one of them explains the
    same observation. `jobs` are the affected jobs as texts (`job 8801 llama-70b (anna)`).
    """

    cause: str
    severity: str
    subject: str
    rows: tuple[int, ...]
    text: str
    evidence: tuple[Evidence, ...]
    advice: str
    confidence: float
    lost: float = 0.0
    lost_is_upper_bound: bool = False
    victims: tuple[str, ...] = ()
    unseen: str = ""
    unless: tuple[Trait, ...] = ()
    jobs: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Cause and subject: equal for the same condition at different ticks."""
        return f"{self.cause}:{self.subject}"

    @property
    def subject_node(self) -> str:
        """The node that the subject is, or is on; of another kind of subject its first words."""
        return self.subject.partition("/")[0]


class Change(StrEnum):
    """What happened to a finding at a tick."""

    OPEN = "open"
    UPDATE = "update"
    CLOSE = "close"


class Finding(Condition, frozen=True, kw_only=True):
    """A condition with a start and an end.

    `since_ns`, `until_ns` and `seen_ns` are the console's wall clock. `until_ns` is None while the
    finding is open. `seen_ns` is when its condition held last, the time of its text and numbers;
    None in recordings that did not store it. `opened_as` is the first cause of a finding whose
    cause has changed since, else empty. `worst` is the finding as it was when it was worse than
    now (with_worst), None while it never was.
    """

    since_ns: int
    until_ns: int | None = None
    seen_ns: int | None = None
    opened_as: str = ""
    worst: Finding | None = None

    @property
    def key(self) -> str:
        """The cause that it was opened with, and the subject: the same as long as it is open."""
        return f"{self.opened_as or self.cause}:{self.subject}"


_NOT_STORED = frozenset({"unless"})
"""Keys of a finding that recordings do not hold: part of a rule, which changes with the version.
Older versions stored names of causes there."""

_SELDOM = frozenset({"opened_as", "lost_is_upper_bound", "worst"})
"""Keys that are only stored where they are not empty."""


def to_stored(finding: Finding) -> dict[str, Any]:
    """A finding as recordings hold it."""
    stored = {
        key: value
        for key, value in msgspec.to_builtins(finding).items()
        if key not in _NOT_STORED and (value or key not in _SELDOM)
    }
    return stored if finding.worst is None else stored | {"worst": to_stored(finding.worst)}


def from_stored(fields: Mapping[str, Any]) -> Finding | None:
    """A finding that a recording holds, with the rows of that time; None if a fabmon recorded it
    that has another format of findings."""
    known = {key: value for key, value in fields.items() if key not in _NOT_STORED}
    try:
        return msgspec.convert(known, Finding)
    except (msgspec.ValidationError, RecursionError):
        return None


OPENED = "opened"
"""Name of the evidence of a finding that opened again within findings.reopen_within_s."""


def times_opened(finding: Finding) -> int:
    """How often it opened, each time soon after it had closed; 1 or more."""
    counts = (each.value for each in finding.evidence if each.name == OPENED)
    return next((each for each in counts if isinstance(each, int)), 1)


def list_order(finding: Finding) -> tuple[int, float, int, str]:
    """Sort key of lists of findings: most severe first, then most lost bandwidth, then oldest, as
    shown."""
    shown = shown_moment(finding)
    severe = SEVERITIES.index(shown.severity) if shown.severity in SEVERITIES else 0
    return severe, -shown.lost, finding.since_ns, finding.key


NEAR_WORST = 0.8
"""A moment is as bad as the worst if it loses this share of it, 0 to 1: of half of the bandwidth
the rest is 10 points, the error with which losses are measured."""


def badness(finding: Finding) -> float:
    """How well a moment stands for a finding: by what was lost, less where no port is named that
    loses it, and less where that is an upper bound."""
    doubts = (not finding.victims) + finding.lost_is_upper_bound
    return float(finding.lost * NEAR_WORST**doubts)


def with_worst(finding: Finding, worst: Finding) -> Finding:
    """The finding with its worst moment so far, where that was worse than it is now."""
    is_now = badness(finding) >= badness(worst)
    return msgspec.structs.replace(finding, worst=None if is_now else worst)


def shown_moment(finding: Finding) -> Finding:
    """The finding at the moment that every output shows: at its worst once it has ended, loses
    clearly less, no longer names who loses or knows only an upper bound; else as it is now.

    Severity, text, evidence, loss, confidence, victims, jobs, advice and `unseen` are of this one
    moment; cause, subject, ports and times are those of the finding.
    """
    worst = finding.worst
    if worst is None or badness(finding) >= badness(worst):
        return finding
    has_faded = (
        finding.until_ns is not None
        or finding.lost < NEAR_WORST * worst.lost
        or (worst.victims and not finding.victims)
        or (finding.lost_is_upper_bound and not worst.lost_is_upper_bound)
    )
    return worst if has_faded else finding


def unseen_s(finding: Finding, snapshot: Snapshot) -> float | None:
    """Seconds since the condition of a finding last held.

    None while it holds (up to STALE_READS intervals without it count as holding), and where
    `seen_ns` is not known.
    """
    if finding.seen_ns is None:
        return None
    passed_s = (snapshot.time_ns - finding.seen_ns) / 1e9
    return passed_s if passed_s >= STALE_READS * snapshot.interval_s else None


def holds(finding: Finding, snapshot: Snapshot) -> bool:
    """Whether a finding is open, and its condition held in the last ticks."""
    return finding.until_ns is None and unseen_s(finding, snapshot) is None


def last_held_ns(finding: Finding, snapshot: Snapshot) -> int | None:
    """When the condition of a finding last held: the time of its text and evidence. None while it
    holds. Of a closed finding without `seen_ns`, its end."""
    if finding.seen_ns is None:
        return finding.until_ns
    return None if unseen_s(finding, snapshot) is None else finding.seen_ns


def shown_ns(finding: Finding, snapshot: Snapshot) -> int | None:
    """The time of the moment whose text and evidence are shown; None where that is now."""
    shown = shown_moment(finding)
    return last_held_ns(finding, snapshot) if shown is finding else shown.seen_ns
