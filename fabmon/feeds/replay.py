"""The replay feed: ticks of recordings at their own pace, faster, or as fast as possible."""

from __future__ import annotations

import asyncio
from typing import Self

from fabmon.fabric.model import Host
from fabmon.fabric.tick import Tick
from fabmon.feeds.ticks import Clock, RealClock, wait_for_any
from fabmon.recording.reading.raw_chunks import PlayedTicks
from fabmon.recording.reading.timeline import Timeline

_POLL_S = 0.25


class ReplayFeed:
    """An async iterator of the ticks between two times of a timeline.

    `speed` is recorded seconds per second and may be changed during replay; None is as fast as
    possible. A gap in the recording is shortened to `longest_wait_s`. A replay that starts within
    the timeline begins with the ticks of `lead_ns` before, without waiting, and with those that
    bring the history to its state at that time. With
    `follow` the feed waits for more at the end of a growing file, and ends only when the file has
    reached `until_ns`.
    """

    def __init__(
        self,
        timeline: Timeline,
        *,
        from_ns: int | None = None,
        until_ns: int | None = None,
        lead_ns: int = 0,
        speed: float | None = 1.0,
        longest_wait_s: float = 5.0,
        follow: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.speed = speed
        self._timeline = timeline
        begin_ns = None if from_ns is None else max(timeline.start_ns, from_ns - lead_ns)
        self._ticks = PlayedTicks(timeline, begin_ns, until_ns)
        self._longest_wait_s = longest_wait_s
        self._follow = follow
        self._clock = clock or RealClock()
        self._closed = asyncio.Event()
        self._from_ns = from_ns or 0
        self._last_ns = self._from_ns - 1
        self._due_s: float | None = None

    @property
    def hosts(self) -> list[Host]:
        """The nodes that were watched."""
        return self._timeline.hosts

    @property
    def interval_s(self) -> float:
        """The recorded time from one tick to the next."""
        return self._timeline.interval_s

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Tick:
        tick = None if self._closed.is_set() else await self._next()
        if tick is None or self._closed.is_set():
            raise StopAsyncIteration
        if tick.time_ns >= self._from_ns:
            await self._wait(tick.time_ns)
            self._last_ns = tick.time_ns
        if self._closed.is_set():
            raise StopAsyncIteration
        return tick

    async def aclose(self) -> None:
        """End the iteration."""
        self._closed.set()

    async def _next(self) -> Tick | None:
        while True:
            tick = next(self._ticks, None)
            if tick is not None or not self._follow:
                return tick
            if self._timeline.until_ns >= self._ticks.until_ns:
                return None
            await wait_for_any(self._clock, _POLL_S, self._closed)
            if self._closed.is_set():
                return None
            self._ticks.refresh()

    async def _wait(self, time_ns: int) -> None:
        """Wait until a recorded time is due, counted from the tick before."""
        now_s = self._clock.monotonic()
        if self.speed is None or self._due_s is None:
            self._due_s = now_s
            await asyncio.sleep(0)
            return
        wait_s = min((time_ns - self._last_ns) / 1e9, self._longest_wait_s) / self.speed
        # After a delay (the screen was busy or stopped) at most one interval is caught up.
        self._due_s = max(self._due_s + wait_s, now_s - wait_s)
        await wait_for_any(self._clock, self._due_s - now_s, self._closed)
