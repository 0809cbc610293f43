"""Ports over hours and days: from the recording, and the last minutes from memory."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from fabmon.fabric.measures import known_mean
from fabmon.fabric.model import Port
from fabmon.fabric.snapshot import RING_TICKS, Snapshot
from fabmon.fabric.time_wording import MINUS, SECOND_NS, axis_label, interval
from fabmon.fabric.wording import rounded_percent
from fabmon.recording.format.minutes import MINUTE_NS
from fabmon.recording.reading.rate_tiers import Tier, TierQuery, choose_bins, empty_bins
from fabmon.scenes.recorded_past import RecordedPast
from fabmon.scenes.recording_contents import PastError
from fabmon.tui.screen_state import ScreenState

_EVERY_NS = 10 * SECOND_NS
_WRITTEN_NS = 3 * SECOND_NS
"""A minute is in the recording this long after its end, at the latest."""
_LEAST_PROGRESS = 0.05
_ROUNDED = 1 / 128
"""By how much of itself a recorded highest value may be below the exact one: it is rounded twice,
each time to 0.4 %."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A range of time to show; `ends_now`: it ends at the newest snapshot and moves with it.

    `known(query, now_ns)` returns the part of a tier that has been read from the recording, and
    starts to read the rest; `is_reading()`: that has not ended.
    """

    from_ns: int
    until_ns: int
    ends_now: bool
    newest: Snapshot
    known: Callable[[TierQuery, int], Tier | None]
    is_reading: Callable[[], bool]

    def of(
        self, ports: Sequence[Port], columns: Sequence[str], of_line_rate: bool, most_bins: int
    ) -> Tier:
        """Columns of HEAT of some ports in at most `most_bins` bins; NaN where not read yet."""
        names = tuple(port.id for port in ports)
        bins = choose_bins(self.from_ns, self.until_ns, most_bins)
        wanted = TierQuery(names, tuple(columns), of_line_rate, *bins)
        known = self.known(wanted, self.newest.time_ns)
        if known is None:
            known = Tier(wanted, 0, empty_bins(wanted), empty_bins(wanted))
        return with_memory(known, self.newest, [port.row for port in ports])

    @property
    def ends(self) -> tuple[str, str]:
        """Labels of its start and its end, as short as possible."""
        span_s = (self.until_ns - self.from_ns) / SECOND_NS
        if self.ends_now:
            return f"{MINUS}{interval(round(span_s))}", "now"
        return axis_label(self.from_ns, span_s), axis_label(self.until_ns, 3600)

    def resolution(self, bin_ns: int) -> str:
        """Its length and resolution: `1 d, highest of each 15 min`."""
        return f"{self.length}, highest of each {interval(bin_ns // SECOND_NS)}"

    @property
    def length(self) -> str:
        """Its length: `1 d`."""
        return interval(round((self.until_ns - self.from_ns) / SECOND_NS))


def trend(
    screen_state: ScreenState, newest: Snapshot, reading: TrendLoader, minutes: int | None
) -> Trend | None:
    """The range of the timeline, or `minutes` up to the cursor; None without a cursor."""
    scene, window = screen_state.scene, screen_state.timeline_window()
    if scene is None or window is None:
        return None
    if minutes is not None:
        at_ns = scene.snapshot.time_ns
        window = at_ns - minutes * MINUTE_NS, at_ns
    live = screen_state.live
    ends_now = (
        live is not None and screen_state.shown is None and window[1] == live.snapshot.time_ns
    )
    return Trend(*window, ends_now, newest, reading.known, reading.is_reading)


def with_memory(known: Tier, newest: Snapshot, rows: Sequence[int]) -> Tier:
    """A tier of the ports at `rows`, completed with the ticks in memory.

    Of ticks that recorded minutes have, the highest is corrected by what these are rounded: without
    that, more time would show a lower highest value than the last minutes. The mean of a bin that
    has recorded minutes is not changed.
    """
    wanted = known.wanted
    tick_ns = max(1, int(newest.interval_s * SECOND_NS))
    ticks = min((newest.time_ns - wanted.from_ns) // tick_ns + 1, RING_TICKS)
    is_there = np.array(rows, np.intp) < len(newest.line_rate_bps)
    if ticks <= 0 or not is_there.any():
        return known
    at_ns = newest.time_ns - np.arange(ticks - 1, -1, -1) * tick_ns
    places = at_ns // wanted.bin_ns - wanted.first
    kept = [row for row, there in zip(rows, is_there.tolist(), strict=True) if there]
    per = newest.line_rate_bps[kept][:, None] if wanted.of_line_rate else np.float32(1)
    most, mean = known.highest.copy(), known.mean.copy()
    with np.errstate(divide="ignore", invalid="ignore"):
        seen = np.stack([newest.window(each, kept, ticks) / per for each in wanted.columns])
    for place in np.unique(places[(places >= 0) & (places < wanted.bins)]).tolist():
        part, is_new = seen[..., places == place], at_ns[places == place] >= known.known_ns
        at = (slice(None), is_there, place)
        # Memory has today's line rates, the recording those of the time: where both know a value,
        # the recorded one is right but for its rounding.
        limit = np.where(np.isnan(most[at]), np.inf, most[at] * np.float32(1 + _ROUNDED))
        exact = np.minimum(part, np.where(is_new, np.inf, limit[..., None]))
        most[at] = np.fmax(most[at], np.fmax.reduce(exact, axis=-1))
        mean[at] = np.where(np.isnan(mean[at]), known_mean(part), mean[at])
    return Tier(wanted, known.known_ns, most, mean)


class TrendLoader:
    """Reads tiers for one view, one at a time, and keeps the last one.

    `run` starts a function that reads, and cancels the one before; `repaint` is called when more
    has been read.
    """

    def __init__(
        self,
        past: RecordedPast,
        run: Callable[[Callable[[], Coroutine[None, None, None]]], object],
        repaint: Callable[[], None],
    ) -> None:
        self._past = past
        self._run = run
        self._repaint = repaint
        self._had: Tier | None = None
        self._asked: tuple[TierQuery, int] | None = None
        self._doing: TierQuery | None = None
        self._share = 0.0
        self._is_wrong = False

    @property
    def progress(self) -> str:
        """Progress or failure of reading; empty when nothing is being read."""
        if self._is_wrong:
            return "the recording cannot be read"
        return "" if self._doing is None else f"reading, {rounded_percent(self._share)}"

    def is_reading(self) -> bool:
        """Whether the recording is being read."""
        return self._doing is not None

    def known(self, wanted: TierQuery, now_ns: int) -> Tier | None:
        """The bins of a query that have been read; starts reading what is missing."""
        if self._is_due(wanted, now_ns):
            self._asked, self._doing, self._share = (wanted, now_ns), wanted, 0.0
            self._run(partial(self._read, wanted))
        had = self._had
        return had.over(wanted) if had is not None and had.wanted.is_like(wanted) else None

    def _is_due(self, wanted: TierQuery, now_ns: int) -> bool:
        if self._asked is None:
            return True
        asked, asked_ns = self._asked
        if not asked.is_like(wanted):
            return True
        if self._doing is not None:
            return abs(asked.first - wanted.first) > 1
        if (asked.first, asked.bins) != (wanted.first, wanted.bins):
            return True
        known_ns = 0 if self._had is None else self._had.known_ns
        there_ns = min(wanted.until_ns, now_ns) - MINUTE_NS - _WRITTEN_NS
        return known_ns <= there_ns and now_ns - asked_ns >= _EVERY_NS

    async def _read(self, wanted: TierQuery) -> None:
        try:
            self._had = await self._past.tier(wanted, self._on_progress)
            self._is_wrong = False
        except PastError:
            self._is_wrong = True
        finally:
            if self._doing is wanted:
                self._doing = None
        self._repaint()

    def _on_progress(self, share: float) -> None:
        """Store the progress (0 to 1); redraw when it moved visibly."""
        if self._doing is not None and share - self._share >= _LEAST_PROGRESS:
            self._share = share
            self._repaint()
