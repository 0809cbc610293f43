"""Metrics of RDMA devices: port counters of InfiniBand and RoCE, and the transport's own."""

from __future__ import annotations

from typing import Iterator, Tuple

from collectors.catalog.metric import GAUGE, WRAP32, WRAP64, Metric, saturating

_DOC = "IBTA 1.6 vol. 1, 16.1.3 (PortCounters); Linux drivers/infiniband/core/sysfs.c"
_MONEO = "Azure/Moneo src/worker/exporters/net_exporter.py"

OCTETS_PER_WORD = 4
"""Of PortXmitData and PortRcvData."""

_DOC_EXT = "IBTA 1.6 vol. 1, 16.1.4.11 (PortCountersExtended, CounterSelect2)"

# Name -> bits, topic, direction, meaning. The widths are those of the classic PortCounters
# attribute, which is what the kernel reads; each sticks at its maximum.
_SATURATING = (
    ("ib_tx_wait", 32, "tx", "congestion", "ticks in which data waited but could not be sent"),
    ("ib_symbol_errors", 16, "rx", "error", "minor link errors on one or more lanes"),
    ("ib_link_error_recovery", 8, "", "error", "link recoveries that succeeded"),
    ("ib_link_downed", 8, "", "error", "link recoveries that failed: the link went down"),
    ("ib_rx_errors", 16, "rx", "error", "packets received damaged (CRC, length, bad end)"),
    (
        "ib_rx_remote_physical_errors",
        16,
        "rx",
        "error",
        "packets marked bad further upstream: not this link's fault",
    ),
    ("ib_rx_switch_relay_errors", 16, "rx", "error", "packets the switch could not forward"),
    ("ib_tx_discards", 16, "tx", "drop", "packets dropped before sending (link down, lifetime)"),
    ("ib_tx_constraint_errors", 8, "tx", "error", "packets not sent: partition or raw filter"),
    ("ib_rx_constraint_errors", 8, "rx", "error", "packets refused: partition or raw filter"),
    ("ib_local_link_integrity_errors", 4, "rx", "error", "local error threshold exceeded"),
    ("ib_excessive_buffer_overruns", 4, "rx", "error", "the peer sent without credit, repeatedly"),
    ("ib_vl15_dropped", 16, "rx", "drop", "management packets dropped for lack of buffers"),
)
_EVENTS = {
    "ib_tx_wait": "ticks",
    "ib_symbol_errors": "events",
    "ib_link_error_recovery": "events",
    "ib_link_downed": "events",
    "ib_local_link_integrity_errors": "events",
    "ib_excessive_buffer_overruns": "events",
}


def ib_metrics() -> Iterator[Metric]:
    """The `ib_*` rows: what `/sys/class/infiniband/<device>/ports/<n>` has for a port.

    On an InfiniBand port the data counters are the wire. On an Ethernet (RoCE) port they are the
    RDMA traffic of this PCI function only; the wire is `phy_*` there. `ib_ext_*` are the same error
    counters of devices that count them in 64 bits.
    """
    for name, unit, meaning in (
        ("ib_state", "state", "0 none, 1 down, 2 init, 3 armed, 4 active, 5 active-deferred"),
        ("ib_phys_state", "state", "1 sleep, 2 polling, 3 disabled, 4 training, 5 up, 6 recovery"),
        ("ib_rate_bps", "bps", "line rate as negotiated, one direction"),
    ):
        yield Metric(name, unit, GAUGE, "", "state", meaning, _DOC)
    for direction, verb in (("rx", "received"), ("tx", "sent")):
        for what, unit, topic, meaning in (
            ("bytes", "bytes", "traffic", f"bytes {verb} on all virtual lanes (RoCE: RDMA only)"),
            ("packets", "packets", "packets", f"packets {verb} on all virtual lanes"),
            ("unicast_packets", "packets", "packets", f"unicast packets {verb}"),
            ("multicast_packets", "packets", "packets", f"multicast packets {verb}"),
        ):
            yield Metric(f"ib_{direction}_{what}", unit, WRAP64, direction, topic, meaning, _DOC)
        gauge = f"rate {verb}, from an exporter that hides the counter"
        yield Metric(f"ib_{direction}_bps", "bps", GAUGE, direction, "traffic", gauge, _MONEO)
    for name, bits, direction, topic, meaning in _SATURATING:
        unit = _EVENTS.get(name, "packets")
        yield Metric(name, unit, saturating(bits), direction, topic, meaning, _DOC)
        wide = name.replace("ib_", "ib_ext_", 1)
        yield Metric(wide, unit, WRAP64, direction, topic, f"{meaning}, in 64 bits", _DOC_EXT)


_RDMA_DOC = (
    "Linux drivers/infiniband/hw/mlx5/counters.c; NVIDIA 'Understanding mlx5 Linux counters'"
)

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
    # says that a flow of this port met such a queue and was slowed down.
    ("ecn_marked", "packets", WRAP64, "rx", "congestion", "packets that arrived ECN-marked"),
    (
        "cnp_sent",
        "packets",
        WRAP64,
        "tx",
        "congestion",
        "CNPs sent, which ask senders to slow down",
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
    ("rnr_naks_sent", "packets", WRAP32, "rx", "error", "NAKs sent: no receive was posted here"),
    ("duplicate_responses", "packets", WRAP32, "rx", "error", "responses that arrived again"),
    ("duplicate_requests", "packets", WRAP32, "rx", "error", "requests that arrived again"),
    ("icrc_errors", "packets", WRAP64, "rx", "error", "packets with a bad invariant CRC"),
    ("rx_errors", "packets", WRAP32, "rx", "error", "RDMA packets received in error"),
    ("tx_errors", "packets", WRAP32, "tx", "error", "RDMA packets not sent because of an error"),
    # Drops.
    ("out_of_buffer", "packets", WRAP32, "rx", "drop", "dropped: no receive posted (slow program)"),
    ("rx_drops", "packets", WRAP32, "rx", "drop", "RDMA packets dropped on receiving"),
    ("tx_drops", "packets", WRAP32, "tx", "drop", "RDMA packets dropped on sending"),
    ("rx_limit_drops", "packets", WRAP32, "rx", "drop", "dropped by the limits of a rented port"),
    ("tx_limit_drops", "packets", WRAP32, "tx", "drop", "dropped by the limits of a rented port"),
    # Completions in error; an exceeded retry count ends the connection (NCCL error 12).
    ("transport_retries_exceeded", "events", WRAP32, "tx", "error", "connections given up: no ACK"),
    ("rnr_retries_exceeded", "events", WRAP32, "tx", "error", "connections given up: no receive"),
    ("req_cqe_errors", "events", WRAP32, "tx", "error", "requests completed in error"),
    ("req_cqe_flushes", "events", WRAP32, "tx", "error", "requests flushed with their queue"),
    ("req_remote_access_errors", "events", WRAP32, "tx", "error", "the peer refused the access"),
    (
        "req_remote_operation_errors",
        *("events", WRAP32, "tx", "error", "the peer failed to do what was asked"),
    ),
    ("req_local_operation_errors", "events", WRAP32, "tx", "error", "requests failed on this side"),
    ("req_local_access_errors", "events", WRAP32, "tx", "error", "requests to memory not allowed"),
    ("req_memory_errors", "events", WRAP32, "tx", "error", "memory management errors of requests"),
    ("req_invalid_packets", "packets", WRAP32, "tx", "error", "answers that were not understood"),
    ("resp_invalid_requests", "events", WRAP32, "rx", "error", "requests not understood"),
    ("resp_local_operation_errors", "events", WRAP32, "rx", "error", "responses failed here"),
    ("resp_out_of_atomics", "events", WRAP32, "rx", "error", "no resources for atomics and reads"),
    (
        "resp_sequence_errors",
        *("packets", WRAP32, "rx", "error", "NAKs sent: a request was lost before it"),
    ),
    ("resp_remote_invalid_requests", "events", WRAP32, "rx", "error", "requests refused"),
    (
        "resp_remote_operation_errors",
        *("events", WRAP32, "rx", "error", "failures reported back"),
    ),
    ("local_invalidate_errors", "events", WRAP32, "", "error", "memory keys invalidated wrongly"),
    ("resp_table_errors", "events", WRAP32, "rx", "error", "errors of the NIC's S0 table"),
    ("req_remote_invalid_requests", "events", WRAP32, "tx", "error", "the peer refused as invalid"),
    ("resp_cqe_errors", "events", WRAP32, "rx", "error", "responses completed in error"),
    ("resp_cqe_flushes", "events", WRAP32, "rx", "error", "responses flushed with their queue"),
    ("resp_length_errors", "events", WRAP32, "rx", "error", "messages longer than the receive"),
    ("resp_remote_access_errors", "events", WRAP32, "rx", "error", "accesses refused to the peer"),
    ("unresponsive_peers", "events", WRAP32, "tx", "error", "peers that stopped answering"),
    ("impaired_connections", "events", WRAP32, "tx", "error", "connections much slower than usual"),
    ("commands_failed", "events", WRAP32, "", "error", "commands to the device that failed"),
)


def rdma_metrics() -> Iterator[Metric]:
    """The `rdma_*` rows: an RDMA device's own transport counters (`hw_counters/`).

    Drivers differ in width: mlx5 keeps the transport counters in 32 bits and the congestion
    counters in 64. A metric has one width, that of the narrowest driver; the source reduces wider
    counters to it.
    """
    for name, unit, kind, direction, topic, meaning in _ROWS:
        yield Metric(f"rdma_{name}", unit, kind, direction, topic, meaning, _RDMA_DOC)
