"""Mean rates of ports over the last seconds, without those in which a job computed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fabmon.analysis.causes import causes_with
from fabmon.analysis.detectors import incast
from fabmon.analysis.fabric_structure import Mask
from fabmon.analysis.finding import Finding, Trait
from fabmon.fabric.measures import known_mean
from fabmon.fabric.model import Fabric
from fabmon.fabric.snapshot import Floats, Snapshot

RECENT_S = 5
"""Seconds that pictures are means of, as far as there was traffic. Parallel links are judged over
the same time."""
_BUSY = 0.5
"""A second counts where its traffic is at least this share of the busiest second's."""
_FULL = 0.9
"""Of the fullest second: a second from there on is one in which the port was full."""
OF_FULL_LINKS = causes_with(Trait.FULL_LINK_OF_GROUP) | causes_with(Trait.FULL_GROUP)
"""The causes whose first port is a full link."""


class RecentLoad:
    """RECENT_S seconds of some ports, the last or earlier ones; those with little traffic do not
    count."""

    def __init__(
        self,
        snapshot: Snapshot,
        rows: Sequence[int],
        directions: Sequence[str] = ("tx", "rx"),
        before_s: float = 0.0,
        counts: Mask | None = None,
    ) -> None:
        """`rows` are ports; their traffic in `directions` decides which seconds count, unless
        `counts` [ticks] does. The seconds end `before_s` before the snapshot."""
        self._snapshot, self._rows, self._before_s = snapshot, list(rows), before_s
        traffic = np.stack([self._window(f"{each}_bps") for each in directions])
        top = np.nan_to_num(traffic).max(axis=(0, 1), initial=0)
        self._counts = (top >= _BUSY * top.max(initial=0)) & (top > 0)
        if counts is not None:
            self._counts &= counts

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


def full_ticks(finding: Finding, snapshot: Snapshot, before_s: float = 0.0) -> Mask | None:
    """[ticks] of the recent seconds: whether the full link of a finding, or its full receiver, was
    full. None for findings that are not about a full port, and where nothing is known of it."""
    row = _full_port(finding, snapshot.fabric)
    if row is None:
        return None
    column = "rx_bps" if finding.cause == incast.CAUSE.name else "tx_bps"
    moved = np.nan_to_num(recent(snapshot, column, [row], before_s)[0])
    full: Mask = moved >= _FULL * moved.max(initial=0)
    return full if moved.any() else None


def _full_port(finding: Finding, fabric: Fabric) -> int | None:
    """The row of the port that a finding says is full; None without one, or if it is gone."""
    known = (row for row in finding.rows if 0 <= row < len(fabric.ports))
    ports = [fabric.ports[row] for row in known if fabric.ports[row].node]
    if not ports:
        return None
    if finding.cause == incast.CAUSE.name:
        # The first port may be that of its switch.
        return next((each for each in ports if each.id == finding.subject), ports[0]).row
    return ports[0].row if finding.cause in OF_FULL_LINKS else None


def recent(snapshot: Snapshot, column: str, rows: Sequence[int], before_s: float = 0.0) -> Floats:
    """[rows, ticks] of a HEAT column in the RECENT_S seconds that end `before_s` before a
    snapshot."""
    ticks = recent_ticks(snapshot)
    later = round(before_s / snapshot.interval_s)
    return snapshot.window(column, rows, ticks + later)[:, :ticks]


def recent_ticks(snapshot: Snapshot) -> int:
    """The ticks of RECENT_S seconds, at least 2."""
    return max(2, round(RECENT_S / snapshot.interval_s))
