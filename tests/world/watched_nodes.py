"""What is watched: which counters a node reports, of which of its ports, and how well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.world.topology import DOWN, FRONTEND, NIC, STORAGE, UP, Ints
from tests.world.transport import INFINIBAND, ROCE

PRIORITY = 3

_NETDEV = (
    "netdev_up", "netdev_carrier_changes", "netdev_rx_bytes", "netdev_tx_bytes",
    "netdev_rx_packets", "netdev_tx_packets", "netdev_rx_errors", "netdev_tx_errors",
    "netdev_rx_drops", "netdev_tx_drops",
)  # fmt: skip
_LINK = ("netdev_speed_bps", "netdev_mtu")
_IB = ("ib_state", "ib_tx_bytes", "ib_rx_bytes", "ib_tx_packets", "ib_rx_packets")
_IB_ERRORS = (
    "ib_rate_bps", "ib_phys_state", "ib_symbol_errors", "ib_link_error_recovery",
    "ib_link_downed", "ib_rx_errors", "ib_rx_remote_physical_errors", "ib_tx_discards",
    "ib_local_link_integrity_errors", "ib_excessive_buffer_overruns",
)  # fmt: skip
_RDMA = (
    "rdma_out_of_sequence", "rdma_packet_sequence_errors", "rdma_retransmits",
    "rdma_retransmit_timeouts", "rdma_ack_timeouts", "rdma_rnr_nak_retries", "rdma_out_of_buffer",
)  # fmt: skip
_CC = ("rdma_ecn_marked", "rdma_cnp_sent", "rdma_cnp_handled", "rdma_cnp_ignored")
_PFC = tuple(
    f"pfc_{way}_{what}_prio{PRIORITY}"
    for way in ("rx", "tx")
    for what in ("frames", "pause_us", "transitions")
)
_PHY = (
    "phy_link_down_events", "phy_tx_bytes", "phy_rx_bytes", "phy_tx_packets", "phy_rx_packets",
    "phy_tx_discards", "phy_rx_discards", "phy_rx_crc_errors", "phy_rx_symbol_errors",
    "phy_rx_fec_corrected_bits", "phy_rx_fec_uncorrectable_blocks",
)  # fmt: skip
PRIORITY_BYTES = (f"phy_tx_bytes_prio{PRIORITY}", f"phy_rx_bytes_prio{PRIORITY}")
_NIC = (
    "phy_rx_out_of_buffer", "phy_rx_buffer_events", "pause_storm_warnings", "pause_storm_errors",
    "pci_stalled_read_percent", "pci_stalled_read_events", "pci_stalled_write_percent",
    "pci_stalled_write_events",
)  # fmt: skip


@dataclass(frozen=True)
class View:
    """What is watched, and how well: the clocks of the nodes, and which facts they report."""

    visible: bool = True
    """Whether switches are watched."""
    lldp: bool = True
    skew_s: float = 0.0
    late: float = 0.0
    """Share of frames that miss their tick."""
    switch_marks: bool = True
    xmit_wait_bits: int = 64


@dataclass
class Table:
    """A source block of some nodes: its metrics, and the ports that have them."""

    source: str
    every: int
    metrics: tuple[str, ...]
    roles: tuple[int, ...]


@dataclass
class Node:
    """A watched node: its ports, its clocks, and how it answers."""

    number: int
    name: str
    is_switch: bool
    ports: Ints
    tables: list[tuple[Table, Ints]] = field(default_factory=list)
    wall_offset_ns: int = 0
    mono_offset_ns: int = 0
    from_s: float = 0.0
    lost: bool = False
    hello_due: bool = True
    facts: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Facts of ports that a fault has changed."""


def tables(is_switch: bool, transport: str, view: View) -> Iterator[Table]:
    """The blocks of a host or of a switch."""
    fabric = (DOWN, UP) if is_switch else (NIC, STORAGE)
    everything = (DOWN, UP) if is_switch else (NIC, STORAGE, FRONTEND)
    if transport == INFINIBAND:
        wait = "ib_ext_tx_wait" if view.xmit_wait_bits == 64 else "ib_tx_wait"
        if not is_switch:
            yield Table("netdev", 1, _NETDEV, (FRONTEND,))
            yield Table("netdev_link", 10, _LINK, (FRONTEND,))
        yield Table("ib", 1, (*_IB, wait), fabric)
        yield Table("ib_errors", 10, _IB_ERRORS, fabric)
        if not is_switch:
            yield Table("rdma", 1, _RDMA, fabric)
        return
    yield Table("netdev", 1, _NETDEV, everything)
    yield Table("netdev_link", 10, _LINK, everything)
    phy: tuple[str, ...] = _PHY
    if transport == ROCE:
        phy = (*_PHY, *PRIORITY_BYTES, *_PFC)
        if not is_switch:
            yield Table("ib", 1, _IB, fabric)
            yield Table("rdma", 1, (*_RDMA, *_CC), fabric)
    if is_switch:
        marks = ("phy_tx_ecn_marked",) if view.switch_marks and transport == ROCE else ()
        yield Table("ethtool", 1, (*phy, *marks), fabric)
    else:
        yield Table("ethtool", 1, (*phy, *_NIC), fabric)
