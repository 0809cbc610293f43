"""Mean rates of ports over the seconds that the picture of a finding is of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fabmon.analysis.causes import causes_with
from fabmon.analysis.detectors import incast
from fabmon.analysis.finding import Finding, Trait, shown_moment
from fabmon.analysis.model.causes import MEAN_OF
from fabmon.fabric.measures import known_mean
from fabmon.fabric.snapshot import Floats, Snapshot

RECENT_S = 5
"""Seconds that pictures are means of, as far as there was traffic. Parallel links are judged over
the same time."""
_BUSY = 0.5
"""A second counts where its traffic is at least this share of the busiest second's."""
OF_FULL_LINKS = causes_with(Trait.FULL_LINK_OF_GROUP) | causes_with(Trait.FULL_GROUP)
"""The causes whose first port is a full link."""


class RecentLoad:
    """RECENT_S seconds of some ports, the last or earlier ones. Those with little traffic, in which
    a job computed, do not count, but of the last `all_of` ticks all do."""

    def __init__(
        self,
        snapshot: Snapshot,
        rows: Sequence[int],
        directions: Sequence[str] = ("tx", "rx"),
        before_s: float = 0.0,
        all_of: int | None = None,
    ) -> None:
        """`rows` are ports; their traffic in `directions` decides which seconds count. The seconds
        end `before_s` before the snapshot."""
        self._snapshot, self._rows, self._before_s = snapshot, list(rows), before_s
        traffic = np.stack([self._window(f"{each}_bps") for each in directions])
        top = np.nan_to_num(traffic).max(axis=(0, 1), initial=0)
        self._counts = (top >= _BUSY * top.max(initial=0)) & (top > 0)
        if all_of is not None:
            self._counts = np.arange(len(top)) >= len(top) - all_of

    def mean(self, column: str) -> Floats:
        """[rows] of a HEAT column: means over the ticks that count; the last value where none
        does."""
        values = self._window(column)
        if not self._counts.any():
            last: Floats = values[:, -1]
            return last
        return known_mean(values[:, self._counts])

    def _window(self, column: str) -> Floats:
        return recent(self._snapshot, column, self._rows, self._before_s)


def full_port_ticks(finding: Finding, snapshot: Snapshot) -> int | None:
    """The ticks of which the numbers of a finding about a full link or receiver are means, and so
    its picture: RECENT_S seconds, fewer where its evidence began in them. None for others."""
    if finding.cause not in OF_FULL_LINKS and finding.cause != incast.CAUSE.name:
        return None
    numbers = {each.name: each.value for each in shown_moment(finding).evidence}
    mean_s, ticks = numbers.get(MEAN_OF), recent_ticks(snapshot)
    if not isinstance(mean_s, float | int):  # As of an older recording, and of a redacted one.
        return ticks
    return min(max(1, round(mean_s / snapshot.interval_s)), ticks)


def recent(snapshot: Snapshot, column: str, rows: Sequence[int], before_s: float = 0.0) -> Floats:
    """[rows, ticks] of a HEAT column in the RECENT_S seconds that end `before_s` before a
    snapshot."""
    ticks = recent_ticks(snapshot)
    later = round(before_s / snapshot.interval_s)
    return snapshot.window(column, rows, ticks + later)[:, :ticks]


def recent_ticks(snapshot: Snapshot) -> int:
    """The ticks of RECENT_S seconds, at least 2."""
    return max(2, round(RECENT_S / snapshot.interval_s))
