"""The replay feed: ticks of recordings, at their own pace, faster, or as fast as it goes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Self

from fabmon.fabric.model import Host
from fabmon.fabric.tick import Tick
from fabmon.feeds.ticks import Clock, RealClock, wait_for_any
from fabmon.recording.reading.timeline import Timeline

_LATEST = (1 << 63) - 1
_POLL_S = 0.25


class ReplayFeed:
    """An async iterator of the ticks between two times of a timeline.

    `speed` is recorded seconds a second, and may be set while it plays; None for as fast as
    possible. Where nothing was recorded for longer than `longest_wait_s` it goes on after so long.
    When it starts within the timeline, the first two ticks tell what was known then, so that rates
    and states are there from the start. With `follow` it waits for more at the end of a file that
    grows, and ends by itself only when that has reached `until_ns`. `known` is how many of the
    first ticks tell what was known at its start.
    """

    def __init__(
        self,
        timeline: Timeline,
        *,
        from_ns: int | None = None,
        until_ns: int | None = None,
        speed: float | None = 1.0,
        longest_wait_s: float = 5.0,
        follow: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.speed = speed
        self._timeline = timeline
        self._until_ns = _LATEST if until_ns is None else until_ns
        self._longest_wait_s = longest_wait_s
        self._follow = follow
        self._clock = clock or RealClock()
        self._closed = asyncio.Event()
        self._last_ns = (from_ns or 0) - 1
        self._at_s: float | None = None
        first = timeline.prime(from_ns) if from_ns is not None else []
        self._unpaced = self.known = len(first)
        self._ticks: Iterator[Tick] = itertools.chain(
            first, timeline.ticks(from_ns or 0, self._until_ns)
        )

    @property
    def hosts(self) -> list[Host]:
        """The nodes that were watched."""
        return self._timeline.hosts

    @property
    def interval_s(self) -> float:
        """From one tick to the next, in recorded time."""
        return self._timeline.interval_s

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Tick:
        tick = None if self._closed.is_set() else await self._next()
        if tick is None or self._closed.is_set():
            raise StopAsyncIteration
        if self._unpaced:
            self._unpaced -= 1
        else:
            await self._wait(tick.time_ns)
            self._last_ns = tick.time_ns
        if self._closed.is_set():
            raise StopAsyncIteration
        return tick

    def refresh(self) -> bool:
        """Take in what was written since; whether there was anything.

        While a file grows its last ticks are written anew: they are to be looked up again before
        more of them are read.
        """
        if not self._timeline.refresh():
            return False
        self._ticks = self._timeline.ticks(self._last_ns + 1, self._until_ns)
        return True

    async def aclose(self) -> None:
        """Ticks end."""
        self._closed.set()

    async def _next(self) -> Tick | None:
        while True:
            tick = next(self._ticks, None)
            if tick is not None or not self._follow:
                return tick
            if self._timeline.until_ns >= self._until_ns:
                return None
            await self._sleep(_POLL_S)
            if self._closed.is_set():
                return None
            self.refresh()

    async def _wait(self, time_ns: int) -> None:
        """Until a recorded time is due, counted from the tick before."""
        now_s = self._clock.monotonic()
        if self.speed is None or self._at_s is None:
            self._at_s = now_s
            await asyncio.sleep(0)
            return
        recorded_s = min((time_ns - self._last_ns) / 1e9, self._longest_wait_s)
        # A late tick is not made up for by more than one interval: the screen was busy, or stopped.
        self._at_s = max(self._at_s + recorded_s / self.speed, now_s - recorded_s / self.speed)
        await self._sleep(self._at_s - now_s)

    async def _sleep(self, seconds: float) -> None:
        await wait_for_any(self._clock, seconds, self._closed)
