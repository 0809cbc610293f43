"""Ticks: the output of every feed (live, replay, Prometheus, demo)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.flows.sampled import FlowSamples
from fabmon.fabric.jobs.collectives import CollectiveReport
from fabmon.fabric.jobs.job import JobReport
from fabmon.fabric.model import Host
from fabmon.fabric.time_wording import TimeNs
from fabmon.fabric.wire.messages import Answer, Frame, Hello, Notice

STALE_READS = 2.5
"""A sample is valid for this many periods of its source; then it is stale and its rate absent."""


@dataclass(frozen=True, slots=True)
class LastReads:
    """The last two reads of every source of a node, to begin in the middle of a recording.

    `now` and `before` are [width] values in the order of its frames, the blocks' clocks included;
    where `known` and `known_before` are False they have no meaning. `arrived_ns` is [blocks]: the
    console's wall clock when the last read of each block came, 0 where none is known.
    """

    now: NDArray[np.uint64]
    before: NDArray[np.uint64]
    known: NDArray[np.bool_]
    known_before: NDArray[np.bool_]
    arrived_ns: NDArray[np.int64]


class NodeState(StrEnum):
    """The state of a node."""

    QUEUED = "queued"
    CONNECTING = "connecting"
    STARTING = "starting"
    UP = "up"
    STALE = "stale"
    LOST = "lost"
    FAILED = "failed"


class NodeStatus(msgspec.Struct, frozen=True):
    """A node's state since `since_ns` (console's wall clock); `reason` is a text.

    A LOST node was up and is being retried; a FAILED node never was up. `cause` is a short word,
    equal for equal failures, which are grouped by it (`timeout`, `host key`, `no python`).
    """

    node: str
    state: NodeState
    since_ns: TimeNs
    reason: str = ""
    cause: str = ""


class Tick(msgspec.Struct, frozen=True):
    """All that reached the console between two ticks of its clock, in the order of arrival.

    `time_ns` is the console's wall clock at the end of the tick. A hello comes before the frames
    that follow its layout: `hellos` apply before `frames`. Frames carry raw counters. `hosts` are
    nodes that the feed has discovered; they come before any data of them. `answers` are parts of
    requested bursts and traces. `reads` are the reads before the first tick of a feed that begins
    in the middle; they apply as frames do. `sampled` are flows that switches sampled (sFlow).
    `jobs` are the scheduler's, where they or what is known of them changed, else None;
    `collectives` likewise those that NCCL Inspector measured. `jobs_read_ns` is when Slurm reported
    its jobs again (wall clock), the same ones where `jobs` is None; 0 where it did not.
    `clock_jumped_ns` is by how much the console's wall clock was set since the tick before.
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
    sampled: tuple[FlowSamples, ...] = ()
    jobs: JobReport | None = None
    collectives: CollectiveReport | None = None
    jobs_read_ns: int = 0
    clock_jumped_ns: int = 0


ReadColumns = Callable[[Sequence[int]], tuple[NDArray[np.uint64], NDArray[np.bool_]]]
"""Reads values at some positions of a node's frames (the blocks one after the other, each with its
clock first): the values and which of them are known, [rows, positions] each. Where a block was not
read, its values have no meaning."""


@dataclass(frozen=True, slots=True)
class NodeFrames:
    """Frames of one node and one layout, in order of time: those of `hello`.

    `time_ns` [rows] are the times of the ticks; several rows may be of one tick. `was_read` [rows,
    blocks] is true where a block was read.
    """

    node: str
    hello: Hello
    time_ns: NDArray[np.int64]
    was_read: NDArray[np.bool_]
    read: ReadColumns


@dataclass(frozen=True, slots=True)
class RawChunk:
    """The raw counters of many ticks, those from one time up to and including another.

    `hosts` are the nodes watched, `hellos` their last hellos at its end. `jobs` are the scheduler's
    reports, each with the time from which on it is the last one.
    """

    start_ns: int
    until_ns: int
    interval_s: float
    hosts: tuple[Host, ...]
    hellos: Mapping[str, Hello]
    frames: tuple[NodeFrames, ...]
    jobs: tuple[tuple[int, JobReport], ...] = ()
