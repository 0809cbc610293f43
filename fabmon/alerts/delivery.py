"""Sends alerts to receivers, in tasks of their own: no receiver delays a tick or another one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import msgspec

from fabmon.alerts.alert import Alert, AlertBook, AlertRules
from fabmon.alerts.alertmanager import AlertmanagerTransport
from fabmon.alerts.notifier import ExecTransport, WebhookTransport
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

_MOST_CLOSED = 1000
"""Closed alerts that wait for a receiver that does not answer; the oldest are given up first."""

Identity = Callable[[Alert], str]


@dataclass(slots=True)
class _Entry:
    """`alert` is the newest; `sent` what the receiver has (None: nothing), since `sent_s`."""

    alert: Alert
    sent: Alert | None = None
    sent_s: float = 0.0


class Outbox:
    """The alerts of one receiver by identity, newest version only: it is bounded by what is open.

    `identity` names an alert as the receiver does. `is_news` compares what a receiver has with the
    newest version. Open alerts are due again every `resend_s` seconds; None: never.
    """

    def __init__(
        self,
        identity: Identity,
        is_news: Callable[[Alert, Alert], bool],
        resend_s: float | None = None,
    ) -> None:
        self._identity = identity
        self._is_news = is_news
        self._resend_s = resend_s
        self._entries: dict[str, _Entry] = {}
        self.given_up = 0

    def accept(self, alerts: Mapping[str, Alert], now_ns: int) -> None:
        """Take over all open alerts; the others are closed at `now_ns`, the wall clock."""
        current = {self._identity(alert): alert for alert in alerts.values()}
        for key, entry in self._entries.items():
            if key not in current and entry.alert.until_ns is None:
                entry.alert = msgspec.structs.replace(entry.alert, until_ns=now_ns)
        for key, alert in current.items():
            if key in self._entries:
                self._entries[key].alert = alert
            else:
                self._entries[key] = _Entry(alert)
        closed = [key for key, each in self._entries.items() if each.alert.until_ns is not None]
        for key in closed[: max(0, len(closed) - _MOST_CLOSED)]:
            del self._entries[key]
            self.given_up += 1

    def inherit(self, alerts: Sequence[Alert]) -> None:
        """The receiver has these from an earlier run: before any is accepted. Those that are sent
        again are due: how long they wait already is not known."""
        for alert in alerts:
            self._entries[self._identity(alert)] = _Entry(alert, alert, float("-inf"))

    def held(self) -> list[Alert]:
        """The open alerts that the receiver has."""
        held = [entry.sent for entry in self._entries.values()]
        return [alert for alert in held if alert is not None and alert.until_ns is None]

    def change(self, alert: Alert) -> Change:
        """What an alert that is due is for the receiver."""
        if alert.until_ns is not None:
            return Change.CLOSE
        entry = self._entries.get(self._identity(alert))
        is_known = entry is not None and entry.sent is not None and entry.sent.until_ns is None
        return Change.UPDATE if is_known else Change.OPEN

    def due(self, now_s: float, most: int) -> list[Alert]:
        """At most `most` alerts to send now: the ends of what the receiver has, then what is open,
        groups first, then what opened and closed unsent."""
        due = [entry for entry in self._entries.values() if self._due_s(entry) <= now_s]
        return [entry.alert for entry in sorted(due, key=_rank)[:most]]

    def next_due_s(self) -> float:
        """When the next alert is due, by the clock of `due`; infinite if none is."""
        return min(map(self._due_s, self._entries.values()), default=float("inf"))

    def delivered(self, alerts: Sequence[Alert], now_s: float) -> None:
        """The receiver has these versions."""
        for alert in alerts:
            key = self._identity(alert)
            entry = self._entries.get(key)
            if entry is None:
                continue
            entry.sent, entry.sent_s = alert, now_s
            if alert.until_ns is not None and entry.alert.until_ns is not None:
                del self._entries[key]

    def _due_s(self, entry: _Entry) -> float:
        sent, alert = entry.sent, entry.alert
        if sent is None or (sent.until_ns is None) != (alert.until_ns is None):
            return 0.0
        if self._is_news(sent, alert):
            return 0.0
        return float("inf") if self._resend_s is None else entry.sent_s + self._resend_s


def _rank(entry: _Entry) -> int:
    """The order in which alerts are sent, where the number of messages is limited."""
    if entry.alert.until_ns is not None:
        return 0 if entry.sent is not None else 3
    return 1 if entry.alert.others else 2


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
