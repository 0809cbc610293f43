"""What a detector sees at one tick, before the tracker gives it a life."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from fabmon.analysis.finding import Evidence
from fabmon.fabric.moment import Moment

WARNING = "warning"
CRITICAL = "critical"


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """A finding's fields but for its start and end; see `Finding`."""

    cause: str
    severity: str
    subject: str
    rows: tuple[int, ...]
    text: str
    evidence: tuple[Evidence, ...]
    advice: str
    confidence: float
    lost: float = 0.0
    victims: tuple[str, ...] = ()
    unseen: str = ""

    @property
    def key(self) -> str:
        """The same condition of the same subject has the same key."""
        return f"{self.cause}:{self.subject}"


Detector = Callable[[Moment], Iterable[Condition]]
"""One kind of finding: the conditions that hold at a moment, persistence included. Keeps nothing
between calls: what it needs of the past is in the moment."""
