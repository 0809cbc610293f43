"""How often an agent really sends the counters of an interface, measured from their arrivals."""

from __future__ import annotations

import statistics
from collections import deque

_STEPS = 15
"""Steps of any interface whose median is the interval: a lost datagram makes one step longer."""

_OTHER = 0.1
_OTHER_S = 0.5
"""A median that differs by more than this share, and by more than this time, is another interval:
smaller steps are jitter."""


class SenderInterval:
    """The interval of an agent's counters; `seconds` is rounded to full seconds, at least 1, and 0
    until an interface has sent its counters twice."""

    def __init__(self) -> None:
        self.seconds = 0
        self._steps_s: deque[float] = deque(maxlen=_STEPS)

    def add(self, step_s: float) -> None:
        """Note the time between two counters of one interface."""
        self._steps_s.append(step_s)
        usual_s = statistics.median(self._steps_s)
        if abs(usual_s - self.seconds) > max(_OTHER_S, _OTHER * self.seconds):
            self.seconds = max(1, round(usual_s))
