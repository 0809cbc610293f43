"""The time that the screen shows, and how much time its timeline and charts show."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from fabmon.fabric.time_wording import SECOND_NS
from fabmon.scenes.recording_contents import Curve, RecordingContents

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
SPANS_S = (
    *(MINUTE_S * n for n in (1, 2, 5, 10, 30)),
    *(HOUR_S * n for n in (1, 3, 6, 12)),
    *(DAY_S * n for n in (1, 3, 7, 30)),
)
"""The spans that the timeline can show."""

TIMES = "\N{MULTIPLICATION SIGN}"
USUAL_S = 10 * MINUTE_S
_FIRST_S = (MINUTE_S, 2 * MINUTE_S, 5 * MINUTE_S)
"""Spans while there are less live data than USUAL_S."""
SPEEDS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_STEPS = 20
"""The timeline moves in steps of this part of its span, so that it does not creep."""


@dataclass(slots=True)
class TimeCursor:
    """The cursor on the timeline, the zoom of the timeline, and the marked range.

    `speed` is in recorded seconds per second (None: as fast as possible). `is_settled` is False
    while the minutes before the cursor are being analysed. `at_end`: nothing later is recorded.
    `skips_idle`: playback skips ticks without traffic or events. `zoom` is an index of SPANS_S
    (None: the default). `mark_in_ns` and `mark_out_ns` are the ends of the marked range.
    `recorded` and `curve` are what was last read of the recording. `live_s` is the time for which
    there are live data.
    """

    playing: bool = False
    speed: float | None = 1.0
    is_settled: bool = True
    at_end: bool = False
    skips_idle: bool = False
    zoom: int | None = None
    mark_in_ns: int | None = None
    mark_out_ns: int | None = None
    recorded: RecordingContents | None = None
    curve: Curve | None = None
    live_s: float = USUAL_S

    @property
    def range_ns(self) -> tuple[int, int] | None:
        """The marked range (from, until); None unless both ends are marked."""
        if self.mark_in_ns is None or self.mark_out_ns is None:
            return None
        return min(self.mark_in_ns, self.mark_out_ns), max(self.mark_in_ns, self.mark_out_ns)

    def span_s(self, has_now: bool) -> int:
        """The span of the timeline. By default it grows with the live data up to USUAL_S; without
        them it is all of a short recording, in whole minutes.
        """
        if self.zoom is not None:
            return SPANS_S[self.zoom]
        if has_now:
            return next((each for each in _FIRST_S if self.live_s <= each), USUAL_S)
        if self.recorded is None:
            return USUAL_S
        return MINUTE_S * max(1, ceil(min(_length_s(self.recorded), HOUR_S) / MINUTE_S))

    def zoom_by(self, by: int, has_now: bool) -> None:
        """Show more time in the timeline (`by` > 0) or less; of a replay at most all of it."""
        now_s, most = self.span_s(has_now), len(SPANS_S) - 1
        if self.recorded is not None and not has_now:
            most = min(most, bisect_left(SPANS_S, _length_s(self.recorded)))
        place = bisect_right(SPANS_S, now_s) - 1 if by > 0 else bisect_left(SPANS_S, now_s)
        self.zoom = min(max(place + by, 0), most)

    def window(self, at_ns: int, now_ns: int | None) -> tuple[int, int]:
        """(from, until) in ns: the range of the timeline with the cursor at `at_ns`.

        It ends at `now_ns` as long as that includes the cursor; otherwise the cursor is near its
        middle, within the recording. `now_ns` is None without live data.
        """
        span_ns = self.span_s(now_ns is not None) * SECOND_NS
        if now_ns is not None and at_ns >= now_ns - span_ns:
            return now_ns - span_ns, now_ns
        step_ns = span_ns // _STEPS
        until_ns = (at_ns + span_ns // 2) // step_ns * step_ns
        if now_ns is not None or self.recorded is None:
            return until_ns - span_ns, until_ns
        until_ns = min(until_ns, max(self.recorded.until_ns, at_ns))
        from_ns = max(until_ns - span_ns, min(self.recorded.start_ns, at_ns))
        return from_ns, from_ns + span_ns

    def faster(self, by: int) -> None:
        """Double the speed (`by` = 1) or halve it (-1)."""
        now = self.speed or SPEEDS[-1]
        nearest = min(range(len(SPEEDS)), key=lambda place: abs(SPEEDS[place] - now))
        self.speed = SPEEDS[min(max(nearest + by, 0), len(SPEEDS) - 1)]

    def mark_in(self, time_ns: int) -> None:
        """Mark the start of the range, or clear it where that alone is marked. After a whole range
        this begins a new one.
        """
        if self.range_ns is not None:
            self.mark_out_ns = self.mark_in_ns = None
        self.mark_in_ns = time_ns if self.mark_in_ns is None else None

    def mark_out(self, time_ns: int) -> None:
        """Mark the end of the range, or clear it where that alone is marked. That of a whole range
        is moved.
        """
        is_alone = self.mark_out_ns is not None and self.mark_in_ns is None
        self.mark_out_ns = None if is_alone else time_ns


def _length_s(recorded: RecordingContents) -> float:
    return (recorded.until_ns - recorded.start_ns) / SECOND_NS


def speed_text(speed: float | None) -> str:
    """The speed of playback with a multiplication sign: 8, ½ or max."""
    if speed is None:
        return f"{TIMES}max"
    return f"{TIMES}½" if speed == SPEEDS[0] else f"{TIMES}{speed:g}"


class Zoom:
    """How much time a view shows: some of the last minutes, or with a recording the timeline's."""

    def __init__(
        self, cursor: TimeCursor, minutes: Sequence[int], usual: int, is_recorded: bool
    ) -> None:
        """`minutes` are the spans that memory holds; `usual` is the first one shown."""
        self._cursor = cursor
        self._spans = minutes
        self._place = minutes.index(usual)
        self._is_recorded = is_recorded
        self._beyond = next(n for n, each in enumerate(SPANS_S) if each > minutes[-1] * MINUTE_S)

    @property
    def minutes(self) -> int:
        """The minutes that are shown, unless `is_timeline`."""
        return self._spans[self._place]

    @property
    def is_timeline(self) -> bool:
        """Whether the view shows the range of the timeline: it is zoomed out beyond the minutes."""
        zoom = self._cursor.zoom
        return self._is_recorded and zoom is not None and zoom >= self._beyond

    def reach(self, seconds: float) -> None:
        """Show so much of the last time at least, as far as there is any."""
        place = bisect_left(self._spans, seconds / MINUTE_S)
        self._place = max(self._place, min(place, len(self._spans) - 1))
        if place == len(self._spans) and self._is_recorded:
            # In a recording the cursor is in the middle of the timeline.
            beyond = max(self._beyond, bisect_left(SPANS_S, 2 * seconds))
            self._cursor.zoom = max(self._cursor.zoom or 0, min(beyond, len(SPANS_S) - 1))

    def by(self, by: int) -> None:
        """Show more time (`by` > 0) or less; beyond the minutes this zooms the timeline."""
        if self.is_timeline:
            self._cursor.zoom_by(by, has_now=True)
            self._place = len(self._spans) - 1
        elif by > 0 and self._is_recorded and self._place == len(self._spans) - 1:
            self._cursor.zoom = self._beyond
        else:
            self._place = min(max(self._place + by, 0), len(self._spans) - 1)
