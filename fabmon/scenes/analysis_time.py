"""How much of the time the analysis of live ticks may take."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOG = logging.getLogger("fabmon.scenes")
_MOST_PASSED_OVER = 10
_ROOM_TO_SPARE = 1.4
_SAID_FOR_S = 60.0


class AnalysisTime:
    """Limits what the analysis of live ticks may take to half of the time.

    Where it takes longer, as on a busy machine, only every n-th tick is analysed, so that the
    screen follows; every tick is shown and recorded. A tick comes every `interval_s` seconds of
    `clock`.
    """

    def __init__(self, interval_s: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._taken_s: deque[float] = deque(maxlen=5)
        self._every = 1
        self._passed_over = 0
        self._said_every = True
        self._said_at_s = -math.inf

    @contextmanager
    def analysing(self) -> Iterator[bool]:
        """Whether to analyse this tick; the time inside is counted if so."""
        if self._passed_over + 1 < self._every:
            self._passed_over += 1
            yield False
            return
        start_s = self._clock()
        yield True
        self._passed_over = 0
        end_s = self._clock()
        self._taken_s.append(end_s - start_s)
        if len(self._taken_s) == self._taken_s.maxlen:
            self._adapt(end_s)

    def _adapt(self, now_s: float) -> None:
        # The median of several: the structure of a new fabric takes a second, once.
        usual_s = sorted(self._taken_s)[len(self._taken_s) // 2]
        halves = 2 * usual_s / self._interval_s
        # More often again only once there is room to spare: not now more often, now less.
        if not self._every - 1 < _ROOM_TO_SPARE * halves <= _ROOM_TO_SPARE * self._every:
            self._every = max(1, min(math.ceil(halves), _MOST_PASSED_OVER))
        is_every = self._every == 1
        # What is said holds for a while: a load that comes and goes is not said each time.
        if is_every is not self._said_every and now_s - self._said_at_s >= _SAID_FOR_S:
            self._said_every, self._said_at_s = is_every, now_s
            _LOG.warning("analysis takes %.2g s a tick: %s", usual_s, _analysed(self._every))


def _analysed(every: int) -> str:
    return "every tick is analysed again" if every == 1 else f"only one in {every} is analysed"
