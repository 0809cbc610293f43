"""What is shown and judged of a port, computed from the rates of its counters: the columns of HEAT
(bits/s on the wire, pause, marks, errors), line rate and link state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from collectors.catalog import CATALOG, require
from collectors.catalog.ethernet import PRIORITIES
from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.model import Fabric, Host
from fabmon.fabric.names import matches
from fabmon.fabric.pcie import PCIE_PAYLOAD
from fabmon.fabric.snapshot import Floats
from fabmon.history.rates import LINE_RATES, RX, SOURCE_NUMBERS, TX, BestSources, Bools, Indices

_MAX_LINE_RATE_BPS = 1e15

_STATES = ("phy_up", "netdev_up", "nvlink_state", "xgmi_state")
"""The state that a switch's chip reports has priority over that of the switch's kernel."""

_ECN = ("rdma_ecn_marked", "phy_tx_ecn_marked")
"""Marks that arrived at a host's port; on a switch, those that its queues made."""

_PAUSE = ("pfc_{}_pause_us_prio{}", "pause_{}_us")
_XOFF = ("pfc_{}_transitions_prio{}", "pause_{}_transitions")
_WAIT = ("ib_ext_tx_wait", "ib_tx_wait")
_BITS_PER_WAIT = 64
"""One count of these is the port's time for 8 bytes: ibdiagnet manual 2.13, "Congestion
Assessment on InfiniBand Links", for Quantum; assumed to hold for ConnectX too."""

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
    "port_errors",
)
"""Errors of the link itself, without what congestion causes."""

_LINK_DOWN = "phy_link_down_events"
"""A link that went down comes up again: two changes of carrier."""

_PCIE_STALLS = ("pci_stalled_write_percent", "pci_stalled_read_percent")
_PCIE_BYTES = ("pcie_tx_bytes", "pcie_rx_bytes")
_PCIE_RATES = ("pcie_tx_bps", "pcie_rx_bps")
_GPU_LINKS = ("nvlink_tx_bytes", "nvlink_tx_bps", "nvlink_speed_bps", "xgmi_tx_bytes")
"""What GPUs have: their traffic over these links does not go over PCIe."""

_ANY_LINK = tuple(name for name in CATALOG if name.startswith(("nvlink_", "xgmi_")))

_IDLE_SHARE = np.float32(0.001)
"""Share of line rate below which the parts of a port's traffic mean nothing."""


def _of_topic(topic: str, apart_from: str) -> tuple[str, ...]:
    return tuple(n for n, each in CATALOG.items() if each.topic == topic and n != apart_from)


_PARTS: dict[str, tuple[str, ...]] = {
    "phy_rx_errors": ("phy_rx_crc_errors", "phy_rx_symbol_errors"),
    "rdma_rx_drops": ("rdma_rx_limit_drops",),
    "rdma_tx_drops": ("rdma_tx_limit_drops",),
    "phy_rx_discards": (
        *(f"phy_rx_discards_prio{prio}" for prio in range(8)),
        *(f"phy_rx_discards_cos{cos}" for cos in range(8)),
    ),
    "phy_tx_discards": tuple(f"phy_tx_discards_prio{prio}" for prio in range(8)),
    # The sums of recording rules, last: the parts of others are not counted again.
    "port_errors": _of_topic("error", "port_errors"),
    "port_drops": _of_topic("drop", "port_drops"),
}
"""Metrics that count the same packets again, by kind or priority. Some ports have parts only."""

RECORDED_SUMS = ("port_errors", "port_drops")
"""Sums of recording rules. Each source of a port has its own: they are added up."""

_CNP_SENT, _CNP_HANDLED = "rdma_cnp_sent", "rdma_cnp_handled"
_NAKS = "rdma_packet_sequence_errors"
_IB_STATE, _NVLINK_BPS = "ib_state", "nvlink_speed_bps"
_CARRIER_CHANGES = "netdev_carrier_changes"
require(*_PCIE_STALLS, *_PCIE_BYTES, *_PCIE_RATES, *_GPU_LINKS)
require(*_STATES, *_ECN, *_WAIT, *DAMAGE, *_PARTS, *sum(_PARTS.values(), ()))
require(_LINK_DOWN, _CNP_SENT, _CNP_HANDLED, _NAKS, _IB_STATE, _NVLINK_BPS, _CARRIER_CHANGES)
require(
    *(
        name.format(direction, priority)
        for name in (*_PAUSE, *_XOFF)
        for direction in ("tx", "rx")
        for priority in PRIORITIES
    )
)

US_PER_S = 1e6
_IB_ACTIVE = 4

_SLOWEST_BPS, _FASTEST_BPS = 1e6, 1e14
"""Line rates that a port can have: below is no network, above no port and no GPU's NVLinks."""


class MetricDeriver:
    """Computes a snapshot's arrays from the table of rates; `columns` maps metric to table column.

    `has` is [ports, columns]: which metrics the port's layout has. `before` is the deriver of the
    previous layouts; its choice of each port's byte counter is kept. `without_links` is [ports]:
    True for GPUs without NVLinks or xGMI, whose traffic is that over PCIe.
    """

    def __init__(
        self,
        columns: Mapping[str, int],
        has: Bools,
        before: MetricDeriver | None = None,
        without_links: Bools | None = None,
    ) -> None:
        self._columns = columns
        self._is_gpu = self._has_any(has, _PCIE_BYTES + _PCIE_RATES + _GPU_LINKS)
        none = np.zeros(len(has), np.bool_)
        self._without_links = none if without_links is None else without_links
        self._without_links = self._without_links & ~self._has_any(has, _ANY_LINK)
        # GPM and DCGM measure packets with their headers: a real H100 had 1.02 of the payload.
        with_headers = self._has_any(has, _PCIE_RATES) & ~self._has_any(has, _PCIE_BYTES)
        self._pcie_share: Floats = np.where(with_headers, 1 / PCIE_PAYLOAD, 1).astype(np.float32)
        # An InfiniBand port has a state and no phy counters; it counts IPoIB among its bytes.
        self._is_roce = ~self._has_any(has, (_IB_STATE,)) | self._has_any(has, ("phy_tx_bytes",))
        names = [name for name in columns if name in SOURCE_NUMBERS and name not in LINE_RATES]
        column = np.array([columns[name] for name in names], np.intp)
        number, row = np.nonzero(has[:, column].T)
        source = np.array([SOURCE_NUMBERS[name] for name in names], np.intp)[number]
        had = None if before is None else before._byte_sources
        self._byte_sources: BestSources = BestSources(source, row, had)
        cells = row * has.shape[1] + column[number]
        self._cells: Indices = cells[self._byte_sources.order]
        self._topics: dict[str, Indices] = {
            topic: np.array(
                [columns[name] for name in columns if _topic(name) == topic], dtype=np.intp
            )
            for topic in ("error", "drop")
        }

    def heat(self, values: Floats, line_rate_bps: Floats, pcie_bps: Floats) -> Floats:
        """[len(HEAT), ports] from values [ports, columns]; see HEAT for the meaning of each.

        `pcie_bps` [ports] is the payload that a port's PCIe link carries, NaN where unknown.
        """
        bps = self._bits_per_s(values)
        rows = {
            "tx_bps": bps[TX],
            "rx_bps": bps[RX],
            "pause_rx": self._pause(values, "rx"),
            "pause_tx": self._pause(values, "tx"),
            "xoff": self._xoff(values),
            "stall": self._stall(values, line_rate_bps),
            "ecn": self._first(values, _ECN),
            "cnp_sent": self._one(values, _CNP_SENT),
            "cnp": self._one(values, _CNP_HANDLED),
            "naks": self._one(values, _NAKS),
            "damage": self._max(values, DAMAGE),
            "flaps": self._flaps(values),
            "bus": self._max(values, _PCIE_STALLS) / np.float32(100),
            "pcie": self._pcie(values, bps, pcie_bps),
            "non_rdma": self._non_rdma(values, line_rate_bps),
            "errors": self._total(values, "error"),
            "drops": self._total(values, "drop"),
            "tx_drops": self._tx_drops(values),
        }
        return np.stack([rows[name] for name in HEAT]).astype(np.float32)

    def line_rate_bps(self, values: Floats, overrides: Floats, pcie_bps: Floats) -> Floats:
        """[ports] line rate of one direction: as the hosts file says, else as the port reports; of
        a GPU without links what its PCIe link carries."""
        reported = self._first(values, LINE_RATES)
        np.copyto(reported, pcie_bps * self._pcie_share, where=self._without_links)
        return line_rates(reported, overrides)

    def up(self, values: Floats) -> Floats:
        """[ports] 1 up, 0 down, NaN unknown. An InfiniBand port is up when it is ACTIVE."""
        ib_state = self._one(values, _IB_STATE)
        ib_up = np.where(np.isnan(ib_state), np.nan, ib_state == _IB_ACTIVE)
        up = self._first(values, _STATES)
        nvlink_bps = self._one(values, _NVLINK_BPS)
        up = np.where(np.isnan(up) & ~np.isnan(nvlink_bps), nvlink_bps > 0, up)
        answers = self._without_links & ~np.isnan(self._over_pcie(values, "tx"))
        up = np.where(answers, np.float32(1), up)
        return np.where(np.isnan(ib_up), up, ib_up).astype(np.float32)

    def byte_cells(self, ports: int) -> Indices:
        """[ports]: the flat index in the table of the counter of a port's bytes; -1 for none."""
        cells = np.full(ports, -1, np.intp)
        for quantity in (RX, TX):
            rows, places = self._byte_sources.chosen(quantity)
            cells[rows] = self._cells[places]
        return cells

    def _bits_per_s(self, values: Floats) -> Floats:
        """[2, ports] bits/s sent and received, each port from its best byte counter."""
        bps = np.full((2, len(values)), np.nan, np.float32)
        best = self._byte_sources.rates_bps(values.ravel()[self._cells])
        for quantity, (rows, rates) in best.items():
            bps[quantity, rows] = rates
        for quantity, way in ((TX, "tx"), (RX, "rx")):
            np.copyto(bps[quantity], self._over_pcie(values, way), where=self._without_links)
        return bps

    def _over_pcie(self, values: Floats, way: str) -> Floats:
        """[ports] bits/s of a GPU over PCIe, `tx` or `rx`."""
        counted = self._one(values, f"pcie_{way}_bytes") * np.float32(8)
        measured = self._one(values, f"pcie_{way}_bps")
        bps: Floats = np.where(np.isnan(counted), measured, counted)
        return bps

    def _one(self, values: Floats, name: str) -> Floats:
        column = self._columns.get(name)
        if column is None:
            return np.full(len(values), np.nan, np.float32)
        picked: Floats = np.array(values[:, column])
        return picked

    def _first(self, values: Floats, names: Sequence[str]) -> Floats:
        """[ports]: of several metrics, the first one that the port has; NaN if it has none."""
        best = np.full(len(values), np.nan, np.float32)
        for name in names:
            column = self._columns.get(name)
            if column is not None:
                np.copyto(best, values[:, column], where=np.isnan(best))
        return best

    def _tx_drops(self, values: Floats) -> Floats:
        """[ports] packets that a queue towards the link dropped: not what was refused on arrival
        (no buffer, ACL, VLAN), nor what InfiniBand discards, which waits for what is behind it."""
        name = "phy_tx_discards"
        of_priorities = [self._columns[part] for part in _PARTS[name] if part in self._columns]
        dropped = np.fmax(self._one(values, name), _sum(values[:, of_priorities]))
        own = self._one(values, "netdev_tx_drops")
        found: Floats = np.where(np.isnan(dropped), own, dropped)
        return found

    def _xoff(self, values: Floats) -> Floats:
        """[ports] pauses begun or ended per second, in both directions.

        Of a direction the greater of the whole link's and the sum over priorities: a link uses one
        of the two, and what a recording rule sums as the link's has the priorities in it.
        """
        per_priority, whole_link = _XOFF
        ways = []
        for direction in ("rx", "tx"):
            names = [per_priority.format(direction, priority) for priority in range(8)]
            present = [self._columns[name] for name in names if name in self._columns]
            whole = self._one(values, whole_link.format(direction))
            ways.append(np.fmax(whole, _sum(values[:, present])))
        return _sum(np.stack(ways, axis=1))

    def _total(self, values: Floats, topic: str) -> Floats:
        """[ports] the sum over a topic; of a total and its parts the greater one, not both."""
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
        """[ports] share of time in which data waited and nothing could be sent, 0 to 1."""
        waited_bps = self._first(values, _WAIT) * np.float32(_BITS_PER_WAIT)
        with np.errstate(divide="ignore", invalid="ignore"):
            share: Floats = np.minimum(waited_bps / line_rate_bps, np.float32(1.0))
        return share

    def _pcie(self, values: Floats, bps: Floats, pcie_bps: Floats) -> Floats:
        """[ports] traffic over PCIe, the busier direction, as a share of what the link carries."""
        counted = self._max(values, _PCIE_BYTES) * np.float32(8)
        counted = np.fmax(counted, self._max(values, _PCIE_RATES))
        busier = np.where(self._is_gpu, counted, np.fmax(bps[TX], bps[RX]))
        carries = np.where(self._is_gpu, pcie_bps * self._pcie_share, pcie_bps)
        share: Floats = np.minimum(busier / carries, np.float32(1.0))
        return share

    def _non_rdma(self, values: Floats, line_rate_bps: Floats) -> Floats:
        """[ports] share of a RoCE port's traffic that the kernel's stack carries; 0 while idle.

        Of the wire where its bytes are counted, else of the stack's and RDMA's together.
        """
        stack = self._both_ways(values, "netdev_{}_bytes")
        rdma = self._both_ways(values, "ib_{}_bytes")
        rdma = np.where(np.isnan(rdma), self._both_ways(values, "rdma_{}_bytes"), rdma)
        wire = np.fmax(self._both_ways(values, "phy_{}_bytes"), stack + rdma)
        is_idle = wire * np.float32(8) < _IDLE_SHARE * line_rate_bps
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(is_idle, np.float32(0), stack / wire)
        known: Floats = np.where(self._is_roce & ~np.isnan(rdma), share, np.float32(np.nan))
        return known

    def _both_ways(self, values: Floats, template: str) -> Floats:
        """[ports] the sum of a metric over both directions; NaN unless both are known."""
        tx, rx = (self._one(values, template.format(way)) for way in ("tx", "rx"))
        both: Floats = tx + rx
        return both

    def _has_any(self, has: Bools, names: Sequence[str]) -> Bools:
        """[ports] whether the port's layout has one of some metrics."""
        places = [self._columns[name] for name in names if name in self._columns]
        return np.asarray(has[:, places].any(axis=1), np.bool_)

    def _max(self, values: Floats, names: Sequence[str]) -> Floats:
        """[ports] the largest of several metrics that count the same at different places."""
        largest = np.full(len(values), np.nan, np.float32)
        for name in names:
            if name in self._columns:
                np.fmax(largest, values[:, self._columns[name]], out=largest)
        return largest

    def _flaps(self, values: Floats) -> Floats:
        """[ports] changes of carrier per second."""
        changes = self._one(values, _CARRIER_CHANGES)
        downs = 2 * self._one(values, _LINK_DOWN)
        flaps: Floats = np.where(np.isnan(changes), downs, changes)
        return flaps

    def _pause(self, values: Floats, direction: str) -> Floats:
        """[ports] share of time paused, 0 to 1: the worst priority, or 802.3x link pause."""
        per_priority, whole_link = _PAUSE
        names = [per_priority.format(direction, priority) for priority in range(8)]
        worst = self._max(values, (*names, whole_link.format(direction)))
        share: Floats = np.minimum(worst / np.float32(US_PER_S), np.float32(1.0))
        return share


def line_rates(reported_bps: Floats, overrides_bps: Floats) -> Floats:
    """[ports] line rates: the override where there is one, else what the port reports.

    A port that is down reports 0 or less, a faulty driver anything (1 bit/s was seen): a rate that
    no port has is unknown, NaN, and no percentage is made of it.
    """
    is_possible = (reported_bps >= _SLOWEST_BPS) & (reported_bps <= _FASTEST_BPS)
    reported_bps = np.where(is_possible, reported_bps, np.float32(np.nan))
    rates = np.where(np.isnan(overrides_bps), reported_bps, overrides_bps)
    return rates.astype(np.float32)


def line_rate_overrides(fabric: Fabric, hosts: Mapping[str, Host]) -> Floats:
    """[ports] line rates that the hosts file sets; NaN where it sets none."""
    overrides = np.full(len(fabric.ports), np.nan, np.float32)
    for node in fabric.nodes:
        host = hosts.get(node.name)
        for pattern, bps in host.speeds if host is not None else ():
            if not 1 <= bps < _MAX_LINE_RATE_BPS:
                continue  # Of a damaged recording: the hosts file allows no such rate.
            for port in node.ports:
                if matches(port.name, (pattern,)) or matches(port.label, (pattern,)):
                    overrides[port.row] = bps
    return overrides


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
