"""What a finding is: a condition with a subject, a cause, evidence, a start, an end and advice."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Change(StrEnum):
    """What happened to a finding at a tick."""

    OPEN = "open"
    UPDATE = "update"
    CLOSE = "close"


class Evidence(msgspec.Struct, frozen=True):
    """One number behind a finding, in its unit (`%`, `bps`, `links`, `s`, empty for a text)."""

    name: str
    value: float | str
    unit: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One root, one finding.

    `key` identifies it while it is open: the same condition of the same subject has the same key.
    `subject` is what it is about (`leaf1/up5`, `gpu003`); `rows` the ports to light, the guilty
    first; `victims` what suffers under it. `text` is one sentence, numbers first. `lost` is the
    share of bandwidth it costs, 0 to 1. `confidence` is 0 to 1. `since_ns` and `until_ns` are the
    console's wall clock; `until_ns` is None while it is open.
    """

    key: str
    cause: str
    severity: str
    subject: str
    rows: tuple[int, ...]
    text: str
    evidence: tuple[Evidence, ...]
    advice: str
    since_ns: int
    confidence: float
    lost: float = 0.0
    victims: tuple[str, ...] = ()
    unseen: str = ""
    until_ns: int | None = None
