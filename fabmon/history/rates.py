"""The rules by which raw counters become rates.

They are written once, for arrays of any shape, and applied to arriving ticks (`live_rates.py`)
and to recorded chunks (`chunk_rates.py`):

- wrap: a 32-bit counter that went down wrapped, if that is plausible; a 64-bit counter of bytes
  wraps after 12 years at 400 Gb/s (`rate_per_s`);
- reset: a counter that went down and did not wrap has no rate (`rate_per_s`);
- saturation: a counter that is stuck at its maximum has no rate; where it reached it since the
  last read, the rate is the least that it can have been (`counter_rates`);
- staleness: a rate is valid for STALE_READS periods of its source (`is_stale`);
- best source: of several counters of the same quantity, the best one that ever counted
  (`BestSources`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import WRAP32, WRAP64, require
from fabmon.fabric.port_arrays import grown
from fabmon.fabric.tick import STALE_READS
from fabmon.fabric.wire.messages import Hello

CLOCK, _WRAP64, _WRAP32, _SATURATING, GAUGE = range(5)
"""Codes of kinds of series."""

_WRAP32_MASK = np.uint64(0xFFFFFFFF)
_HALF_WRAP32 = np.uint64(1 << 31)
"""A 32-bit counter that appears to advance by more than this between two reads was reset."""

_FASTEST_WRAP32 = 500e6
"""A 32-bit counter that appears to wrap at a higher rate (per second) was reset: no port sends
500 million packets a second."""

_MOST_KINDS = 64
"""Blocks of values whose kinds are kept: of the largest they are some megabytes."""

_WIDTHS = {str(bits): bits for bits in range(1, 65)}

UInt64s = NDArray[np.uint64]
Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]
Floating = NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class CounterKinds:
    """How the counters of an array are to be read: one element a series.

    `code` says clock, 64-bit, 32-bit, saturating or gauge; `maximum` is the value at which a
    saturating counter is stuck, 0 for others.
    """

    code: NDArray[np.uint8]
    maximum: UInt64s

    @classmethod
    def of(cls, hello: Hello, metrics: Sequence[str]) -> CounterKinds:
        """Kinds of some metrics, as a node's hello declares them; a gauge where it does not."""
        known = hello.metrics
        return _counter_kinds(tuple(known[name].kind if name in known else "" for name in metrics))


@lru_cache(_MOST_KINDS)
def _counter_kinds(names: tuple[str, ...]) -> CounterKinds:
    """The kinds of series whose catalog kinds have these names: the same for nodes of a kind."""
    by_name = {name: _kind(name) for name in set(names)}
    pairs = [by_name[name] for name in names]
    kinds = CounterKinds(
        np.array([code for code, _ in pairs], np.uint8),
        np.array([maximum for _, maximum in pairs], np.uint64),
    )
    kinds.code.flags.writeable = kinds.maximum.flags.writeable = False
    return kinds


def _kind(name: str) -> tuple[int, int]:
    """A catalog kind as a code, and the value at which a saturating counter is stuck."""
    if name == WRAP64:
        return _WRAP64, 0
    if name == WRAP32:
        return _WRAP32, 0
    bits = _WIDTHS.get(name.removeprefix("sat")) if name.startswith("sat") else None
    if bits is not None:
        return _SATURATING, (1 << bits) - 1
    return GAUGE, 0


def counter_rates(
    now: UInt64s,
    before: UInt64s,
    known: Bools,
    known_before: Bools,
    elapsed_ns: UInt64s,
    kinds: CounterKinds,
) -> tuple[Float64s, Bools]:
    """Rates between two reads of series, and which series are saturated; both [..., series].

    A rate is per second for a counter and the level for a gauge. It is NaN where either value is
    unknown, the counter was reset or is stuck at its maximum, or no time passed. One that reached
    its maximum since the last read rose by the difference at least. `elapsed_ns` is the time
    between the two reads on the node's own clock, 0 where that is unknown or went back.
    """
    saturated: Bools = known & (kinds.code == _SATURATING) & (now >= kinds.maximum)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        is_gauge = kinds.code == GAUGE
        is_stuck = saturated & (before >= kinds.maximum)
        valid = known & known_before & (elapsed_ns > 0) & ~is_stuck & ~is_gauge
        rates = np.where(valid, rate_per_s(now, before, elapsed_ns, kinds.code), np.nan)
    np.copyto(rates, now, where=known & is_gauge)
    return rates, saturated


def rate_per_s(
    now: UInt64s, before: UInt64s, elapsed_ns: UInt64s, code: NDArray[np.uint8]
) -> Float64s:
    """Advance per second between two reads of counters; NaN where the counter was reset.

    A 64-bit counter that went down was reset. A 32-bit counter that went down wrapped, unless the
    wrap would be implausibly large or fast.
    """
    delta, went_down = now - before, now < before
    wrap32 = code == _WRAP32
    if wrap32.any():
        delta[np.broadcast_to(wrap32, delta.shape)] &= _WRAP32_MASK
    rate: Float64s = delta / elapsed_ns * 1e9
    if went_down.any():
        implausible = ~wrap32 | (delta >= _HALF_WRAP32) | (rate > _FASTEST_WRAP32)
        rate[went_down & implausible] = np.nan
    return rate


def elapsed_between(now: UInt64s, before: UInt64s) -> UInt64s:
    """Nanoseconds between two reads of a clock; 0 where it went back."""
    return np.where(now > before, now - before, np.uint64(0))


def is_stale(age_s: Float64s, period_s: Floating | float) -> Bools:
    """Whether reads of that age are too old for their rates, by the period of their source."""
    stale: Bools = age_s > np.multiply(period_s, STALE_READS)
    return stale


TX, RX, LINE_RATE = range(3)
"""Quantities of a port that several metrics measure."""

_BYTE_SOURCES = (
    ("phy_{}_bytes", 8),
    ("ib_{}_bytes", 8),
    ("ib_{}_bps", 1),
    ("rdma_{}_bytes", 8),
    ("netdev_{}_bytes", 8),
    ("nvlink_{}_bytes", 8),
    ("nvlink_{}_bps", 1),
    ("xgmi_{}_bytes", 8),
)
"""Metrics that count a port's bytes, the best first, and the bits in one of their units. They
overlap (on RoCE `ib_*` and `rdma_*` are RDMA only, `phy_*` is the whole wire and `netdev_*` lacks
RDMA), so one is used and none are added."""

LINE_RATES = (
    "ib_rate_bps",
    "phy_speed_bps",
    "netdev_speed_bps",
    "nvlink_speed_bps",
    "xgmi_speed_bps",
)
"""Metrics that report a port's line rate, the best first."""

_SOURCES = [
    *(
        (template.format(direction), quantity, rank, bits)
        for quantity, direction in ((TX, "tx"), (RX, "rx"))
        for rank, (template, bits) in enumerate(_BYTE_SOURCES)
    ),
    *((name, LINE_RATE, rank, 1) for rank, name in enumerate(LINE_RATES)),
]
SOURCE_NUMBERS = {name: number for number, (name, *_) in enumerate(_SOURCES)}
"""By name, the number of each metric among those that measure a quantity of a port."""

require(*SOURCE_NUMBERS)

_QUANTITY, _RANK, _BITS = np.array([numbers for _, *numbers in _SOURCES], np.intp).T


class BestSources:
    """Chooses, of several values that measure the same quantity of a port, the one to use.

    That is the best one that ever had a rate. It stays chosen while it has none: the next best
    measures something else, and a busy RoCE link would be shown idle by its interface's counter.

    Parallel arrays, one element a value: `source` is the number of its metric in SOURCE_NUMBERS,
    `row` that of its port. Rates are passed in `order`. `before` are the sources of previous
    layouts: what had a rate there has had one here.
    """

    def __init__(self, source: Indices, row: Indices, before: BestSources | None = None) -> None:
        self.order: Indices = np.lexsort((_RANK[source], row, _QUANTITY[source]))
        self._source, self._row = source[self.order], row[self.order]
        self._quantity = _QUANTITY[self._source]
        ports = int(row.max(initial=-1)) + 1
        # Equal for values of the same quantity of the same port.
        self._group = self._quantity * ports + self._row
        # [sources, rows]
        self._had_rate = np.zeros((len(_SOURCES), ports), np.bool_)
        if before is not None:
            self._had_rate = grown(before._had_rate, ports).copy()
        self._choose()

    def rates_bps(self, rates: Floating) -> Mapping[int, tuple[Indices, NDArray[np.float32]]]:
        """By quantity: rows [n] and bits/s [..., n] from the best of rates [..., values]."""
        has_rate = np.atleast_2d(~np.isnan(rates)).any(axis=0)
        is_new = has_rate & ~self._had_rate[self._source, self._row]
        if is_new.any():
            self._had_rate[self._source[is_new], self._row[is_new]] = True
            self._choose()
        return {
            quantity: (
                self._row[best],
                (rates[..., best] * _BITS[self._source[best]]).astype(np.float32),
            )
            for quantity, best in self._chosen.items()
        }

    def chosen(self, quantity: int) -> tuple[Indices, Indices]:
        """Rows [n] that have a source of a quantity, and the place of the best one in `order`."""
        best = self._chosen.get(quantity, np.empty(0, np.intp))
        return self._row[best], best

    def _choose(self) -> None:
        candidates = np.flatnonzero(self._had_rate[self._source, self._row])
        _, first = np.unique(self._group[candidates], return_index=True)
        best = candidates[first]
        self._chosen: dict[int, Indices] = {
            quantity: best[self._quantity[best] == quantity]
            for quantity in np.unique(self._quantity[best]).tolist()
        }
