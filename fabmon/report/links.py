"""A moment's ports as records, in the order in which they are shown."""

from __future__ import annotations

import math

import numpy as np

from collectors.catalog import CATALOG, GAUGE
from fabmon.fabric.filter import Mask
from fabmon.fabric.model import Port
from fabmon.fabric.moment import HEAT, Moment
from fabmon.report.records import LinkRecord

_STALE_INTERVALS = 2.5
_DIGITS = 6


def link_records(moment: Moment, wanted: Mask | None = None) -> list[LinkRecord]:
    """One record a port of every node that has said what it has; of the `wanted` ones, if told."""
    gauges = {position for name, position in moment.columns.items() if _is_gauge(name)}
    names = {position: name for name, position in moment.columns.items()}
    return [
        _record(moment, port, names, gauges)
        for node in moment.fabric.nodes
        for port in node.ports
        if wanted is None or wanted[port.row]
    ]


def link_state(moment: Moment, port: Port) -> str:
    """`up`, `down`, `stale` (nothing heard for two and a half intervals) or `unknown`."""
    if moment.age_s[port.row] > moment.interval_s * _STALE_INTERVALS:
        return "stale"
    up = moment.up[port.row]
    return "unknown" if np.isnan(up) else "up" if up else "down"


def _record(moment: Moment, port: Port, names: dict[int, str], gauges: set[int]) -> LinkRecord:
    row = port.row
    known = np.flatnonzero(~np.isnan(moment.values[row])).tolist()
    values = {position: _round(float(moment.values[row, position])) for position in known}
    return LinkRecord(
        node=port.node,
        port=port.name,
        label=port.label,
        kind=port.kind,
        role=port.role,
        peer=None if port.peer is None else moment.fabric.ports[port.peer].id or None,
        state=link_state(moment, port),
        speed_bps=number(moment.line_rate_bps[row]),
        tx_bps=number(moment.heat[HEAT.index("tx_bps"), row]),
        rx_bps=number(moment.heat[HEAT.index("rx_bps"), row]),
        tx_util=number(moment.tx_util[row]),
        rx_util=number(moment.rx_util[row]),
        age_s=number(moment.age_s[row]),
        saturated=bool(moment.saturated[row]),
        rates={names[p]: value for p, value in values.items() if p not in gauges},
        levels={names[p]: value for p, value in values.items() if p in gauges},
    )


def _is_gauge(name: str) -> bool:
    return name in CATALOG and CATALOG[name].kind == GAUGE


def number(value: np.float32) -> float | None:
    """As it is told; None is absent."""
    told = float(value)
    return _round(told) if math.isfinite(told) else None


def _round(value: float) -> float:
    """Six significant digits: what a float32 holds, without its noise."""
    return float(f"{value:.{_DIGITS}g}")
