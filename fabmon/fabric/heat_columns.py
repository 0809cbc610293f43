"""The columns of HEAT: what is kept of every port over the last minutes, and recorded.

Quick to import: the help of commands lists the names.
"""

from __future__ import annotations

from typing import NamedTuple


class HeatColumn(NamedTuple):
    """A column, and its name with its unit in CSV and Parquet."""

    name: str
    exported: str


COLUMNS = (
    HeatColumn("tx_bps", "tx_bps"),
    HeatColumn("rx_bps", "rx_bps"),
    HeatColumn("pause_rx", "pause_rx_ratio"),
    HeatColumn("pause_tx", "pause_tx_ratio"),
    HeatColumn("xoff", "xoff_per_s"),
    HeatColumn("stall", "stall_ratio"),
    HeatColumn("ecn", "ecn_packets_per_s"),
    HeatColumn("cnp_sent", "cnp_sent_per_s"),
    HeatColumn("cnp", "cnp_handled_per_s"),
    HeatColumn("naks", "naks_per_s"),
    HeatColumn("errors", "errors_per_s"),
    HeatColumn("drops", "drops_per_s"),
    HeatColumn("tx_drops", "tx_drops_per_s"),
    HeatColumn("damage", "damage_errors_per_s"),
    HeatColumn("flaps", "carrier_changes_per_s"),
    HeatColumn("bus", "pcie_stall_ratio"),
    HeatColumn("pcie", "pcie_util_ratio"),
    HeatColumn("non_rdma", "non_rdma_ratio"),
)
"""All but bits/s are per second.

`pause_rx` is the share of time (0 to 1) in which this port was paused by its peer, `pause_tx` the
share in which it paused its peer; the worst priority counts. `xoff` is pause transitions, both
directions, all priorities. `stall` is the share of time in which data waited and nothing could be
sent (InfiniBand). `ecn` is ECN-marked packets received (of a switch's port: those that its queues
marked), `cnp_sent` CNPs sent (to slow a sender down), `cnp` CNPs handled (this sender slowed down),
`naks` NAKs received (packets were lost on the way, and are sent again). `errors` and `drops` are
sums over the catalog's topics, `tx_drops` what an Ethernet port did not send: its queue was full;
`damage` are the errors of the link itself, without what congestion causes. `flaps` are carrier
changes. `bus` is the share of time (0 to 1) in which a NIC's PCIe stalled, `pcie` the traffic over
a device's PCIe link, the busier direction, as a share of what it carries: of a GPU as it counts it,
of a NIC its own traffic. `non_rdma` is the share of a RoCE port's traffic that is not RDMA.
"""

HEAT = tuple(each.name for each in COLUMNS)
"""Their names, in the order of the arrays of a snapshot."""
