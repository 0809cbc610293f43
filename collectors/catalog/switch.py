"""What a switch counts of its queues, and of the watchdog that breaks up PFC storms.

A queue is one of a port's sending queues, by its number; on a lossless fabric that is mostly the
priority of the same number. Drops and marks of queues are congestion: the port's own discards
count the same packets, so that their topic is not `drop`.
"""

from __future__ import annotations

from typing import Iterator, Tuple

from collectors.catalog.metric import GAUGE, WRAP64, Metric

_SAI = "opencomputeproject/SAI inc/saiport.h, saiqueue.h; sonic-swss pfcwd"
_MLXSW = "Linux drivers/net/ethernet/mellanox/mlxsw/spectrum_ethtool.c"

QUEUES = range(8)
"""The unicast queues that are told of."""

# name, unit, kind, direction, topic, meaning, documented in
_ROWS: Tuple[Tuple[str, str, str, str, str, str, str], ...] = (
    ("phy_up", "state", GAUGE, "", "state", "1 when the switch chip calls the port up", _SAI),
    ("phy_speed_bps", "bps", GAUGE, "", "state", "line rate as the switch chip has it", _SAI),
    (
        "phy_tx_ecn_marked",
        "packets",
        WRAP64,
        "tx",
        "congestion",
        "packets that this port's queues marked: they are filling",
        _MLXSW,
    ),
    ("phy_tx_wred_drops", "packets", WRAP64, "tx", "congestion", "dropped early by WRED", _SAI),
    (
        "pfc_watchdog_storms",
        "events",
        WRAP64,
        "",
        "pause",
        "times the switch found a queue paused for too long, and stopped obeying",
        _SAI,
    ),
    ("pfc_watchdog_restores", "events", WRAP64, "", "pause", "storms that ended", _SAI),
    (
        "pfc_watchdog_drops",
        "packets",
        WRAP64,
        "",
        "drop",
        "packets dropped by the watchdog while a storm lasted",
        _SAI,
    ),
    ("pfc_watchdog_stormed", "state", GAUGE, "", "pause", "queues in a storm now", _SAI),
)


def switch_metrics() -> Iterator[Metric]:
    """The `queue<N>_*` and `pfc_watchdog_*` rows, and what only a switch says of its ports."""
    for row in _ROWS:
        yield Metric(*row)
    for queue in QUEUES:
        for what, unit, kind, topic, meaning in (
            ("tx_bytes", "bytes", WRAP64, "traffic", "bytes sent from"),
            ("tx_packets", "packets", WRAP64, "packets", "packets sent from"),
            ("tx_drops", "packets", WRAP64, "congestion", "packets dropped for want of room in"),
            ("tx_wred_drops", "packets", WRAP64, "congestion", "packets dropped early in"),
            ("tx_ecn_marked", "packets", WRAP64, "congestion", "packets marked in"),
            ("occupancy_bytes", "bytes", GAUGE, "congestion", "bytes waiting now in"),
            ("watermark_bytes", "bytes", GAUGE, "congestion", "most bytes that waited lately in"),
        ):
            direction = "tx" if what.startswith("tx") else ""
            yield Metric(
                f"queue{queue}_{what}",
                unit,
                kind,
                direction,
                topic,
                f"{meaning} queue {queue}",
                _SAI,
            )
