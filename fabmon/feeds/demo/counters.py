"""The counters of a simulated fabric's nodes, computed from the bytes that moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import CATALOG, GAUGE, WRAP32, WRAP64
from fabmon.feeds.demo.congestion import PACKET_BYTES
from fabmon.feeds.demo.fabric_state import FabricState
from fabmon.feeds.demo.hardware import Hardware
from fabmon.feeds.demo.world import StepTotals

EXACT64 = frozenset({"ib_tx_wait"})
"""Metrics that the simulated nodes read from 64-bit attributes, as newer InfiniBand firmware has
them."""


def kind_of(metric: str) -> str:
    """The kind of a counter of these nodes: the catalog's, except for EXACT64."""
    return WRAP64 if metric in EXACT64 else CATALOG[metric].kind


class CounterTable:
    """One source block of `nodes` nodes, each with `ports` ports that have the same metrics.

    One counter of all these nodes is a view of one array, a frame is one row as a list.
    """

    def __init__(
        self, source: str, nodes: int, ports: int, metrics: Sequence[str], every: int = 1
    ) -> None:
        self.source = source
        self.metrics = tuple(metrics)
        self.every = every
        self._shape = (nodes, ports)
        self._values: Ints = np.zeros((nodes, 1 + ports * len(self.metrics)), np.int64)
        self._views = {
            name: self._values[:, 1 + place :: len(self.metrics)]
            for place, name in enumerate(self.metrics)
        }
        self._changed = True

    def __contains__(self, metric: str) -> bool:
        return metric in self._views

    def add(self, metric: str, count: NDArray[np.float64] | Ints) -> None:
        """Increment a counter by `count` [nodes * ports]; it wraps or saturates as its kind
        does."""
        view = self._views[metric]
        view += np.asarray(count).reshape(self._shape).astype(np.int64)
        kind = kind_of(metric)
        if kind == WRAP32:
            view &= 0xFFFFFFFF
        elif kind not in (WRAP64, GAUGE):
            np.minimum(view, (1 << int(kind.removeprefix("sat"))) - 1, out=view)

    def put(self, metric: str, level: NDArray[np.float64] | Ints | int) -> None:
        """Set a gauge of all ports, [nodes * ports]."""
        new = np.broadcast_to(np.asarray(level), self._shape[0] * self._shape[1])
        new = new.reshape(self._shape).astype(np.int64)
        if self.every > 1 and not np.array_equal(new, self._views[metric]):
            self._changed = True
        self._views[metric][:] = new

    def clear(self, node: int) -> None:
        """Reset the counters of a node to 0, as a reboot does."""
        for name, view in self._views.items():
            if kind_of(name) != GAUGE:
                view[node] = 0

    def rows(self, seq: int, clock_ns: int) -> list[list[int | None]] | None:
        """The block of every node at this tick; None when this source is not read at it.

        A source that is read every few ticks is read at once when one of its gauges has changed.
        """
        if seq % self.every and not self._changed:
            return None
        self._changed = False
        self._values[:, 0] = clock_ns
        rows: list[list[int | None]] = self._values.tolist()
        return rows


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PRIORITY = 3
"""The lossless priority of a usual RoCE configuration."""

_IDLE_BYTES_PER_S = 1500.0
_PFC_US_PER_FRAME, _PFC_US_PER_PAUSE = 25.0, 80.0
_WAIT_BYTES = 8.0
"""Bytes of port time in a tick of `xmit_wait` on NVIDIA Quantum."""

NVLINK, NVLINK_LINKS = "nvlink", "nvlink_errors"
"""Sources of the totals of GPUs and of their links."""

_NVLINK_BYTES_PER_S = 25e9
"""Payload of an NVLink 4, one direction."""

_LINKS_OF_A_GPU = 18
_GPUS_DIFFER = 0.04
"""Relative variation between GPUs of what they send over NVLinks."""

_NETDEV = (
    "netdev_up",
    "netdev_carrier_changes",
    "netdev_rx_bytes",
    "netdev_tx_bytes",
    "netdev_rx_packets",
    "netdev_tx_packets",
    "netdev_rx_errors",
    "netdev_tx_errors",
    "netdev_rx_drops",
    "netdev_tx_drops",
)
_NETDEV_LINK = ("netdev_speed_bps", "netdev_mtu")
_ROCE = ("ib_state", "ib_tx_bytes", "ib_rx_bytes", "ib_tx_packets", "ib_rx_packets")
_IB = (*_ROCE, "ib_tx_wait")
_IB_ERRORS = (
    "ib_rate_bps",
    "ib_phys_state",
    "ib_symbol_errors",
    "ib_link_error_recovery",
    "ib_link_downed",
    "ib_rx_errors",
    "ib_rx_remote_physical_errors",
    "ib_tx_discards",
    "ib_local_link_integrity_errors",
    "ib_excessive_buffer_overruns",
)
_RDMA = (
    "rdma_ecn_marked",
    "rdma_cnp_sent",
    "rdma_cnp_handled",
    "rdma_cnp_ignored",
    "rdma_out_of_sequence",
    "rdma_packet_sequence_errors",
    "rdma_retransmits",
    "rdma_retransmit_timeouts",
    "rdma_ack_timeouts",
    "rdma_rnr_nak_retries",
    "rdma_out_of_buffer",
)
_RDMA_IB = tuple(name for name in _RDMA if "cnp" not in name and "ecn" not in name)
_PHY = (
    "phy_link_down_events",
    "phy_tx_bytes",
    "phy_rx_bytes",
    "phy_tx_packets",
    "phy_rx_packets",
    "phy_tx_discards",
    "phy_rx_discards",
    "phy_rx_crc_errors",
    "phy_rx_symbol_errors",
    "phy_rx_fec_corrected_bits",
    "phy_rx_fec_uncorrectable_blocks",
    f"phy_tx_bytes_prio{PRIORITY}",
    f"phy_rx_bytes_prio{PRIORITY}",
    f"pfc_rx_frames_prio{PRIORITY}",
    f"pfc_rx_pause_us_prio{PRIORITY}",
    f"pfc_rx_transitions_prio{PRIORITY}",
    f"pfc_tx_frames_prio{PRIORITY}",
    f"pfc_tx_pause_us_prio{PRIORITY}",
    f"pfc_tx_transitions_prio{PRIORITY}",
)
_NIC_PHY = (
    *_PHY,
    "phy_rx_out_of_buffer",
    "phy_rx_buffer_events",
    "pause_storm_warnings",
    "pause_storm_errors",
    "pci_stalled_read_percent",
    "pci_stalled_read_events",
    "pci_stalled_write_percent",
    "pci_stalled_write_events",
)
_NVLINK = ("nvlink_tx_bytes", "nvlink_rx_bytes", "nvlink_speed_bps")
_NVLINK_LINK = ("nvlink_state", *_NVLINK)
_MTU, _ACTIVE, _DOWN, _PHYS_UP, _POLLING = 4200, 4, 1, 5, 2
_STORM = 0.9
"""Share of time above which a NIC that sends pause counts a pause storm."""


class Counters:
    """All counters of all nodes; `hosts`, `leaves` and `spines` are their source blocks."""

    def __init__(self, hardware: Hardware, seed: int) -> None:
        self._hardware = hardware
        self.hosts = _host_tables(hardware)
        self.leaves = _switch_tables(hardware, hardware.leaves, hardware.leaf_ports)
        self.spines = _switch_tables(hardware, hardware.spines, hardware.spine_ports)
        self._was_up = np.ones(hardware.ports, np.bool_)
        lots = np.random.default_rng([seed, 4])
        history = np.round(lots.uniform(1e13, 4e14, hardware.ports))
        self._add(("phy_tx_bytes", "ib_tx_bytes"), history)
        self._add(("phy_rx_bytes", "ib_rx_bytes"), history[hardware.cabling])
        self._add(("netdev_carrier_changes",), np.full(hardware.ports, 1.0))
        gpus = hardware.hosts * hardware.topology.gpus
        self._gpu_share = 1 + _GPUS_DIFFER * lots.standard_normal(gpus).clip(-2, 2)

    def advance(self, moved: StepTotals, conditions: FabricState, seconds: float) -> None:
        """Increment the counters by what `moved` in so many seconds."""
        hardware, peer = self._hardware, conditions.rules.peer
        up = conditions.rules.up & conditions.rules.up[peer]
        sent = np.rint(moved.sent + _IDLE_BYTES_PER_S * seconds * up)
        got = sent[peer]
        packets = np.rint(moved.sent / PACKET_BYTES)
        self._add(("phy_tx_bytes",), sent)
        self._add(("phy_rx_bytes",), got)
        self._add(("netdev_tx_bytes", "netdev_rx_bytes"), np.rint(_IDLE_BYTES_PER_S * up))
        rdma_sent = np.rint(moved.sent)
        rdma = (f"phy_tx_bytes_prio{PRIORITY}", f"phy_rx_bytes_prio{PRIORITY}")
        self._add((rdma[0], "ib_tx_bytes"), rdma_sent)
        self._add((rdma[1], "ib_rx_bytes"), rdma_sent[peer])
        self._add(("phy_tx_packets", "ib_tx_packets"), packets)
        self._add(("phy_rx_packets", "ib_rx_packets"), packets[peer])
        self._pause(moved, peer, up)
        self._link_state(conditions, up)
        self._errors(conditions, up, seconds)
        self._endpoints(moved, conditions, seconds)
        if hardware.topology.gpus:
            self._nvlinks(moved)

    def _nvlinks(self, moved: StepTotals) -> None:
        """The NVLinks of a GPU share its bytes evenly; through a switch all receive as much."""
        topology = self._hardware.topology
        count = np.repeat(moved.nvlink, topology.gpus) * self._gpu_share
        speed = int(8 * _NVLINK_BYTES_PER_S)
        for bank in self.hosts:
            if bank.source == NVLINK:
                bank.put("nvlink_speed_bps", _LINKS_OF_A_GPU * speed)
            elif bank.source == NVLINK_LINKS:
                bank.put("nvlink_state", 1)
                bank.put("nvlink_speed_bps", speed)
                count = np.repeat(count / topology.nvlinks, topology.nvlinks)
            else:
                continue
            for name in ("nvlink_tx_bytes", "nvlink_rx_bytes"):
                bank.add(name, np.rint(count))

    def reboot(self, host: int) -> None:
        """Reset a host's counters to 0."""
        for bank in self.hosts:
            bank.clear(host)

    def _pause(self, moved: StepTotals, peer: NDArray[np.intp], up: NDArray[np.bool_]) -> None:
        """Pause: the port that is paused counts rx, its peer counts tx."""
        paused_us = np.rint(moved.paused_s * up * 1e6)
        for direction, us in (("rx", paused_us), ("tx", paused_us[peer])):
            self._add((f"pfc_{direction}_pause_us_prio{PRIORITY}",), us)
            frames = np.rint(us / _PFC_US_PER_FRAME)
            self._add((f"pfc_{direction}_frames_prio{PRIORITY}",), frames)
            turns = np.rint(us / _PFC_US_PER_PAUSE)
            self._add((f"pfc_{direction}_transitions_prio{PRIORITY}",), turns)
        if self._hardware.is_ib:
            self._add(("ib_tx_wait",), np.rint(moved.paused_s * self._hardware.speed / _WAIT_BYTES))

    def _link_state(self, conditions: FabricState, up: NDArray[np.bool_]) -> None:
        """State, speed, and the number of carrier changes."""
        turned = (up != self._was_up).astype(np.int64)
        self._add(("netdev_carrier_changes",), turned)
        fell = (self._was_up & ~up).astype(np.int64)
        self._add(("phy_link_down_events", "ib_link_downed"), fell)
        self._was_up = up
        bps = np.rint(conditions.speed * 8)
        self._set("netdev_up", up.astype(np.int64))
        self._set("netdev_speed_bps", np.where(up, bps, 0))
        self._set("netdev_mtu", np.full(len(up), _MTU))
        self._set("ib_state", np.where(up, _ACTIVE, _DOWN))
        self._set("ib_phys_state", np.where(up, _PHYS_UP, _POLLING))
        self._set("ib_rate_bps", bps)

    def _errors(self, conditions: FabricState, up: NDArray[np.bool_], seconds: float) -> None:
        errors = np.rint(conditions.errors * seconds * up)
        self._add(("phy_rx_crc_errors", "ib_rx_errors"), errors)
        self._add(("phy_rx_symbol_errors", "ib_symbol_errors"), errors * 4)
        self._add(("phy_rx_fec_uncorrectable_blocks",), errors)
        # A healthy link has corrected bits too.
        self._add(("phy_rx_fec_corrected_bits",), 40 * seconds * up + errors * 900)
        if conditions.pegged:
            pegged = np.zeros(len(up))
            pegged[conditions.pegged] = 1 << 16
            self._add(("ib_symbol_errors",), pegged)

    def _endpoints(self, moved: StepTotals, conditions: FabricState, seconds: float) -> None:
        """Counters that only NICs have."""
        nics, peer = self._hardware.nics, conditions.rules.peer
        paused_s = moved.paused_s[peer[:nics]]
        slow = (paused_s > 0) & (conditions.accept < 1)
        bus, events = conditions.pcie, np.rint(moved.stalled / 100 * seconds)
        counts: dict[str, Floats] = {
            "rdma_ecn_marked": moved.marked,
            "rdma_cnp_sent": moved.cnp_sent,
            "rdma_cnp_handled": moved.cnp_handled,
            "rdma_out_of_sequence": moved.out_of_order,
            "rdma_packet_sequence_errors": moved.sent_again,
            "rdma_retransmits": moved.sent_again,
            "phy_rx_buffer_events": np.where(slow, paused_s * 2000, 0.0),
            "phy_rx_out_of_buffer": np.where(slow & ~bus, paused_s * 300, 0.0),
            "pause_storm_warnings": (paused_s > 0.5 * seconds).astype(np.float64),
            "pause_storm_errors": (paused_s > _STORM * seconds).astype(np.float64),
            "pci_stalled_read_events": events,
            "pci_stalled_write_events": events,
        }
        for bank in self.hosts:
            for name, count in counts.items():
                if name in bank:
                    bank.add(name, np.rint(count))
            for name in ("pci_stalled_read_percent", "pci_stalled_write_percent"):
                if name in bank:
                    bank.put(name, np.rint(moved.stalled))

    def _add(self, names: Sequence[str], count: Floats | Ints) -> None:
        """Add `count` [ports] to these counters of all ports."""
        self._each(names, count, lambda bank, name, part: bank.add(name, part))

    def _set(self, name: str, level: Floats | Ints) -> None:
        self._each((name,), level, lambda bank, metric, part: bank.put(metric, part))

    def _each(
        self,
        names: Sequence[str],
        values: Floats | Ints,
        do: Callable[[CounterTable, str, Floats | Ints], None],
    ) -> None:
        hardware = self._hardware
        first, second = hardware.first_leaf_port, hardware.first_spine_port
        for banks, part in (
            (self.hosts, values[:first]),
            (self.leaves, values[first:second]),
            (self.spines, values[second:]),
        ):
            for bank in banks:
                for name in names:
                    if name in bank:
                        do(bank, name, part)


def _host_tables(hardware: Hardware) -> list[CounterTable]:
    def bank(source: str, metrics: Sequence[str], every: int = 1) -> CounterTable:
        return CounterTable(source, hardware.hosts, hardware.rails, metrics, every)

    if hardware.is_ib:
        banks = [bank("ib", _IB), bank("ib_errors", _IB_ERRORS, 10), bank("rdma", _RDMA_IB)]
    else:
        banks = [
            bank("netdev", _NETDEV),
            bank("netdev_link", _NETDEV_LINK, 10),
            bank("ib", _ROCE),
            bank("rdma", _RDMA),
            bank("ethtool", _NIC_PHY),
        ]
    if hardware.topology.gpus:
        gpus, links = hardware.topology.gpus, hardware.topology.nvlinks
        banks.append(CounterTable(NVLINK, hardware.hosts, gpus, _NVLINK))
        if links:
            banks.append(CounterTable(NVLINK_LINKS, hardware.hosts, gpus * links, _NVLINK_LINK))
    return banks


def _switch_tables(hardware: Hardware, nodes: int, ports: int) -> list[CounterTable]:
    def banks() -> Iterator[CounterTable]:
        if hardware.is_ib:
            yield CounterTable("ib", nodes, ports, _IB)
            yield CounterTable("ib_errors", nodes, ports, _IB_ERRORS, 10)
        else:
            yield CounterTable("netdev", nodes, ports, _NETDEV)
            yield CounterTable("netdev_link", nodes, ports, _NETDEV_LINK, 10)
            yield CounterTable("ethtool", nodes, ports, _PHY)

    return list(banks())
