"""Whether a source repeats its values, learned from its polls. A table says it of some exporters;
any other may have a cache before it, or read its counters from a file that a timer writes.

Polls that find new values three times in a row show that the source reads when it is polled, and so
does a sign of the source's own. What it repeats then has no traffic. Of a source that has not shown
that, a repetition may be old values: its rates are over the refresh, and are shown once that is
known.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from collectors.catalog import CATALOG, GAUGE
from collectors.wire import Object
from fabmon.feeds.refresh_clock import RefreshClock, Sample, without_counters

_IN_A_ROW = 3
"""Polls in a row with new values after which a source reads when it is polled. One that repeats its
values for 1.5 polls or longer has two at most."""

_ALONE = 2
"""Changes of a single poll, with repetitions before and after, after which a source repeats its
values although it did not before."""

_IDLE_S = 30.0
"""Values that stay for so long have no traffic: exporters refresh at least as often by default."""

_IDLE_PERIODS = 2.2
"""The same in periods, where the period is known. A value is stale after 2.5 of them."""

_OTHER = 1.5
"""A period that is this many times another one is another."""


class LearnedRefresh:
    """Finds when the values of a source were read.

    `refresh_s` is how long the source is known to repeat them, 0 where that is not known. Then one
    with `is_trusted` is taken to read when it is polled until it repeats its values: for polls that
    are so far apart that the third one is late.

    `period_s` is the period that was learned, 0 where there is none.
    """

    def __init__(self, refresh_s: float = 0.0, *, is_trusted: bool = False) -> None:
        self.period_s = 0.0
        self.refresh_s = refresh_s
        self._clock = RefreshClock(refresh_s or inf, is_repeating=refresh_s > 0)
        self._is_live = is_trusted
        self._is_proven = self._is_idle = self._is_base_known = False
        self._objects: Sequence[Object] | None = None
        self._has_counters = False
        self._values: Sequence[int | None] | None = None
        self._polled_ns = self._changed_ns = 0
        self._in_a_row = self._alone = 0

    def sample(
        self,
        objects: Sequence[Object],
        values: Sequence[int | None],
        now_ns: int,
        *,
        is_read_now: bool = False,
    ) -> Sample | None:
        """When values of the objects' metrics, which a poll found at `now_ns`, were read, and those
        of them that may be used; None for a repetition. `is_read_now` says that the source shows
        that it read them for this poll."""
        if objects is not self._objects:
            self._objects, self._has_counters = objects, has_counters(objects)
        if self.refresh_s:
            return self._clock.sample(objects, values, now_ns)
        if not self._has_counters:
            return now_ns, values
        if now_ns <= self._polled_ns:
            return None  # of the same poll
        before_ns, self._polled_ns = self._polled_ns, now_ns
        before, self._values = self._values, values
        if before is None:
            self._changed_ns = now_ns
        else:
            is_new = is_read_now or values != before
            self._count(now_ns, is_new)
            if self._in_a_row >= _IN_A_ROW:
                self._is_live = self._is_proven = True
                self._is_idle = False
                self.period_s, self._alone = 0.0, 0
            if self._is_live and not self._stays_live(is_new):
                self._begin_to_learn(before, before_ns)
        return (now_ns, values) if self._is_live else self._learn(objects, values, now_ns)

    def _count(self, now_ns: int, is_new: bool) -> None:
        """Count the polls in a row with new values, and the single ones."""
        if is_new:
            self._in_a_row, self._changed_ns = self._in_a_row + 1, now_ns
        elif self._in_a_row:
            self._alone = self._alone + 1 if self._in_a_row == 1 else 0
            self._in_a_row = 0

    def _stays_live(self, is_new: bool) -> bool:
        return is_new or (self._is_proven and self._alone < _ALONE)

    def _begin_to_learn(self, values: Sequence[int | None], polled_ns: int) -> None:
        """Begin to learn the refresh, with the values of the poll before."""
        self._is_live = self._is_proven = self._is_base_known = False
        self._alone = 0
        self._clock = RefreshClock(inf, is_repeating=False)
        self._clock.date(values, polled_ns)

    def _learn(
        self, objects: Sequence[Object], values: Sequence[int | None], now_ns: int
    ) -> Sample | None:
        """A sample by what is known of the refresh so far."""
        clock_ns = self._clock.date(values, now_ns)
        period_s = self._clock.period_s
        if period_s and not self.period_s / _OTHER < period_s < self.period_s * _OTHER:
            self.period_s = period_s
            self._clock.longest_s = _IDLE_PERIODS * period_s
        was_idle = self._is_idle
        self._is_idle = not self.period_s and now_ns - self._changed_ns >= _IDLE_S * 1e9
        if self._is_idle:
            return now_ns, values
        if clock_ns is None and self._is_base_known:
            return None
        if clock_ns is None:
            return now_ns, without_counters(objects, values)
        is_known = self._clock.is_known and self._clock.has_repeated and not was_idle
        self._is_base_known = is_known
        return clock_ns, values if is_known else without_counters(objects, values)


def has_counters(objects: Sequence[Object]) -> bool:
    """Whether a metric of some objects is a counter: a gauge that stays is as it says."""
    return any(
        name in CATALOG and CATALOG[name].kind != GAUGE for item in objects for name in item.metrics
    )
