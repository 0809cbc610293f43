"""Metrics of Ethernet ports: the kernel's stack, the wire, Slingshot NICs, and switch queues."""

from __future__ import annotations

from typing import Iterator

from collectors.catalog.metric import WRAP64, Metric, rows

_NETDEV_DOC = "Linux Documentation/networking/statistics.rst"

_NETDEV_ROWS = """
netdev_up state gauge - state: 1 when the interface is up
netdev_carrier_changes events wrap32 - state: times the link went up or down since the driver loaded
netdev_speed_bps bps gauge - state: line rate, one direction
netdev_mtu bytes gauge - state: largest packet
"""


_NETDEV_TRAFFIC = """
netdev_{way}_bytes bytes wrap64 {way} traffic: bytes {done} through the kernel (RDMA bypasses it)
netdev_{way}_packets packets wrap64 {way} packets: packets {done} through the kernel
netdev_{way}_errors packets wrap64 {way} error: packets not {done} because of an error
netdev_{way}_drops packets wrap64 {way} drop: packets to be {done} that were dropped
"""
_RX = {"way": "rx", "done": "received", "whose": "this port was paused"}
_TX = {"way": "tx", "done": "sent", "whose": "the peer was paused"}


def netdev_metrics() -> Iterator[Metric]:
    """The `netdev_*` rows."""
    yield from rows(_NETDEV_ROWS, _NETDEV_DOC)
    for direction in (_RX, _TX):
        yield from rows(_NETDEV_TRAFFIC.format_map(direction), _NETDEV_DOC)


_PHY_DOC = "Linux Documentation/networking/device_drivers/ethernet (mlx5 counters.rst, and others)"

PRIORITIES = range(8)
"""The priorities of 802.1Qbb."""

# Of each direction: whole wire, then each priority.
_WIRE_ROWS = """
phy_{way}_bytes bytes wrap64 {way} traffic: all bytes {done} on the wire
phy_{way}_packets packets wrap64 {way} packets: packets {done} on the wire
pause_{way}_frames packets wrap64 {way} pause: 802.3x pause frames {done}
pause_{way}_us us wrap64 {way} pause: time paused by 802.3x: {whose}
pause_{way}_transitions events wrap64 {way} pause: 802.3x pauses that ended
pfc_{way}_frames packets wrap64 {way} pause: PFC frames {done}, all priorities
"""
_PRIORITY_ROWS = """
phy_{way}_bytes_prio{n} bytes wrap64 {way} traffic: bytes {done}, priority {n}
phy_{way}_packets_prio{n} packets wrap64 {way} packets: packets {done}, priority {n}
phy_{way}_discards_prio{n} packets wrap64 {way} drop: packets dropped, priority {n}
pfc_{way}_frames_prio{n} packets wrap64 {way} pause: PFC frames {done}, priority {n}
pfc_{way}_pause_us_prio{n} us wrap64 {way} pause: time paused by PFC: {whose}, priority {n}
pfc_{way}_transitions_prio{n} events wrap64 {way} pause: PFC pauses begun or ended, priority {n}
"""
_PRIORITY_DROPS = """
phy_rx_host_buffer_drops_prio{n} packets wrap64 rx drop: dropped: this host's buffer was full,
    priority {n}
phy_rx_host_congestion_drops_prio{n} packets wrap64 rx drop: dropped: this host is congested,
    priority {n}
phy_rx_ecn_marked_prio{n} packets wrap64 rx congestion: marked by the NIC: this host is congested,
    priority {n}
phy_rx_discards_cos{n} packets wrap64 rx drop: dropped: no memory for this class of service, class
    {n}
"""
_PHY_ROWS = """
phy_link_down_events events wrap64 - state: times the physical link went down
phy_rx_errors packets wrap64 rx error: packets received in error
phy_tx_errors packets wrap64 tx error: packets not sent because of an error
phy_rx_crc_errors packets wrap64 rx error: packets with a bad checksum
phy_rx_symbol_errors events wrap64 rx error: symbols received damaged
phy_rx_pcs_symbol_errors events wrap64 rx error: damaged symbols that FEC did not correct
phy_rx_fec_corrected_bits bits wrap64 rx corrected: bits that FEC corrected
phy_rx_fec_corrected_blocks blocks wrap64 rx corrected: blocks that FEC corrected
phy_rx_fec_corrected_symbols events wrap64 rx corrected: symbols that FEC corrected
phy_rx_fec_uncorrectable_blocks blocks wrap64 rx error: blocks that FEC could not correct
phy_local_faults events wrap64 - error: local faults of the MAC: nothing usable received
phy_remote_faults events wrap64 - error: remote faults: the peer receives nothing usable
phy_rx_discards packets wrap64 rx drop: received and dropped: the port's buffer was full
phy_tx_discards packets wrap64 tx drop: dropped before sending
phy_rx_out_of_buffer packets wrap64 rx drop: dropped: the host posted no receive buffer
phy_rx_steering_drops packets wrap64 rx drop: dropped: no steering rule matched
phy_rx_buffer_events events wrap64 rx congestion: receive buffer passed its threshold
limit_rx_packets packets wrap64 rx congestion: queued or dropped: the rented machine's limit of
    received bandwidth
limit_tx_packets packets wrap64 tx congestion: queued or dropped: the rented machine's limit of sent
    bandwidth
limit_pps_packets packets wrap64 - congestion: queued or dropped: the rented machine's limit of
    packets a second
limit_connection_drops packets wrap64 - drop: dropped: the rented machine's limit of tracked
    connections
limit_local_drops packets wrap64 - drop: dropped: the rented machine's limit of packets to local
    services (DNS, metadata)
pause_ctrl_rx_frames packets wrap64 rx pause: pause frames received, 802.3x and PFC
pause_ctrl_tx_frames packets wrap64 tx pause: pause frames sent, 802.3x and PFC
pause_storm_warnings events wrap64 tx pause: the NIC has sent pause for nearly too long
pause_storm_errors events wrap64 tx pause: pause sent for too long: the NIC stopped sending it
pci_stalled_read_events seconds wrap64 - congestion: seconds with PCIe reads stalled >30%
pci_stalled_write_events seconds wrap64 - congestion: seconds with PCIe writes stalled
pci_buffer_overflows packets wrap64 - drop: dropped: PCIe did not drain the buffer
pci_rx_signal_errors events wrap64 rx error: PCIe signal integrity errors, receiving
pci_tx_signal_errors events wrap64 tx error: PCIe signal integrity errors, sending
pci_stalled_read_percent percent gauge - congestion: share of the last second in which PCIe reads
    were stalled
pci_stalled_write_percent percent gauge - congestion: share of the last second in which PCIe writes
    were stalled
"""


def _phy_metrics() -> Iterator[Metric]:
    """The `phy_*`, `pfc_*`, `pause_*` and `pci_*` rows: the counters of a NIC at its wire.

    `pause_*` is the link-wide pause of 802.3x, `pfc_*_prio<N>` the per-priority pause of 802.1Qbb.
    rx: the peer paused this port, which is its victim or passes the pause on; tx: this port paused
    the peer. Each counter exists only where the driver has it: mlx5 has a priority's pause counters
    only while PFC is on for it, and ice and i40e count frames but not time.
    """
    for direction in (_RX, _TX):
        yield from rows(_WIRE_ROWS.format_map(direction), _PHY_DOC)
        for prio in PRIORITIES:
            yield from rows(_PRIORITY_ROWS.format(n=prio, **direction), _PHY_DOC)
    for prio in PRIORITIES:
        yield from rows(_PRIORITY_DROPS.format(n=prio), _PHY_DOC)
    yield from rows(_PHY_ROWS, _PHY_DOC)


_SAI = "opencomputeproject/SAI inc/saiport.h, saiqueue.h; sonic-swss pfcwd"
_MLXSW = "Linux drivers/net/ethernet/mellanox/mlxsw/spectrum_ethtool.c"

QUEUES = range(8)
"""The unicast queues that are reported."""

FEC_BINS = range(17)
"""Symbol errors in a codeword of RS-544, which corrects 15."""

_SWITCH_ROWS = """
phy_up state gauge - state: 1 when the switch chip reports the port up
phy_speed_bps bps gauge - state: line rate as the switch chip reports it
phy_tx_ecn_marked packets wrap64 tx congestion: packets that this port's queues marked because they
    are filling
phy_tx_wred_drops packets wrap64 tx congestion: dropped early by WRED
phy_tx_trimmed_packets packets wrap64 tx congestion: packets cut to their headers since the buffer
    was full
phy_tx_trimmed_sent packets wrap64 tx congestion: trimmed packets sent
phy_tx_trimmed_drops packets wrap64 tx congestion: trimmed packets dropped
pfc_watchdog_storms events wrap64 - pause: times the switch found a queue paused for too long and
    ignored the pause
pfc_watchdog_restores events wrap64 - pause: storms that ended
pfc_watchdog_drops packets wrap64 - drop: packets dropped by the watchdog while a storm lasted
pfc_watchdog_stormed state gauge - pause: queues in a storm now
"""


_GROUP_ROW = """
pg{n}_rx_drops packets wrap64 rx congestion: packets dropped in ingress priority group {n}: a loss
    where it is lossless
"""
_QUEUE_ROWS = """
queue{n}_tx_bytes bytes wrap64 tx traffic: bytes sent from queue {n}
queue{n}_tx_packets packets wrap64 tx packets: packets sent from queue {n}
queue{n}_tx_drops packets wrap64 tx congestion: packets dropped for lack of room in queue {n}
queue{n}_tx_wred_drops packets wrap64 tx congestion: packets dropped early in queue {n}
queue{n}_tx_ecn_marked packets wrap64 tx congestion: packets marked in queue {n}
queue{n}_occupancy_bytes bytes gauge - congestion: bytes waiting now in queue {n}
queue{n}_watermark_bytes bytes gauge - congestion: most bytes that waited recently in queue {n}
"""


def _switch_metrics() -> Iterator[Metric]:
    """The `queue<N>_*` and `pfc_watchdog_*` rows, and counters that only a switch has for a port.

    A queue is one of a port's transmit queues, by its number; on a lossless fabric that is mostly
    the priority of the same number. Drops and marks of queues have the topic congestion: the port's
    own discards count the same packets, so that their topic is not `drop`. The watchdog is the one
    that breaks up PFC storms.
    """
    for row in rows(_SWITCH_ROWS, _SAI):
        yield row._replace(source=_MLXSW) if row.name == "phy_tx_ecn_marked" else row
    for errors in FEC_BINS:
        meaning = f"FEC codewords with {errors} symbol errors"
        if errors == FEC_BINS[-1]:
            meaning = f"FEC codewords with {errors} or more symbol errors: not corrected"
        name = f"phy_rx_fec_codewords_s{errors}"
        topic = "corrected"
        yield Metric(name, "blocks", WRAP64, "rx", topic, meaning, _SAI)
    for number in QUEUES:
        yield from rows(_GROUP_ROW.format(n=number), _SAI)
    for number in QUEUES:
        yield from rows(_QUEUE_ROWS.format(n=number), _SAI)


_CXI_DOC = "HPE 'Cassini Performance Counters User Guide'; shs-cassini-headers cassini_cntr_desc.h"

_CXI_ROWS = """
cxi_discards packets wrap64 - drop: dropped after waiting for too long in a traffic class
cxi_pfc_fifo_drops packets wrap64 - drop: dropped: the PFC FIFO was full
cxi_replay_drops packets wrap64 rx drop: dropped while an earlier replay was pending
cxi_tx_llr_replays events wrap64 tx error: link level retries, sending
cxi_rx_llr_replays events wrap64 rx error: link level retries, receiving
cxi_no_target_nacks events wrap64 rx error: requests refused: no connection was free here
cxi_packet_timeouts events wrap64 tx error: packets whose response did not arrive in time
cxi_connection_timeouts events wrap64 tx error: connections whose close was not answered
cxi_rx_stalled ticks wrap64 rx congestion: cycles the receive path waited for a buffer
cxi_commands_blocked ticks wrap64 tx congestion: cycles in which commands waited
cxi_host_writes packets wrap64 rx packets: PCIe writes to the host
cxi_host_writes_blocked ticks wrap64 rx congestion: cycles in which writes waited for PCIe
cxi_host_reads packets wrap64 tx packets: PCIe reads from the host
cxi_host_reads_blocked ticks wrap64 tx congestion: cycles in which reads waited for PCIe
cxi_translation_evictions events wrap64 - congestion: address translations evicted from the cache
"""


def _cxi_metrics() -> Iterator[Metric]:
    """The `cxi_*` rows: counters that HPE Slingshot NICs (Cassini) have beside the usual ones.

    Their bytes, pause and FEC counters are `phy_*` and `pfc_*`, ECN marks `rdma_ecn_marked`.
    """
    return rows(_CXI_ROWS, _CXI_DOC)


def port_metrics() -> Iterator[Metric]:
    """All rows of Ethernet ports but those of the kernel's network stack."""
    yield from _phy_metrics()
    yield from _cxi_metrics()
    yield from _switch_metrics()
