"""The counters of a scene under the names of the catalog, and which of them a node reports."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import CATALOG, GAUGE, WRAP64
from fabmon.fabric.model import SWITCH
from tests.packets.archive import SceneMeta
from tests.world.topology import NIC, UP
from tests.world.transport import ROCE
from tests.world.watched_nodes import PRIORITY, PRIORITY_BYTES, Table, View, tables

Counts = NDArray[np.int64]

_PHY = {
    "phy_tx_bytes": "tx_bytes",
    "phy_rx_bytes": "rx_bytes",
    "phy_tx_packets": "tx_packets",
    "phy_rx_packets": "rx_packets",
    "phy_tx_discards": "tx_drops",
    PRIORITY_BYTES[0]: "tx_bytes",
    PRIORITY_BYTES[1]: "rx_bytes",
    f"pfc_rx_pause_us_prio{PRIORITY}": "pause_rx_us",
    f"pfc_tx_pause_us_prio{PRIORITY}": "pause_tx_us",
    f"pfc_rx_frames_prio{PRIORITY}": "pause_rx_frames",
    f"pfc_tx_frames_prio{PRIORITY}": "pause_tx_frames",
}
_SWITCH = {
    **_PHY,
    "netdev_tx_bytes": "tx_bytes",
    "netdev_rx_bytes": "rx_bytes",
    "netdev_tx_packets": "tx_packets",
    "netdev_rx_packets": "rx_packets",
    "netdev_tx_drops": "tx_drops",
    "phy_tx_ecn_marked": "tx_ecn_marked",
}
_NIC = {
    **_PHY,
    "ib_tx_bytes": "tx_bytes",
    "ib_rx_bytes": "rx_bytes",
    "ib_tx_packets": "tx_packets",
    "ib_rx_packets": "rx_packets",
    "rdma_packet_sequence_errors": "naks",
    "rdma_ecn_marked": "rx_ecn_marked",
    "rdma_cnp_sent": "cnp_sent",
    "rdma_cnp_handled": "cnp_handled",
}
_ECN = frozenset({"tx_ecn_marked", "rx_ecn_marked", "cnp_sent", "cnp_handled"})

_LINK_STATES = {"netdev_up": 1, "netdev_carrier_changes": 1, "netdev_mtu": 4200, "ib_state": 4}
_SPEED = "netdev_speed_bps"
# Scenes have no damaged, dropped or repeated packets, and no traffic of the kernel of a host.
_ZERO = (
    "netdev_rx_errors", "netdev_tx_errors", "netdev_rx_drops", "rdma_out_of_sequence",
    "rdma_retransmits", "rdma_retransmit_timeouts", "rdma_ack_timeouts", "phy_link_down_events",
    "phy_rx_discards", "phy_rx_crc_errors", "phy_rx_symbol_errors",
    "phy_rx_fec_uncorrectable_blocks",
)  # fmt: skip
_NIC_ZERO = (
    *("netdev_tx_bytes", "netdev_rx_bytes", "netdev_tx_packets", "netdev_rx_packets"),
    "netdev_tx_drops",
)


def tables_of(meta: SceneMeta, role: str) -> list[Table]:
    """The blocks of a node of a role: those of the RoCE nodes of tests/world, without the counters
    that the scene does not have, or that its nodes do not report."""
    is_switch = role == SWITCH
    hidden = set(meta.absent.get(role, ())) | (set() if meta.has_ecn else _ECN)
    known = {_SPEED, *_LINK_STATES, *_ZERO, *(() if is_switch else _NIC_ZERO)}
    known |= {
        metric
        for metric, counter in _names(is_switch).items()
        if counter in meta.counters and counter not in hidden
    }
    of_role = UP if is_switch else NIC
    found = []
    for table in tables(is_switch, ROCE, View()):
        metrics = tuple(name for name in table.metrics if name in known)
        if metrics and of_role in table.roles:
            found.append(Table(table.source, table.every, metrics, (of_role,)))
    return found


def values_of(
    table: Table, is_switch: bool, counters: Mapping[str, Counts], speed: Counts
) -> Counts:
    """What the ports of a table report, [ticks, ports, metrics].

    `counters` are those of the scene from its beginning, `speed` is the line rate in bits/s, each
    [ticks, ports].
    """
    names = _names(is_switch)
    columns = []
    for metric in table.metrics:
        if metric in names:
            columns.append(_as_kind(metric, counters[names[metric]]))
        elif metric == _SPEED:
            columns.append(speed)
        else:
            columns.append(np.full_like(speed, _LINK_STATES.get(metric, 0)))
    return np.stack(columns, axis=2)


def _names(is_switch: bool) -> Mapping[str, str]:
    """The counters of the scene by the catalog's metrics."""
    return _SWITCH if is_switch else _NIC


def _as_kind(metric: str, values: Counts) -> Counts:
    """A counter as an integer of its width."""
    kind = CATALOG[metric].kind
    if kind in (WRAP64, GAUGE):
        return values
    if kind.startswith("sat"):
        return np.minimum(values, (1 << int(kind.removeprefix("sat"))) - 1)
    return values & 0xFFFFFFFF
