"""The ticks of a part of a timeline in their order, also while it grows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Self

from fabmon.fabric.tick import Tick
from fabmon.fabric.time_wording import LATEST_NS
from fabmon.recording.reading.timeline import Timeline


class PlayedTicks:
    """An iterator of the ticks between two times of a timeline, both included.

    A part that starts within the timeline begins with `primed` ticks that bring the history to its
    state at that time, so that rates and states are known from the start. After the end of what is
    written, `refresh` finds what was added since.
    """

    def __init__(
        self, timeline: Timeline, from_ns: int | None = None, until_ns: int | None = None
    ) -> None:
        self.until_ns = LATEST_NS if until_ns is None else until_ns
        self._timeline = timeline
        self._last_ns = (from_ns or 0) - 1
        first = timeline.prime(from_ns) if from_ns is not None else []
        self._unseen = self.primed = len(first)
        self._ticks: Iterator[Tick] = itertools.chain(
            first, timeline.ticks(from_ns or 0, self.until_ns)
        )

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Tick:
        tick = next(self._ticks)
        if self._unseen:
            self._unseen -= 1
        else:
            self._last_ns = tick.time_ns
        return tick

    def refresh(self) -> bool:
        """Read what was written since; returns whether there was anything.

        While a file grows its last ticks are replaced: they must be looked up again before more of
        them are read.
        """
        if not self._timeline.refresh():
            return False
        self._ticks = self._timeline.ticks(self._last_ns + 1, self.until_ns)
        return True
