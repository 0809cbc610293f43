"""What a node sent last before a time: what its rates, and their ages, are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class LastReads:
    """The last two reads of every source of a node, for who begins in the middle.

    `now` and `before` are [width] values in the order of its frames, the blocks' clocks included;
    elsewhere than `known` and `known_before` they stand for nothing. `arrived_ns` is [blocks]: the
    console's wall clock when the last read of each block came, 0 where none is known.
    """

    now: NDArray[np.uint64]
    before: NDArray[np.uint64]
    known: NDArray[np.bool_]
    known_before: NDArray[np.bool_]
    arrived_ns: NDArray[np.int64]
