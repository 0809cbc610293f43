"""Log lines about nodes: one on loss and one on recovery, for all nodes of one cause together."""

from __future__ import annotations

import logging

from fabmon.fabric.hosts.nodesets import fold
from fabmon.fabric.redaction import Redactor

NODES_LOG = "fabmon.feeds.nodes"
"""The logger of lost and recovered nodes."""

_LOG = logging.getLogger(NODES_LOG)


class LogDigest:
    """Collects lost and recovered nodes until `flush` and logs them grouped by cause.

    With a `redactor` nodes are logged by their pseudonyms, and the cause in place of the reason,
    which may quote the node.
    """

    def __init__(self) -> None:
        self.redactor: Redactor | None = None
        self._lost: dict[str, dict[str, str]] = {}
        self._recovered: list[str] = []

    def lost(self, node: str, cause: str, reason: str) -> None:
        """Note a node that cannot be watched now."""
        if self.redactor is not None:
            # Before names are folded: a folded name is not recognised any more.
            node, cause = self.redactor.node(node), self.redactor.text(cause)
            reason = cause
        self._lost.setdefault(cause, {})[node] = reason

    def recovered(self, node: str) -> None:
        """Note that a node whose loss was logged can be watched again."""
        self._recovered.append(node if self.redactor is None else self.redactor.node(node))

    def flush(self) -> None:
        """Log what was noted since the last call."""
        for cause, nodes in self._lost.items():
            reasons = list(dict.fromkeys(nodes.values()))
            if len(reasons) == 1:
                _LOG.warning("%s: %s", fold(nodes), reasons[0])
            else:
                _LOG.warning("%s: %s, for example: %s", fold(nodes), cause, reasons[0])
        if self._recovered:
            _LOG.info("%s: recovered", fold(self._recovered))
        self._lost = {}
        self._recovered = []
