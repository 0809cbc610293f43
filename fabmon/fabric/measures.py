"""Measures of a port: traffic, pause, congestion and errors as one number each.

Shares are of line rate or of time, 0 to 1; all others are events per second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import require
from collectors.catalog.ethernet import PRIORITIES
from fabmon.fabric.snapshot import HEAT, Floats, Snapshot, believed, shares_of_line


@dataclass(frozen=True, slots=True)
class Measure:
    """The greatest of some HEAT columns or catalog metrics, divided by `per`.

    Traffic is divided by the line rate instead. `is_share` means a range from 0 to 1. Raises
    KeyError for a column that is neither in HEAT nor in the catalog.
    """

    name: str
    columns: tuple[str, ...]
    is_share: bool = False
    per: float = 1.0

    def __post_init__(self) -> None:
        require(*(column for column in self.columns if column not in HEAT))

    @property
    def is_traffic(self) -> bool:
        """Whether it is a share of line rate."""
        return self.columns[0].endswith("_bps")

    @property
    def is_kept(self) -> bool:
        """Whether the history keeps it for more than a tick."""
        return all(column in HEAT for column in self.columns)

    def window(self, snapshot: Snapshot, rows: list[int], ticks: int) -> Floats:
        """[rows, ticks] of the last ticks, oldest first; NaN is absent. Of one that is kept."""
        parts = np.stack([snapshot.window(column, rows, ticks) for column in self.columns])
        values = self.of_kept(parts)
        if self.is_traffic:
            values = shares_of_line(values, snapshot.line_rate_bps[rows][:, None])
        return values

    def of_kept(self, columns: Floats) -> Floats:
        """[...] of [columns, ...]: the values of its columns as they are kept, traffic in its own
        unit."""
        values: Floats = np.fmax.reduce(columns) / np.float32(self.per)
        return values

    def values(self, snapshot: Snapshot) -> Floats:
        """[ports]: NaN is absent."""
        if self.is_traffic:
            both = {"tx_bps": snapshot.tx_util, "rx_bps": snapshot.rx_util}
            return greatest([believed(both[column]) for column in self.columns])
        values = greatest([snapshot.column(column) for column in self.columns])
        return values if self.per == 1 else values / np.float32(self.per)


def greatest(parts: list[Floats]) -> Floats:
    """The column itself, or the greater of two, port by port."""
    values: Floats = parts[0] if len(parts) == 1 else np.fmax(parts[0], parts[1])
    return values


def known_sum(values: NDArray[np.floating[Any]], axis: int = -1) -> Floats:
    """The sum of what is known along an axis, float32; NaN where nothing is."""
    known = np.isfinite(values)
    sums = np.where(known, values, 0).sum(axis=axis, dtype=np.float64)
    return np.where(known.any(axis=axis), sums, np.nan).astype(np.float32)


def known_mean(values: NDArray[np.floating[Any]], axis: int = -1) -> Floats:
    """The mean of what is known along an axis, float32; NaN where nothing is."""
    sums, count = values.sum(axis=axis, dtype=np.float64), values.shape[axis]
    if count and np.isfinite(sums).all():
        mean: Floats = (sums / count).astype(np.float32)
        return mean
    known = np.isfinite(values)
    number = known.sum(axis=axis)
    sums = np.where(known, values, 0).sum(axis=axis, dtype=np.float64)
    mean = (sums / np.where(number, number, np.nan)).astype(np.float32)
    return mean


_NAMED = (
    Measure("util", ("tx_bps", "rx_bps"), True),
    Measure("tx", ("tx_bps",), True),
    Measure("rx", ("rx_bps",), True),
    Measure("pause", ("pause_rx", "pause_tx"), True),
    Measure("pause-rx", ("pause_rx",), True),
    Measure("pause-tx", ("pause_tx",), True),
    Measure("xoff", ("xoff",)),
    Measure("stall", ("stall",), True),
    Measure("ecn", ("ecn",)),
    Measure("cnp-sent", ("cnp_sent",)),
    Measure("cnp", ("cnp",)),
    Measure("pcie", ("pcie",), True),
    Measure("pcie-stall", ("bus",), True),
    Measure("non-rdma", ("non_rdma",), True),
    Measure("errors", ("errors",)),
    Measure("drops", ("drops",)),
)

NAMES = tuple(each.name for each in _NAMED)
"""The names of all measures except those of a single priority."""

_BY_NAME = {each.name: each for each in _NAMED} | {
    name: Measure(name, (f"pfc_{way}_pause_us_prio{priority}",), True, 1e6)
    for way in ("rx", "tx")
    for priority in PRIORITIES
    for name in [f"pause-{way}-p{priority}"]
}


def measure(name: str) -> Measure:
    """The measure with this name, including those of a single priority. Raises KeyError."""
    return _BY_NAME[name]
