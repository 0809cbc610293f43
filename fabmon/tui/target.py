"""What can be opened from a line or a cell, and what is at the other end of a cable."""

from __future__ import annotations

from typing import NamedTuple

from fabmon.fabric.model import Fabric, Port


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


class EventTarget(NamedTuple):
    """Something that happened, by its time and text: opening it goes to that time."""

    time_ns: int
    text: str


class FoldTarget(NamedTuple):
    """Nodes that failed alike, by state and cause: opening unfolds or folds them."""

    state: str
    cause: str


class PairTarget(NamedTuple):
    """The cables between two switches; `high` is empty for those of unknown end."""

    low: str
    high: str


class SubjectTarget(NamedTuple):
    """Something whose bandwidth is told of together, a job or a rail: chosen, but not opened."""

    kind: str
    name: str


Target = (
    SubjectTarget | PairTarget | NodeTarget | PortTarget | FindingTarget | FoldTarget | EventTarget
)


def peer(port: Port, fabric: Fabric) -> Port | None:
    """The other end of the cable; None when it is not watched."""
    if port.peer is None or port.peer >= len(fabric.ports):
        return None
    other = fabric.ports[port.peer]
    return other if other.node else None
