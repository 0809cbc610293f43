"""What can be opened from a line or a cell."""

from __future__ import annotations

from typing import NamedTuple


class NodeTarget(NamedTuple):
    """A node, by name; `row` is the port to start at."""

    node: str
    row: int | None = None


class PortTarget(NamedTuple):
    """A port, by row."""

    row: int


class FindingTarget(NamedTuple):
    """A finding, by key."""

    key: str


class FoldTarget(NamedTuple):
    """Nodes that failed alike, by state and cause: opening unfolds or folds them."""

    state: str
    cause: str


Target = NodeTarget | PortTarget | FindingTarget | FoldTarget
