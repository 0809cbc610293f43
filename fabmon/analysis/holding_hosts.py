"""Hosts that tell the network to wait: slow receivers, storms, and hosts whose PCIe is too narrow.

One of three causes for each port, the most telling first, with what waits for it as victims.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.condition import CRITICAL, WARNING, Condition, Evidence
from fabmon.analysis.pause_graph import pauses
from fabmon.analysis.pcie import pcie_evidence
from fabmon.analysis.sight import Sight
from fabmon.analysis.words import gbps, percent
from fabmon.fabric.model import HOST

_STORM = 0.5
_STORM_TICKS = 2
_DROPS = ("rdma_out_of_buffer", "phy_rx_out_of_buffer", "phy_rx_discards", "rdma_rx_drops")

_ADVICE = {
    "slow_receiver": (
        "Look at the host: a program that posts receives too late, memory or CPU contention, its"
        " RNR and out-of-buffer counters; the network is innocent."
    ),
    "host_pcie_limit": (
        "Look at the NIC's PCIe: lanes and speed (lspci -vv), MaxReadReq, ATS and IOMMU, NUMA place"
        " of GPU and NIC; the network is innocent."
    ),
    "pause_storm": (
        "Take the host out (drain, then reset the NIC), and see that the PFC watchdog is on at the"
        " switch: it drops what a storm would spread."
    ),
}


def holding_hosts(sight: Sight) -> Iterator[Condition]:
    """One condition for every port of a host that holds the network."""
    graph = pauses(sight)
    for node, rows in graph.roots.items():
        if sight.structure.fabric.nodes[node].role != HOST:
            continue
        for row in rows.tolist():
            yield _condition(sight, node, row)


def _condition(sight: Sight, node: int, row: int) -> Condition:
    graph, structure, moment = pauses(sight), sight.structure, sight.moment
    held_share = _held_share(sight, row)
    narrow = pcie_evidence(sight, row)
    storm = _is_storm(sight, row)
    cause = "host_pcie_limit" if narrow else "pause_storm" if storm else "slow_receiver"
    victims = [each for each in graph.victims(node) if each != row]
    port = structure.fabric.ports[row]
    received = float(moment.column("rx_bps")[row])
    why = {
        "host_pcie_limit": "its PCIe does not take the data away",
        "pause_storm": "it all but stops the network",
        "slow_receiver": "it takes its data too slowly",
    }[cause]
    dropped = [
        Evidence(name, round(value), "packets/s")
        for name in _DROPS
        if (value := float(moment.column(name)[row])) > 0
    ]
    return Condition(
        cause=cause,
        severity=CRITICAL if storm else WARNING,
        subject=port.id,
        rows=(row, *(int(each) for each in victims)),
        text=(
            f"{port.node} {port.label} tells the network to wait {percent(held_share)} of the time"
            f" while it receives {gbps(received)}: {why}"
        ),
        evidence=(
            Evidence("time held", round(held_share * 100, 1), "%"),
            Evidence("received", round(received), "bps"),
            *(Evidence(*each) for each in narrow),
            *dropped,
        ),
        advice=_ADVICE[cause],
        confidence=0.9 if narrow or dropped or storm else 0.8,
        lost=round(held_share, 3),
        victims=tuple(dict.fromkeys(structure.fabric.ports[each].id for each in victims)),
        unseen="" if structure.peer[row] >= 0 else "what waits for it: its switch is not watched",
    )


def _held_share(sight: Sight, row: int) -> float:
    """Share of time that a port holds its peer, as either end saw it, over the last ticks."""
    own = sight.window("pause_tx")[row, -5:]
    peer = int(sight.structure.peer[row])
    known = [float(np.nanmean(own))] if np.isfinite(own).any() else []
    if peer >= 0:
        known.append(float(pauses(sight).share[peer]))
    return max(known, default=0.0)


def _is_storm(sight: Sight, row: int) -> bool:
    peer = int(sight.structure.peer[row])
    seen = sight.window("pause_tx")[row, -_STORM_TICKS:]
    if peer >= 0:
        seen = np.fmax(seen, sight.window("pause_rx")[peer, -_STORM_TICKS:])
    errors = float(sight.moment.column("pause_storm_errors")[row])
    return bool((seen > _STORM).all()) or errors > 0
