"""What is drawn, out of what is counted: bits/s on the wire, pause, marks, errors, line rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import CATALOG, require
from collectors.catalog.ethernet import PRIORITIES
from fabmon.fabric.model import Host, Port
from fabmon.fabric.names import matches
from fabmon.fabric.snapshot import HEAT, Floats

WIRE = (
    ("phy_{}_bytes", 8),
    ("ib_{}_bytes", 8),
    ("ib_{}_bps", 1),
    ("rdma_{}_bytes", 8),
    ("netdev_{}_bytes", 8),
    ("nvlink_{}_bytes", 8),
    ("nvlink_{}_bps", 1),
    ("xgmi_{}_bytes", 8),
)
"""Who counts a port's bytes, the best first, and the bits in one of its units. They overlap (on
RoCE `ib_*` and `rdma_*` are RDMA only, while `phy_*` is the whole wire and `netdev_*` misses
RDMA), so one is taken and none are added."""

RATES = (
    "ib_rate_bps",
    "phy_speed_bps",
    "netdev_speed_bps",
    "nvlink_speed_bps",
    "xgmi_speed_bps",
)
_STATES = ("phy_up", "netdev_up", "nvlink_state", "xgmi_state")
"""What a switch's chip says of a port comes before what the kernel of the switch thinks."""

_ECN = ("rdma_ecn_marked", "phy_tx_ecn_marked")
"""Marks that arrived at a host's port; on a switch, those that its queues made."""

_PAUSE = ("pfc_{}_pause_us_prio{}", "pause_{}_us")
_XOFF = ("pfc_{}_transitions_prio{}", "pause_{}_transitions")
_WAIT = ("ib_ext_tx_wait", "ib_tx_wait")
_BITS_A_WAIT = 64
"""One count of these is the port's time for 8 bytes: ibdiagnet manual 2.13, "Congestion
Assessment on InfiniBand Links", for Quantum; taken to hold for ConnectX too."""
DAMAGE = (
    "phy_rx_crc_errors",
    "phy_rx_symbol_errors",
    "phy_rx_fec_uncorrectable_blocks",
    "phy_rx_errors",
    "ib_symbol_errors",
    "ib_link_error_recovery",
    "ib_local_link_integrity_errors",
    "ib_rx_errors",
    "netdev_rx_errors",
    "nvlink_crc_errors",
    "nvlink_replays",
    "nvlink_symbol_errors",
    "nvlink_effective_errors",
)
_FALLS = "phy_link_down_events"
"""A link that fell comes up again: two changes of carrier."""
_BUS = ("pci_stalled_write_percent", "pci_stalled_read_percent")
_PARTS: dict[str, tuple[str, ...]] = {
    "phy_rx_errors": ("phy_rx_crc_errors", "phy_rx_symbol_errors"),
    "rdma_rx_drops": ("rdma_rx_limit_drops",),
    "rdma_tx_drops": ("rdma_tx_limit_drops",),
    "phy_rx_discards": tuple(f"phy_rx_discards_prio{prio}" for prio in range(8)),
    "phy_tx_discards": tuple(f"phy_tx_discards_prio{prio}" for prio in range(8)),
}
"""What counts the same packets again, by kind or priority. Some ports have the parts only."""
_CNP_SENT, _CNP_HANDLED = "rdma_cnp_sent", "rdma_cnp_handled"
_IB_STATE = "ib_state"
_LINKS_BPS = "nvlink_speed_bps"
_CARRIER_CHANGES = "netdev_carrier_changes"
require(
    *RATES, *_STATES, *_ECN, *_WAIT, *DAMAGE, *_BUS, *_PARTS,
    *(part for parts in _PARTS.values() for part in parts),
    *(name.format(way) for name, _ in WIRE for way in ("tx", "rx")),
    *(
        name.format(way, prio)
        for name in (*_PAUSE, *_XOFF)
        for way in ("tx", "rx")
        for prio in PRIORITIES
    ),
    *(_FALLS, _CNP_SENT, _CNP_HANDLED, _IB_STATE, _LINKS_BPS, _CARRIER_CHANGES),
)  # fmt: skip
_US_PER_S = 1e6
_IB_ACTIVE = 4


class MetricDeriver:
    """Computes a moment's arrays from the table of rates; `columns` maps metric to table column.

    `has` is [ports, columns]: which metrics the port's layout holds. `before` is the deriver of the
    layouts before, whose choices of a port's source of bytes are kept.
    """

    def __init__(
        self,
        columns: Mapping[str, int],
        has: NDArray[np.bool_],
        before: MetricDeriver | None = None,
    ) -> None:
        self._columns = columns
        self._has = has
        self._counts: dict[str, NDArray[np.bool_]] = {} if before is None else before._counts
        self._topics: dict[str, NDArray[np.intp]] = {
            topic: np.array(
                [columns[name] for name in columns if _topic(name) == topic], dtype=np.intp
            )
            for topic in ("error", "drop")
        }

    def heat(self, values: Floats, line_rate_bps: Floats) -> Floats:
        """[len(HEAT), ports] from values [ports, columns]; see HEAT for the meaning of each."""
        rows = {
            "tx_bps": self._bps(values, "tx"),
            "rx_bps": self._bps(values, "rx"),
            "pause_rx": self._pause(values, "rx"),
            "pause_tx": self._pause(values, "tx"),
            "xoff": self._xoff(values),
            "stall": self._stall(values, line_rate_bps),
            "ecn": self._first(values, _ECN, ""),
            "cnp_sent": self._one(values, _CNP_SENT),
            "cnp": self._one(values, _CNP_HANDLED),
            "damage": self._worst_of(values, DAMAGE),
            "flaps": self._flaps(values),
            "bus": self._worst_of(values, _BUS) / np.float32(100),
            "errors": self._total(values, "error"),
            "drops": self._total(values, "drop"),
        }
        return np.stack([rows[name] for name in HEAT]).astype(np.float32)

    def line_rate_bps(self, values: Floats, overrides: Floats) -> Floats:
        """[ports] line rate of one direction: what the hosts file says, else what the port says."""
        told = self._first(values, RATES, "")
        told[told <= 0] = np.nan
        return np.where(np.isnan(overrides), told, overrides).astype(np.float32)

    def up(self, values: Floats) -> Floats:
        """[ports] 1 up, 0 down, NaN unknown. An InfiniBand port is up when it is ACTIVE."""
        ib_state = self._one(values, _IB_STATE)
        ib_up = np.where(np.isnan(ib_state), np.nan, ib_state == _IB_ACTIVE)
        up = self._first(values, _STATES, "")
        links_bps = self._one(values, _LINKS_BPS)
        up = np.where(np.isnan(up) & ~np.isnan(links_bps), links_bps > 0, up)
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
            column = self._columns.get(name.format(direction))
            if column is not None:
                np.copyto(best, values[:, column], where=np.isnan(best))
        return best

    def _xoff(self, values: Floats) -> Floats:
        """Pauses begun or ended a second, both ways."""
        per_priority, whole_link = _XOFF
        names = [whole_link.format(way) for way in ("rx", "tx")]
        names += [per_priority.format(way, prio) for way in ("rx", "tx") for prio in range(8)]
        there = [self._columns[name] for name in names if name in self._columns]
        return _sum(values[:, there])

    def _total(self, values: Floats, topic: str) -> Floats:
        """The sum over a topic; of a total and its parts the greater, not both."""
        picked = np.array(values[:, self._topics[topic]])
        at = {int(column): place for place, column in enumerate(self._topics[topic])}
        for name, parts in _PARTS.items():
            places = [at[self._columns[part]] for part in parts if self._columns.get(part) in at]
            whole = at.get(self._columns.get(name, -1))
            if whole is not None and places:
                picked[:, whole] = np.fmax(picked[:, whole], _sum(picked[:, places]))
                picked[:, places] = np.nan
        return _sum(picked)

    def _stall(self, values: Floats, line_rate_bps: Floats) -> Floats:
        """Share of time in which data waited and nothing could be sent, 0 to 1."""
        waited_bps = self._first(values, _WAIT, "") * np.float32(_BITS_A_WAIT)
        with np.errstate(divide="ignore", invalid="ignore"):
            share: Floats = np.minimum(waited_bps / line_rate_bps, np.float32(1.0))
        return share

    def _worst_of(self, values: Floats, names: Sequence[str]) -> Floats:
        """The largest of several metrics that count the same from different places."""
        worst = np.full(len(values), np.nan, np.float32)
        for name in names:
            if name in self._columns:
                np.fmax(worst, values[:, self._columns[name]], out=worst)
        return worst

    def _flaps(self, values: Floats) -> Floats:
        changes = self._one(values, _CARRIER_CHANGES)
        falls = 2 * self._one(values, _FALLS)
        flaps: Floats = np.where(np.isnan(changes), falls, changes)
        return flaps

    def _bps(self, values: Floats, direction: str) -> Floats:
        """[ports] bits/s: per port from the best of WIRE that it has and that ever counted.

        Once a source has counted it stays the one, silent or not: the next best counts something
        else, and a hot RoCE link would be drawn idle by the bytes of its interface.
        """
        best = np.full(len(values), np.nan, np.float32)
        chosen = np.zeros(len(values), np.bool_)
        for template, bits in WIRE:
            name = template.format(direction)
            column = self._columns.get(name)
            if column is None:
                continue
            rates = values[:, column] * np.float32(bits)
            counts = ~np.isnan(rates)
            before = self._counts.get(name)
            if before is not None:
                counts[: len(before)] |= before
            self._counts[name] = counts
            ours = counts & self._has[:, column] & ~chosen
            best[ours] = rates[ours]
            chosen |= ours
        return best

    def _pause(self, values: Floats, direction: str) -> Floats:
        """Share of time paused, 0 to 1: the worst priority, or the link pause of 802.3x."""
        per_priority, whole_link = _PAUSE
        names = [per_priority.format(direction, priority) for priority in range(8)]
        worst = self._worst_of(values, (*names, whole_link.format(direction)))
        share: Floats = np.minimum(worst / np.float32(_US_PER_S), np.float32(1.0))
        return share


def line_rate_overrides(ports: Sequence[Port], hosts: Mapping[str, Host]) -> Floats:
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
