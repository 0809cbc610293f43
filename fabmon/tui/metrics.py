"""The metrics of the heatmap, which `m` cycles through: their scales and their texts."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from collectors.catalog.ethernet import PRIORITIES
from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.measures import MEASURES, NAMES, OF_PRIORITIES, Measure
from fabmon.fabric.snapshot import Floats, Snapshot, believed, shares_of_line
from fabmon.fabric.wording import Unit, percent, rate

IDLE = 0.005
"""Below this share of the scale a cell is drawn as idle."""
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class HeatMetric(Measure):
    """A measure as a metric of the heatmap: `values` are shares of line rate or of time (0 to 1),
    or events per second; NaN: absent."""

    def last_values(self, snapshot: Snapshot, line_rate_bps: Floats) -> Floats:
        """[ports]: the values of the last sample of each port, where those are kept."""
        if not self.is_kept:
            return self.values(snapshot)
        values = self.greatest([snapshot.last_heat[HEAT.index(column)] for column in self.columns])
        return self._shares(values, line_rate_bps)

    def _shares(self, values: Floats, line_rate_bps: Floats) -> Floats:
        """Traffic as shares of line rate, other values as they are."""
        if not self.is_traffic:
            return values
        return shares_of_line(values, line_rate_bps)

    def edges(self, steps: int) -> NDArray[np.float64]:
        """The lower bounds of levels 1 to `steps`; values below the first are idle."""
        low, high, shares = self.range.low, self.range.high, np.arange(1, steps) / steps
        if self.range.is_linear:
            return np.concatenate(([IDLE * high], shares * high))
        return np.concatenate(([_TINY], low * 10 ** (shares * np.log10(high / low))))

    def say(self, snapshot: Snapshot, row: int, unit: Unit) -> str:
        """The value of a port with its unit: `8.10 % of time paused`."""
        if self.is_traffic:
            line = float(snapshot.line_rate_bps[row])
            parts = [
                f"{column[:2]} {rate(float(snapshot.column(column)[row]), line, unit)}"
                for column in self.columns
            ]
            return "  ".join(parts)
        if self.counted_by and snapshot.is_stuck(self.counted_by)[row]:
            return f"{self.name}: the counter is saturated"
        value = float(self.values(snapshot)[row])
        if np.isnan(value):
            return f"{self.name}: absent"
        text = self.range.text(value)
        if self.range.is_share:
            return text.removesuffix("%") + self.title
        return f"{self.title.removesuffix(' /s')} {text}"


def _metric(of: Measure) -> HeatMetric:
    return HeatMetric(*(getattr(of, field.name) for field in fields(of)))


HEAT_METRICS = tuple(_metric(each) for each in MEASURES)
"""In the order of `m`; the pauses of single priorities come after `pause-tx`."""
_AFTER_PAUSES = NAMES.index("pause-tx") + 1

_BY_NAME = {each.name: each for each in (*HEAT_METRICS, *(_metric(each) for each in OF_PRIORITIES))}
METRIC_NAMES = tuple(_BY_NAME)


def heat_metric(name: str) -> HeatMetric:
    """The metric of this name, also of a single priority. Raises KeyError."""
    return _BY_NAME[name]


def lossless_priorities(snapshot: Snapshot) -> list[int]:
    """The priorities with PFC: configured on a port, or paused in this snapshot."""
    configured = {
        priority
        for port in snapshot.fabric.ports
        for priority in port.info.get("pfc_priorities") or ()
    }

    def is_paused(priority: int) -> bool:
        names = (f"pfc_{way}_pause_us_prio{priority}" for way in ("rx", "tx"))
        return any(np.nanmax(snapshot.column(name), initial=0.0) > 0 for name in names)

    return [each for each in PRIORITIES if each in configured or is_paused(each)]


def metrics_of(snapshot: Snapshot | None) -> list[HeatMetric]:
    """The metrics that this fabric has, in the order of `m`."""
    used = [] if snapshot is None else lossless_priorities(snapshot)
    priorities = [_BY_NAME[f"pause-{way}-p{each}"] for each in used for way in ("rx", "tx")]
    return [*HEAT_METRICS[:_AFTER_PAUSES], *priorities, *HEAT_METRICS[_AFTER_PAUSES:]]


def next_metric_name(name: str, snapshot: Snapshot | None, by: int = 1) -> str:
    """The name of the next metric (`by` = 1) of those that this fabric has, or the previous one."""
    names = [item.name for item in metrics_of(snapshot)]
    return names[(names.index(name) + by) % len(names)] if name in names else NAMES[_AFTER_PAUSES]


_INSIDE = ("gpu", "nvlink", "xgmi")
"""Kinds of ports whose traffic is shown in bytes, as their vendors do."""


def unit_of(kind: str, unit: Unit) -> Unit:
    """The unit for the traffic of a port: GB/s instead of Gb/s for links inside a node."""
    return Unit.GBYTE if kind in _INSIDE and unit is Unit.GBIT else unit


def scope(snapshot: Snapshot, row: int) -> str:
    """What the traffic figures of a port cover; empty if that is everything on the wire."""
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


def combined_traffic_text(snapshot: Snapshot, row: int, unit: Unit) -> str:
    """The traffic of a port that counts both directions together; empty for other ports."""
    both = float(snapshot.column("nvlink_both_bps")[row])
    is_split = any(not np.isnan(snapshot.column(f"{name}_bps")[row]) for name in ("tx", "rx"))
    if is_split or np.isnan(both):
        return ""
    return f"{rate(both, float('nan'), _rate_unit(snapshot, row, unit))} both directions together"


def _rate_unit(snapshot: Snapshot, row: int, unit: Unit) -> Unit:
    """The unit for a rate beside a share: never %."""
    return unit_of(snapshot.fabric.ports[row].kind, Unit.GBIT if unit is Unit.PERCENT else unit)


def traffic_text(snapshot: Snapshot, row: int, unit: Unit) -> str:
    """`tx 188 Gb/s 47.0 %  rx …`: the traffic of a port as rates and as shares of line rate."""
    return "  ".join(traffic_parts(snapshot, row, unit))


def traffic_parts(snapshot: Snapshot, row: int, unit: Unit) -> list[str]:
    """The parts of `traffic_text`, most important first."""
    line = float(snapshot.line_rate_bps[row])
    both = combined_traffic_text(snapshot, row, unit)
    if both:
        return [both, f"({scope(snapshot, row)})"]
    parts = []
    for name, util in (("tx", snapshot.tx_util), ("rx", snapshot.rx_util)):
        shown = _rate_unit(snapshot, row, unit)
        value = rate(float(snapshot.column(f"{name}_bps")[row]), line, shown)
        share = f" {percent(float(believed(util[row]))):>6}" if line > 0 else ""
        parts.append(f"{name} {value:>9}{share}")
    of = rate(line, line, _rate_unit(snapshot, row, Unit.GBIT))
    of = f"of {of}" if line > 0 else "no line rate; hosts file: speed=400G"
    covered = scope(snapshot, row)
    return [*parts, of, *([f"({covered})"] if covered else [])]
