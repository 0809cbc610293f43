"""A burst of one port: bytes counted many times a second for some seconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WAYS = ("tx", "rx")


@dataclass(frozen=True, slots=True)
class BurstSamples:
    """What came of a burst so far. `time_ns` is the console's wall clock when it began to arrive.

    `source` counts the bytes (`ib`: on RoCE those of RDMA alone; `netdev`: the kernel's stack).
    `at_s` [samples] is the node's monotonic clock, 0 at the first; `counts` [2, samples] are tx and
    rx bytes, each 0 at its first sample, NaN where it could not be read. `error` says why there is
    less than was asked for.
    """

    time_ns: int
    asked_hz: float
    asked_s: float
    source: str
    at_s: NDArray[np.float64]
    counts: NDArray[np.float64]
    done: bool
    error: str = ""
