"""The counters of nodes that are alike, as numbers in the order in which their frames have them.

A counter of all these nodes is a view of one array, so that moving it is one addition and a frame
is one row as a list.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import CATALOG, GAUGE, WRAP32, WRAP64

Ints = NDArray[np.int64]

EXACT64 = frozenset({"ib_tx_wait"})
"""Read from a 64-bit attribute here, as newer InfiniBand firmware has it."""


def kind_of(metric: str) -> str:
    """How a counter of these nodes behaves; the catalog's word unless they are wider."""
    return WRAP64 if metric in EXACT64 else CATALOG[metric].kind


class CounterTable:
    """One block of the frames of `nodes` nodes: `ports` ports with the same metrics each."""

    def __init__(
        self, source: str, nodes: int, ports: int, metrics: Sequence[str], every: int = 1
    ) -> None:
        self.source = source
        self.metrics = tuple(metrics)
        self.every = every
        self._shape = (nodes, ports)
        self._values: Ints = np.zeros((nodes, 1 + ports * len(self.metrics)), np.int64)
        self._views = {
            name: self._values[:, 1 + place :: len(self.metrics)]
            for place, name in enumerate(self.metrics)
        }
        self._changed = True

    def __contains__(self, metric: str) -> bool:
        return metric in self._views

    def add(self, metric: str, count: NDArray[np.float64] | Ints) -> None:
        """Move a counter on, [nodes * ports]; it wraps or sticks as its kind does."""
        view = self._views[metric]
        view += np.asarray(count).reshape(self._shape).astype(np.int64)
        kind = kind_of(metric)
        if kind == WRAP32:
            view &= 0xFFFFFFFF
        elif kind not in (WRAP64, GAUGE):
            np.minimum(view, (1 << int(kind.removeprefix("sat"))) - 1, out=view)

    def put(self, metric: str, level: NDArray[np.float64] | Ints | int) -> None:
        """Set a gauge of all ports, [nodes * ports]."""
        new = np.broadcast_to(np.asarray(level), self._shape[0] * self._shape[1])
        new = new.reshape(self._shape).astype(np.int64)
        if self.every > 1 and not np.array_equal(new, self._views[metric]):
            self._changed = True
        self._views[metric][:] = new

    def clear(self, node: int) -> None:
        """The node starts anew: all its counters are 0."""
        for name, view in self._views.items():
            if kind_of(name) != GAUGE:
                view[node] = 0

    def rows(self, seq: int, clock_ns: int) -> list[list[int | None]] | None:
        """Every node's block at this tick; None when it is not the turn of this source.

        A source that is read rarely is read at once when something in it has changed.
        """
        if seq % self.every and not self._changed:
            return None
        self._changed = False
        self._values[:, 0] = clock_ns
        rows: list[list[int | None]] = self._values.tolist()
        return rows
