"""Measures of a port: traffic, pause, congestion and errors as one number each, their scales and
words. The screen shows each as a metric of the heatmap, a filter compares them.

Shares are of line rate or of time, 0 to 1; all others are events per second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import require
from collectors.catalog.ethernet import PRIORITIES
from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.snapshot import Floats, Snapshot, believed, shares_of_line
from fabmon.fabric.wording import per_second, percent


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The values of a measure: shares from 0 to 1, or events per second. Colours go from `low` to
    `high`, in logarithmic steps unless `is_linear`; `ends` are their labels."""

    is_share: bool
    is_linear: bool
    low: float
    high: float
    ends: tuple[str, str]

    def text(self, value: float) -> str:
        """A value with its unit: `8.10 %`, `12.0 k/s`."""
        return percent(value) if self.is_share else per_second(value)


_LINEAR = ValueRange(True, True, 0, 1, ("0", "100 %"))
_LOG = ValueRange(True, False, 0.001, 1, ("0", "100 %, log from 0.1 %"))
_EVENTS = ValueRange(False, False, 1, 1e6, ("0", "1 M/s, log"))


@dataclass(frozen=True, slots=True)
class Measure:
    """The greatest of some HEAT columns or catalog metrics, divided by `per`.

    Traffic is divided by the line rate instead. `short` is the title where there is little room,
    `unit` and `about` are those of the list of metrics. `counted_by` is the counter that can be
    saturated (empty: none can). Raises KeyError for a column that is neither in HEAT nor in the
    catalog, and for a counter that is not.
    """

    name: str
    columns: tuple[str, ...]
    range: ValueRange
    title: str
    short: str
    unit: str
    about: str
    counted_by: str = ""
    per: float = 1.0

    def __post_init__(self) -> None:
        require(*(column for column in self.columns if column not in HEAT))
        require(*filter(None, (self.counted_by,)))

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
        values = self.greatest(parts)
        if self.is_traffic:
            values = shares_of_line(values, snapshot.line_rate_bps[rows][:, None])
        return values

    def greatest(self, columns: Floats | Sequence[Floats]) -> Floats:
        """[...] of [columns, ...]: the values of its columns, traffic in the unit that it is given
        in."""
        values: Floats = np.fmax.reduce(columns) / np.float32(self.per)
        return values

    def values(self, snapshot: Snapshot) -> Floats:
        """[ports]: NaN is absent."""
        if self.is_traffic:
            both = {"tx_bps": snapshot.tx_util, "rx_bps": snapshot.rx_util}
            return self.greatest([believed(both[column]) for column in self.columns])
        return self.greatest([snapshot.column(column) for column in self.columns])


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


_LINE, _TIME = "% of line rate", "% of time"


def _traffic(name: str, columns: tuple[str, ...], way: str, about: str) -> Measure:
    title, short = f"{_LINE}, {way}", f"{way}, % of line"
    return Measure(name, columns, _LINEAR, title, short, _LINE, about)


def _time(
    name: str,
    columns: tuple[str, ...],
    title: str,
    about: str,
    counted_by: str = "",
    per: float = 1,
) -> Measure:
    title = f"{_TIME} {title}"
    return Measure(name, columns, _LOG, title, title, _TIME, about, counted_by, per)


def _share(name: str, title: str, short: str, unit: str, about: str) -> Measure:
    return Measure(name, (name.replace("-", "_"),), _LINEAR, title, short, unit, about)


def _events(name: str, title: str, short: str, unit: str, about: str) -> Measure:
    columns = (name.replace("-", "_"),)
    return Measure(name, columns, _EVENTS, f"{title} /s", f"{short} /s", f"{unit}/s", about)


_BY_THE_NEIGHBOUR = "paused by the neighbour: congestion ahead"
_OF_THE_NEIGHBOUR = "pausing the neighbour: it cannot keep up itself"
MEASURES = (
    Measure(
        "util",
        ("tx_bps", "rx_bps"),
        _LINEAR,
        title=f"{_LINE}, busier direction",
        short=_LINE,
        unit=_LINE,
        about="traffic of the busier direction",
    ),
    _traffic("tx", ("tx_bps",), "tx", "traffic sent"),
    _traffic("rx", ("rx_bps",), "rx", "traffic received"),
    _time(
        "pause",
        ("pause_rx", "pause_tx"),
        title="paused, max of rx and tx",
        about="paused by the neighbour, or pausing it: PFC and 802.3x",
    ),
    _time("pause-rx", ("pause_rx",), "paused by the neighbour", _BY_THE_NEIGHBOUR),
    _time("pause-tx", ("pause_tx",), "pausing the neighbour", _OF_THE_NEIGHBOUR),
    _events(
        "xoff",
        title="PFC pauses begun or ended",
        short="XOFF",
        unit="pauses",
        about="pauses begun or ended, by the port and its neighbour",
    ),
    _time(
        "stall",
        ("stall",),
        title="stalled, InfiniBand, est.",
        about="InfiniBand: data waits for credits (xmit_wait)",
        counted_by="ib_tx_wait",
    ),
    _events(
        "ecn",
        title="ECN-marked packets received",
        short="ECN",
        unit="packets",
        about="received packets that a full queue marked",
    ),
    _events("cnp-sent", "CNPs sent", "CNP sent", "packets", "requests to senders to slow down"),
    _events("cnp", "CNPs handled", "CNP", "packets", "requests to slow down that were handled"),
    _events("errors", "errors", "errors", "errors", "symbol, CRC and link errors"),
    _events("drops", "drops", "drops", "packets", "packets dropped"),
    _share(
        "pcie",
        title="% of what the PCIe link carries",
        short="PCIe, % of link",
        unit="% of PCIe",
        about="traffic of a NIC, of what its PCIe link carries",
    ),
    _time("pcie-stall", ("bus",), "the NIC's PCIe stalled", "the PCIe of a NIC stalled"),
    _share(
        "non-rdma",
        title="% of the traffic that is not RDMA",
        short="non-RDMA, %",
        unit="% of traffic",
        about="traffic that is not RDMA",
    ),
)
"""All except those of a single priority."""

OF_PRIORITIES = tuple(
    _time(
        f"pause-{way}-p{priority}",
        (f"pfc_{way}_pause_us_prio{priority}",),
        f"{title}, priority {priority}",
        f"priority {priority}: {about}",
        per=1e6,
    )
    for way, title, about in (
        ("rx", "paused by the neighbour", _BY_THE_NEIGHBOUR),
        ("tx", "pausing the neighbour", _OF_THE_NEIGHBOUR),
    )
    for priority in PRIORITIES
)

NAMES = tuple(each.name for each in MEASURES)
"""The names of all measures except those of a single priority."""

_BY_NAME = {each.name: each for each in (*MEASURES, *OF_PRIORITIES)}


def measure(name: str) -> Measure:
    """The measure with this name, including those of a single priority. Raises KeyError."""
    return _BY_NAME[name]
