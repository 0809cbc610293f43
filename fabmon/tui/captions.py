"""Lines that say what is on the screen, at their times: a tour, or remarks on a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fabmon.tui.clock import SECOND_NS


@dataclass(frozen=True, slots=True)
class Caption:
    """A text, from `at_s` after the first scene for `for_s` seconds."""

    at_s: float
    for_s: float
    text: str


@dataclass(slots=True)
class Captions:
    """Finds the caption of a scene's time; `skip` ends them all."""

    lines: Sequence[Caption] = ()
    skipped: bool = False
    _from_ns: int | None = field(default=None)

    def at(self, time_ns: int) -> str:
        """What to say at this time; empty for nothing. The first call is the beginning."""
        if self._from_ns is None:
            self._from_ns = time_ns
        seconds = (time_ns - self._from_ns) / SECOND_NS
        if self.skipped:
            return ""
        told = [each.text for each in self.lines if 0 <= seconds - each.at_s < each.for_s]
        return told[-1] if told else ""

    def skip(self) -> None:
        """Say no more."""
        self.skipped = True
