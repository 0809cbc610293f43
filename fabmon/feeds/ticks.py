"""Time, injected: what a feed asks of a clock, and the real one."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from fabmon.fabric.tick import NodeStatus, Tick
from fabmon.fabric.wire.messages import Answer, Frame, Hello, Notice


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


class TickSchedule:
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


# What reached the console since the last tick.


_PER_NODE = 30


class Inbox:
    """Collects between ticks, in the order of arrival.

    Bounded: when nobody takes ticks, `full` turns true and those who fill it wait for `room`, so
    that the nodes wait in their pipes instead of in our memory.
    """

    def __init__(self, nodes: int) -> None:
        self.frames: list[tuple[str, Frame]] = []
        self.arrived = asyncio.Event()
        self._hellos: dict[str, Hello] = {}
        self._statuses: list[NodeStatus] = []
        self._notices: list[tuple[str, Notice]] = []
        self._answers: list[tuple[str, Answer]] = []
        self._limit = _PER_NODE * max(nodes, 32)
        self._room = asyncio.Event()

    @property
    def full(self) -> bool:
        """Whether to wait for `room` before adding more."""
        return len(self.frames) + len(self._notices) + len(self._answers) >= self._limit

    @property
    def empty(self) -> bool:
        """Whether a tick would have nothing to tell."""
        return not (self.frames or self._hellos or self._statuses or self._notices or self._answers)

    def add_frame(self, node: str, frame: Frame) -> None:
        """Take a frame that follows the last hello of its node."""
        self.frames.append((node, frame))
        self.arrived.set()

    def add_hello(self, node: str, hello: Hello, *, continues: bool) -> None:
        """Take a hello. Frames of this tick that followed another layout are dropped.

        A tick's hellos apply before its frames, so those frames would be read by the wrong layout.
        `continues` says that the frames before hold the same and count on: then they may stay.
        Notices go in any case: after a hello a node tells anew what is wrong with it.
        """
        if not continues:
            self.frames = [item for item in self.frames if item[0] != node]
        self._notices = [item for item in self._notices if item[0] != node]
        self._hellos[node] = hello

    def add_status(self, status: NodeStatus) -> None:
        """Take a change of a node's state."""
        self._statuses.append(status)

    def add_notice(self, node: str, notice: Notice) -> None:
        """Take a notice."""
        self._notices.append((node, notice))

    def add_answer(self, node: str, part: Answer) -> None:
        """Take a part of what the node was asked for."""
        self._answers.append((node, part))

    def take(self, seq: int, time_ns: int) -> Tick:
        """All of it as a tick; the inbox is empty after."""
        tick = Tick(
            seq,
            time_ns,
            tuple(self._hellos.items()),
            tuple(self.frames),
            tuple(self._statuses),
            tuple(self._notices),
            answers=tuple(self._answers),
        )
        self.frames = []
        self._hellos = {}
        self._statuses = []
        self._notices = []
        self._answers = []
        self.arrived.clear()
        self._room.set()
        return tick

    async def room(self) -> None:
        """Wait until the next tick is taken."""
        self._room.clear()
        await self._room.wait()
