"""Sends alerts to receivers, in tasks of their own: no receiver delays a tick or another one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self, get_args

from fabmon.alerts.alert import Alert, AlertBook, AlertRules
from fabmon.alerts.alertmanager import AlertmanagerTransport
from fabmon.alerts.notifier import ExecTransport, WebhookTransport
from fabmon.alerts.outbox import Outbox
from fabmon.alerts.settings import (
    ALERTS_LOG,
    AlertmanagerReceiver,
    AlertsConfig,
    DeliveryError,
    ExecReceiver,
    JournaldReceiver,
    Receiver,
    SyslogReceiver,
    WebhookReceiver,
)
from fabmon.alerts.system_log import JournaldTransport, SyslogTransport
from fabmon.analysis.finding import Change
from fabmon.analysis.scene import Scene
from fabmon.error_log import log_error, summary
from fabmon.limited_thread import NO_ANSWER, START_S, LimitedThread
from fabmon.state_file import StateFile

_LOG = logging.getLogger(ALERTS_LOG)
_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 30.0
_LOCK_RETRY_S = 10.0
_MINUTE_S = 60.0
_MOST_SAVE_S = 2.0
"""How long the next message, and the end of a run, wait for a file system to keep what was sent."""
_LAST_WORDS_S = 5.0
"""How long the end of a run waits for the message under way, and for what has not been sent yet:
receivers answer in 1 s, and who ends a screen waits with it."""


class Transport(Protocol):
    """How one kind of receiver is sent alerts.

    `batch` is the largest number of alerts in a message. Open alerts are sent again after
    `resend_s`; None: never.
    """

    batch: int
    resend_s: float | None

    def identity(self, alert: Alert) -> str:
        """What the receiver recognises an alert by."""

    def is_news(self, sent: Alert, alert: Alert) -> bool:
        """Whether the newest version of an open alert differs so that it is sent at once."""

    async def send(self, changes: Sequence[tuple[Change, Alert]]) -> None:
        """Send one message. Raises DeliveryError."""

    async def close(self) -> None:
        """Close what is open."""


class Delivery:
    """Sends the alerts of one receiver: at most `max_per_minute` messages in any minute, with
    backoff.

    The first message that fails is logged, and the first that succeeds after it. After one that
    failed come the alerts that failed less often; of what was refused half as many are sent at
    once: one that a receiver never takes keeps no other waiting.
    """

    def __init__(
        self,
        name: str,
        transport: Transport,
        rules: AlertRules,
        max_per_minute: int,
        memory: StateFile[Alert] | None = None,
        are_known: asyncio.Event | None = None,
    ) -> None:
        """`memory` is what the receiver has, which is taken over once the findings `are_known` that
        the last run left open."""
        self._name = name
        self._memory, self._are_known = memory, are_known
        self._kept_in: StateFile[Alert] | None = None
        self._thread = LimitedThread(_MOST_SAVE_S)
        self._is_ready = memory is None
        self._may_answer = asyncio.Event()
        self._newest: Scene | None = None
        self._transport = transport
        self._book = AlertBook(rules)
        self._outbox = Outbox(transport.identity, transport.is_news, transport.resend_s)
        self._messages_s: deque[float] = deque(maxlen=max_per_minute)
        self._most = transport.batch
        self._failures = 0
        self._sending: asyncio.Task[float | None] | None = None
        self._batch: Sequence[Alert] = ()
        self._is_unsaved = self._save_fails = False
        self._changed = asyncio.Event()

    @property
    def fails(self) -> bool:
        """Whether the last message could not be sent."""
        return self._failures > 0

    def accept(self, scene: Scene) -> None:
        """Take over the findings of a scene. Does not wait."""
        if not self._is_ready:
            self._newest = scene
            return
        self._outbox.accept(self._book.accept(scene), time.time_ns())
        if self._outbox.next_due_s() <= time.monotonic():
            self._changed.set()

    def recall(self) -> None:
        """The findings that the last run left open are known now: nothing is sent until what the
        receiver has of them is, or cannot be read."""
        if self._memory is not None and self._kept_in is None:
            self._is_ready = False
            self._may_answer.set()

    async def run(self) -> None:
        """Send whatever is due, until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._memory is not None:
                tasks.create_task(self._remember(self._memory))
            tasks.create_task(self._send_all())

    async def _send_all(self) -> None:
        while True:
            wait_s = await self.send_due()
            if self._is_unsaved:
                await self._save()
                wait_s = _LAST_RETRY_S if wait_s is None else min(wait_s, _LAST_RETRY_S)
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    # After a failure only time helps.
                    await (asyncio.Event() if self._failures else self._changed).wait()

    async def send_due(self) -> float | None:
        """Send what is due now. Returns how many seconds to wait then; None: until a change."""
        while self._is_ready and (batch := self._outbox.due(time.monotonic(), self._most)):
            short_s = self._seconds_short()
            if short_s > 0:
                await asyncio.sleep(short_s)
                continue
            # Not cancelled with this task: the receiver may have the message already.
            self._batch = batch
            self._sending = asyncio.create_task(self._send(batch))
            retry_s = await asyncio.shield(self._sending)
            if retry_s is not None:
                return retry_s
            await self._save()
        next_s = self._outbox.next_due_s() if self._is_ready else float("inf")
        return None if next_s == float("inf") else max(0.0, next_s - time.monotonic())

    async def finish(self) -> None:
        """Wait for the message under way, try once to send what is due, and close the connection.

        A message whose receiver does not answer in time is cut off, which is logged, as is how many
        alerts were not sent.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                if self._sending is not None:
                    await asyncio.wait([self._sending])
                if not self._failures:
                    await self.send_due()
        unsent = self._outbox.unsent()
        if self._sending is not None and not self._sending.done():
            unsent = [each for each in unsent if each not in self._batch]
            _LOG.warning(
                "alerts to %s: no answer to the last message when fabmon ended: it may be sent"
                " again after a restart",
                self._name,
            )
            self._sending.cancel()
            await asyncio.wait([self._sending])
        if unsent and self._is_ready:
            _LOG.warning(
                "alerts to %s: %d were not sent when fabmon ended: those still open"
                " after a restart are sent then",
                self._name,
                len(unsent),
            )
        if self._is_unsaved:
            await self._save()
        await self._transport.close()
        if self._memory is not None:
            self._memory.release()

    async def _send(self, batch: Sequence[Alert]) -> float | None:
        """Send one message. Returns the seconds until a retry; None: it was sent."""
        try:
            await self._transport.send([(self._outbox.change(each), each) for each in batch])
        except DeliveryError as error:
            if error.is_refusal:
                self._most = max(1, len(batch) // 2)
            return self._failed(batch, str(error))
        except Exception as error:
            where = await asyncio.to_thread(log_error, error, f"alerts: {self._name}")
            return self._failed(batch, f"{summary(error)}; {where}")
        self._outbox.delivered(batch, time.monotonic())
        self._is_unsaved = self._memory is not None
        self._succeeded()
        return None

    async def _remember(self, memory: StateFile[Alert]) -> None:
        """Wait until no other process sends to this receiver, then take over what it has. Alerts
        are sent while that is not known, but nothing is saved over what may be there."""
        logged, thread = "", LimitedThread(START_S)
        while True:
            self._may_answer.clear()
            try:
                if await thread.call(memory.acquire):
                    sent = await thread.call(memory.load)
                    break
                self._is_ready = False
                said = f"alerts to {self._name} are not sent from here: another fabmon sends them"
            except OSError as error:
                self._begin()
                said = f"{memory.path}: {_why(error)}: alerts to {self._name} may be sent twice"
            if said != logged:
                _LOG.warning("%s", said)
                logged = said
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOCK_RETRY_S):
                    await self._may_answer.wait()
        await self._wait_for_findings()
        self._outbox.inherit(sent)
        self._book.inherit(sent)
        self._kept_in = memory
        self._begin()

    async def _wait_for_findings(self) -> None:
        """Wait until the findings that the last run left open are known, of which some alerts are;
        new ones are sent meanwhile."""
        while self._are_known is not None and not self._are_known.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(START_S):
                    await self._are_known.wait()
                    return
            if self._newest is not None:
                self._begin()

    def _begin(self) -> None:
        self._is_ready = True
        if self._newest is not None:
            self.accept(self._newest)
            self._newest = None
        self._changed.set()

    async def _save(self) -> None:
        if self._kept_in is None:
            return
        try:
            await self._thread.call(self._kept_in.save, self._outbox.held())
        except OSError as error:
            if not self._save_fails:
                _LOG.warning(
                    "%s: %s: after a restart alerts to %s may be sent twice",
                    self._kept_in.path,
                    _why(error),
                    self._name,
                )
            self._save_fails = True
        else:
            self._is_unsaved = self._save_fails = False

    def _seconds_short(self) -> float:
        """Seconds until a message is allowed again; counts one if it is now."""
        now_s, last_s = time.monotonic(), self._messages_s
        if len(last_s) == last_s.maxlen and now_s < last_s[0] + _MINUTE_S:
            return last_s[0] + _MINUTE_S - now_s
        last_s.append(now_s)
        return 0.0

    def _failed(self, batch: Sequence[Alert], why: str) -> float:
        self._outbox.failed(batch)
        if not self._failures:
            _LOG.warning("alerts to %s are not sent: %s; retrying", self._name, why)
        self._failures += 1
        return min(_FIRST_RETRY_S * 2.0 ** min(self._failures - 1, 10), _LAST_RETRY_S)

    def _succeeded(self) -> None:
        self._most = min(2 * self._most, self._transport.batch)
        if self._failures:
            lost = self._outbox.given_up
            more = f"; {lost} that had closed meanwhile were given up" if lost else ""
            _LOG.warning("alerts to %s are sent again%s", self._name, more)
            self._failures = self._outbox.given_up = 0


def _why(error: OSError) -> str:
    # That of a limit has no words.
    return error.strerror or str(error) or NO_ANSWER


class Alerts:
    """Sends the findings of scenes to all receivers while it is entered."""

    def __init__(self, config: AlertsConfig, cluster: str, known_from: str) -> None:
        """`cluster` is the name of the nodes in alerts, `known_from` that of what is kept. Raises
        SettingError for a template."""
        self._are_known = asyncio.Event()
        self.deliveries = [
            Delivery(
                name,
                _TRANSPORTS[type(receiver)](receiver, cluster, config),
                AlertRules.of(config, receiver),
                config.max_per_minute,
                StateFile(Alert, "alerts", known_from, name),
                self._are_known,
            )
            for name, receiver in config.receivers.items()
        ]
        self._tasks: list[asyncio.Task[None]] = []

    def fail(self) -> bool:
        """Whether some receiver could not be sent the last message for it."""
        return any(delivery.fails for delivery in self.deliveries)

    def accept(self, scene: Scene, are_known: bool = True) -> None:
        """Take over the findings of a scene. Does not wait. `are_known`: those that the last run
        left open are among them; before, none of its alerts is resolved."""
        if are_known and not self._are_known.is_set():
            self._are_known.set()
            for delivery in self.deliveries:
                delivery.recall()
        for delivery in self.deliveries:
            delivery.accept(scene)

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(each.run()) for each in self.deliveries]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop; open alerts stay open: fabmon does not know that their findings have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(each.finish() for each in self.deliveries))


_TRANSPORTS: Mapping[type, Callable[[Any, str, AlertsConfig], Transport]] = {
    AlertmanagerReceiver: lambda receiver, cluster, config: AlertmanagerTransport(
        receiver, cluster, config.link, config.resend_s
    ),
    WebhookReceiver: lambda receiver, cluster, config: WebhookTransport(
        receiver, cluster, config.link
    ),
    ExecReceiver: lambda receiver, cluster, _: ExecTransport(receiver, cluster),
    JournaldReceiver: lambda receiver, cluster, _: JournaldTransport(receiver, cluster),
    SyslogReceiver: lambda receiver, cluster, _: SyslogTransport(receiver, cluster),
}
"""What sends to each kind of receiver."""
if _without := set(get_args(Receiver)) ^ set(_TRANSPORTS):
    raise TypeError(f"receivers without a transport, or the reverse: {_without}")
