"""Counters of identical nodes, stored in the order of the values of their frames.

One counter of all these nodes is a view of one array: incrementing it is one addition, and a frame
is one row as a list.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import CATALOG, GAUGE, WRAP32, WRAP64

Ints = NDArray[np.int64]

EXACT64 = frozenset({"ib_tx_wait"})
"""Metrics that the simulated nodes read from 64-bit attributes, as newer InfiniBand firmware has
them."""


def kind_of(metric: str) -> str:
    """The kind of a counter of these nodes: the catalog's, except for EXACT64."""
    return WRAP64 if metric in EXACT64 else CATALOG[metric].kind


class CounterTable:
    """One source block of `nodes` nodes, each with `ports` ports that have the same metrics."""

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
        """Increment a counter by `count` [nodes * ports]; it wraps or saturates as its kind
        does."""
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
        """Reset the counters of a node to 0, as a reboot does."""
        for name, view in self._views.items():
            if kind_of(name) != GAUGE:
                view[node] = 0

    def rows(self, seq: int, clock_ns: int) -> list[list[int | None]] | None:
        """The block of every node at this tick; None when this source is not read at it.

        A source that is read every few ticks is read at once when one of its gauges has changed.
        """
        if seq % self.every and not self._changed:
            return None
        self._changed = False
        self._values[:, 0] = clock_ns
        rows: list[list[int | None]] = self._values.tolist()
        return rows
