"""Metrics of RDMA devices: port counters of InfiniBand and RoCE, and the transport's own."""

from __future__ import annotations

from typing import Iterator

from collectors.catalog.metric import GAUGE, WRAP64, Metric, rows

_DOC = "IBTA 1.6 vol. 1, 16.1.3 (PortCounters); Linux drivers/infiniband/core/sysfs.c"
_MONEO = "Azure/Moneo src/worker/exporters/net_exporter.py"

OCTETS_PER_WORD = 4
"""Of PortXmitData and PortRcvData."""

_DOC_EXT = "IBTA 1.6 vol. 1, 16.1.4.11 (PortCountersExtended, CounterSelect2)"

_TRAFFIC = """
ib_{way}_bytes bytes wrap64 {way} traffic: bytes {done} on all virtual lanes (RoCE: RDMA only)
ib_{way}_packets packets wrap64 {way} packets: packets {done} on all virtual lanes
ib_{way}_unicast_packets packets wrap64 {way} packets: unicast packets {done}
ib_{way}_multicast_packets packets wrap64 {way} packets: multicast packets {done}
ib_{way}_bps bps gauge {way} traffic: rate {done}, from an exporter that hides the counter
"""
_STATES = """
ib_state state gauge - state: 0 none, 1 down, 2 init, 3 armed, 4 active, 5 active-deferred
ib_phys_state state gauge - state: 1 sleep, 2 polling, 3 disabled, 4 training, 5 up, 6 recovery
ib_rate_bps bps gauge - state: line rate as negotiated, one direction
"""
# Their widths are those of the classic PortCounters attribute, which is what the kernel reads; each
# sticks at its maximum.
_SATURATING = """
ib_tx_wait ticks sat32 tx congestion: ticks in which data waited but could not be sent
ib_symbol_errors events sat16 rx error: minor link errors on one or more lanes
ib_link_error_recovery events sat8 - error: link recoveries that succeeded
ib_link_downed events sat8 - error: link recoveries that failed: the link went down
ib_rx_errors packets sat16 rx error: packets received damaged (CRC, length, bad end)
ib_rx_remote_physical_errors packets sat16 rx error: packets marked bad further upstream: not this
    link's fault
ib_rx_switch_relay_errors packets sat16 rx error: packets the switch could not forward
ib_tx_discards packets sat16 tx drop: packets dropped before sending (link down, lifetime)
ib_tx_constraint_errors packets sat8 tx error: packets not sent: partition or raw filter
ib_rx_constraint_errors packets sat8 rx error: packets refused: partition or raw filter
ib_local_link_integrity_errors events sat4 rx error: local error threshold exceeded
ib_excessive_buffer_overruns events sat4 rx error: the peer sent without credit, repeatedly
ib_vl15_dropped packets sat16 rx drop: management packets dropped for lack of buffers
"""


def ib_metrics() -> Iterator[Metric]:
    """The `ib_*` rows: what `/sys/class/infiniband/<device>/ports/<n>` has for a port.

    On an InfiniBand port the data counters are the wire. On an Ethernet (RoCE) port they are the
    RDMA traffic of this PCI function only; the wire is `phy_*` there. `ib_ext_*` are the same error
    counters of devices that count them in 64 bits.
    """
    yield from rows(_STATES, _DOC)
    for way, done in (("rx", "received"), ("tx", "sent")):
        for row in rows(_TRAFFIC.format(way=way, done=done), _DOC):
            yield row._replace(source=_MONEO) if row.kind == GAUGE else row
    for row in rows(_SATURATING, _DOC):
        yield row
        wide = row.name.replace("ib_", "ib_ext_", 1)
        meaning = f"{row.meaning}, in 64 bits"
        yield row._replace(name=wide, kind=WRAP64, meaning=meaning, source=_DOC_EXT)


_RDMA_DOC = (
    "Linux drivers/infiniband/hw/mlx5/counters.c; NVIDIA 'Understanding mlx5 Linux counters'"
)

_ROWS = """
# Traffic, for the drivers that count it (bnxt_re, efa, erdma, ionic, irdma; newer mlx5).
rdma_rx_bytes bytes wrap64 rx traffic: RDMA bytes received, as the driver counts
rdma_tx_bytes bytes wrap64 tx traffic: RDMA bytes sent, as the driver counts
rdma_rx_packets packets wrap64 rx packets: RDMA packets received
rdma_tx_packets packets wrap64 tx packets: RDMA packets sent
rdma_rx_write_requests operations wrap32 rx packets: RDMA writes received
rdma_rx_read_requests operations wrap32 rx packets: RDMA reads received
rdma_rx_atomic_requests operations wrap32 rx packets: RDMA atomics received
rdma_rx_dct_connects operations wrap32 rx packets: dynamic transport connections
# Congestion. A mark says that a queue on the path towards this port is filling; a CNP handled
# says that a flow of this port met such a queue and was slowed down.
rdma_ecn_marked packets wrap64 rx congestion: packets that arrived ECN-marked
rdma_cnp_sent packets wrap64 tx congestion: CNPs sent, which ask senders to slow down
rdma_cnp_handled packets wrap64 rx congestion: CNPs that slowed this sender
rdma_cnp_ignored packets wrap64 rx congestion: CNPs received and not acted upon
rdma_slow_restarts events wrap32 tx congestion: slow restarts entered
rdma_slow_restart_cnps packets wrap32 tx congestion: CNPs made by slow restart
rdma_slow_restart_transitions events wrap32 tx congestion: slow-restart changes
# Loss and reordering.
rdma_out_of_sequence packets wrap32 rx error: packets that arrived out of order
rdma_packet_sequence_errors packets wrap32 tx error: NAKs received: forward loss
rdma_implied_nak_errors packets wrap32 tx error: losses seen from a later response
rdma_retransmits packets wrap32 tx error: packets or segments sent again
rdma_retransmit_timeouts events wrap32 tx error: retransmissions after a timeout
rdma_ack_timeouts events wrap32 tx error: ACK timer expired: tail loss or dead path
rdma_rnr_nak_retries packets wrap32 tx error: the peer had no receive posted
rdma_rnr_naks_sent packets wrap32 rx error: NAKs sent: no receive was posted here
rdma_duplicate_responses packets wrap32 rx error: responses that arrived again
rdma_duplicate_requests packets wrap32 rx error: requests that arrived again
rdma_icrc_errors packets wrap64 rx error: packets with a bad invariant CRC
rdma_rx_errors packets wrap32 rx error: RDMA packets received in error
rdma_tx_errors packets wrap32 tx error: RDMA packets not sent because of an error
# Drops.
rdma_out_of_buffer packets wrap32 rx drop: dropped: no receive posted (slow program)
rdma_rx_drops packets wrap32 rx drop: RDMA packets dropped on receiving
rdma_tx_drops packets wrap32 tx drop: RDMA packets dropped on sending
rdma_rx_limit_drops packets wrap32 rx drop: dropped by the limits of a rented port
rdma_tx_limit_drops packets wrap32 tx drop: dropped by the limits of a rented port
# Completions in error; an exceeded retry count ends the connection (NCCL error 12).
rdma_transport_retries_exceeded events wrap32 tx error: connections given up: no ACK
rdma_rnr_retries_exceeded events wrap32 tx error: connections given up: no receive
rdma_req_cqe_errors events wrap32 tx error: requests completed in error
rdma_req_cqe_flushes events wrap32 tx error: requests flushed with their queue
rdma_req_remote_access_errors events wrap32 tx error: the peer refused the access
rdma_req_remote_operation_errors events wrap32 tx error: the peer failed to do what was asked
rdma_req_local_operation_errors events wrap32 tx error: requests failed on this side
rdma_req_local_access_errors events wrap32 tx error: requests to memory not allowed
rdma_req_memory_errors events wrap32 tx error: memory management errors of requests
rdma_req_invalid_packets packets wrap32 tx error: answers that were not understood
rdma_resp_invalid_requests events wrap32 rx error: requests not understood
rdma_resp_local_operation_errors events wrap32 rx error: responses failed here
rdma_resp_out_of_atomics events wrap32 rx error: no resources for atomics and reads
rdma_resp_sequence_errors packets wrap32 rx error: NAKs sent: a request was lost before it
rdma_resp_remote_invalid_requests events wrap32 rx error: requests refused
rdma_resp_remote_operation_errors events wrap32 rx error: failures reported back
rdma_local_invalidate_errors events wrap32 - error: memory keys invalidated wrongly
rdma_resp_table_errors events wrap32 rx error: errors of the NIC's S0 table
rdma_req_remote_invalid_requests events wrap32 tx error: the peer refused as invalid
rdma_resp_cqe_errors events wrap32 rx error: responses completed in error
rdma_resp_cqe_flushes events wrap32 rx error: responses flushed with their queue
rdma_resp_length_errors events wrap32 rx error: messages longer than the receive
rdma_resp_remote_access_errors events wrap32 rx error: accesses refused to the peer
rdma_unresponsive_peers events wrap32 tx error: peers that stopped answering
rdma_impaired_connections events wrap32 tx error: connections much slower than usual
rdma_commands_failed events wrap32 - error: commands to the device that failed
"""


def rdma_metrics() -> Iterator[Metric]:
    """The `rdma_*` rows: an RDMA device's own transport counters (`hw_counters/`).

    Drivers differ in width: mlx5 keeps the transport counters in 32 bits and the congestion
    counters in 64. A metric has one width, that of the narrowest driver; the source reduces wider
    counters to it.
    """
    return rows(_ROWS, _RDMA_DOC)
