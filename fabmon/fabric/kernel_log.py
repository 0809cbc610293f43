"""What the nodes' kernels log about their devices: the last message of each kind, until a reboot.

Messages come as notices with the event `logged`: of a device, of a kind of the catalog
(collectors/catalog/kernel_log.py).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from collectors.catalog.kernel_log import FATAL, RECOVERED, LogPattern, describe
from collectors.wire import LOGGED
from fabmon.fabric.wire.messages import Notice

MOST_KINDS = 64
"""Messages of one node that are kept, each of another kind or device."""


def is_logged(notice: Notice) -> bool:
    """Whether a notice is a message of a log, not a condition that lasts."""
    return notice.event == LOGGED


def pattern_of(message: Notice) -> LogPattern:
    """What the catalog says of a message: its severity, its driver, its meaning."""
    return describe(message.metric)


def message_text(message: Notice) -> str:
    """A message with its device and meaning, in words; the kernel's own text where it has none."""
    meaning = pattern_of(message).meaning or message.text or message.metric
    return f"{message.object}: {meaning}" if message.object else meaning


def failed_devices(messages: Iterable[Notice]) -> dict[str, Notice]:
    """The devices that do not work since a message, which nothing after it has ended.

    `messages` are those of one node, oldest first.
    """
    failed: dict[str, Notice] = {}
    for message in messages:
        pattern = pattern_of(message)
        if pattern.severity == FATAL:
            failed[message.object] = message
        elif pattern.severity == RECOVERED:
            failed = {
                device: before
                for device, before in failed.items()
                if (device != message.object and message.object)
                or pattern_of(before).driver != pattern.driver
            }
    return failed


class KernelLogs:
    """The last message of each kind and device of every node; each has the time of its tick."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[tuple[str, str], Notice]] = {}

    def add(self, node: str, message: Notice, time_ns: int) -> None:
        """Add a message of a tick. One that has a time, in the state of a recording, keeps it.

        Of a node that logs more kinds than are kept, the oldest that is not fatal is dropped.
        """
        messages = self._nodes.setdefault(node, {})
        key = (message.object, message.metric)
        messages.pop(key, None)  # the newest are last
        if not message.logged_ns:
            message = msgspec.structs.replace(message, logged_ns=time_ns)
        messages[key] = message
        if len(messages) > MOST_KINDS:
            harmless = (key for key, each in messages.items() if pattern_of(each).severity != FATAL)
            del messages[next(harmless, next(iter(messages)))]

    def forget(self, node: str) -> None:
        """Drop a node's messages: it was rebooted."""
        self._nodes.pop(node, None)

    def of(self, node: str) -> tuple[Notice, ...]:
        """The messages of a node, oldest first."""
        return tuple(self._nodes.get(node, {}).values())

    def by_node(self) -> dict[str, tuple[Notice, ...]]:
        """The messages of every node that has some."""
        return {node: tuple(messages.values()) for node, messages in self._nodes.items()}
