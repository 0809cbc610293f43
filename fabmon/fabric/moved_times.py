"""What was seen before the wall clock was set, as old after that as before."""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from typing import Any, TypeVar

import msgspec

_TIMES = ("time_ns", "since_ns", "until_ns", "seen_ns", "at_ns")
_HOLD_TIMES = ("finding", "worst", "kept")

Item = TypeVar("Item")


def moved(item: Item, by_ns: int) -> Item:
    """A finding, an event or a state of a node, or a record that holds findings, by so much later.

    All of these times are by the wall clock; none becomes negative, one that is not set stays so.
    """
    known: dict[str, Any] = {name: getattr(item, name, None) for name in (*_TIMES, *_HOLD_TIMES)}
    changed = {
        name: max(0, value + by_ns) if name in _TIMES else moved(value, by_ns)
        for name, value in known.items()
        if value
    }
    if is_dataclass(item):
        made: Item = replace(item, **changed)  # type: ignore[type-var]
        return made
    return msgspec.structs.replace(item, **changed)  # type: ignore[type-var]
