"""The age of counters that a source repeats: SNMP agents and some exporters read them only every
few seconds, however often they are polled.

A poll that finds new values shows that they were read since the poll before. Sources read by a
timer, or when they are polled and their last values are old enough. By a timer: the period follows
from several such spans, and with it the time of each reading. When polled: the time of the poll is
that of the reading. Until the polls show which it is, only samples are used whose rates are the
same both ways. Rates by the time of the poll alone are wrong by up to a period.

Polls that are seconds apart may find new values each time and yet values of any age, as where
Prometheus scrapes every 15 s what an exporter reads every 10 s. Then samples are used that are a
multiple of 30 s apart, which is one of the usual periods too. A period that does not divide 30 s
is not distinguished from one that does: such a rate is wrong by up to a period in 30 s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from math import ceil
from typing import NamedTuple

from collectors.catalog import CATALOG
from collectors.catalog.metric import GAUGE
from collectors.wire import Object
from fabmon.fabric.time_wording import SECOND_NS

_KEPT = 16
"""Changes from which the period is computed."""

_REPEATS = 1.5
"""Polls in a period from which on a source repeats its values; below, each poll finds new ones."""

_CORRECTION = 0.02
"""Share of the time between two changes by which the time of the second is corrected at most: a
rate is not more wrong than that."""

_SAME = 0.04
"""Share by which the time between two samples may differ between a timer and reads when polled."""

_IDLE_POLLS = 2.5
"""A gap that is longer than the shortest one by so many polls was without traffic."""

_EXACT = 0.1
"""Share of a period within which it must be known: its middle is wrong by half of that at most."""

_COARSE_NS = 2 * SECOND_NS
"""Between polls that are farther apart the periods 1, 2, 3, 5, 10, 15 and 30 s do not show."""
_COMMON_NS = 30 * SECOND_NS
"""A multiple of these periods."""
_FEW_NS = 4 * _COMMON_NS
"""After so long the error of the age is small enough."""


class _Change(NamedTuple):
    """The values of refresh `number` were read after `after_ns`, and until `until_ns`."""

    number: int
    after_ns: int
    until_ns: int


Sample = tuple[int, Sequence[int | None]]
"""When values were read, in ns by the clock of the polls, and the values."""


class RefreshClock:
    """Computes when the values of a source were read. `longest_s` is how long it may repeat them;
    without `is_repeating` it is not known to.

    `has_repeated` is whether a poll has found the same values again. `is_known` is whether the age
    of the last values is: that of the first ones is not, and where a source repeats them, not
    before its period is known to 5 %.
    """

    def __init__(self, longest_s: float, *, is_repeating: bool = True) -> None:
        self.is_known = False
        self.longest_s = longest_s
        self._may_repeat = is_repeating
        self._values: Sequence[int | None] | None = None
        self.has_repeated = False
        self._polls_ns: deque[int] = deque(maxlen=_KEPT)
        self._changes: deque[_Change] = deque(maxlen=_KEPT)
        self._changed_ns = 0
        self._dated_ns = self._found_ns = 0
        self._period_ns = 0
        self._reads_when_polled = False
        self._last: tuple[int, int] | None = None

    def date(self, values: Sequence[int | None], now_ns: int) -> int | None:
        """When these values, which a poll returned at `now_ns`, were read; None for a repetition,
        and for values whose time is not certain.

        Values that stay the same for longer than the source may repeat them are new.
        """
        if self._polls_ns and now_ns <= self._polls_ns[-1]:
            return None  # of the same poll
        before_ns = self._polls_ns[-1] if self._polls_ns else now_ns
        self._polls_ns.append(now_ns)
        if self._values is None:
            self._values = values
            return self._dated(now_ns)
        if values == self._values:
            self.has_repeated = self._may_repeat = True
            if now_ns - max(self._dated_ns, self._found_ns) < self.longest_s * 1e9:
                return None
            self.is_known = True
            return self._dated(self.last_refresh_ns(now_ns))
        self._values, self._found_ns = values, now_ns
        self._note(before_ns, now_ns)
        if not self._is_repeating:
            if self._is_between_common(now_ns - self._dated_ns):
                return None
            self._changed_ns = now_ns
        elif not self.is_known:
            self._last = None
        elif not self._is_certain(now_ns):
            return None
        return self._dated(self._changed_ns)

    def sample(
        self, objects: Iterable[Object], values: Sequence[int | None], now_ns: int
    ) -> Sample | None:
        """When values of the objects' metrics, which a poll returned at `now_ns`, were read, and
        those of them that are known: no counters while the age is not. None as in `date`."""
        clock_ns = self.date(values, now_ns)
        if clock_ns is None:
            return None
        return clock_ns, values if self.is_known else without_counters(objects, values)

    @property
    def period_s(self) -> float:
        """The period of a source that repeats its values, once it is known; else 0."""
        return self._period_ns / 1e9 if self._is_repeating and self.is_known else 0.0

    def last_refresh_ns(self, now_ns: int) -> int:
        """When values that are read from the source at `now_ns` were read by it."""
        if not self._is_repeating:
            return now_ns
        return now_ns - (now_ns - self._changed_ns) % self._period_ns

    @property
    def _between_ns(self) -> float:
        """The mean time between two polls."""
        polls = len(self._polls_ns) - 1
        return (self._polls_ns[-1] - self._polls_ns[0]) / polls if polls > 0 else 0.0

    @property
    def _is_repeating(self) -> bool:
        """Whether the source has a longer period than the polls."""
        return self.has_repeated and self._period_ns >= _REPEATS * self._between_ns

    def _is_between_common(self, passed_ns: int) -> bool:
        """Whether the time since the last sample is no multiple of the usual periods."""
        multiple = max(1, round(passed_ns / _COMMON_NS))
        is_near = abs(passed_ns - multiple * _COMMON_NS) <= SECOND_NS
        is_coarse = self._may_repeat and self._between_ns > _COARSE_NS
        return is_coarse and not is_near and passed_ns < _FEW_NS

    def _note(self, after_ns: int, until_ns: int) -> None:
        """Note a change between two polls, and compute the period and the time of the change."""
        was_known = self.is_known
        self.is_known = not self.has_repeated
        if not self._changes:
            self._changes.append(_Change(0, after_ns, until_ns))
            self._changed_ns = until_ns
            return
        last = self._changes[-1]
        # Without traffic a source reads the same values several times.
        _, longest = _periods_ns(self._changes)
        steps = max(1, ceil((after_ns - last.until_ns) / longest - _EXACT))
        self._changes.append(_Change(last.number + steps, after_ns, until_ns))
        shortest, longest = _periods_ns(self._changes)
        fits_polls = _fits_reads_when_polled(self._changes)
        before, self._reads_when_polled = (
            self._reads_when_polled,
            fits_polls and (self._reads_when_polled or shortest > longest),
        )
        if self._reads_when_polled:
            self._period_ns = min(b.until_ns - a.until_ns for a, b in pairwise(self._changes))
            self._changed_ns = until_ns
            # The last time was computed another way: a rate of both would be wrong.
            self.is_known = before
            return
        if shortest > longest:
            # The source has another period now, or had no traffic to count for some.
            was_known, steps = False, 1
            self._changes = deque([last, _Change(last.number + 1, after_ns, until_ns)], _KEPT)
            shortest, longest = _periods_ns(self._changes)
        # Periods are configured as whole seconds, long ones as multiples of five.
        middle = (shortest + longest) / 2
        is_coarse = self._between_ns > _COARSE_NS and middle >= 10 * SECOND_NS
        unit_ns = 5 * SECOND_NS if is_coarse else SECOND_NS
        whole = round(middle / unit_ns) * unit_ns
        self._period_ns = int(min(max(whole, shortest), longest))
        is_only_one = whole - shortest <= unit_ns and longest - whole <= unit_ns
        is_only_one &= shortest <= whole <= longest
        self.is_known |= is_only_one or longest - shortest <= _EXACT * whole
        self._advance(steps, was_known)

    def _advance(self, steps: int, was_known: bool) -> None:
        """Compute the time of the last change, which is so many periods after the one before."""
        number, after_ns, until_ns = self._changes[-1]
        passed_ns = steps * self._period_ns
        if was_known:
            expected_ns = self._changed_ns + passed_ns
            most_ns = int(_CORRECTION * passed_ns)
            error_ns = min(max(expected_ns, after_ns), until_ns) - expected_ns
            self._changed_ns = expected_ns + min(max(error_ns, -most_ns), most_ns)
        else:
            # No rate has the last time: the middle of when the polls say that it may have been.
            spans = [
                (each.after_ns + since_ns, each.until_ns + since_ns)
                for each in self._changes
                for since_ns in [(number - each.number) * self._period_ns]
            ]
            self._changed_ns = (max(a for a, _ in spans) + min(b for _, b in spans)) // 2
        is_far = not after_ns - self._period_ns < self._changed_ns < until_ns + self._period_ns
        if is_far or (self._is_repeating and until_ns - after_ns > _REPEATS * self._period_ns):
            # After a pause of the polls it is not known how often the source has read since.
            self.is_known = False
            self._changes = deque([_Change(0, after_ns, until_ns)], _KEPT)
            self._changed_ns = until_ns

    def _is_certain(self, now_ns: int) -> bool:
        """Whether the time since the last sample is the same by a timer and by reads when polled,
        or only one of them fits the polls."""
        if self._last is not None and not self._reads_when_polled:
            timed_ns, polled_ns = self._changed_ns - self._last[0], now_ns - self._last[1]
            differs = abs(timed_ns - polled_ns) > _SAME * polled_ns
            if differs and _fits_reads_when_polled(self._changes):
                return False
        self._last = (self._changed_ns, now_ns)
        return True

    def _dated(self, time_ns: int) -> int:
        if self._is_repeating and self._dated_ns and time_ns - self._dated_ns < self._period_ns / 2:
            # Two refreshes are a period apart: one of the two times is wrong.
            self.is_known = False
        if time_ns <= self._dated_ns:
            # The time of these values or of the last ones is wrong: a rate of both would be too.
            self.is_known = False
            time_ns = self._dated_ns + 1
        self._dated_ns = time_ns
        return time_ns


def _periods_ns(changes: Sequence[_Change]) -> tuple[float, float]:
    """The shortest and the longest period with which a source changes in these spans; the shortest
    is the longer one where none does."""
    shortest, longest = 0.0, float("inf")
    for first, later in combinations(changes, 2):
        steps = later.number - first.number
        shortest = max(shortest, (later.after_ns - first.until_ns) / steps)
        longest = min(longest, (later.until_ns - first.after_ns) / steps)
    return shortest, longest


def _fits_reads_when_polled(changes: Sequence[_Change]) -> bool:
    """Whether a source that reads when it is polled, and its last values are older than some
    limit, may have changed so: each change at the first poll after that limit."""
    gaps = [
        (later.after_ns - first.until_ns, later.until_ns - first.until_ns)
        for first, later in pairwise(changes)
    ]
    shortest = min((gap for _, gap in gaps), default=0)
    polls_ns = [each.until_ns - each.after_ns for each in changes]
    idle_ns = shortest + _IDLE_POLLS * sum(polls_ns) / max(1, len(polls_ns))
    return len(gaps) > 1 and all(before < shortest for before, gap in gaps if gap < idle_ns)


def without_counters(objects: Iterable[Object], values: Sequence[int | None]) -> list[int | None]:
    """The values of the objects' metrics, None for counters: what is known of their first values,
    whose age is unknown."""
    metrics = (metric for item in objects for metric in item.metrics)
    return [
        value if metric not in CATALOG or CATALOG[metric].kind == GAUGE else None
        for metric, value in zip(metrics, values, strict=True)
    ]
