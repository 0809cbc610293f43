"""Clocks, the schedule of ticks, and the inbox that a tick empties."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, Self

from fabmon.fabric.kernel_log import is_logged
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.tick import NodeStatus, Tick
from fabmon.fabric.time_wording import clock_text
from fabmon.fabric.wire.messages import Answer, Frame, Hello, Notice
from fabmon.feeds.log_digest import LogDigest
from fabmon.key_priority import KeyPriority

_LOG = logging.getLogger("fabmon.feeds")

_JUMP_NS = 5_000_000_000
"""What a clock is set by at once: more than NTP slews and a busy machine delays, less than anyone
would accept in a label."""

_MAX_WAITING_PER_NODE = 30
"""Messages per node that an inbox accepts between two ticks."""


class Clock(Protocol):
    """Wall time, monotonic time, CPU time and sleeping; injected so that tests control time."""

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch, UTC. May step."""

    def monotonic(self) -> float:
        """Seconds that only increase, at the pace of real time."""

    def cpu_s(self) -> float:
        """Seconds of CPU time that this thread has used."""

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""


class RealClock:
    """The clock of this machine."""

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch, UTC."""
        return time.time_ns()

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""
        return time.monotonic()

    def cpu_s(self) -> float:
        """Seconds of CPU time that this thread has used."""
        return time.thread_time()

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds; immediately for zero or less."""
        await asyncio.sleep(max(0.0, seconds))


async def wait_for_any(clock: Clock, timeout_s: float, *events: asyncio.Event) -> None:
    """Return when one of the events is set, or after `timeout_s` by the clock."""
    tasks: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(waiting)
        for waiting in (clock.sleep(timeout_s), *(event.wait() for event in events))
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class TickFeed(AsyncIterator[Tick]):
    """Base of feeds: an async iterator of ticks that is closed at the end of an `async with`.

    Ticks are due at multiples of `interval_s` plus `offset_s`.
    """

    def __init__(self, clock: Clock | None, interval_s: float, offset_s: float) -> None:
        self.interval_s = interval_s
        self._clock = clock or RealClock()
        self._schedule = TickSchedule(self._clock, interval_s, offset_s)
        self._log_digest = LogDigest()
        self._closed = asyncio.Event()
        self._seq = 0

    def redact_log(self, redactor: Redactor | None) -> None:
        """Log nodes by their pseudonyms from now on. The ticks keep their names."""
        self._log_digest.redactor = redactor

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Release everything that is open. The iterator ends."""
        raise NotImplementedError


class TickSchedule:
    """Due times of ticks: multiples of `interval_s` plus `offset_s` on the wall clock.

    The times given out follow the wall clock. Where it is set back a little they wait for it, by
    increasing at half the pace of real time; where it jumps, by `_JUMP_NS` or more against the
    monotonic clock, they jump with it, and `on_jump` are called with the step in ns.
    """

    def __init__(self, clock: Clock, interval_s: float, offset_s: float) -> None:
        self._clock = clock
        self._interval_ns = int(interval_s * 1e9)
        self._offset_ns = int(offset_s * 1e9)
        self._last_ns = clock.wall_ns()
        self._last_monotonic_s = clock.monotonic()
        self._jumped_ns = 0
        self.on_jump: list[Callable[[int], object]] = []

    def now_ns(self) -> int:
        """Nanoseconds since the epoch, less than in the call before only after a jump."""
        now_ns, monotonic_s = self._clock.wall_ns(), self._clock.monotonic()
        passed_ns = int((monotonic_s - self._last_monotonic_s) * 1e9)
        before_ns, step_ns = self._last_ns, now_ns - self._last_ns - passed_ns
        has_jumped = abs(step_ns) >= _JUMP_NS
        if not has_jumped:
            now_ns = max(now_ns, before_ns + passed_ns // 2)
        self._last_ns, self._last_monotonic_s = now_ns, monotonic_s
        if has_jumped:
            self._jumped_ns += step_ns
            _LOG.warning("%s", clock_text(step_ns))
            for each in self.on_jump:
                each(step_ns)
        return now_ns

    def take_jumped_ns(self) -> int:
        """By how much the wall clock has jumped since the last call, ns; 0 for not at all."""
        jumped_ns, self._jumped_ns = self._jumped_ns, 0
        return jumped_ns

    def until_next_s(self) -> float:
        """Seconds to the next tick: more than 0, at most 1.1 intervals.

        A tick due in less than a tenth of the interval is skipped, so that a sleep that ended early
        does not make two ticks out of one.
        """
        into_ns = (self._clock.wall_ns() - self._offset_ns) % self._interval_ns
        left_ns = self._interval_ns - into_ns
        if left_ns < self._interval_ns // 10:
            left_ns += self._interval_ns
        return left_ns / 1e9


class Inbox:
    """Collects what arrives between two ticks, in the order of arrival.

    Its size is bounded: when no tick is taken, `full` becomes true and the readers of sessions wait
    in `room`, so that data stays in the nodes' pipes and does not fill the memory of the console.
    """

    def __init__(self, nodes: int, key_priority: KeyPriority | None = None) -> None:
        self.key_priority = key_priority or KeyPriority()
        """The keys that go before what is not in the inbox yet."""
        self.frames: list[tuple[str, Frame]] = []
        self.notices: list[tuple[str, Notice]] = []
        self.answers: list[tuple[str, Answer]] = []
        """Parts of the answers to commands."""
        self.statuses: list[NodeStatus] = []
        self.arrived = asyncio.Event()
        self._hellos: dict[str, Hello] = {}
        self._limit = _MAX_WAITING_PER_NODE * max(nodes, 32)
        self._room = asyncio.Event()

    @property
    def full(self) -> bool:
        """Whether to wait for `room` before adding more."""
        return len(self.frames) + len(self.notices) + len(self.answers) >= self._limit

    def add_frame(self, node: str, frame: Frame) -> None:
        """Add a frame that follows the last hello of its node."""
        self.frames.append((node, frame))
        self.arrived.set()

    def add_hello(self, node: str, hello: Hello, *, continues: bool) -> None:
        """Add a hello. Frames of this tick that were sent for another layout are dropped.

        The hellos of a tick apply before its frames, so those frames would be decoded with the
        wrong layout. `continues` says that the earlier frames have the same layout and continue the
        same counters: then they are kept. Earlier notices are dropped, except messages of a log:
        after a hello a node repeats the notices that still apply.
        """
        if not continues:
            self.frames = [item for item in self.frames if item[0] != node]
        self.notices = [item for item in self.notices if item[0] != node or is_logged(item[1])]
        self._hellos[node] = hello

    def take(self, seq: int, time_ns: int) -> Tick:
        """The content as a tick. The inbox is empty afterwards."""
        tick = Tick(
            seq,
            time_ns,
            tuple(self._hellos.items()),
            tuple(self.frames),
            tuple(self.statuses),
            tuple(self.notices),
            answers=tuple(self.answers),
        )
        self.frames = []
        self._hellos = {}
        self.statuses = []
        self.notices = []
        self.answers = []
        self.arrived.clear()
        self._room.set()
        return tick

    async def room(self) -> None:
        """Wait until the feed has taken a tick, which empties the inbox."""
        self._room.clear()
        await self._room.wait()
