"""Errors of alerts.

AlertsError
|-- SettingError    a value of the table [alerts] cannot be used
`-- DeliveryError   a receiver could not be reached, or refused what was sent
"""

from __future__ import annotations

from collections.abc import Sequence

ALERTS_LOG = "fabmon.alerts"
"""The logger of receivers that are lost and found again."""


class AlertsError(Exception):
    """Any error of alerts."""


class SettingError(AlertsError):
    """A value of the table [alerts] cannot be used; `keys` is its path in fabmon.toml."""

    def __init__(self, keys: Sequence[str], message: str) -> None:
        super().__init__(message)
        self.keys = tuple(keys)


class DeliveryError(AlertsError):
    """A receiver could not be reached, or refused what was sent.

    The message has no address: that of a webhook is often its password.
    """
