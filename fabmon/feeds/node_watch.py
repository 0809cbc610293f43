"""The supervisor of one node: connects, reads its session, and reconnects after a loss."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fabmon.fabric.model import Host
from fabmon.fabric.moved_times import moved
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.fabric.time_wording import interval
from fabmon.fabric.wire.hello_limits import HelloLimits
from fabmon.fabric.wire.messages import Answer, Hello
from fabmon.feeds.errors import Ended, LoginRefused, NodeError, Unreachable
from fabmon.feeds.log_digest import LogDigest
from fabmon.feeds.probe_input import VIAS_WITH_PROBE, ProbeCommand
from fabmon.feeds.session_reader import SessionReader
from fabmon.feeds.ticks import Clock, Inbox, TickSchedule
from fabmon.feeds.token_bucket import CPU_BURST_S, CPU_SHARE, TokenBucket
from fabmon.feeds.transports.transport import ProbeSession, Transport

_LOG = logging.getLogger("fabmon.feeds")

_STALE_INTERVALS = 2.5
_SILENT_INTERVALS = 10
_MAX_INTERVAL_S = 3600.0
_FIRST_DELAY_S = 1.0
_MAX_DELAY_S = 30.0
_FIRST_DELAY_AFTER_REFUSAL_S = 30.0
_MAX_DELAY_AFTER_REFUSAL_S = 120.0
_DELAY_WITHOUT_CHANGE_S = 1800.0
"""The next login with the keys that were refused: fail2ban bans after 5 attempts in 10 minutes."""

_WATCHED_HINT = "; next login when a key or ssh_config here changes, by r, else within 30 min"
_SETTLED_S = 10.0
"""A session that was up for longer resets the delay before the next attempt."""

_ANSWER_MARGIN_S = 1.0
"""Seconds that an answer may take beyond the duration of its command."""

_INTERNAL_ERROR = "internal error"

_CONNECT_AT = 0.5
"""Share of the burst that has to be there again before the next session."""


class ConnectLimiter:
    """Lets `width` connections be opened at a time.

    The first moments of opening cost CPU on the console. After `slow_s` a connection waits for its
    node only and gives its slot back, so that nodes that never answer do not delay the others. The
    first `held` connections, if any, keep their slots until `release`, and there are no others.
    """

    def __init__(self, width: int = 64, slow_s: float = 1.5, held: int = 0) -> None:
        self._slots = asyncio.Semaphore(held or width)
        self._slow_s = slow_s
        self._missing = width - held if held else 0
        self._is_holding = held > 0
        self._held = 0

    def release(self) -> None:
        """Let other connections be opened as well, `width` at a time."""
        for _ in range(self._held + self._missing):
            self._slots.release()
        self._held = self._missing = 0
        self._is_holding = False

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot, and occupy it while opening, for 1.5 s at most."""
        await self._slots.acquire()
        release = asyncio.get_running_loop().call_later(self._slow_s, self._give_back)
        try:
            yield
        finally:
            if asyncio.get_running_loop().time() < release.when():
                release.cancel()
                self._give_back()

    def _give_back(self) -> None:
        if self._is_holding:
            self._held += 1
        else:
            self._slots.release()


class NodeWatch:
    """Keeps the frames of one node arriving in the inbox, and reports the node's state.

    The states are QUEUED, CONNECTING (until the login is done), STARTING (until the first frame),
    UP, and STALE after 2.5 intervals without a frame (of the node's own interval if that is
    longer). When a session ends the node is LOST if it was ever up, else FAILED; it stays so until
    the next frame, while fabmon reconnects. `start_s` limits STARTING. `silence_s` is how long a
    session may be silent before it is closed; at least ten intervals.
    """

    def __init__(
        self,
        host: Host,
        transport: Transport,
        inbox: Inbox,
        limiter: ConnectLimiter,
        log_digest: LogDigest,
        clock: Clock,
        schedule: TickSchedule,
        *,
        interval_s: float,
        lease_s: float,
        start_s: float = 30.0,
        silence_s: float = 30.0,
    ) -> None:
        self.host = host
        self.status = NodeStatus(host.name, NodeState.QUEUED, schedule.now_ns())
        self._transport = transport
        self._inbox = inbox
        self._limiter = limiter
        self._log_digest = log_digest
        self._clock = clock
        self._schedule = schedule
        self._hello_limits = HelloLimits(host)
        self._cpu = TokenBucket(CPU_BURST_S, CPU_SHARE, clock.monotonic())
        self._interval_s = interval_s
        self._silence_s = silence_s
        self._renew_s = lease_s / 4
        self._start_s = start_s
        self._retry = asyncio.Event()
        self._refusal: LoginRefused | None = None
        self._session: ProbeSession | None = None
        self._reader: SessionReader | None = None
        self._deadline: asyncio.Timeout | None = None
        self._last_hello: Hello | None = None
        self._renewed_at_s = 0.0
        self._resumed_at_s = -math.inf
        self._up_since_s = 0.0
        self._was_up = False
        self._failures = 0
        self._logged_cause = ""
        self._last_command_ids: dict[type[Answer], int] = {}
        self._busy_until_s: dict[type[Answer], float] = {}
        inbox.statuses.append(self.status)
        schedule.on_jump.append(self._follow_clock)

    async def run(self) -> None:
        """Watch the node until cancelled; then the open session is closed."""
        while True:
            error = await self._run_session()
            if self.status.state in (NodeState.UP, NodeState.STALE):
                is_settled = self._clock.monotonic() - self._up_since_s > _SETTLED_S
                self._failures = 0 if is_settled else self._failures
            self._fail(error)
            await self._wait_after(error)

    def check(self, now_s: float) -> None:
        """Renew the lease and notice silence. Call about once a second, with the monotonic time."""
        if self._session is None or self._reader is None:
            return
        if now_s - self._renewed_at_s >= self._renew_s:
            self._renewed_at_s = now_s
            self._session.send(b"{}\n")
        silent_s = now_s - max(self._reader.last_frame_s, self._resumed_at_s)
        if self.status.state is NodeState.UP and silent_s > _STALE_INTERVALS * self._frame_s:
            self._set(NodeState.STALE, f"no frame for {silent_s:.1f} s", "stale")
        if self.status.state is NodeState.STALE and silent_s > self._max_silence_s:
            self._set_deadline(0.0)

    @property
    def hello_bytes(self) -> int:
        """The size of the last hello; 0 where there is none."""
        return self._reader.hello_bytes if self._reader is not None else 0

    def charge(self, cpu_s: float) -> None:
        """Count CPU time that was spent on the last hello after it was read."""
        self._cpu.take(cpu_s, self._clock.monotonic())

    def resume(self, now_s: float) -> None:
        """Count silence from now on: the console was suspended, and did not read."""
        self._resumed_at_s = now_s

    def _follow_clock(self, jumped_ns: int) -> None:
        """Report the state as old as it was before the wall clock was set."""
        self.status = moved(self.status, jumped_ns)
        self._inbox.statuses.append(self.status)

    def retry(self) -> bool:
        """Connect now instead of after the delay; returns whether the node waits for one."""
        if self.status.state not in (NodeState.LOST, NodeState.FAILED):
            return False
        if self._refusal is not None and self._refusal.forget is not None:
            self._refusal.forget()
        self._retry.set()
        return True

    def send(self, command: ProbeCommand) -> str:
        """Send a command to the probe. Returns why that is not possible, or an empty string."""
        if self.host.via not in VIAS_WITH_PROBE:
            return f"{self.host.name} is read through {self.host.via}, which {command.unsupported}"
        if self._session is None or self.status.state is not NodeState.UP:
            return f"{self.host.name} is {self.status.state}, not up"
        now_s = self._clock.monotonic()
        if now_s < self._busy_until_s.get(command.answer, 0.0):
            return f"{self.host.name} already runs a {command.key}"
        self._busy_until_s[command.answer] = now_s + command.seconds + _ANSWER_MARGIN_S
        self._last_command_ids[command.answer] = command.id
        self._session.send(command.line())
        return ""

    def _note_frame(self) -> None:
        """A valid frame arrived: the node is UP."""
        if self.status.state is NodeState.UP:
            return
        if self.status.state is not NodeState.STALE:
            self._up_since_s = self._clock.monotonic()
        self._set_deadline(None)
        self._was_up = True
        self._set(NodeState.UP)
        if self._logged_cause:
            self._logged_cause = ""
            self._log_digest.recovered(self.host.name)

    @property
    def _frame_s(self) -> float:
        """Seconds between frames. An agent has an interval of its own, which may be longer."""
        hello = self._reader.hello if self._reader is not None else None
        node_s = hello.interval_s if hello is not None else 0.0
        return max(self._interval_s, min(node_s, _MAX_INTERVAL_S))

    @property
    def _max_silence_s(self) -> float:
        return max(self._silence_s, _SILENT_INTERVALS * self._frame_s)

    async def _run_session(self) -> NodeError:
        """Run one session from connecting to its end; the error that ended it."""
        try:
            async with self._limiter.slot():
                self._set_unless_lost(NodeState.CONNECTING)
                self._session = await self._transport.open(self.host)
            self._set_unless_lost(NodeState.STARTING)
            self._renewed_at_s = self._clock.monotonic()
            self._reader = SessionReader(
                self.host.name,
                self._session,
                self._inbox,
                self._clock,
                self._hello_limits,
                self._cpu,
                last_command_ids=self._last_command_ids,
                on_frame=self._note_frame,
            )
            async with asyncio.timeout(self._start_s) as self._deadline:
                await self._reader.run(self._last_hello)
        except NodeError as error:
            # With its traceback it would keep the session in memory until the next one ends.
            error.__context__ = None
            return error.with_traceback(None)
        except TimeoutError:
            return self._timeout_error()
        except Exception as error:
            # Whatever it is, it affects this node and no other.
            if self._logged_cause != _INTERNAL_ERROR:
                _LOG.exception("%s: internal error in fabmon", self.host.name)
            text = f"internal error in fabmon: {type(error).__name__}: {error}"
            return NodeError(text, _INTERNAL_ERROR)
        finally:
            await self._close()
        return Ended("the session ended")

    def _set_deadline(self, seconds: float | None) -> None:
        """Let the session run for that long from now; None for no limit."""
        if self._deadline is not None and not self._deadline.expired():
            now_s = asyncio.get_running_loop().time()
            self._deadline.reschedule(None if seconds is None else now_s + seconds)

    async def _close(self) -> None:
        session, self._session, self._deadline = self._session, None, None
        if self._reader is not None:
            self._last_hello, self._reader = self._reader.hello, None
        if session is not None:
            try:
                await session.close()
            except Exception:
                _LOG.exception("%s: internal error in fabmon, on close", self.host.name)

    def _timeout_error(self) -> NodeError:
        if self.status.state is NodeState.STALE:
            return Ended(f"sent nothing for {interval(self._max_silence_s)}", "timeout")
        line = self._reader.last_stray_line if self._reader is not None else ""
        why = f"; its output was: {line}" if line else " (does its login shell wait for input?)"
        return Unreachable(f"logged in, but no frame in {interval(self._start_s)}{why}", "timeout")

    def _fail(self, error: NodeError) -> None:
        state = NodeState.LOST if self._was_up else NodeState.FAILED
        watched = isinstance(error, LoginRefused) and error.until_changed is not None
        self._set(state, f"{error}{_WATCHED_HINT if watched else ''}", error.cause)
        if error.cause != self._logged_cause:
            self._logged_cause = error.cause
            self._log_digest.lost(self.host.name, error.cause, str(error))

    async def _wait_after(self, error: NodeError) -> None:
        """Wait before the next attempt, or until `retry`; after a refused login, until keys or
        ssh_config change."""
        self._retry.clear()
        self._refusal = error if isinstance(error, LoginRefused) else None
        waits: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self._clock.sleep(self._delay_s(error))),
            asyncio.ensure_future(self._retry.wait()),
        ]
        if self._refusal is not None and self._refusal.until_changed is not None:
            waits.append(asyncio.ensure_future(self._refusal.until_changed()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _delay_s(self, error: NodeError) -> float:
        """Seconds until the next attempt: doubling, with jitter to spread a thousand nodes.

        The delay is longer after a refused login: sites lock accounts after many attempts.
        """
        first_s, longest_s = _FIRST_DELAY_S, _MAX_DELAY_S
        if isinstance(error, LoginRefused) and error.until_changed is not None:
            first_s = longest_s = _DELAY_WITHOUT_CHANGE_S
        elif isinstance(error, LoginRefused):
            first_s, longest_s = _FIRST_DELAY_AFTER_REFUSAL_S, _MAX_DELAY_AFTER_REFUSAL_S
        delay_s: float = min(longest_s, first_s * 2.0 ** min(self._failures, 10))
        self._failures += 1
        delay_s *= random.uniform(0.5, 1.0)
        if error.cause == "cpu":
            delay_s = max(delay_s, self._cpu.wait_s(_CONNECT_AT, self._clock.monotonic()))
        return delay_s

    def _set_unless_lost(self, state: NodeState) -> None:
        if self.status.state not in (NodeState.LOST, NodeState.FAILED):
            self._set(state)

    def _set(self, state: NodeState, reason: str = "", cause: str = "") -> None:
        before = self.status
        if (before.state, before.reason) == (state, reason):
            return
        since_ns = before.since_ns if before.state is state else self._schedule.now_ns()
        self.status = NodeStatus(self.host.name, state, since_ns, reason, cause)
        self._inbox.statuses.append(self.status)
