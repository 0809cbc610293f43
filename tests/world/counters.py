"""The counters of all ports, as their drivers would report them, from the state of the world."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import CATALOG, GAUGE, WRAP32, WRAP64
from tests.world import world as rows
from tests.world.topology import DOWN, Floats
from tests.world.transport import PACKET_BYTES, TCP_PACKET_BYTES
from tests.world.watched_nodes import PRIORITY, PRIORITY_BYTES
from tests.world.world import World

XMIT_WAIT_BYTES = 8.0
"""Bytes of port time in a count of xmit_wait."""

_IDLE_BYTES_PER_S = 1400.0


def columns(world: World, own: Floats, peer: Floats, base: Floats) -> dict[str, NDArray[np.int64]]:
    """Every metric of every port, [ports].

    `own` and `peer` [rows, ports] are the world's counters of each port and of the other end of its
    link when its node was sampled; `base` [ports] is what a port had sent before.
    """
    topology = world.topology
    ports = topology.ports
    idle = _IDLE_BYTES_PER_S * world.now
    tx = own[rows.TX] + idle + base
    rx = peer[rows.TX] + idle + base[topology.peer]
    kernel_tx = own[rows.TX] - own[rows.TX_RDMA] + idle
    kernel_rx = peer[rows.TX] - peer[rows.TX_RDMA] + idle
    rdma_tx, rdma_rx = own[rows.TX_RDMA], peer[rows.TX_RDMA]
    up = (world.up & world.up[topology.peer]).astype(np.float64)
    speed = world.transport.speed[:ports] * 8
    is_switch = topology.role >= DOWN
    pause_rx, pause_tx = own[rows.PAUSED_US], peer[rows.PAUSED_US]
    stalled = np.zeros(ports)
    stalled[: topology.host_ports] = world.pcie_stalled
    nothing = np.zeros(ports)
    # A switch chip's netdev counts what it forwards; a NIC's does not see RDMA.
    packets_tx = rdma_tx / PACKET_BYTES + kernel_tx / TCP_PACKET_BYTES
    packets_rx = rdma_rx / PACKET_BYTES + kernel_rx / TCP_PACKET_BYTES
    values: dict[str, Floats] = {
        "netdev_up": up,
        "netdev_carrier_changes": own[rows.CARRIER] + 1,
        "netdev_rx_bytes": np.where(is_switch, rx, kernel_rx),
        "netdev_tx_bytes": np.where(is_switch, tx, kernel_tx),
        "netdev_rx_packets": np.where(is_switch, packets_rx, kernel_rx / TCP_PACKET_BYTES),
        "netdev_tx_packets": np.where(is_switch, packets_tx, kernel_tx / TCP_PACKET_BYTES),
        "netdev_rx_errors": own[rows.DAMAGED],
        "netdev_tx_errors": nothing,
        "netdev_rx_drops": nothing,
        "netdev_tx_drops": own[rows.DROPPED],
        "netdev_speed_bps": np.where(up > 0, speed, 0),
        "netdev_mtu": np.full(ports, 4200.0),
        "ib_state": np.where(up > 0, 4, 1),
        "ib_phys_state": np.where(up > 0, 5, 2),
        "ib_rate_bps": speed,
        "ib_tx_bytes": rdma_tx,
        "ib_rx_bytes": rdma_rx,
        "ib_tx_packets": rdma_tx / PACKET_BYTES,
        "ib_rx_packets": rdma_rx / PACKET_BYTES,
        "ib_symbol_errors": own[rows.SYMBOLS],
        "ib_link_error_recovery": own[rows.CARRIER] * 2,
        "ib_link_downed": own[rows.LINK_DOWN],
        "ib_rx_errors": own[rows.DAMAGED],
        "ib_rx_remote_physical_errors": nothing,
        "ib_tx_discards": nothing,
        "ib_local_link_integrity_errors": own[rows.DAMAGED] * 1e-4,
        "ib_excessive_buffer_overruns": nothing,
        "rdma_out_of_sequence": own[rows.OUT_OF_ORDER],
        "rdma_packet_sequence_errors": own[rows.RESENT] * 0.8,
        "rdma_retransmits": own[rows.RESENT],
        "rdma_retransmit_timeouts": own[rows.ACK_TIMEOUTS],
        "rdma_ack_timeouts": own[rows.ACK_TIMEOUTS],
        "rdma_rnr_nak_retries": nothing,
        "rdma_out_of_buffer": own[rows.NO_BUFFER],
        "rdma_ecn_marked": own[rows.MARKED_RX],
        "rdma_cnp_sent": own[rows.CNP_SENT],
        "rdma_cnp_handled": own[rows.CNP_HANDLED],
        "rdma_cnp_ignored": nothing,
        "phy_link_down_events": own[rows.LINK_DOWN],
        "phy_tx_bytes": tx,
        "phy_rx_bytes": rx,
        "phy_tx_packets": packets_tx,
        "phy_rx_packets": packets_rx,
        "phy_tx_discards": own[rows.DROPPED],
        "phy_rx_discards": nothing,
        "phy_rx_crc_errors": own[rows.DAMAGED],
        "phy_rx_symbol_errors": own[rows.SYMBOLS],
        "phy_rx_fec_corrected_bits": own[rows.FEC_BITS],
        "phy_rx_fec_uncorrectable_blocks": own[rows.DAMAGED] * 0.5,
        "phy_tx_ecn_marked": own[rows.MARKED_TX],
        PRIORITY_BYTES[0]: rdma_tx,
        PRIORITY_BYTES[1]: rdma_rx,
        f"pfc_rx_pause_us_prio{PRIORITY}": pause_rx,
        f"pfc_tx_pause_us_prio{PRIORITY}": pause_tx,
        f"pfc_rx_frames_prio{PRIORITY}": pause_rx / 25,
        f"pfc_tx_frames_prio{PRIORITY}": pause_tx / 25,
        f"pfc_rx_transitions_prio{PRIORITY}": pause_rx / 80,
        f"pfc_tx_transitions_prio{PRIORITY}": pause_tx / 80,
        "phy_rx_out_of_buffer": own[rows.NO_BUFFER],
        "phy_rx_buffer_events": own[rows.BUFFER_EVENTS],
        "pause_storm_warnings": own[rows.STORMS],
        "pause_storm_errors": own[rows.STORMS] * 0.5,
        "pci_stalled_read_percent": stalled,
        "pci_stalled_write_percent": stalled,
        "pci_stalled_read_events": nothing,
        "pci_stalled_write_events": nothing,
    }
    waits = pause_rx * 1e-6 * topology.speed / XMIT_WAIT_BYTES
    values["ib_tx_wait"] = values["ib_ext_tx_wait"] = waits
    return {name: _as_kind(name, value) for name, value in values.items()}


def _as_kind(name: str, value: Floats) -> NDArray[np.int64]:
    """A counter as an integer of its width."""
    whole = np.floor(value).astype(np.int64)
    kind = CATALOG[name].kind
    if kind == WRAP32:
        return whole & 0xFFFFFFFF
    if kind not in (WRAP64, GAUGE):
        return np.minimum(whole, (1 << int(kind.removeprefix("sat"))) - 1)
    return whole
