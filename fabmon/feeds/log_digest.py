"""Log lines about nodes: one on loss and one on recovery, for all nodes of one cause together."""

from __future__ import annotations

import logging

from fabmon.fabric.hosts.nodesets import fold
from fabmon.fabric.node_failures import common_reason
from fabmon.fabric.redaction import Redactor

NODES_LOG = "fabmon.feeds.nodes"
"""The logger of lost and recovered nodes."""

SSH_LOG = "fabmon.feeds.ssh"
"""The logger of what is wrong with the user's SSH settings, and concerns no single node."""

_LOG = logging.getLogger(NODES_LOG)
_MOST_WAITS = 6
"""How often a line waits for more nodes with the same cause."""


class LogDigest:
    """Collects lost and recovered nodes until `flush` and logs them grouped by cause.

    With a `redactor` nodes are logged by their pseudonyms, and the cause in place of the reason,
    which may quote the node.
    """

    def __init__(self) -> None:
        self.redactor: Redactor | None = None
        self._lost: dict[str, dict[str, str]] = {}
        self._waits: dict[str, list[int]] = {}
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

    def flush(self, *, wait_for_more: bool = False) -> None:
        """Log what was noted since the last call.

        With `wait_for_more` a cause that got further nodes since then is not logged yet: a thousand
        nodes that fail for one reason do so within seconds, and are one line.
        """
        recovered = set(self._recovered)
        for cause, nodes in list(self._lost.items()):
            counts = self._waits.setdefault(cause, [])
            is_growing = not counts or len(nodes) > counts[-1]
            counts.append(len(nodes))
            waits = wait_for_more and is_growing and len(counts) <= _MOST_WAITS
            # The loss of a node is logged before its recovery.
            if waits and recovered.isdisjoint(nodes):
                continue
            del self._lost[cause], self._waits[cause]
            _LOG.warning("%s: %s", fold(nodes), common_reason(nodes.values(), cause))
        if self._recovered:
            _LOG.info("%s: recovered", fold(self._recovered))
        self._recovered = []
