"""What a finding is: a condition with a start and an end."""

from __future__ import annotations

from enum import StrEnum

from fabmon.analysis.condition import Condition
from fabmon.fabric.snapshot import STALE_TICKS, Snapshot


class Change(StrEnum):
    """What happened to a finding at a tick."""

    OPEN = "open"
    UPDATE = "update"
    CLOSE = "close"


class Finding(Condition, frozen=True, kw_only=True):
    """One root, one finding.

    `since_ns`, `until_ns` and `seen_ns` are the console's wall clock; `until_ns` is None while it
    is open. `seen_ns` is when its condition held last, which its text and numbers are of; None
    where nobody noted that.
    """

    since_ns: int
    until_ns: int | None = None
    seen_ns: int | None = None


def unseen_s(finding: Finding, snapshot: Snapshot) -> float | None:
    """For how long its condition has not held, s; None while it holds, or that is not known.

    A few ticks without it are no end.
    """
    if finding.seen_ns is None:
        return None
    passed_s = (snapshot.time_ns - finding.seen_ns) / 1e9
    return passed_s if passed_s >= STALE_TICKS * snapshot.interval_s else None


def sentence(finding: Finding, snapshot: Snapshot) -> str:
    """Its text, said of now; where its condition does not hold any more, when that was.

    It is open still, since what pauses with the job comes back with it.
    """
    passed_s = unseen_s(finding, snapshot)
    return finding.text if passed_s is None else f"last seen {passed_s:.0f} s ago: {finding.text}"
