"""What of a recording is exported: which ports, over what time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from fabmon.fabric.filter import FilterError, Index, Mask, index, match, parse
from fabmon.fabric.model import Fabric
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.snapshot import Snapshot

_STILL = ("role", "group", "node", "port", "rail")
"""Fields of a filter that do not change from tick to tick."""


class LinkSelection:
    """The ports that any of some filters leaves; all of them without filters.

    `has_matched` says whether there was any so far. What a `redactor` renamed is found by its
    original name.
    """

    def __init__(self, filters: Sequence[str], redactor: Redactor | None = None) -> None:
        """Raises FilterError."""
        self._redactor = redactor
        self._named: tuple[Fabric, Fabric] | None = None
        self._filters = [parse(text) for text in filters]
        self._index: Index | None = None
        self.has_matched = not self._filters

    def __bool__(self) -> bool:
        return bool(self._filters)

    def of(self, snapshot: Snapshot) -> Mask | None:
        """[ports] at a moment; None for all."""
        if not self._filters:
            return None
        snapshot = self._by_name(snapshot)
        if self._index is None or self._index.fabric is not snapshot.fabric:
            self._index = index(snapshot.fabric)
        masks = [match(terms, snapshot, self._index).ports for terms in self._filters]
        mask: Mask = masks[0]
        for each in masks[1:]:
            mask = mask | each
        self.has_matched = self.has_matched or bool(mask.any())
        return mask

    def _by_name(self, snapshot: Snapshot) -> Snapshot:
        """A moment with the names that its nodes and groups had before they were renamed."""
        if self._redactor is None:
            return snapshot
        name = self._redactor.original
        if self._named is None or self._named[0] is not snapshot.fabric:
            self._named = (snapshot.fabric, _renamed(snapshot.fabric, name))
        states = {name(node): status for node, status in snapshot.statuses.items()}
        return replace(snapshot, fabric=self._named[1], statuses=states)

    def check_still(self) -> None:
        """Raise FilterError where the choice would change while time goes on."""
        for terms in self._filters:
            for term in terms:
                if term.operator and term.field not in _STILL:
                    said = f"{term.field}{term.operator}{term.value}"
                    raise FilterError(
                        f"{said}: whole series are exported; choose them by name, "
                        + " ".join(f"{field}:" for field in _STILL)
                    )


def _renamed(fabric: Fabric, name: Callable[[str], str]) -> Fabric:
    """With other names of nodes and groups."""
    change = msgspec.structs.replace
    return change(
        fabric,
        nodes=tuple(change(n, name=name(n.name), group=name(n.group)) for n in fabric.nodes),
        ports=tuple(change(port, node=name(port.node)) for port in fabric.ports),
    )
