"""Time, injected: what a feed asks of a clock, and the real one."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Wall and monotonic time, and a way to wait."""

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch, UTC. May step."""

    def monotonic(self) -> float:
        """Seconds that only ever grow, at the pace of real time."""

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""


class RealClock:
    """The machine's own."""

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch, UTC."""
        return time.time_ns()

    def monotonic(self) -> float:
        """Seconds since some start."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds; at once for none or fewer."""
        await asyncio.sleep(max(0.0, seconds))


class Timeline:
    """Ticks of a wall clock, at multiples of `interval_s` plus `offset_s`, that never go back.

    When the wall clock is set back, time goes on from where it was at the pace of real time.
    """

    def __init__(self, clock: Clock, interval_s: float, offset_s: float) -> None:
        self._clock = clock
        self._interval_ns = int(interval_s * 1e9)
        self._offset_ns = int(offset_s * 1e9)
        self._last_ns = 0
        self._last_monotonic = clock.monotonic()

    def now_ns(self) -> int:
        """Nanoseconds since the epoch, never less than before."""
        now_ns, monotonic = self._clock.wall_ns(), self._clock.monotonic()
        if now_ns < self._last_ns:
            now_ns = self._last_ns + int((monotonic - self._last_monotonic) * 1e9)
        self._last_ns, self._last_monotonic = now_ns, monotonic
        return now_ns

    def until_next_s(self) -> float:
        """Seconds to the next tick: more than none, at most an interval.

        A tick that would come within a tenth of the interval is left out: a sleep that woke early
        must not make two ticks of one.
        """
        into_ns = (self._clock.wall_ns() - self._offset_ns) % self._interval_ns
        left_ns = self._interval_ns - into_ns
        if left_ns < self._interval_ns // 10:
            left_ns += self._interval_ns
        return left_ns / 1e9
