"""The age of counters that a source repeats: SNMP agents and some exporters read them only every
few seconds, however often they are polled.

A poll that finds new values shows that they were read since the poll before. From several such
spans follows the period of the source, and with it the time of each reading, which rates need: the
time of the poll is wrong by up to a period.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import combinations
from math import ceil
from typing import NamedTuple

from collectors.catalog import CATALOG
from collectors.catalog.metric import GAUGE
from collectors.wire import Object

_KEPT = 16
"""Changes from which the period is computed."""

_REPEATS = 1.5
"""Polls in a period from which on a source repeats its values; below, each poll finds new ones."""

_CORRECTION = 0.04
"""Share of the time between two changes by which the time of the second is corrected at most: a
rate is not more wrong than that."""

_EXACT = 0.1
"""Share of a period within which it must be known: its middle is wrong by half of that at most."""

_SECOND_NS = 1_000_000_000


class _Change(NamedTuple):
    """The values of refresh `number` were read after `after_ns`, and until `until_ns`."""

    number: int
    after_ns: int
    until_ns: int


class RefreshClock:
    """Computes when the values of a source were read. `longest_s` is how long it may repeat them.

    `is_known` is whether the age of the last values is: that of the first ones is not, and where a
    source repeats them, not before its period is known to 5 %.
    """

    def __init__(self, longest_s: float) -> None:
        self.is_known = False
        self._longest_ns = int(longest_s * 1e9)
        self._values: Sequence[int | None] | None = None
        self._has_repeated = False
        self._polls_ns: deque[int] = deque(maxlen=_KEPT)
        self._changes: deque[_Change] = deque(maxlen=_KEPT)
        self._changed_ns = 0
        self._dated_ns = 0
        self._period_ns = 0

    def date(self, values: Sequence[int | None], now_ns: int) -> int | None:
        """When these values, which a poll returned at `now_ns`, were read; None for a repetition.

        Values that stay the same for longer than the source may repeat them are new.
        """
        before_ns = self._polls_ns[-1] if self._polls_ns else now_ns
        self._polls_ns.append(now_ns)
        if self._values is None:
            self._values = values
            return self._dated(now_ns)
        if values == self._values:
            self._has_repeated = True
            if now_ns - self._dated_ns < self._longest_ns:
                return None
            self.is_known = True
            return self._dated(self.last_refresh_ns(now_ns))
        self._values = values
        self._note(before_ns, now_ns)
        if not self._is_repeating:
            self._changed_ns = now_ns
        return self._dated(self._changed_ns)

    def last_refresh_ns(self, now_ns: int) -> int:
        """When values that are read from the source at `now_ns` were read by it."""
        if not self._is_repeating:
            return now_ns
        return now_ns - (now_ns - self._changed_ns) % self._period_ns

    @property
    def _is_repeating(self) -> bool:
        """Whether the source has a longer period than the polls."""
        polls = len(self._polls_ns) - 1
        between_ns = (self._polls_ns[-1] - self._polls_ns[0]) / polls if polls > 0 else 0.0
        return self._has_repeated and self._period_ns >= _REPEATS * between_ns

    def _note(self, after_ns: int, until_ns: int) -> None:
        """Note a change between two polls, and compute the period and the time of the change."""
        was_known = self.is_known
        self.is_known = not self._has_repeated
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
        if shortest > longest:
            # The source has another period now, or had no traffic to count for some.
            was_known, steps = False, 1
            self._changes = deque([last, _Change(last.number + 1, after_ns, until_ns)], _KEPT)
            shortest, longest = _periods_ns(self._changes)
        # Periods are configured as whole seconds.
        whole = round((shortest + longest) / 2 / _SECOND_NS) * _SECOND_NS
        self._period_ns = int(min(max(whole, shortest), longest))
        is_only_one = whole - shortest <= _SECOND_NS and longest - whole <= _SECOND_NS
        self.is_known |= is_only_one or longest - shortest <= _EXACT * whole
        self._advance(steps, was_known)

    def _advance(self, steps: int, was_known: bool) -> None:
        """Compute the time of the last change, which is so many periods after the one before."""
        first, (_, after_ns, until_ns) = self._changes[0], self._changes[-1]
        if not was_known:
            self._changed_ns = first.until_ns
            steps = self._changes[-1].number - first.number
        passed_ns = steps * self._period_ns
        expected_ns = self._changed_ns + passed_ns
        most_ns = int(_CORRECTION * passed_ns)
        error_ns = min(max(expected_ns, after_ns), until_ns) - expected_ns
        self._changed_ns = expected_ns + min(max(error_ns, -most_ns), most_ns)
        is_far = not after_ns - self._period_ns < self._changed_ns < until_ns + self._period_ns
        if is_far or (self._is_repeating and until_ns - after_ns > _REPEATS * self._period_ns):
            # After a pause of the polls it is not known how often the source has read since.
            self.is_known = False
            self._changes = deque([_Change(0, after_ns, until_ns)], _KEPT)
            self._changed_ns = until_ns

    def _dated(self, time_ns: int) -> int:
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


def without_counters(objects: Iterable[Object], values: Sequence[int | None]) -> list[int | None]:
    """The values of the objects' metrics, None for counters: what is known of their first values,
    whose age is unknown."""
    metrics = (metric for item in objects for metric in item.metrics)
    return [
        value if metric not in CATALOG or CATALOG[metric].kind == GAUGE else None
        for metric, value in zip(metrics, values, strict=True)
    ]
