"""What a finding is: a condition with a start and an end."""

from __future__ import annotations

from enum import StrEnum

from fabmon.analysis.condition import Condition


class Change(StrEnum):
    """What happened to a finding at a tick."""

    OPEN = "open"
    UPDATE = "update"
    CLOSE = "close"


class Finding(Condition, frozen=True, kw_only=True):
    """One root, one finding.

    `since_ns` and `until_ns` are the console's wall clock; `until_ns` is None while it is open.
    """

    since_ns: int
    until_ns: int | None = None
