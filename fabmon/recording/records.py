"""The records of a recording that are JSON: who was watched, what happened, what was noted."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from fabmon.fabric.messages import Hello, Notice
from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeStatus

FORMAT = (1, 0)
"""Major and minor: a later major is refused, a later minor is read as far as it is known."""


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a recorder watched, from where, and how often.

    `run_ns` is when the run began: files of a rotation are of one run. 0 where that is when the
    session did.
    """

    format: tuple[int, int] = FORMAT
    started_ns: int
    interval_s: float
    hosts: tuple[Host, ...]
    tool: str = ""
    recorder: str = ""
    title: str = ""
    run_ns: int = 0


class EventsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All of a tick that is not counters."""

    seq: int
    time_ns: int
    hosts: tuple[Host, ...] = ()
    hellos: tuple[tuple[str, Hello], ...] = ()
    statuses: tuple[NodeStatus, ...] = ()
    notices: tuple[tuple[str, Notice], ...] = ()


class StateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that the events up to and with tick `seq` amount to; `hellos` are by digest."""

    session: SessionRecord
    seq: int
    time_ns: int
    hosts: tuple[Host, ...]
    hellos: tuple[tuple[str, str], ...]
    statuses: tuple[NodeStatus, ...]
    notices: tuple[tuple[str, Notice], ...]


class PortRecord(msgspec.Struct, frozen=True):
    """A port as the fabric had it; `row` is its place in the minutes' arrays."""

    row: int
    node: str
    name: str
    label: str
    role: str
    kind: str
    peer: int | None


class TopologyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How the fabric was cabled from a time on; `groups` are equal-cost ports, by row."""

    version: int
    ports: tuple[PortRecord, ...]
    groups: tuple[tuple[str, tuple[int, ...]], ...]


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something with a time: `kind` is `bookmark` or `finding`, `change` what a finding did.

    `finding` is the finding as it was told then, `ports` the names of its ports.
    """

    kind: str
    time_ns: int
    seq: int
    text: str
    change: str = ""
    ports: tuple[str, ...] = ()
    finding: dict[str, Any] = {}


def digest(hello: Hello) -> str:
    """What a hello is known by in a StateRecord."""
    return hashlib.blake2b(msgspec.json.encode(hello), digest_size=8).hexdigest()
