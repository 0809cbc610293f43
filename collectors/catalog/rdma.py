"""What an RDMA device counts of its own transport (`hw_counters/`).

Drivers differ in width: mlx5 keeps the transport counters in 32 bits and the congestion counters in
64. A metric has one width, that of the narrowest driver; the source reduces the wider ones to it.
"""

from __future__ import annotations

from typing import Iterator, Tuple

from collectors.catalog.metric import WRAP32, WRAP64, Metric

_DOC = "Linux drivers/infiniband/hw/mlx5/counters.c; NVIDIA 'Understanding mlx5 Linux counters'"

_Row = Tuple[str, str, str, str, str, str]

# name after `rdma_`, unit, kind, direction, topic, meaning
_ROWS: Tuple[_Row, ...] = (
    # Traffic, for the drivers that count it (bnxt_re, efa, erdma, ionic, irdma; newer mlx5).
    ("rx_bytes", "bytes", WRAP64, "rx", "traffic", "RDMA bytes received, as the driver counts"),
    ("tx_bytes", "bytes", WRAP64, "tx", "traffic", "RDMA bytes sent, as the driver counts"),
    ("rx_packets", "packets", WRAP64, "rx", "packets", "RDMA packets received"),
    ("tx_packets", "packets", WRAP64, "tx", "packets", "RDMA packets sent"),
    ("rx_write_requests", "operations", WRAP32, "rx", "packets", "RDMA writes received"),
    ("rx_read_requests", "operations", WRAP32, "rx", "packets", "RDMA reads received"),
    ("rx_atomic_requests", "operations", WRAP32, "rx", "packets", "RDMA atomics received"),
    ("rx_dct_connects", "operations", WRAP32, "rx", "packets", "dynamic transport connections"),
    # Congestion. A mark says that a queue on the path towards this port is filling; a CNP handled
    # says that a flow of this port met such a queue and was slowed.
    ("ecn_marked", "packets", WRAP64, "rx", "congestion", "packets that arrived ECN-marked"),
    (
        "cnp_sent",
        "packets",
        WRAP64,
        "tx",
        "congestion",
        "CNPs sent: senders were told to slow down",
    ),
    ("cnp_handled", "packets", WRAP64, "rx", "congestion", "CNPs that slowed this sender"),
    ("cnp_ignored", "packets", WRAP64, "rx", "congestion", "CNPs received and not acted upon"),
    ("slow_restarts", "events", WRAP32, "tx", "congestion", "slow restarts entered"),
    ("slow_restart_cnps", "packets", WRAP32, "tx", "congestion", "CNPs made by slow restart"),
    ("slow_restart_transitions", "events", WRAP32, "tx", "congestion", "slow-restart changes"),
    # Loss and reordering.
    ("out_of_sequence", "packets", WRAP32, "rx", "error", "packets that arrived out of order"),
    ("packet_sequence_errors", "packets", WRAP32, "tx", "error", "NAKs received: forward loss"),
    ("implied_nak_errors", "packets", WRAP32, "tx", "error", "losses seen from a later response"),
    ("retransmits", "packets", WRAP32, "tx", "error", "packets or segments sent again"),
    ("retransmit_timeouts", "events", WRAP32, "tx", "error", "retransmissions after a timeout"),
    ("ack_timeouts", "events", WRAP32, "tx", "error", "ACK timer expired: tail loss or dead path"),
    ("rnr_nak_retries", "packets", WRAP32, "tx", "error", "the peer had no receive posted"),
    ("rnr_naks_sent", "packets", WRAP32, "rx", "error", "told the peer: no receive posted here"),
    ("duplicate_responses", "packets", WRAP32, "rx", "error", "responses that arrived again"),
    ("duplicate_requests", "packets", WRAP32, "rx", "error", "requests that arrived again"),
    ("icrc_errors", "packets", WRAP64, "rx", "error", "packets with a bad invariant CRC"),
    ("rx_errors", "packets", WRAP32, "rx", "error", "RDMA packets received in error"),
    ("tx_errors", "packets", WRAP32, "tx", "error", "RDMA packets not sent because of an error"),
    # Drops.
    ("out_of_buffer", "packets", WRAP32, "rx", "drop", "dropped: no receive posted (slow program)"),
    ("rx_drops", "packets", WRAP32, "rx", "drop", "RDMA packets dropped on receiving"),
    ("tx_drops", "packets", WRAP32, "tx", "drop", "RDMA packets dropped on sending"),
    ("rx_limit_drops", "packets", WRAP32, "rx", "drop", "of these, by the limits of a rented port"),
    ("tx_limit_drops", "packets", WRAP32, "tx", "drop", "of these, by the limits of a rented port"),
    # Completions in error; an exceeded retry count ends the connection (NCCL error 12).
    ("transport_retries_exceeded", "events", WRAP32, "tx", "error", "connections given up: no ACK"),
    ("rnr_retries_exceeded", "events", WRAP32, "tx", "error", "connections given up: no receive"),
    ("req_cqe_errors", "events", WRAP32, "tx", "error", "requests completed in error"),
    ("req_cqe_flushes", "events", WRAP32, "tx", "error", "requests flushed with their queue"),
    ("req_remote_access_errors", "events", WRAP32, "tx", "error", "the peer refused the access"),
    ("req_remote_invalid_requests", "events", WRAP32, "tx", "error", "the peer refused as invalid"),
    ("resp_cqe_errors", "events", WRAP32, "rx", "error", "responses completed in error"),
    ("resp_cqe_flushes", "events", WRAP32, "rx", "error", "responses flushed with their queue"),
    ("resp_length_errors", "events", WRAP32, "rx", "error", "messages longer than the receive"),
    ("resp_remote_access_errors", "events", WRAP32, "rx", "error", "accesses refused to the peer"),
    ("unresponsive_peers", "events", WRAP32, "tx", "error", "peers that stopped to answer"),
    ("impaired_connections", "events", WRAP32, "tx", "error", "connections much slower than usual"),
    ("commands_failed", "events", WRAP32, "", "error", "commands to the device that failed"),
)


def rdma_metrics() -> Iterator[Metric]:
    """The `rdma_*` rows."""
    for name, unit, kind, direction, topic, meaning in _ROWS:
        yield Metric(f"rdma_{name}", unit, kind, direction, topic, meaning, _DOC)
