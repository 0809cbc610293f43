"""Mean rates of ports over the last seconds, without those in which a job computed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fabmon.fabric.snapshot import Floats, Snapshot

RECENT_S = 5
"""Seconds that pictures are means of, as far as there was traffic. Parallel links are judged over
the same time."""
_BUSY = 0.5
"""A second counts where its traffic is at least this share of the busiest second's."""


class RecentLoad:
    """The last RECENT_S seconds of some ports; those with little traffic do not count."""

    def __init__(
        self, snapshot: Snapshot, rows: Sequence[int], directions: Sequence[str] = ("tx", "rx")
    ) -> None:
        """`rows` are ports; their traffic in `directions` decides which seconds count."""
        self._snapshot, self._rows = snapshot, list(rows)
        traffic = np.stack([self._window(f"{each}_bps") for each in directions])
        top = np.nan_to_num(traffic).max(axis=(0, 1), initial=0)
        self._counts = (top >= _BUSY * top.max(initial=0)) & (top > 0)

    def mean(self, column: str) -> Floats:
        """[rows] of a HEAT column: means over the ticks that count; the last value where none
        does."""
        values = self._window(column)
        if not self._counts.any():
            last: Floats = values[:, -1]
            return last
        known = np.isfinite(values) & self._counts
        sums = np.where(known, values, 0).sum(axis=1)
        with np.errstate(invalid="ignore"):
            mean: Floats = sums / known.sum(axis=1)
        return mean

    def _window(self, column: str) -> Floats:
        ticks = max(2, round(RECENT_S / self._snapshot.interval_s))
        return self._snapshot.window(column, self._rows, ticks)
