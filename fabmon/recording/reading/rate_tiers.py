"""Tiers: highest and mean of equal bins over hours and days, computed from recorded minutes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.snapshot import Floats
from fabmon.recording.format.errors import Damaged
from fabmon.recording.format.minutes import BIN_NS, BINS, MINUTE_NS, Minute

_MINUTES = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60, 120, 180, 240, 360, 480, 720, 1440)
_WIDTHS_NS = (BIN_NS, 2 * BIN_NS, 3 * BIN_NS, *(n * MINUTE_NS for n in _MINUTES))
"""Widths of bins that whole minutes, or whole parts of 10 s, fill."""
_LATE_NS = 2 * MINUTE_NS
"""How much later than others a minute may be written: by a file that continues another one or is
written beside it."""


class TierQuery(NamedTuple):
    """A request for `bins` of `bin_ns` each, of some ports (ids) and columns of HEAT.

    Bin n begins at n * `bin_ns` since 1970; `first` is the number of the first. With `of_line_rate`
    values are shares of the line rate at the time.
    """

    ports: tuple[str, ...]
    columns: tuple[str, ...]
    of_line_rate: bool
    bin_ns: int
    first: int
    bins: int

    @property
    def from_ns(self) -> int:
        """The time at which the bins begin."""
        return self.first * self.bin_ns

    @property
    def until_ns(self) -> int:
        """The time at which the bins end."""
        return (self.first + self.bins) * self.bin_ns

    def is_like(self, other: TierQuery) -> bool:
        """Whether another query differs only in time."""
        return self._replace(first=0, bins=0) == other._replace(first=0, bins=0)


def choose_bins(from_ns: int, until_ns: int, max_bins: int) -> tuple[int, int, int]:
    """(bin_ns, first, bins) that cover a range of time with at most `max_bins` (2 or more) bins.

    The first and the last bin may extend beyond the range.
    """
    least_ns = (until_ns - from_ns) / max(max_bins - 1, 1)
    days_ns = -(-int(least_ns) // _WIDTHS_NS[-1]) * _WIDTHS_NS[-1]
    width_ns = next((each for each in _WIDTHS_NS if each >= least_ns), days_ns)
    first = from_ns // width_ns
    return width_ns, first, -(-until_ns // width_ns) - first


@dataclass(frozen=True, slots=True)
class Tier:
    """The answer: `highest` and `mean` are [columns, ports, bins], NaN where nothing is known.

    Minutes up to `known_ns` are in it; 0 where there is none.
    """

    wanted: TierQuery
    known_ns: int
    highest: Floats
    mean: Floats

    def over(self, wanted: TierQuery) -> Tier:
        """The same for other bins of the same width, as far as they are in it."""
        highest, mean = empty_bins(wanted), empty_bins(wanted)
        into, out_of = _common_bins(wanted, self.wanted)
        highest[..., into], mean[..., into] = self.highest[..., out_of], self.mean[..., out_of]
        return Tier(wanted, self.known_ns, highest, mean)


def empty_bins(wanted: TierQuery) -> Floats:
    """[columns, ports, bins], all NaN."""
    shape = (len(wanted.columns), len(wanted.ports), wanted.bins)
    return np.full(shape, np.nan, np.float32)


class TierBuilder:
    """Takes minutes, by time, and computes the tier that they fill.

    The mean of a bin is the mean of its minutes. `port_id` translates recorded ids of ports to
    those of the query.
    """

    def __init__(self, wanted: TierQuery, port_id: Callable[[str], str] = str) -> None:
        self.wanted = wanted
        self.known_ns = 0
        self._port_id = port_id
        self._highest = empty_bins(wanted)
        self._sums = np.zeros(self._highest.shape)
        self._counts: NDArray[np.int32] = np.zeros(self._highest.shape, np.int32)
        self._taken: set[tuple[int, int]] = set()
        self._rows: tuple[Mapping[str, int], NDArray[np.intp]] = ({}, np.empty(0, np.intp))

    @property
    def next_ns(self) -> int:
        """The time from which on there may be new minutes; known minutes are not counted twice."""
        return max(self.wanted.from_ns, self.known_ns - _LATE_NS)

    def can_move(self, wanted: TierQuery) -> bool:
        """Whether minutes that are still to come fill the bins of another query."""
        return self.wanted.is_like(wanted) and (
            self.wanted.from_ns <= wanted.from_ns and self.wanted.until_ns <= wanted.until_ns
        )

    def move(self, wanted: TierQuery) -> None:
        """Continue with the bins of another query, for which `can_move` is true."""
        old, self.wanted = self.wanted, wanted
        into, out_of = _common_bins(wanted, old)
        highest = empty_bins(wanted)
        sums, counts = np.zeros(highest.shape), np.zeros(highest.shape, np.int32)
        highest[..., into] = self._highest[..., out_of]
        sums[..., into], counts[..., into] = self._sums[..., out_of], self._counts[..., out_of]
        self._highest, self._sums, self._counts = highest, sums, counts

    def add(self, minute: Minute) -> None:
        """Add a minute; one that does not decode is a gap."""
        key = minute.start_ns, zlib.crc32(minute.highest.tobytes())
        if key in self._taken:
            return
        self.known_ns = max(self.known_ns, minute.start_ns + MINUTE_NS)
        self._taken = {each for each in self._taken if each[0] >= self.known_ns - 2 * _LATE_NS}
        self._taken.add(key)
        rows = self._rows_of(minute)
        ports = np.flatnonzero((rows >= 0) & (rows < len(minute.line_rate_bps)))
        common = [name for name in self.wanted.columns if name in minute.columns]
        if not len(ports) or not common:
            return
        columns = np.array([self.wanted.columns.index(name) for name in common], np.intp)
        recorded_columns = np.array([minute.columns.index(name) for name in common], np.intp)
        at, recorded = np.ix_(columns, ports), np.ix_(recorded_columns, rows[ports])
        unit = minute.line_rate_bps[rows[ports]] if self.wanted.of_line_rate else np.float32(1)
        with suppress(Damaged), np.errstate(divide="ignore", invalid="ignore"):
            for time_ns, highest, mean in self._parts(minute):
                place = time_ns // self.wanted.bin_ns - self.wanted.first
                if 0 <= place < self.wanted.bins:
                    self._put(place, at, highest[recorded] / unit, mean[recorded] / unit)

    def tier(self) -> Tier:
        """The tier of the minutes so far."""
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = (self._sums / self._counts).astype(np.float32)
        return Tier(self.wanted, self.known_ns, self._highest.copy(), mean)

    def _parts(self, minute: Minute) -> Iterator[tuple[int, Floats, Floats]]:
        """The minute where bins are as long or longer, else its parts of 10 s."""
        if self.wanted.bin_ns >= MINUTE_NS:
            yield minute.start_ns, minute.highest, minute.mean
            return
        highest, mean = minute.highest_10s(), minute.mean_10s()
        for number in range(min(BINS, len(highest), len(mean))):
            yield minute.start_ns + number * BIN_NS, highest[number], mean[number]

    def _put(
        self, place: int, at: tuple[NDArray[np.intp], ...], highest: Floats, mean: Floats
    ) -> None:
        known = np.isfinite(mean)
        self._highest[..., place][at] = np.fmax(self._highest[..., place][at], highest)
        self._sums[..., place][at] += np.where(known, mean, 0)
        self._counts[..., place][at] += known

    def _rows_of(self, minute: Minute) -> NDArray[np.intp]:
        """[ports] the row in a minute of each port of the query; -1 for one that is not in it."""
        if self._rows[0] is not minute.rows:
            known = {self._port_id(port): row for port, row in minute.rows.items()}
            rows = np.array([known.get(port, -1) for port in self.wanted.ports], np.intp)
            self._rows = (minute.rows, rows)
        return self._rows[1]


def _common_bins(new: TierQuery, old: TierQuery) -> tuple[slice, slice]:
    """The places of the bins that two queries have in common, in each."""
    start = max(new.first, old.first)
    stop = max(start, min(new.first + new.bins, old.first + old.bins))
    return slice(start - new.first, stop - new.first), slice(start - old.first, stop - old.first)
