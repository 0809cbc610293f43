"""What an HPE Slingshot NIC (Cassini) counts beside what every Ethernet NIC does.

Its bytes, pause and FEC are `phy_*` and `pfc_*`, its marks `rdma_ecn_marked`.
"""

from __future__ import annotations

from typing import Iterator, Tuple

from collectors.catalog.metric import WRAP64, Metric

_DOC = "HPE 'Cassini Performance Counters User Guide'; shs-cassini-headers cassini_cntr_desc.h"

_Row = Tuple[str, str, str, str, str]

# name after `cxi_`, unit, direction, topic, meaning
_ROWS: Tuple[_Row, ...] = (
    ("discards", "packets", "", "drop", "dropped after waiting for too long in a traffic class"),
    ("pfc_fifo_drops", "packets", "", "drop", "dropped: the PFC FIFO was full"),
    ("replay_drops", "packets", "rx", "drop", "dropped while an earlier replay was pending"),
    ("tx_llr_replays", "events", "tx", "error", "link level retries, sending"),
    ("rx_llr_replays", "events", "rx", "error", "link level retries, receiving"),
    ("no_target_nacks", "events", "rx", "error", "requests refused: no connection was free here"),
    ("packet_timeouts", "events", "tx", "error", "packets whose response did not come in time"),
    ("connection_timeouts", "events", "tx", "error", "connections whose close was not answered"),
    ("rx_stalled", "ticks", "rx", "congestion", "cycles the receive path waited for a buffer"),
    ("commands_blocked", "ticks", "tx", "congestion", "cycles in which commands waited"),
    ("host_writes", "packets", "rx", "packets", "PCIe writes to the host"),
    ("host_writes_blocked", "ticks", "rx", "congestion", "cycles in which they waited for PCIe"),
    ("host_reads", "packets", "tx", "packets", "PCIe reads from the host"),
    ("host_reads_blocked", "ticks", "tx", "congestion", "cycles in which they waited for PCIe"),
    ("translation_evictions", "events", "", "congestion", "address translations pushed out"),
)


def cxi_metrics() -> Iterator[Metric]:
    """The `cxi_*` rows."""
    for name, unit, direction, topic, meaning in _ROWS:
        yield Metric(f"cxi_{name}", unit, WRAP64, direction, topic, meaning, _DOC)
