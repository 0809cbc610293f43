"""A clock that the test advances, and nodes whose behaviour the test sets."""

from __future__ import annotations

import asyncio
import heapq
import itertools

from fabmon.fabric.model import Host
from fabmon.feeds.errors import Ended, NodeError
from fabmon.feeds.transports.transport import ProbeSession, Transport
from tests.unit.feeds.wire_lines import frame_line, hello_line


class FakeClock:
    """Advances only in `run`; the wall clock can be stepped independently."""

    def __init__(self, wall_s: float = 1_000_000.0) -> None:
        self._now = 0.0
        self.used_s = 0.0
        self._wall_s = wall_s
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def wall_ns(self) -> int:
        return round((self._wall_s + self._now) * 1e9)

    def monotonic(self) -> float:
        return self._now

    def cpu_s(self) -> float:
        return self.used_s

    async def sleep(self, seconds: float) -> None:
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), wake))
        await wake

    def step_wall(self, seconds: float) -> None:
        self._wall_s += seconds

    def suspend(self, seconds: float) -> None:
        """Let time pass in which nothing runs, as after SIGSTOP."""
        self._now += seconds

    async def run(self, seconds: float) -> None:
        """Let that much time pass, waking sleepers in order."""
        until = self._now + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= until + 1e-9:
            at, _, wake = heapq.heappop(self._sleepers)
            self._now = max(self._now, at)
            if not wake.done():
                wake.set_result(None)
            await self._settle()
        self._now = until

    async def _settle(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)


class FakeSession:
    """A session whose lines come from the test."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes | NodeError] = asyncio.Queue()
        self.sent: list[bytes] = []
        self.closed = False

    def put(self, *lines: bytes | NodeError) -> None:
        for line in lines:
            self.lines.put_nowait(line)

    def greet(self, boot_id: str = "boot-1") -> None:
        self.put(hello_line(boot_id=boot_id), frame_line(0))

    async def readline(self) -> bytes:
        line = await self.lines.get()
        if isinstance(line, NodeError):
            raise line
        return line

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    async def close(self) -> None:
        self.closed = True


class FakeNodes:
    """The transport of all hosts. `errors` maps nodes to the error that opening them raises."""

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}
        self.sessions: dict[str, FakeSession] = {}
        self.opened: list[str] = []
        self.closed = False

    def of(self, host: Host) -> Transport:
        return self

    async def open(self, host: Host) -> ProbeSession:
        self.opened.append(host.name)
        if host.name in self.errors:
            raise self.errors[host.name]
        self.sessions[host.name] = FakeSession()
        return self.sessions[host.name]

    async def close(self) -> None:
        self.closed = True

    def reboot(self, name: str) -> None:
        self.sessions[name].put(Ended("connection lost"))
