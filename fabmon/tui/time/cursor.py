"""Where on the timeline the screen is, and how much of it the strip shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fabmon.fabric.time_wording import SECOND_NS
from fabmon.tui.time.past_reader import Curve, RecordingContents

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
SPANS_S = (
    *(MINUTE_S * n for n in (1, 2, 5, 10, 30)),
    *(HOUR_S * n for n in (1, 3, 6, 12)),
    *(DAY_S * n for n in (1, 3, 7, 30)),
)
"""What the strip can show."""

TIMES = "\N{MULTIPLICATION SIGN}"
USUAL_S = 10 * MINUTE_S
SPEEDS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_STEPS = 20
"""The strip moves on by so many parts of it: it must not creep under the eye."""


@dataclass(slots=True)
class TimeCursor:
    """`playing` and `speed` (recorded seconds a second; None for as fast as it goes) say how it
    moves. `is_settled` is False while the minutes before it are worked through. `at_end` is where
    there is nothing later. `skips_idle` leaves out what nothing happens in.

    `zoom` is a place in SPANS_S, None for the usual one. `mark_in_ns` and `mark_out_ns` enclose
    what is to be cut out. `recorded` and `curve` are what was last known of the recording.
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

    @property
    def range_ns(self) -> tuple[int, int] | None:
        """What is marked, from and to; None where that is not both."""
        if self.mark_in_ns is None or self.mark_out_ns is None:
            return None
        return min(self.mark_in_ns, self.mark_out_ns), max(self.mark_in_ns, self.mark_out_ns)

    def span_s(self, has_now: bool) -> int:
        """What the strip shows: where there is no now, usually the whole of a short recording."""
        if self.zoom is not None:
            return SPANS_S[self.zoom]
        if has_now or self.recorded is None:
            return USUAL_S
        length_s = (self.recorded.until_ns - self.recorded.start_ns) / SECOND_NS
        return next((each for each in SPANS_S if each >= min(length_s, HOUR_S)), HOUR_S)

    def zoom_by(self, by: int, has_now: bool) -> None:
        """More time in the strip, or less."""
        now = SPANS_S.index(self.span_s(has_now))
        self.zoom = min(max(now + by, 0), len(SPANS_S) - 1)

    def window(self, at_ns: int, now_ns: int | None) -> tuple[int, int]:
        """(from, until): what the strip shows when the screen is at a time.

        It ends now as long as the cursor is in it; else the cursor is about in its middle, as far
        as there is something on both sides.
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
        """Twice as fast, or half."""
        now = self.speed or SPEEDS[-1]
        nearest = min(range(len(SPEEDS)), key=lambda place: abs(SPEEDS[place] - now))
        self.speed = SPEEDS[min(max(nearest + by, 0), len(SPEEDS) - 1)]

    def mark_in(self, time_ns: int) -> None:
        """What is to be cut out begins here; marked once more, it is not."""
        self.mark_in_ns = None if self.mark_in_ns == time_ns else time_ns

    def mark_out(self, time_ns: int) -> None:
        """What is to be cut out ends here; marked once more, it is not."""
        self.mark_out_ns = None if self.mark_out_ns == time_ns else time_ns


def speed_text(speed: float | None) -> str:
    """How many times as fast as it was, with the sign of multiplication: 8, a half, max."""
    if speed is None:
        return f"{TIMES}max"
    return f"{TIMES}½" if speed == SPEEDS[0] else f"{TIMES}{speed:g}"


# How much time a screen shows.


class Zoom:
    """Some of the last minutes; beyond them, where something is recorded, what the strip shows."""

    def __init__(
        self, cursor: TimeCursor, minutes: Sequence[int], usual: int, is_recorded: bool
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
