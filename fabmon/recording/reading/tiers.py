"""What was drawn over hours and days: the highest and the mean of equal bins, out of minutes."""

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
_LATE_NS = 2 * MINUTE_NS
"""A minute may be written so much after others: by a file that goes on, or one beside it."""
_WIDTHS_NS = (BIN_NS, 2 * BIN_NS, 3 * BIN_NS, *(n * MINUTE_NS for n in _MINUTES))
"""Bins that minutes, or their parts of 10 s, fill without being cut."""


class TierQuery(NamedTuple):
    """`bins` of `bin_ns` each, of some ports (ids) and columns of HEAT.

    Bin n of all time begins at n * `bin_ns`; `first` is the first that is wanted. With
    `of_line_rate` values are shares of the line rate of then.
    """

    ports: tuple[str, ...]
    columns: tuple[str, ...]
    of_line_rate: bool
    bin_ns: int
    first: int
    bins: int

    @property
    def from_ns(self) -> int:
        """Where they begin."""
        return self.first * self.bin_ns

    @property
    def until_ns(self) -> int:
        """Where they end."""
        return (self.first + self.bins) * self.bin_ns

    def is_like(self, other: TierQuery) -> bool:
        """Whether another one differs in its time at most."""
        return self._replace(first=0, bins=0) == other._replace(first=0, bins=0)


def choose_bins(from_ns: int, until_ns: int, most: int) -> tuple[int, int, int]:
    """(bin_ns, first, bins): at most so many (2 or more), of which the first and the last may reach
    beyond a time.
    """
    least_ns = (until_ns - from_ns) / max(most - 1, 1)
    days_ns = -(-int(least_ns) // _WIDTHS_NS[-1]) * _WIDTHS_NS[-1]
    width_ns = next((each for each in _WIDTHS_NS if each >= least_ns), days_ns)
    first = from_ns // width_ns
    return width_ns, first, -(-until_ns // width_ns) - first


@dataclass(frozen=True, slots=True)
class Tier:
    """`most` and `mean` are [columns, ports, bins], NaN where nothing is known. Minutes are known
    up to `known_ns`; 0 where there is none.
    """

    wanted: TierQuery
    known_ns: int
    most: Floats
    mean: Floats

    def over(self, wanted: TierQuery) -> Tier:
        """As much of it as is in other bins of the same width."""
        most, mean = empty_bins(wanted), empty_bins(wanted)
        into, out_of = _common(wanted, self.wanted)
        most[..., into], mean[..., into] = self.most[..., out_of], self.mean[..., out_of]
        return Tier(wanted, self.known_ns, most, mean)


def empty_bins(wanted: TierQuery) -> Floats:
    """[columns, ports, bins] of which nothing is known."""
    shape = (len(wanted.columns), len(wanted.ports), wanted.bins)
    return np.full(shape, np.nan, np.float32)


class TierBuilder:
    """Takes minutes, by time; gives the tier that they make.

    The mean of a bin is that of its minutes. `named` tells the ids of ports by those recorded.
    """

    def __init__(self, wanted: TierQuery, named: Callable[[str], str] = str) -> None:
        self.wanted = wanted
        self.known_ns = 0
        self._named = named
        self._most = empty_bins(wanted)
        self._sums = np.zeros(self._most.shape)
        self._counts: NDArray[np.int32] = np.zeros(self._most.shape, np.int32)
        self._taken: set[tuple[int, int]] = set()
        self._rows: tuple[Mapping[str, int], NDArray[np.intp]] = ({}, np.empty(0, np.intp))

    @property
    def next_ns(self) -> int:
        """From when on there may be minutes that were not taken; others are not taken twice."""
        return max(self.wanted.from_ns, self.known_ns - _LATE_NS)

    def goes_on(self, wanted: TierQuery) -> bool:
        """Whether other bins can be filled by minutes that are still to be taken."""
        return self.wanted.is_like(wanted) and (
            self.wanted.from_ns <= wanted.from_ns and self.wanted.until_ns <= wanted.until_ns
        )

    def move(self, wanted: TierQuery) -> None:
        """Go on with other bins, for which `goes_on` is true."""
        old, self.wanted = self.wanted, wanted
        into, out_of = _common(wanted, old)
        most = empty_bins(wanted)
        sums, counts = np.zeros(most.shape), np.zeros(most.shape, np.int32)
        most[..., into] = self._most[..., out_of]
        sums[..., into], counts[..., into] = self._sums[..., out_of], self._counts[..., out_of]
        self._most, self._sums, self._counts = most, sums, counts

    def add(self, minute: Minute) -> None:
        """Take a minute; one that does not decode is a gap."""
        mark = minute.start_ns, zlib.crc32(minute.most.tobytes())
        if mark in self._taken:
            return
        self.known_ns = max(self.known_ns, minute.start_ns + MINUTE_NS)
        self._taken = {each for each in self._taken if each[0] >= self.known_ns - 2 * _LATE_NS}
        self._taken.add(mark)
        rows = self._rows_of(minute)
        ports = np.flatnonzero((rows >= 0) & (rows < len(minute.line_rate_bps)))
        kept = [name for name in self.wanted.columns if name in minute.columns]
        if not len(ports) or not kept:
            return
        columns = np.array([self.wanted.columns.index(name) for name in kept], np.intp)
        recorded = np.array([minute.columns.index(name) for name in kept], np.intp)
        picked = np.ix_(recorded, rows[ports])
        per = minute.line_rate_bps[rows[ports]] if self.wanted.of_line_rate else np.float32(1)
        with suppress(Damaged), np.errstate(divide="ignore", invalid="ignore"):
            for at_ns, most, mean in self._parts(minute):
                place = at_ns // self.wanted.bin_ns - self.wanted.first
                if 0 <= place < self.wanted.bins:
                    self._put(place, np.ix_(columns, ports), most[picked] / per, mean[picked] / per)

    def tier(self) -> Tier:
        """What was taken so far."""
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = (self._sums / self._counts).astype(np.float32)
        return Tier(self.wanted, self.known_ns, self._most.copy(), mean)

    def _parts(self, minute: Minute) -> Iterator[tuple[int, Floats, Floats]]:
        """Minutes where bins are made of them, else their parts."""
        if self.wanted.bin_ns >= MINUTE_NS:
            yield minute.start_ns, minute.most, minute.mean
            return
        most, mean = minute.most_10s(), minute.mean_10s()
        for number in range(min(BINS, len(most), len(mean))):
            yield minute.start_ns + number * BIN_NS, most[number], mean[number]

    def _put(
        self, place: int, at: tuple[NDArray[np.intp], ...], most: Floats, mean: Floats
    ) -> None:
        known = np.isfinite(mean)
        self._most[..., place][at] = np.fmax(self._most[..., place][at], most)
        self._sums[..., place][at] += np.where(known, mean, 0)
        self._counts[..., place][at] += known

    def _rows_of(self, minute: Minute) -> NDArray[np.intp]:
        """[ports] the row of each that is wanted; -1 for one that was not there."""
        if self._rows[0] is not minute.rows:
            known = {self._named(port): row for port, row in minute.rows.items()}
            rows = np.array([known.get(port, -1) for port in self.wanted.ports], np.intp)
            self._rows = (minute.rows, rows)
        return self._rows[1]


def _common(new: TierQuery, old: TierQuery) -> tuple[slice, slice]:
    """The places of the bins that both have, in each."""
    start = max(new.first, old.first)
    stop = max(start, min(new.first + new.bins, old.first + old.bins))
    return slice(start - new.first, stop - new.first), slice(start - old.first, stop - old.first)
