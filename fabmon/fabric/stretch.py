"""A run of ticks at once: raw counters of nodes as arrays, for what looks at hours of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.messages import Hello
from fabmon.fabric.model import Host

Read = Callable[[Sequence[int]], tuple[NDArray[np.uint64], NDArray[np.bool_]]]
"""Places in a frame (the blocks one after the other, each with its clock) -> values and which of
them are known, [rows, places] each. Where a block was not read, a value means nothing."""


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One node's frames of one layout, as `hello` tells it: `time_ns` [rows] are those of the
    ticks; `there` [rows, blocks] says which blocks were read. Several rows may be of one tick.
    """

    node: str
    hello: Hello
    time_ns: NDArray[np.int64]
    there: NDArray[np.bool_]
    read: Read


@dataclass(frozen=True, slots=True)
class Stretch:
    """Ticks from one time up to and with another: who was watched, what each had said at its end,
    and its counters, by time for each node.
    """

    start_ns: int
    until_ns: int
    interval_s: float
    hosts: tuple[Host, ...]
    hellos: Mapping[str, Hello]
    runs: tuple[NodeRun, ...]
