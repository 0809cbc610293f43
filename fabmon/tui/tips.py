"""Tips of a run: sentences that are shown at given times, such as those of the demo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fabmon.fabric.time_wording import SECOND_NS


@dataclass(frozen=True, slots=True)
class Tip:
    """A tip that is shown from `at_s` after the first scene on, for `for_s` seconds."""

    at_s: float
    for_s: float
    text: str


@dataclass(slots=True)
class Tips:
    """The tips of a run by time."""

    lines: Sequence[Tip] = ()
    skipped: bool = False
    _from_ns: int | None = field(default=None)

    def at(self, time_ns: int) -> str:
        """The tip of a time; empty for none. Times count from that of the first call."""
        if self._from_ns is None:
            self._from_ns = time_ns
        seconds = (time_ns - self._from_ns) / SECOND_NS
        active = [each.text for each in self.lines if 0 <= seconds - each.at_s < each.for_s]
        return active[-1] if active and not self.skipped else ""

    def skip(self) -> None:
        """Show no more tips."""
        self.skipped = True
