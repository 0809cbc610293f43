"""The slots of series of Prometheus: what is known of each, in arrays.

A series gets a slot when it is first seen, and keeps it until it is dropped. Slot 0 is that of all
series that are not used; it has no value.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.port_arrays import grown
from fabmon.feeds.prometheus.metric_names import KnownMetric
from fabmon.feeds.scrape.page_reader import Indices
from fabmon.feeds.scrape.text_format import Floats

UNUSED = 0
"""Slot of series that are not used: not watched, not of a port, or duplicates."""

_MAX_MISSES = 5
"""Consecutive reads of its block without a series after which the series is dropped."""

_GROWTH = 64
_NO_BLOCK = ("", "")

BlockKey = tuple[str, str]
"""A target and one of its blocks: a source of its agent, or the instance of an exporter's page."""

ReadTimes = dict[BlockKey, float]
"""When blocks were read, in seconds since 1970 by the server's clock."""


class SeriesSlots:
    """`values` [slots] are those of the last round, NaN where there is none."""

    def __init__(self) -> None:
        self.values: Floats = np.full(1, np.nan)
        self.size = 1
        self._times_s: Floats = np.full(1, -np.inf)
        self._was_known: NDArray[np.bool_] = np.zeros(1, np.bool_)
        self._is_recorded: NDArray[np.bool_] = np.zeros(1, np.bool_)
        self._misses: NDArray[np.uint8] = np.zeros(1, np.uint8)
        self._free: list[int] = []
        self._block_keys: list[BlockKey] = [_NO_BLOCK]
        self._block_numbers: dict[BlockKey, int] = {_NO_BLOCK: 0}
        self._block_of: Indices = np.zeros(1, np.intp)
        self._metric_numbers: dict[str, int] = {}
        self._metric_of: NDArray[np.uint16] = np.zeros(1, np.uint16)

    @property
    def used(self) -> int:
        """The number of series that have a slot of their own."""
        return self.size - 1 - len(self._free)

    @property
    def blocks(self) -> int:
        """The number of blocks ever seen."""
        return len(self._block_keys) - 1

    def take(self, metric: KnownMetric, key: BlockKey) -> int:
        """A slot for a series of a metric and a block."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = self.size
            self.size += 1
        if self.size > len(self.values):
            room = 2 * len(self.values) + _GROWTH
            self.values = grown(self.values, room, np.nan)
            self._times_s = grown(self._times_s, room, -np.inf)
            self._block_of = grown(self._block_of, room)
            self._metric_of = grown(self._metric_of, room)
            self._is_recorded = grown(self._is_recorded, room)
            self._misses = grown(self._misses, room)
        number = self._block_numbers.get(key)
        if number is None:
            number = self._block_numbers[key] = len(self._block_keys)
            self._block_keys.append(key)
        self._block_of[slot] = number
        self._metric_of[slot] = self._metric_numbers.setdefault(
            metric.name, len(self._metric_numbers) + 1
        )
        self._is_recorded[slot] = metric.is_recorded
        return slot

    def drop_missing(self) -> dict[BlockKey, set[int]]:
        """Free the slots of series that were missing too often; they are returned by block."""
        of_block: dict[BlockKey, set[int]] = {}
        for slot in np.flatnonzero(self._misses[: self.size] >= _MAX_MISSES).tolist():
            self._misses[slot] = 0
            self._free.append(slot)
            of_block.setdefault(self._block_keys[self._block_of[slot]], set()).add(slot)
            self._block_of[slot] = self._metric_of[slot] = 0
        return of_block

    def of(self, metric: KnownMetric) -> Indices:
        """The slots of a metric."""
        number = self._metric_numbers.get(metric.name, 0)
        used = self._metric_of[: self.size] == number if number else np.zeros(1, np.bool_)
        return np.flatnonzero(used)

    def blocks_with(self, metric: KnownMetric) -> set[BlockKey]:
        """The blocks that have a series of a metric."""
        numbers = np.unique(self._block_of[self.of(metric)])
        return {self._block_keys[number] for number in numbers.tolist()} - {_NO_BLOCK}

    def clear(self) -> None:
        """Set all values to none; the slots remain."""
        self._was_known = ~np.isnan(self.values)
        self.values[:] = np.nan
        self._times_s[:] = -np.inf

    def store(self, slots: Indices, values: Floats | float, times_s: Floats | None = None) -> None:
        """Store values, and where known their times."""
        self.values[slots] = values
        self.values[UNUSED] = np.nan
        if times_s is not None:
            self._times_s[slots] = times_s
            self._times_s[UNUSED] = -np.inf

    def exported_times(self) -> tuple[ReadTimes, set[BlockKey]]:
        """The time of the newest samples of each block, and the blocks of which series that had a
        value in the last round have none of that time."""
        newest_s = np.full(len(self._block_keys), -np.inf)
        size = self.size
        is_scraped = ~self._is_recorded[:size]
        np.maximum.at(
            newest_s, self._block_of[:size], np.where(is_scraped, self._times_s[:size], -np.inf)
        )
        newest_of_slot = newest_s[self._block_of[:size]]
        # Of a page, values of an earlier scrape are of series that it does not have any more.
        is_old = is_scraped & (self._times_s[:size] < newest_of_slot)
        had = np.zeros(size, np.bool_)
        had[: len(self._was_known)] = self._was_known[:size]
        missing = np.unique(self._block_of[:size][is_old & had])
        self.values[:size][is_old] = np.nan
        times = {
            key: time_s
            for key, time_s in zip(self._block_keys, newest_s.tolist(), strict=True)
            if time_s > 0
        }
        return times, {self._block_keys[number] for number in missing.tolist()} & times.keys()

    def count_misses(self, of_blocks: Iterable[Indices]) -> None:
        """Count the series without a value in the blocks that were read, given by their slots."""
        read = np.zeros(self.size, np.bool_)
        for slots in of_blocks:
            read[slots] = True
        absent = np.isnan(self.values[: self.size])
        misses = self._misses[: self.size]
        misses[read & ~absent] = 0
        missed = read & absent
        misses[missed] = np.minimum(misses[missed] + 1, _MAX_MISSES)
