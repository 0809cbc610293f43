"""Reads one exporter, page after page: its ports, and their values as the wire has them."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import CATALOG, WRAP32
from collectors.wire import Object
from fabmon.feeds.errors import Misbehaved
from fabmon.feeds.scrape.exporter_tables import ExporterTables
from fabmon.feeds.scrape.port_mapping import MetricCell, mapped
from fabmon.feeds.scrape.text_format import DecodedPage, Floats, PageDecoder, PageLayout

_TOP = 2.0**64
_LATEST_S = 1e10
"""In the year 2286."""
_MASK32 = np.uint64(2**32 - 1)


class PageReading(NamedTuple):
    """What one page says: ports, and a value for each of their metrics.

    `values` are None as a whole when the exporter repeats itself: nothing was measured since.
    `mono_ns` is the clock of the values, the exporter's where it says when it measured, else this
    machine's monotonic one.
    """

    objects: tuple[Object, ...]
    values: list[int | None] | None
    mono_ns: int


class PageReader:
    """Reads the pages of one exporter, with the tables that may fit it.

    `objects` are the ports of the last page, `refresh_s` is how long the exporter may answer from
    the same snapshot.
    """

    def __init__(self, tables: ExporterTables) -> None:
        self._tables = tables
        self._decoder = PageDecoder()
        self._layout: PageLayout | None = None
        self.objects: tuple[Object, ...] = ()
        self.refresh_s = 0.0
        self._cells = _Cells(())
        self._last: list[int | None] = []
        self._last_stamp_s: float | None = None
        self._moved_ns = 0

    def read(self, page: bytes, *, openmetrics: bool = False) -> PageReading:
        """One page, read now. Raises BadPage, BadTimestamp."""
        found = self._decoder.decode(page, openmetrics=openmetrics)
        if found.layout is not self._layout:
            self._learn(found)
        values, stamps = found.read(self._cells.wanted)
        now_ns = time.monotonic_ns()
        numbers = self._cells.numbers(values)
        stamp_s = _newest(stamps) if stamps is not None else None
        repeated = self._is_repeated(numbers, stamp_s, now_ns)
        self._last, self._last_stamp_s = numbers, stamp_s
        clock_ns = now_ns if stamp_s is None else int(stamp_s * 1e9)
        if not repeated:
            self._moved_ns = now_ns
        return PageReading(self.objects, None if repeated else numbers, clock_ns)

    def _is_repeated(self, numbers: list[int | None], stamp_s: float | None, now_ns: int) -> bool:
        """Whether this is the snapshot of last time: the same timestamp, or else equal values."""
        if (stamp_s is None) != (self._last_stamp_s is None) and self._last:
            return True  # two clocks: a rate over both would be wrong
        if stamp_s is not None:
            return stamp_s == self._last_stamp_s
        within = now_ns - self._moved_ns < self.refresh_s * 1e9
        return within and numbers == self._last

    def _learn(self, page: DecodedPage) -> None:
        """Work out what the series of a new layout are."""
        found = mapped(page.layout.series(), page.values().tolist(), self._tables)
        if found.objects != self.objects:
            # Else they stay the same object: who compares by identity sees that nothing changed.
            self.objects = found.objects
            self._last, self._last_stamp_s = [], None
        self.refresh_s = found.refresh_s
        self._cells = _Cells(found.cells)
        self._layout = page.layout


def _newest(stamps: Floats) -> float:
    """The newest of some timestamps; NaN are values without one. Raises BadTimestamp."""
    known = stamps[~np.isnan(stamps)]
    if not known.size or not 0 <= float(known.max()) < _LATEST_S:
        raise BadTimestamp
    return float(known.max())


class BadTimestamp(Misbehaved):
    """An exporter says when it measured, and it is no time."""

    def __init__(self) -> None:
        super().__init__("its timestamps are no times")


class _Cells:
    """The arithmetic from a page's values to the wire's, for one layout."""

    def __init__(self, cells: tuple[MetricCell, ...]) -> None:
        self.wanted = sorted({place for cell in cells for place in cell.places})
        at = {place: index for index, place in enumerate(self.wanted)}
        self._first = np.array([at[cell.places[0]] for cell in cells], np.intp)
        self._joined = [
            (index, [at[place] for place in cell.places], cell.row.join)
            for index, cell in enumerate(cells)
            if len(cell.places) > 1
        ]
        self._factor = np.array([cell.row.factor for cell in cells])
        self._wraps = np.array([CATALOG[cell.row.to].kind == WRAP32 for cell in cells], np.bool_)
        self._blanks = {blank for cell in cells for blank in cell.blanks}

    def numbers(self, values: Floats) -> list[int | None]:
        """The cells as integers in the catalog's units; None for what is no number, or none yet."""
        for low, high in self._blanks:
            values = np.where((values >= low) & (values <= high), np.nan, values)
        cells = values[self._first]
        for index, places, join in self._joined:
            parts = values[places]
            cells[index] = parts.sum() if join == "sum" else parts.prod()
        cells = np.rint(cells * self._factor)
        good = (cells >= 0) & (cells < _TOP)
        whole: NDArray[np.uint64] = np.where(good, cells, 0).astype(np.uint64)
        whole[self._wraps] &= _MASK32
        numbers: list[int | None] = whole.tolist()
        if not good.all():
            for index in np.flatnonzero(~good).tolist():
                numbers[index] = None
        return numbers
