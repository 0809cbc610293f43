"""How much time a screen shows."""

from __future__ import annotations

from collections.abc import Sequence

from fabmon.tui.cursor import MINUTE_S, SPANS_S, Cursor


class Zoom:
    """Some of the last minutes; beyond them, where something is recorded, what the strip shows."""

    def __init__(
        self, cursor: Cursor, minutes: Sequence[int], usual: int, is_recorded: bool
    ) -> None:
        """`minutes` are those that memory can tell, of which `usual` are shown at first."""
        self._cursor = cursor
        self._spans = minutes
        self._place = minutes.index(usual)
        self._is_recorded = is_recorded
        self._beyond = next(n for n, each in enumerate(SPANS_S) if each > minutes[-1] * MINUTE_S)

    @property
    def minutes(self) -> int:
        """The minutes that are shown, unless that is as much as the strip."""
        return self._spans[self._place]

    @property
    def is_strip(self) -> bool:
        """Whether it is what the strip shows: that was zoomed out beyond the minutes."""
        zoom = self._cursor.zoom
        return self._is_recorded and zoom is not None and zoom >= self._beyond

    def by(self, by: int) -> None:
        """More time, or less; beyond the minutes the strip goes along."""
        if self.is_strip:
            self._cursor.zoom_by(by, has_now=True)
            self._place = len(self._spans) - 1
        elif by > 0 and self._is_recorded and self._place == len(self._spans) - 1:
            self._cursor.zoom = self._beyond
        else:
            self._place = min(max(self._place + by, 0), len(self._spans) - 1)
