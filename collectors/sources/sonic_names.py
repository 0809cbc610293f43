"""How SONiC spells what a switch chip counts (SAI), and what the catalog calls it.

A metric has one or more spellings, the best first; a spelling is a sum of fields. Sources: SAI's
saiport.h and saiqueue.h, sonic-swss' portsorch and pfcwd, and a real COUNTERS_DB.
"""

from __future__ import annotations

from typing import Dict

from collectors.sonichash import Spellings

PRIORITIES = range(8)
QUEUES = range(8)

_PORT = "SAI_PORT_STAT_"
_QUEUE = "SAI_QUEUE_STAT_"
_WATCHDOG = "PFC_WD_QUEUE_STATS_"


def _packets(way: str) -> Spellings:
    stem = f"{_PORT}IF_{way}_"
    return (
        (f"{stem}UCAST_PKTS", f"{stem}NON_UCAST_PKTS"),
        (f"{stem}UCAST_PKTS", f"{stem}MULTICAST_PKTS", f"{stem}BROADCAST_PKTS"),
        (f"{stem}UCAST_PKTS",),
    )


def _port() -> Dict[str, Spellings]:
    found: Dict[str, Spellings] = {}
    for way, sai in (("rx", "IN"), ("tx", "OUT")):
        found[f"phy_{way}_bytes"] = ((f"{_PORT}IF_{sai}_OCTETS",),)
        found[f"phy_{way}_packets"] = _packets(sai)
        found[f"phy_{way}_errors"] = ((f"{_PORT}IF_{sai}_ERRORS",),)
        found[f"phy_{way}_discards"] = ((f"{_PORT}IF_{sai}_DISCARDS",),)
        found[f"pause_{way}_frames"] = ((f"{_PORT}PAUSE_{way.upper()}_PKTS",),)
    found["phy_rx_fec_corrected_blocks"] = ((f"{_PORT}IF_IN_FEC_CORRECTABLE_FRAMES",),)
    found["phy_rx_fec_uncorrectable_blocks"] = ((f"{_PORT}IF_IN_FEC_NOT_CORRECTABLE_FRAMES",),)
    found["phy_rx_symbol_errors"] = ((f"{_PORT}IF_IN_FEC_SYMBOL_ERRORS",),)
    found["phy_tx_ecn_marked"] = ((f"{_PORT}ECN_MARKED_PACKETS",),)
    found["phy_tx_wred_drops"] = ((f"{_PORT}WRED_DROPPED_PACKETS",),)
    for prio in PRIORITIES:
        for way in ("RX", "TX"):
            stem = f"pfc_{way.lower()}"
            pfc = f"PFC_{prio}_"
            found[f"{stem}_frames_prio{prio}"] = ((f"{_PORT}{pfc}{way}_PKTS",),)
            # EST: estimated by SONiC where the chip does not measure it.
            found[f"{stem}_pause_us_prio{prio}"] = (
                (f"{_PORT}{pfc}{way}_PAUSE_DURATION_US",),
                (f"EST_PORT_STAT_{pfc}{way}_PAUSE_DURATION_US",),
            )
        found[f"pfc_rx_transitions_prio{prio}"] = (
            (f"{_PORT}PFC_{prio}_ON2OFF_RX_PKTS",),
            (f"EST_PORT_STAT_PFC_{prio}_ON2OFF_RX_PKTS",),
        )
    return found


PORT: Dict[str, Spellings] = _port()
"""Of `COUNTERS:<port>`."""

QUEUE: Dict[str, Spellings] = {
    "tx_bytes": ((f"{_QUEUE}BYTES",),),
    "tx_packets": ((f"{_QUEUE}PACKETS",),),
    "tx_drops": ((f"{_QUEUE}DROPPED_PACKETS",),),
    "tx_wred_drops": ((f"{_QUEUE}WRED_DROPPED_PACKETS",),),
    "tx_ecn_marked": ((f"{_QUEUE}WRED_ECN_MARKED_PACKETS",),),
    "occupancy_bytes": ((f"{_QUEUE}CURR_OCCUPANCY_BYTES",),),
    "watermark_bytes": ((f"{_QUEUE}SHARED_WATERMARK_BYTES",),),
}
"""Of `COUNTERS:<queue>`; the metric is `queue<N>_` and this."""

WATCHDOG: Dict[str, Spellings] = {
    "pfc_watchdog_storms": ((f"{_WATCHDOG}DEADLOCK_DETECTED",),),
    "pfc_watchdog_restores": ((f"{_WATCHDOG}DEADLOCK_RESTORED",),),
    "pfc_watchdog_drops": ((f"{_WATCHDOG}TX_DROPPED_PACKETS", f"{_WATCHDOG}RX_DROPPED_PACKETS"),),
}
"""Of `COUNTERS:<queue>` too, for the lossless ones; a port's is the sum over its queues."""

WATCHDOG_STATUS = "PFC_WD_STATUS"
STORMED = "stormed"

UNICAST = ("SAI_QUEUE_TYPE_UNICAST", "SAI_QUEUE_TYPE_ALL")
"""Types of the queues that are told of: a chip has multicast queues beside, or queues for all."""
