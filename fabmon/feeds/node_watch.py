"""The supervisor of one node: connects, listens, and tries again for as long as it is watched."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.fabric.wire.hello_limits import HelloLimits
from fabmon.fabric.wire.messages import Answer, Hello
from fabmon.feeds.errors import Ended, LoginRefused, NodeError, Unreachable
from fabmon.feeds.log_digest import LogDigest
from fabmon.feeds.probe_input import VIAS_WITH_PROBE, ProbeCommand
from fabmon.feeds.session_reader import SessionReader
from fabmon.feeds.ticks import Clock, Inbox, TickSchedule
from fabmon.feeds.transports.transport import ProbeSession, Transport

# How many connections are opened at a time.


class ConnectLimiter:
    """Lets `width` openings through at a time.

    Opening costs CPU in its first moments; one that takes longer than `slow_s` waits for its node,
    and a node that never answers must not keep the ones behind it in the queue. So it gives its
    place back.
    """

    def __init__(self, width: int = 64, slow_s: float = 1.5) -> None:
        self._places = asyncio.Semaphore(width)
        self._slow_s = slow_s

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it while opening."""
        await self._places.acquire()
        slow = asyncio.get_running_loop().call_later(self._slow_s, self._places.release)
        try:
            yield
        finally:
            # After its time the place has been given back already.
            if asyncio.get_running_loop().time() < slow.when():
                slow.cancel()
                self._places.release()


_LOG = logging.getLogger("fabmon.feeds")

_STALE_INTERVALS = 2.5
_SILENT_INTERVALS = 10
_LONGEST_INTERVAL_S = 3600.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
_REFUSED_PAUSE_S = 30.0
_LONGEST_REFUSED_PAUSE_S = 120.0
_SETTLED_S = 10.0
_ASK_ROOM_S = 1.0
_FAULT = "fault"


class NodeWatch:
    """Keeps one node's frames coming into the inbox, and tells its state.

    QUEUED, CONNECTING (to the end of the login), STARTING (to the first frame), UP, and STALE when
    2.5 intervals pass without a frame: the node's intervals, if they are longer. When it ends: LOST
    if it was ever up, FAILED if not, which stays until the next frame while it is tried again.
    `start_s` bounds STARTING, `silence_s` how long a session may say nothing before it is given up.
    """

    def __init__(
        self,
        host: Host,
        transport: Transport,
        inbox: Inbox,
        gate: ConnectLimiter,
        news: LogDigest,
        clock: Clock,
        timeline: TickSchedule,
        *,
        interval_s: float,
        lease_s: float,
        start_s: float = 30.0,
        silence_s: float = 30.0,
    ) -> None:
        self.host = host
        self.status = NodeStatus(host.name, NodeState.QUEUED, timeline.now_ns())
        self._transport = transport
        self._inbox = inbox
        self._gate = gate
        self._news = news
        self._clock = clock
        self._timeline = timeline
        self._admission = HelloLimits(host)
        self._interval_s = interval_s
        self._silence_s = silence_s
        self._renew_s = lease_s / 4
        self._start_s = start_s
        self._session: ProbeSession | None = None
        self._listener: SessionReader | None = None
        self._limit: asyncio.Timeout | None = None
        self._last_hello: Hello | None = None
        self._renewed_at = 0.0
        self._up_at = 0.0
        self._was_up = False
        self._failures = 0
        self._told_cause = ""
        self.asked: dict[type[Answer], int] = {}
        self._busy_until: dict[type[Answer], float] = {}
        inbox.add_status(self.status)

    async def run(self) -> None:
        """Watch the node until cancelled; a session that is open then is closed."""
        while True:
            error = await self._once()
            if self.status.state in (NodeState.UP, NodeState.STALE):
                settled = self._clock.monotonic() - self._up_at > _SETTLED_S
                self._failures = 0 if settled else self._failures
            self._fail(error)
            await self._clock.sleep(self._pause_s(error))

    def check(self, now: float) -> None:
        """Once a second or so, `now` by the monotonic clock: renew the lease, notice silence."""
        if self._session is None or self._listener is None:
            return
        if now - self._renewed_at >= self._renew_s:
            self._renewed_at = now
            self._session.send(b"{}\n")
        silent_s = now - self._listener.last_frame_at
        if self.status.state is NodeState.UP and silent_s > _STALE_INTERVALS * self._pace_s:
            self._set(NodeState.STALE, f"no frame for {silent_s:.1f} s", "stale")
        if self.status.state is NodeState.STALE and silent_s > self._patience_s:
            self._extend(0.0)

    def ask(self, ask: ProbeCommand) -> str:
        """Have the node do what is asked beside its frames; why it cannot, or nothing."""
        if self.host.via not in VIAS_WITH_PROBE:
            return f"{self.host.name} is read through {self.host.via}, which {ask.cannot}"
        if self._session is None or not self.is_up:
            return f"{self.host.name} is {self.status.state}, not up"
        now = self._clock.monotonic()
        if now < self._busy_until.get(ask.answer, 0.0):
            return f"one of {self.host.name} is running"
        self._busy_until[ask.answer] = now + ask.seconds + _ASK_ROOM_S
        self.asked[ask.answer] = ask.id
        self._session.send(ask.line())
        return ""

    def up(self) -> None:
        """A good frame came while the node was not UP. Called by the listener."""
        if self.status.state is not NodeState.STALE:
            self._up_at = self._clock.monotonic()
        self._extend(None)
        self._was_up = True
        self._set(NodeState.UP)
        if self._told_cause:
            self._told_cause = ""
            self._news.back(self.host.name)

    @property
    def is_up(self) -> bool:
        """Whether the last frame is no older than 2.5 intervals."""
        return self.status.state is NodeState.UP

    @property
    def _pace_s(self) -> float:
        """From one frame to the next: an agent has a pace of its own, which may be slower."""
        hello = self._listener.hello if self._listener is not None else None
        theirs_s = hello.interval_s if hello is not None else 0.0
        return max(self._interval_s, min(theirs_s, _LONGEST_INTERVAL_S))

    @property
    def _patience_s(self) -> float:
        """How long the session may say nothing."""
        return max(self._silence_s, _SILENT_INTERVALS * self._pace_s)

    async def _once(self) -> NodeError:
        """One session from its beginning to its end; why it ended."""
        try:
            async with self._gate.place():
                self._first_time(NodeState.CONNECTING)
                self._session = await self._transport.open(self.host)
            self._first_time(NodeState.STARTING)
            self._renewed_at = self._clock.monotonic()
            self._listener = SessionReader(
                self, self._session, self._inbox, self._clock, self._admission
            )
            async with asyncio.timeout(self._start_s) as self._limit:
                await self._listener.run(self._last_hello)
        except NodeError as error:
            return error
        except TimeoutError:
            return self._too_late()
        except Exception as error:
            # Whatever it is, it costs this node's row and nothing else.
            if self._told_cause != _FAULT:
                _LOG.exception("%s: a fault of fabmon itself", self.host.name)
            return NodeError(f"a fault of fabmon itself: {type(error).__name__}: {error}", _FAULT)
        finally:
            await self._close()
        return Ended("the session ended")

    def _extend(self, seconds: float | None) -> None:
        """Let the session run for so long from now; without an end for None."""
        if self._limit is not None and not self._limit.expired():
            now = asyncio.get_running_loop().time()
            self._limit.reschedule(None if seconds is None else now + seconds)

    async def _close(self) -> None:
        session, self._session, self._limit = self._session, None, None
        if self._listener is not None:
            self._last_hello, self._listener = self._listener.hello, None
        if session is not None:
            try:
                await session.close()
            except Exception:
                _LOG.exception("%s: a fault of fabmon itself, in closing", self.host.name)

    def _too_late(self) -> NodeError:
        if self.status.state is NodeState.STALE:
            return Ended(f"sent nothing for {self._patience_s:g} s", "timeout")
        listener = self._listener
        said = listener.said if listener is not None else ""
        what = f"; it said: {said}" if said else " (does its login shell wait for something?)"
        return Unreachable(f"logged in, and no frame in {self._start_s:g} s{what}", "timeout")

    def _fail(self, error: NodeError) -> None:
        state = NodeState.LOST if self._was_up else NodeState.FAILED
        self._set(state, str(error), error.cause)
        if error.cause != self._told_cause:
            self._told_cause = error.cause
            self._news.lost(self.host.name, error.cause, str(error))

    def _pause_s(self, error: NodeError) -> float:
        """Seconds to wait: doubling, with jitter so that a thousand nodes do not come as one.

        A refused login waits longer: sites lock out who asks too often.
        """
        first, longest = _FIRST_PAUSE_S, _LONGEST_PAUSE_S
        if isinstance(error, LoginRefused):
            first, longest = _REFUSED_PAUSE_S, _LONGEST_REFUSED_PAUSE_S
        pause_s: float = min(longest, first * 2.0 ** min(self._failures, 10))
        self._failures += 1
        return pause_s * random.uniform(0.5, 1.0)

    def _first_time(self, state: NodeState) -> None:
        if self.status.state not in (NodeState.LOST, NodeState.FAILED):
            self._set(state)

    def _set(self, state: NodeState, reason: str = "", cause: str = "") -> None:
        before = self.status
        if (before.state, before.reason) == (state, reason):
            return
        since_ns = before.since_ns if before.state is state else self._timeline.now_ns()
        self.status = NodeStatus(self.host.name, state, since_ns, reason, cause)
        self._inbox.add_status(self.status)
