"""Reads what the strip of time shows, where the last minutes do not."""

from __future__ import annotations

from collections.abc import Callable

from fabmon.tui.clock import SECOND_NS
from fabmon.tui.past import Past, PastError
from fabmon.tui.stage import Stage

_LOOK_AGAIN_S = 10.0


class StripReader:
    """Gives the cursor its curve, from the recording."""

    def __init__(
        self,
        stage: Stage,
        past: Past,
        repaint: Callable[[], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._stage = stage
        self._past = past
        self._repaint = repaint
        self._monotonic = monotonic
        self._drawn_s = 0.0

    async def read(self, columns: int) -> None:
        """Read what the strip shows, unless it is known."""
        window, cursor = self._stage.strip_window(), self._stage.cursor
        if window is None or self._stage.curve() is not cursor.curve:
            return
        had = cursor.curve
        part_ns = max((window[1] - window[0]) // 100, SECOND_NS)
        if (
            had is not None
            and abs(had.from_ns - window[0]) < part_ns
            and had.until_ns - had.from_ns == window[1] - window[0]
            and len(had.values) == columns
            and self._monotonic() - self._drawn_s < _LOOK_AGAIN_S
        ):
            return
        try:
            cursor.curve = await self._past.curve(*window, columns)
            if cursor.recorded is None or self._stage.live is not None:
                cursor.recorded = await self._past.look()
        except PastError:
            return  # It is said when somebody goes there.
        self._drawn_s = self._monotonic()
        self._repaint()
