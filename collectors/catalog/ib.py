"""What `/sys/class/infiniband/<device>/ports/<n>` says of a port, InfiniBand or RoCE.

On an InfiniBand port the data counters are the wire. On an Ethernet (RoCE) port they are the RDMA
traffic of this PCI function only; the wire is `phy_*` there.
"""

from __future__ import annotations

from typing import Iterator

from collectors.catalog.metric import GAUGE, WRAP64, Metric, saturating

_DOC = "IBTA 1.6 vol. 1, 16.1.3 (PortCounters); Linux drivers/infiniband/core/sysfs.c"
_MONEO = "Azure/Moneo src/worker/exporters/net_exporter.py"

_DOC_EXT = "IBTA 1.6 vol. 1, 16.1.4.11 (PortCountersExtended, CounterSelect2)"

# Name -> bits, topic, direction, meaning. The widths are those of the classic PortCounters
# attribute, which is what the kernel reads; each sticks at its maximum.
_SATURATING = (
    ("ib_tx_wait", 32, "tx", "congestion", "ticks in which data waited and nothing could be sent"),
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
    ("ib_vl15_dropped", 16, "rx", "drop", "management packets dropped for want of buffers"),
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
    """The `ib_*` rows; `ib_ext_*` are the same errors of devices that count them in 64 bits."""
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
        gauge = f"rate {verb}, by an exporter that keeps the counter to itself"
        yield Metric(f"ib_{direction}_bps", "bps", GAUGE, direction, "traffic", gauge, _MONEO)
    for name, bits, direction, topic, meaning in _SATURATING:
        unit = _EVENTS.get(name, "packets")
        yield Metric(name, unit, saturating(bits), direction, topic, meaning, _DOC)
        wide = name.replace("ib_", "ib_ext_", 1)
        yield Metric(wide, unit, WRAP64, direction, topic, f"{meaning}, in 64 bits", _DOC_EXT)
