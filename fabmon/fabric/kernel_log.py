"""What the nodes' kernels log about their devices: the last message of each kind, until a reboot.

Messages come as notices with the event `logged`: of a device, of a kind of the catalog
(collectors/catalog/kernel_log.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from collectors.catalog.kernel_log import FATAL, RECOVERED, LogPattern, describe
from collectors.wire import LOGGED
from fabmon.fabric.model import Node, Port
from fabmon.fabric.wire.messages import Notice

MOST_KINDS = 64
"""Messages of one node that are kept, each of another kind or device."""


def is_logged(notice: Notice) -> bool:
    """Whether a notice is a message of a log, not a condition that lasts."""
    return notice.event == LOGGED


def pattern_of(message: Notice) -> LogPattern:
    """What the catalog says of a message: its severity, its driver, its meaning."""
    return _described(message.metric)


_described = lru_cache(4096)(describe)


def ports_of_device(node: Node, device: str) -> list[Port]:
    """The ports of a PCI function, or of an interface, of a node."""
    names = ("pci", "netdev")
    return [port for port in node.ports if device in (port.info.get(name) for name in names)]


def message_text(message: Notice, node: Node | None) -> str:
    """A message in words, with its device: the first of its ports on the node, else its address;
    the kernel's own text where the catalog has no meaning."""
    meaning = pattern_of(message).meaning or message.text or message.metric
    ports = ports_of_device(node, message.object) if node is not None and message.object else []
    device = (ports[0].label or ports[0].name) if ports else message.object
    return f"{device}: {meaning}" if device else meaning


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
        self._kept: dict[str, tuple[Notice, ...]] = {}

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
        self._kept.pop(node, None)
        if len(messages) > MOST_KINDS:
            harmless = (key for key, each in messages.items() if pattern_of(each).severity != FATAL)
            del messages[next(harmless, next(iter(messages)))]

    def forget(self, node: str) -> None:
        """Drop a node's messages: it was rebooted."""
        self._nodes.pop(node, None)
        self._kept.pop(node, None)

    def of(self, node: str) -> tuple[Notice, ...]:
        """The messages of a node, oldest first."""
        if node in self._nodes and node not in self._kept:
            self._kept[node] = tuple(self._nodes[node].values())
        return self._kept.get(node, ())

    def by_node(self) -> dict[str, tuple[Notice, ...]]:
        """The messages of every node that has some."""
        return {node: self.of(node) for node in self._nodes}
