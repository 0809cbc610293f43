"""Sends alerts to receivers, in tasks of their own: no receiver delays a tick or another one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from fabmon.alerts.alert import Alert, AlertBook, AlertRules
from fabmon.alerts.alertmanager import AlertmanagerTransport
from fabmon.alerts.notifier import ExecTransport, WebhookTransport
from fabmon.alerts.outbox import Outbox
from fabmon.alerts.settings import (
    ALERTS_LOG,
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
from fabmon.state_file import StateFile

_LOG = logging.getLogger(ALERTS_LOG)
_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 30.0
_LOCK_RETRY_S = 10.0
_MINUTE_S = 60.0
_LAST_WORDS_S = 2.0
"""How long the end of a run waits for what has not been sent yet."""


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

    The first message that fails is logged, and the first that succeeds after it.
    """

    def __init__(
        self,
        name: str,
        transport: Transport,
        rules: AlertRules,
        max_per_minute: int,
        memory: StateFile[Alert] | None = None,
    ) -> None:
        self._name = name
        self._memory = memory
        self._is_ready = memory is None
        self._newest: Scene | None = None
        self._transport = transport
        self._book = AlertBook(rules)
        self._outbox = Outbox(transport.identity, transport.is_news, transport.resend_s)
        self._messages_s: deque[float] = deque(maxlen=max_per_minute)
        self._failures = 0
        self._is_unsaved = False
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

    async def run(self) -> None:
        """Send whatever is due, until it is cancelled."""
        if self._memory is not None:
            await self._remember(self._memory)
        while True:
            wait_s = await self.send_due()
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    # After a failure only time helps.
                    await (asyncio.Event() if self._failures else self._changed).wait()

    async def send_due(self) -> float | None:
        """Send what is due now. Returns how many seconds to wait then; None: until a change."""
        while batch := self._outbox.due(time.monotonic(), self._transport.batch):
            short_s = self._seconds_short()
            if short_s > 0:
                await asyncio.sleep(short_s)
                continue
            try:
                await self._transport.send([(self._outbox.change(each), each) for each in batch])
            except DeliveryError as error:
                return self._failed(str(error))
            except Exception as error:
                where = await asyncio.to_thread(log_error, error, f"alerts: {self._name}")
                return self._failed(f"{summary(error)}; {where}")
            self._outbox.delivered(batch, time.monotonic())
            self._succeeded()
            await self._save()
        next_s = self._outbox.next_due_s()
        return None if next_s == float("inf") else max(0.0, next_s - time.monotonic())

    async def finish(self) -> None:
        """Try once to send what is due, and close the connection."""
        if self._is_ready and not self._failures:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS_S):
                    await self.send_due()
        await self._transport.close()
        if self._memory is not None:
            self._memory.release()

    async def _remember(self, memory: StateFile[Alert]) -> None:
        """Wait until no other process sends to this receiver, then take over what it has."""
        is_logged = False
        try:
            while not await asyncio.to_thread(memory.acquire):
                if not is_logged:
                    _LOG.warning(
                        "alerts to %s are not sent from here: another fabmon sends them", self._name
                    )
                    is_logged = True
                await asyncio.sleep(_LOCK_RETRY_S)
            sent = await asyncio.to_thread(memory.load)
        except OSError as error:
            self._note_unsaved(memory, error)
        else:
            self._outbox.inherit(sent)
            self._book.inherit(sent)
        self._is_ready = True
        if self._newest is not None:
            self.accept(self._newest)
            self._newest = None

    async def _save(self) -> None:
        if self._memory is None:
            return
        try:
            await asyncio.to_thread(self._memory.save, self._outbox.held())
        except OSError as error:
            self._note_unsaved(self._memory, error)
        else:
            self._is_unsaved = False

    def _note_unsaved(self, memory: StateFile[Alert], error: OSError) -> None:
        if not self._is_unsaved:
            _LOG.warning(
                "%s: %s: after a restart alerts to %s may be sent twice",
                memory.path,
                error.strerror or error,
                self._name,
            )
        self._is_unsaved = True

    def _seconds_short(self) -> float:
        """Seconds until a message is allowed again; counts one if it is now."""
        now_s, last_s = time.monotonic(), self._messages_s
        if len(last_s) == last_s.maxlen and now_s < last_s[0] + _MINUTE_S:
            return last_s[0] + _MINUTE_S - now_s
        last_s.append(now_s)
        return 0.0

    def _failed(self, why: str) -> float:
        if not self._failures:
            _LOG.warning("alerts to %s are not sent: %s; retrying", self._name, why)
        self._failures += 1
        return min(_FIRST_RETRY_S * 2.0 ** min(self._failures - 1, 10), _LAST_RETRY_S)

    def _succeeded(self) -> None:
        if self._failures:
            lost = self._outbox.given_up
            more = f"; {lost} that had closed meanwhile were given up" if lost else ""
            _LOG.warning("alerts to %s are sent again%s", self._name, more)
            self._failures = self._outbox.given_up = 0


class Alerts:
    """Sends the findings of scenes to all receivers while it is entered."""

    def __init__(self, config: AlertsConfig, cluster: str, known_from: str) -> None:
        """`cluster` is the name of the nodes in alerts, `known_from` that of what is kept. Raises
        SettingError for a template."""
        self.deliveries = [
            Delivery(
                name,
                _transport(config, receiver, cluster),
                AlertRules.of(config, receiver),
                config.max_per_minute,
                StateFile(Alert, "alerts", known_from, name),
            )
            for name, receiver in config.receivers.items()
        ]
        self._tasks: list[asyncio.Task[None]] = []

    def fail(self) -> bool:
        """Whether some receiver could not be sent the last message for it."""
        return any(delivery.fails for delivery in self.deliveries)

    def accept(self, scene: Scene) -> None:
        """Take over the findings of a scene. Does not wait."""
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


def _transport(config: AlertsConfig, receiver: Receiver, cluster: str) -> Transport:
    if isinstance(receiver, WebhookReceiver):
        return WebhookTransport(receiver, cluster, config.link)
    if isinstance(receiver, ExecReceiver):
        return ExecTransport(receiver, cluster)
    if isinstance(receiver, JournaldReceiver):
        return JournaldTransport(receiver, cluster)
    if isinstance(receiver, SyslogReceiver):
        return SyslogTransport(receiver, cluster)
    return AlertmanagerTransport(receiver, cluster, config.link, config.resend_s)
