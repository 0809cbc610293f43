"""One line in the log for what happened to many nodes at once: on loss, and on recovery."""

from __future__ import annotations

import logging

from fabmon.fabric.hosts.nodesets import fold

_LOG = logging.getLogger("fabmon.feeds")


class LogDigest:
    """Collects losses and recoveries until `flush`, and groups them by cause."""

    def __init__(self) -> None:
        self._lost: dict[str, dict[str, str]] = {}
        self._back: list[str] = []

    def lost(self, node: str, cause: str, reason: str) -> None:
        """A node that can no longer, or not yet, be watched."""
        self._lost.setdefault(cause, {})[node] = reason

    def back(self, node: str) -> None:
        """A node whose loss was told can be watched again."""
        self._back.append(node)

    def flush(self) -> None:
        """Tell what happened since the last time."""
        for cause, nodes in self._lost.items():
            reasons = list(dict.fromkeys(nodes.values()))
            if len(reasons) == 1:
                _LOG.warning("%s: %s", fold(nodes), reasons[0])
            else:
                _LOG.warning("%s: %s, as in: %s", fold(nodes), cause, reasons[0])
        if self._back:
            _LOG.info("%s: back", fold(self._back))
        self._lost = {}
        self._back = []
