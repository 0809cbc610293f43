"""Reads pages of exporters: ports, and the computation of their values as the wire has them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import CATALOG, WRAP32
from collectors.coverage import Coverage
from collectors.wire import Object
from fabmon.feeds.errors import Misbehaved
from fabmon.feeds.learned_refresh import LearnedRefresh
from fabmon.feeds.refresh_clock import Sample
from fabmon.feeds.scrape.exporter_tables import ExporterTables
from fabmon.feeds.scrape.page_coverage import page_coverage
from fabmon.feeds.scrape.port_mapping import MetricCell, PageTooLarge, map_page
from fabmon.feeds.scrape.text_format import DecodedPage, Floats, PageDecoder, PageLayout

_MAX_TIMESTAMP_S = 1e10
"""In the year 2286."""

_MAX_LINES = 1 << 17
"""Lines of a page; that of a fabric of 900 hosts has 70,000. A new one takes up to 25 us."""

_U64_RANGE = 2.0**64
_MASK32 = np.uint64(2**32 - 1)

Indices = NDArray[np.intp]


class PageReading(NamedTuple):
    """The content of one page: ports, and a value for each of their metrics.

    `values` are None as a whole when the exporter repeats its last snapshot. `mono_ns` is the clock
    of the values: the exporter's timestamps if it sends them, else this machine's monotonic clock
    when the exporter read them.
    """

    objects: tuple[Object, ...]
    values: list[int | None] | None
    mono_ns: int


class BadTimestamp(Misbehaved):
    """A timestamp that is not a time between 1970 and 2286."""

    def __init__(self) -> None:
        super().__init__("the exporter's timestamps are invalid")


class PageReader:
    """Reads the pages of one exporter with the tables that may match it.

    `objects` are the ports of the last page, `coverage` what of it is not read, `notes` what it
    does not show. With `refresh`, how it is learned whether an exporter repeats its values that is
    not known to: of the first page the counters are not used then. Without, each page is a sample.
    """

    def __init__(
        self, tables: ExporterTables, refresh: Callable[[], LearnedRefresh] | None = None
    ) -> None:
        self._tables = tables
        self._decoder = PageDecoder()
        self._layout: PageLayout | None = None
        self.objects: tuple[Object, ...] = ()
        self.coverage: tuple[Coverage, ...] = ()
        self.notes: tuple[str, ...] = ()
        self._refresh_s = 0.0
        self._new_refresh = refresh
        self._positions: list[int] = []
        self._arithmetic = PageArithmetic(())
        self._wraps = wraps_at_32_bits(())
        self._refreshes: LearnedRefresh | None = None
        self._signs: list[int] = []
        self._last_signs: list[float] = []
        self._is_first = True
        self._last_stamp_s: float | None = None
        self._stamp_before_s: float | None = None
        self._is_late = False
        self._last_stamps_s: Floats | None = None

    def read(
        self, page: bytes, asked_ns: int | None = None, *, openmetrics: bool = False
    ) -> PageReading:
        """One page, which was requested at `asked_ns` by this machine's monotonic clock, by default
        now. Raises BadPage, BadTimestamp, PageTooLarge."""
        lines = page.count(b"\n")
        if lines > _MAX_LINES:
            raise PageTooLarge(f"{lines} lines, {_MAX_LINES} at most")
        decoded = self._decoder.decode(page, openmetrics=openmetrics)
        if decoded.layout is not self._layout:
            self._learn(decoded)
        values, stamps_s = decoded.read(self._positions)
        now_ns = time.monotonic_ns() if asked_ns is None else asked_ns
        numbers = to_wire_integers(self._arithmetic.values(values), self._wraps)
        stamp_s = self._newest(stamps_s)
        signs = decoded.values(self._signs).tolist() if self._signs else []
        is_read_now, self._last_signs = signs != self._last_signs, signs
        sample = self._sample(numbers, stamp_s, now_ns, is_read_now)
        if sample is None:
            return PageReading(self.objects, None, now_ns)
        return PageReading(self.objects, list(sample[1]), sample[0])

    @property
    def refresh_s(self) -> float:
        """How long the exporter serves the same snapshot, as its table says, or as far as it was
        learned; 0 for none."""
        learned_s = self._refreshes.period_s if self._refreshes is not None else 0.0
        return self._refresh_s or learned_s

    def _newest(self, stamps_s: Floats | None) -> float | None:
        """The newest of the timestamps that are not as before, the last one where all are; NaN are
        values without one, None is a page without any. One that stays in the future does not hide
        the samples of the others. Raises BadTimestamp."""
        before, self._last_stamps_s = self._last_stamps_s, stamps_s
        if stamps_s is None:
            return None
        known = stamps_s[~np.isnan(stamps_s)]
        if not known.size or not 0 <= float(known.max()) < _MAX_TIMESTAMP_S:
            raise BadTimestamp
        if before is not None and len(before) == len(stamps_s):
            known = stamps_s[(stamps_s != before) & ~np.isnan(stamps_s)]
        return self._without_late(float(known.max())) if known.size else self._last_stamp_s

    def _without_late(self, stamp_s: float) -> float:
        """A timestamp; the last one for what was late in the last sample, and has a time between
        that and the one before. What comes like this twice is a clock that was set back."""
        last_s, before_s = self._last_stamp_s, self._stamp_before_s
        self._is_late = (
            not self._is_late
            and last_s is not None
            and before_s is not None
            and before_s < stamp_s < last_s
        )
        if last_s is not None and self._is_late:
            return last_s
        self._stamp_before_s = last_s
        return stamp_s

    def _sample(
        self, numbers: list[int | None], stamp_s: float | None, now_ns: int, is_read_now: bool
    ) -> Sample | None:
        """The values of a page with their clock; None where it is the last snapshot again."""
        is_first, self._is_first = self._is_first, False
        last_s, self._last_stamp_s = self._last_stamp_s, stamp_s
        if not is_first and (stamp_s is None) != (last_s is None):
            return None  # the clock changed: a rate across both clocks would be wrong
        if stamp_s is not None:
            return None if stamp_s == last_s else (int(stamp_s * 1e9), numbers)
        if self._refreshes is None:
            return now_ns, numbers
        return self._refreshes.sample(self.objects, numbers, now_ns, is_read_now=is_read_now)

    def _learn(self, page: DecodedPage) -> None:
        """Map the series of a new layout."""
        series = page.layout.series()
        mapped = map_page(series, page.values().tolist(), self._tables)
        coverage = page_coverage(series, mapped.understood, self._tables)
        if coverage != self.coverage:
            self.coverage = coverage
        self.notes = mapped.notes
        if mapped.objects != self.objects:
            # Equal objects stay the same tuple, by which callers see that nothing changed.
            self.objects = mapped.objects
            self._is_first = True
            self._refreshes = None
            if mapped.refresh_s:
                self._refreshes = LearnedRefresh(mapped.refresh_s)
            elif self._new_refresh is not None:
                self._refreshes = self._new_refresh()
        signs = {table.sign_of_reading for table in self._tables.by_name.values()} - {""}
        self._signs = [at for at, each in enumerate(series) if each.name in signs]
        self._last_signs = []
        self._refresh_s = mapped.refresh_s
        self._positions = sorted({at for cell in mapped.cells for at in cell.positions})
        self._arithmetic = PageArithmetic(mapped.cells, self._positions)
        self._wraps = wraps_at_32_bits([cell.row.to for cell in mapped.cells])
        self._layout = page.layout


_JOINED: dict[str, Callable[[Floats], Any]] = {
    "sum": np.sum,
    "product": np.prod,
    "largest": np.fmax.reduce,
}
"""How several values are one. NaN makes a sum or a product unknown."""


class PageArithmetic:
    """Computes the values of cells from the values of a page's series.

    `positions` are the page's positions whose values will be passed, in order; None for all.
    """

    def __init__(self, cells: Sequence[MetricCell], positions: Sequence[int] | None = None) -> None:
        index = None if positions is None else {at: i for i, at in enumerate(positions)}
        indices = [
            np.array([at if index is None else index[at] for at in cell.positions], np.intp)
            for cell in cells
        ]
        self.first: Indices = np.array([each[0] for each in indices], np.intp)
        self.factors: Floats = np.array([cell.row.factor for cell in cells], np.float64)
        self.blanks = sorted({blank for cell in cells for blank in cell.blanks})
        stuck = [
            (int(at), cell.row.stuck)
            for each, cell in zip(indices, cells, strict=True)
            if cell.row.stuck is not None
            for at in each
        ]
        self.stuck: Indices = np.array([at for at, _ in stuck], np.intp)
        self.stuck_at: Floats = np.array([value for _, value in stuck], np.float64)
        self.joined = [
            (at, each, cell.row.join)
            for at, (each, cell) in enumerate(zip(indices, cells, strict=True))
            if len(each) > 1
        ]

    def values(self, page: Floats) -> Floats:
        """The cells' values in the units of the catalog; NaN for none."""
        for low, high in self.blanks:
            page = np.where((page >= low) & (page <= high), np.nan, page)
        if len(self.stuck):
            page = page.copy()
            page[self.stuck[page[self.stuck] == self.stuck_at]] = np.nan
        found: Floats = page[self.first]
        # What overflows is no value: numpy would warn of it on the terminal.
        with np.errstate(over="ignore", invalid="ignore"):
            for at, indices, join in self.joined:
                found[at] = _JOINED[join](page[indices])
            return found * self.factors


def wraps_at_32_bits(metrics: Sequence[str]) -> NDArray[np.bool_]:
    """Which metrics are counters of 32 bits in the catalog."""
    return np.array([CATALOG[metric].kind == WRAP32 for metric in metrics], np.bool_)


def to_wire_integers(values: Floats, wraps: NDArray[np.bool_]) -> list[int | None]:
    """Values as the wire has them: rounded, where `wraps` modulo 2^32; None for no value.

    NaN, negative values and those of 2^64 or more are no values.
    """
    values = np.rint(values)
    valid = (values >= 0) & (values < _U64_RANGE)
    whole: NDArray[np.uint64] = np.where(valid, values, 0).astype(np.uint64)
    whole[wraps] &= _MASK32
    numbers: list[int | None] = whole.tolist()
    for gap in np.flatnonzero(~valid).tolist():
        numbers[gap] = None
    return numbers
