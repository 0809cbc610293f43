"""What one receiver is still to be sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import msgspec

from fabmon.alerts.alert import Alert
from fabmon.analysis.finding import Change

_MOST_CLOSED = 1000
"""Closed alerts that wait for a receiver that does not answer. The oldest are given up first, and
before those that the receiver has, which would stay open there."""

Identity = Callable[[Alert], str]


@dataclass(slots=True)
class _Entry:
    """`alert` is the newest; `sent` what the receiver has (None: nothing), since `sent_s`.
    `failures` is how many messages with it failed since."""

    alert: Alert
    sent: Alert | None = None
    sent_s: float = 0.0
    failures: int = 0


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
        closed.sort(key=lambda key: self._entries[key].sent is not None)
        for key in closed[: max(0, len(closed) - _MOST_CLOSED)]:
            del self._entries[key]
            self.given_up += 1

    def inherit(self, alerts: Sequence[Alert]) -> None:
        """The receiver has these from an earlier run. Those that are sent again are due: how long
        they wait already is not known."""
        for alert in alerts:
            entry = self._entries.setdefault(self._identity(alert), _Entry(alert))
            if entry.sent is None:
                entry.sent, entry.sent_s = alert, float("-inf")

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
        """At most `most` alerts to send now, all of which failed as often, the fewest times: the
        ends of what the receiver has, then what is open, groups first, then what opened and closed
        unsent."""
        due = [entry for entry in self._entries.values() if self._due_s(entry) <= now_s]
        due.sort(key=lambda entry: (entry.failures, _rank(entry)))
        first = takewhile(lambda entry: entry.failures == due[0].failures, due[:most])
        return [entry.alert for entry in first]

    def failed(self, alerts: Sequence[Alert]) -> None:
        """A message with these was not taken: others come first."""
        for alert in alerts:
            entry = self._entries.get(self._identity(alert))
            if entry is not None:
                entry.failures += 1

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
            entry.sent, entry.sent_s, entry.failures = alert, now_s, 0
            if alert.until_ns is not None and entry.alert.until_ns is not None:
                del self._entries[key]

    def unsent(self) -> list[Alert]:
        """The newest versions that the receiver should have, and does not."""
        return [each.alert for each in self._entries.values() if self._is_unsent(each)]

    def _due_s(self, entry: _Entry) -> float:
        if self._is_unsent(entry):
            return 0.0
        return float("inf") if self._resend_s is None else entry.sent_s + self._resend_s

    def _is_unsent(self, entry: _Entry) -> bool:
        sent, alert = entry.sent, entry.alert
        if sent is None or (sent.until_ns is None) != (alert.until_ns is None):
            return True
        return self._is_news(sent, alert)


def _rank(entry: _Entry) -> int:
    """The order in which alerts are sent, where the number of messages is limited."""
    if entry.alert.until_ns is not None:
        return 0 if entry.sent is not None else 3
    return 1 if entry.alert.others else 2
