"""What is drawn, out of what is counted: bits/s on the wire, pause, marks, errors, line rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import CATALOG
from fabmon.fabric.model import Host, Port
from fabmon.fabric.moment import HEAT, Floats
from fabmon.fabric.names import matches

_WIRE = ("phy_{}_bytes", "ib_{}_bytes", "netdev_{}_bytes")
"""Who counts a port's bytes, the best first. They overlap (on RoCE `ib_*` is RDMA only, while
`phy_*` is the whole wire and `netdev_*` misses RDMA), so one is taken and none are added."""

_PAUSE = ("pfc_{}_pause_us_prio{}", "pause_{}_us")
_US_PER_S = 1e6
_IB_ACTIVE = 4


class Deriver:
    """Computes a moment's arrays from the table of rates; `columns` maps metric to table column."""

    def __init__(self, columns: Mapping[str, int]) -> None:
        self._columns = columns
        self._topics: dict[str, NDArray[np.intp]] = {
            topic: np.array(
                [columns[name] for name in columns if _topic(name) == topic], dtype=np.intp
            )
            for topic in ("error", "drop")
        }

    def heat(self, values: Floats) -> Floats:
        """[len(HEAT), ports] from values [ports, columns]; see HEAT for the meaning of each."""
        rows = {
            "tx_bps": self._first(values, _WIRE, "tx") * 8,
            "rx_bps": self._first(values, _WIRE, "rx") * 8,
            "pause_rx": self._pause(values, "rx"),
            "pause_tx": self._pause(values, "tx"),
            "ecn": self._one(values, "rdma_ecn_marked"),
            "cnp": self._one(values, "rdma_cnp_handled"),
            "errors": _sum(values[:, self._topics["error"]]),
            "drops": _sum(values[:, self._topics["drop"]]),
        }
        return np.stack([rows[name] for name in HEAT]).astype(np.float32)

    def line_rate_bps(self, values: Floats, overrides: Floats) -> Floats:
        """[ports] line rate of one direction: what the hosts file says, else what the port says."""
        told = self._first(values, ("ib_rate_bps", "netdev_speed_bps"), "")
        told[told <= 0] = np.nan
        return np.where(np.isnan(overrides), told, overrides).astype(np.float32)

    def up(self, values: Floats) -> Floats:
        """[ports] 1 up, 0 down, NaN unknown. An InfiniBand port is up when it is ACTIVE."""
        ib_state = self._one(values, "ib_state")
        ib_up = np.where(np.isnan(ib_state), np.nan, ib_state == _IB_ACTIVE)
        up = self._one(values, "netdev_up")
        return np.where(np.isnan(ib_up), up, ib_up).astype(np.float32)

    def _one(self, values: Floats, name: str) -> Floats:
        column = self._columns.get(name)
        if column is None:
            return np.full(len(values), np.nan, np.float32)
        picked: Floats = np.array(values[:, column])
        return picked

    def _first(self, values: Floats, names: Sequence[str], direction: str) -> Floats:
        """Per port the first of several metrics that it has."""
        best = np.full(len(values), np.nan, np.float32)
        for name in names:
            candidate = self._one(values, name.format(direction))
            np.copyto(best, candidate, where=np.isnan(best))
        return best

    def _pause(self, values: Floats, direction: str) -> Floats:
        """Share of time paused, 0 to 1: the worst priority, or the link pause of 802.3x."""
        per_priority, whole_link = _PAUSE
        names = [per_priority.format(direction, priority) for priority in range(8)]
        us_per_s = [self._one(values, name) for name in (*names, whole_link.format(direction))]
        worst: Floats = np.fmax.reduce(us_per_s)
        share: Floats = np.minimum(worst / np.float32(_US_PER_S), np.float32(1.0))
        return share


def overrides(ports: Sequence[Port], hosts: Mapping[str, Host]) -> Floats:
    """[ports] line rates that the hosts file gives, NaN where it says nothing."""
    given = np.full(len(ports), np.nan, np.float32)
    for port in ports:
        host = hosts.get(port.node)
        for pattern, bps in host.speeds if host is not None else ():
            if matches(port.name, (pattern,)) or matches(port.label, (pattern,)):
                given[port.row] = bps
    return given


def _topic(name: str) -> str:
    metric = CATALOG.get(name)
    return metric.topic if metric is not None else ""


def _sum(parts: Floats) -> Floats:
    """Sums over columns; NaN only where every part is."""
    if not parts.shape[1]:
        return np.full(len(parts), np.nan, np.float32)
    total: Floats = np.nansum(parts, axis=1)
    total[np.isnan(parts).all(axis=1)] = np.nan
    return total
