"""What `m` cycles through: the metrics that colour the cells, their scales and their words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import require
from collectors.catalog.ethernet import PRIORITIES
from fabmon.fabric.measures import greatest, measure
from fabmon.fabric.snapshot import HEAT, Floats, Snapshot
from fabmon.fabric.wording import Unit, bit_rate, byte_rate, per_second, percent, rate

IDLE = 0.005
"""A share of the scale below which a cell is drawn as idle."""
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class HeatMetric:
    """One metric of the heatmap.

    `name` is that of its measure (fabmon/fabric/measures.py), and `columns` are what it is made
    of. `low` and `high` bound the scale, which is
    logarithmic unless `linear`. `counted_by` is the counter behind it that may stick at its
    maximum, empty when none can.
    """

    name: str
    title: str
    short: str
    columns: tuple[str, ...]
    linear: bool
    low: float
    high: float
    ends: tuple[str, str]
    counted_by: str = ""

    def __post_init__(self) -> None:
        if self.counted_by:
            require(self.counted_by)

    @property
    def traffic(self) -> bool:
        """Whether it is a share of line rate."""
        return self.columns[0].endswith("_bps")

    def values(self, snapshot: Snapshot) -> Floats:
        """[ports]: a share of line rate, a share of time, or events per second; NaN is absent."""
        return measure(self.name).values(snapshot)

    def last_values(self, snapshot: Snapshot, line_rate_bps: Floats) -> Floats:
        """[ports]: the same, of the last time that each port was heard of, where that is kept."""
        if self.columns[0] not in HEAT:
            return self.values(snapshot)
        values = greatest([snapshot.last_heat[HEAT.index(column)] for column in self.columns])
        if not self.traffic:
            return values
        with np.errstate(divide="ignore", invalid="ignore"):
            share: Floats = values / line_rate_bps
        return share

    def edges(self, steps: int) -> NDArray[np.float64]:
        """Where each level from 1 to `steps` begins; below the first is idle."""
        shares = np.arange(1, steps) / steps
        if self.linear:
            return np.concatenate(([IDLE * self.high], shares * self.high))
        span = np.log10(self.high / self.low)
        return np.concatenate(([_TINY], self.low * 10 ** (shares * span)))

    def say(self, snapshot: Snapshot, row: int, unit: Unit) -> str:
        """The value of a port in words, with its unit: `8.10 % of time told to hold`."""
        if self.traffic:
            line = float(snapshot.line_rate_bps[row])
            parts = [
                f"{column[:2]} {rate(float(snapshot.column(column)[row]), line, unit)}"
                for column in self.columns
            ]
            return "  ".join(parts)
        if self.counted_by and snapshot.is_stuck(self.counted_by)[row]:
            return f"{self.name}: its counter sticks at its maximum"
        value = float(self.values(snapshot)[row])
        if np.isnan(value):
            return f"{self.name}: absent"
        if self.high == 1:
            return percent(value) + self.title.removeprefix("%")
        return f"{self.title.removesuffix(' /s')} {per_second(value)}"


def _traffic(name: str, title: str, short: str) -> HeatMetric:
    return HeatMetric(name, title, short, measure(name).columns, True, 0, 1, ("0", "100 %"))


def _share(name: str, title: str, counted_by: str = "") -> HeatMetric:
    ends = ("0", "100 %, log from 0.1 %")
    return HeatMetric(name, title, title, measure(name).columns, False, 0.001, 1, ends, counted_by)


def _events(name: str, title: str, short: str) -> HeatMetric:
    return HeatMetric(name, title, short, measure(name).columns, False, 1, 1e6, ("0", "1 M/s, log"))


_TRAFFIC = (
    _traffic("util", "% of line rate, max of tx and rx", "% of line rate"),
    _traffic("tx", "% of line rate, tx", "tx, % of line"),
    _traffic("rx", "% of line rate, rx", "rx, % of line"),
)
_PAUSE = (
    _share("pause", "% of time paused, max of rx and tx"),
    _share("pause-rx", "% of time told to hold"),
    _share("pause-tx", "% of time telling to hold"),
)
_CONGESTION = (
    _events("xoff", "PFC pauses begun or ended /s", "XOFF /s"),
    _share("stall", "% of time stalled, InfiniBand, est.", counted_by="ib_tx_wait"),
    _events("ecn", "ECN-marked packets received /s", "ECN /s"),
    _events("cnp-sent", "CNPs sent /s", "CNP sent /s"),
    _events("cnp", "CNPs handled /s", "CNP /s"),
    _events("errors", "errors /s", "errors /s"),
    _events("drops", "drops /s", "drops /s"),
)
HEATS = (*_TRAFFIC, *_PAUSE, *_CONGESTION)
"""In the order of the key; the priorities that PFC is used on come after `pause-tx`."""


def _of_priority(direction: str, priority: int) -> HeatMetric:
    """The pause of one priority in one direction."""
    told = "told to hold" if direction == "rx" else "telling to hold"
    return _share(
        f"pause-{direction}-p{priority}",
        f"% of time {told}, priority {priority}",
    )


_BY_NAME: dict[str, HeatMetric] = {item.name: item for item in HEATS} | {
    item.name: item
    for direction in ("rx", "tx")
    for priority in PRIORITIES
    for item in [_of_priority(direction, priority)]
}


def heat(name: str) -> HeatMetric:
    """The metric called `name`, also one of a single priority. Raises KeyError."""
    return _BY_NAME[name]


def lossless_priorities(snapshot: Snapshot) -> list[int]:
    """The priorities that PFC is used on: those a port says are lossless, or that paused now."""
    told: set[int] = set()
    for port in snapshot.fabric.ports:
        told.update(p for p in port.info.get("pfc_priorities") or () if p in PRIORITIES)
    for priority in PRIORITIES:
        for direction in ("rx", "tx"):
            if (
                np.nanmax(snapshot.column(f"pfc_{direction}_pause_us_prio{priority}"), initial=0.0)
                > 0
            ):
                told.add(priority)
    return sorted(told)


def next_metric_name(name: str, snapshot: Snapshot | None) -> str:
    """The name of the metric after it, of those that this fabric has."""
    used = [] if snapshot is None else lossless_priorities(snapshot)
    names = [item.name for item in (*_TRAFFIC, *_PAUSE)]
    names += [f"pause-{way}-p{priority}" for priority in used for way in ("rx", "tx")]
    names += [item.name for item in _CONGESTION]
    return names[(names.index(name) + 1) % len(names)] if name in names else _CONGESTION[0].name


_INSIDE = ("gpu", "nvlink", "xgmi")
"""Kinds of ports whose traffic the field counts in bytes."""


def unit_of(kind: str, chosen: Unit) -> Unit:
    """The unit for a port's traffic: links inside a node are told in GB/s, one direction."""
    return Unit.GBYTE if kind in _INSIDE and chosen is Unit.GBIT else chosen


def scope(snapshot: Snapshot, row: int) -> str:
    """What a port's traffic leaves out, in words; empty when it is the whole wire."""
    port = snapshot.fabric.ports[row]
    has = {
        stem: not np.isnan(snapshot.column(f"{stem}_tx_bytes")[row])
        for stem in ("phy", "ib", "rdma", "netdev")
    }
    if port.kind == "gpu":
        return next((text for stem, text in _LINKS if _has_links(snapshot, row, stem)), "")
    if port.kind != "ethernet" or has["phy"]:
        return ""
    if has["ib"] or has["rdma"]:
        return "RDMA only"
    return "without RDMA" if has["netdev"] and port.info.get("rdma") else ""


_LINKS = (("nvlink", "all its NVLinks"), ("xgmi", "all its xGMI links"))


def _has_links(snapshot: Snapshot, row: int, stem: str) -> bool:
    names = (f"{stem}_tx_bytes", f"{stem}_tx_bps", f"{stem}_both_bps")
    return any(not np.isnan(snapshot.column(name)[row]) for name in names)


def both_words(snapshot: Snapshot, row: int, unit: Unit) -> str:
    """A port's traffic where its directions are not told apart; empty where they are."""
    both = float(snapshot.column("nvlink_both_bps")[row])
    told = any(not np.isnan(snapshot.column(f"{name}_bps")[row]) for name in ("tx", "rx"))
    if told or np.isnan(both):
        return ""
    shown = unit_of(
        snapshot.fabric.ports[row].kind, unit if unit is not Unit.PERCENT else Unit.GBIT
    )
    return f"{rate(both, float('nan'), shown)} both directions together"


def traffic_words(snapshot: Snapshot, row: int, unit: Unit) -> str:
    """`tx 188 Gb/s 47.0 %  rx …`: a port's traffic, both ways, in the unit and as a share."""
    line = float(snapshot.line_rate_bps[row])
    both = both_words(snapshot, row, unit)
    if both:
        return f"{both}  ({scope(snapshot, row)})"
    parts = []
    for name, util in (("tx", snapshot.tx_util), ("rx", snapshot.rx_util)):
        kind = snapshot.fabric.ports[row].kind
        shown = unit_of(kind, unit if unit is not Unit.PERCENT else Unit.GBIT)
        value = rate(float(snapshot.column(f"{name}_bps")[row]), line, shown)
        parts.append(f"{name} {value:>9} {percent(float(util[row])):>6}")
    said = (
        byte_rate(line)
        if unit_of(snapshot.fabric.ports[row].kind, Unit.GBIT) is Unit.GBYTE
        else bit_rate(line)
    )
    of = f"of {said}" if line > 0 else "no line rate: set speed="
    less = scope(snapshot, row)
    return f"{'  '.join(parts)}  {of}" + (f"  ({less})" if less else "")
