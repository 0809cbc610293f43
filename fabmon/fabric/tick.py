"""What comes out of a feed: ticks. Live, replay and demo all speak this, and nothing else."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from fabmon.fabric.messages import Answer, Frame, Hello, Notice
from fabmon.fabric.model import Host
from fabmon.fabric.reads import LastReads


class NodeState(StrEnum):
    """Where a node stands between the hosts file and its first counter."""

    QUEUED = "queued"
    CONNECTING = "connecting"
    STARTING = "starting"
    UP = "up"
    STALE = "stale"
    LOST = "lost"
    FAILED = "failed"


class NodeStatus(msgspec.Struct, frozen=True):
    """A node's state since `since_ns` (console's wall clock); `reason` is for a person.

    LOST was up and is being tried again; FAILED never was. `cause` is a short word equal for
    equal failures, by which they are grouped (`timeout`, `host key`, `no python`).
    """

    node: str
    state: NodeState
    since_ns: int
    reason: str = ""
    cause: str = ""


class Tick(msgspec.Struct, frozen=True):
    """All that reached the console between two ticks of its clock, in the order of arrival.

    `time_ns` is the console's wall clock at the end of the tick. A hello comes before the frames
    that follow its layout: `hellos` apply before `frames`. Frames carry raw counters. `hosts` are
    nodes that the feed came to know of by itself, before anything is told of them. `answers` are
    parts of what was asked for beside the frames. `reads` are what nodes sent before the first tick
    of a feed that begins in the middle; they apply as frames do.
    """

    seq: int
    time_ns: int
    hellos: tuple[tuple[str, Hello], ...] = ()
    frames: tuple[tuple[str, Frame], ...] = ()
    statuses: tuple[NodeStatus, ...] = ()
    notices: tuple[tuple[str, Notice], ...] = ()
    hosts: tuple[Host, ...] = ()
    answers: tuple[tuple[str, Answer], ...] = ()
    reads: tuple[tuple[str, LastReads], ...] = ()
