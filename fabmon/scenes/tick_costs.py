"""What the parts of a tick cost the event loop, in CPU time: a look at a clock for each of them."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum

_KEPT_TICKS = 900


class Part(StrEnum):
    """The parts of a tick, in their order. What is between ticks is the first one."""

    READING = "frames, keys, terminal"
    HISTORY = "history"
    ANALYSIS = "analysis"
    DRAWING = "drawing"


class TickCosts:
    """The CPU time of each part of the last ticks; `clock` returns that of this thread."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._since_s = clock()
        self._taken_s: dict[Part, deque[float]] = {part: deque(maxlen=_KEPT_TICKS) for part in Part}

    def end(self, part: Part) -> None:
        """A part ends here: it began where the one before ended."""
        now_s = self._clock()
        self._taken_s[part].append(now_s - self._since_s)
        self._since_s = now_s

    def text(self) -> str:
        """The parts in one line; empty before the first tick."""
        parts = [
            f"{part} {statistics.median(taken_s) * 1e3:.1f}, {max(taken_s) * 1e3:.1f} ms"
            for part, taken_s in self._taken_s.items()
            if taken_s
        ]
        return f"CPU of a tick, median and most: {'; '.join(parts)}" if parts else ""
