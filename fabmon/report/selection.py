"""The links that an export contains, chosen by filters as on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from fabmon.fabric.filter import FilterError, Index, Mask, index, match, parse
from fabmon.fabric.model import Fabric
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.snapshot import Snapshot

_CONSTANT = ("role", "group", "node", "port", "rail")
"""Fields of a filter that do not change from tick to tick."""


class LinkSelection:
    """The ports that match any of some filters; all ports where there are no filters.

    `has_matched` says whether any port matched so far. Nodes that a `redactor` renamed are matched
    by their original names.
    """

    def __init__(self, filters: Sequence[str], redactor: Redactor | None = None) -> None:
        """Raises FilterError."""
        self._redactor = redactor
        self._original: tuple[Fabric, Fabric] | None = None
        self._filters = [parse(text) for text in filters]
        self._index: Index | None = None
        self.has_matched = not self._filters

    def __bool__(self) -> bool:
        return bool(self._filters)

    def of(self, snapshot: Snapshot) -> Mask | None:
        """[ports] whether a port matches in a snapshot; None for all ports."""
        if not self._filters:
            return None
        if self._redactor is not None:
            snapshot = self._with_original_names(snapshot, self._redactor)
        if self._index is None or self._index.fabric is not snapshot.fabric:
            self._index = index(snapshot.fabric)
        masks = [match(terms, snapshot, self._index).ports for terms in self._filters]
        mask: Mask = np.logical_or.reduce(masks)
        self.has_matched = self.has_matched or bool(mask.any())
        return mask

    def _with_original_names(self, snapshot: Snapshot, redactor: Redactor) -> Snapshot:
        """A snapshot with the names that nodes and groups had before redaction."""
        fabric, name, change = snapshot.fabric, redactor.original, msgspec.structs.replace
        if self._original is None or self._original[0] is not fabric:
            nodes = (change(n, name=name(n.name), group=name(n.group)) for n in fabric.nodes)
            ports = (change(port, node=name(port.node)) for port in fabric.ports)
            self._original = (fabric, change(fabric, nodes=tuple(nodes), ports=tuple(ports)))
        statuses = {name(node): status for node, status in snapshot.statuses.items()}
        return replace(snapshot, fabric=self._original[1], statuses=statuses)

    def check_constant(self) -> None:
        """Raise FilterError where the selected ports could change from tick to tick."""
        for terms in self._filters:
            for term in terms:
                if term.operator and term.field not in _CONSTANT:
                    raise FilterError(
                        f"{term.field}{term.operator}{term.value}: openmetrics exports whole "
                        f"series: choose links by {', '.join(f'{field}:' for field in _CONSTANT)}"
                    )
