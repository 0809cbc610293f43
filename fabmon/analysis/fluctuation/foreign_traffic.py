"""The share of what a leaf sends up that does not come from our hosts.

Everything that a leaf sends up arrives at the ports below it. With U sent up, O received from our
hosts and F from all other ports below, at least max(0, U - O) and at most min(U, F) is foreign:
what our hosts sent may have stayed below the leaf. This needs counters of all ports below. Bytes
are summed over a chunk of five minutes, so that the clocks of hosts and switches need not agree.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from fabmon.analysis.fluctuation.results import Foreign
from fabmon.fabric.model import DOWNLINK, RAIL, SWITCH, UPLINK, Fabric, Node
from fabmon.fabric.names import natural
from fabmon.history.chunk_rates import RateChunk

_MIN_KNOWN = 0.9
"""Share of the ticks with counters of uplinks at which all ports below must have counters, too."""


@dataclass(slots=True)
class _Leaf:
    """Bytes sent up, and the lower and upper bound of foreign bytes; or why they are unknown."""

    up: float = 0.0
    low: float = 0.0
    high: float = 0.0
    unseen: str = ""


class ForeignShares:
    """Sums up rate chunks; `mine` are our hosts, None for all that are watched."""

    def __init__(self, mine: Collection[str] | None) -> None:
        self._mine = mine
        self._leaves: dict[str, _Leaf] = {}

    def accept(self, rate_chunk: RateChunk) -> None:
        """Take a chunk."""
        fabric = rate_chunk.fabric
        watched = {node.name for node in fabric.nodes if node.ports}
        for node in fabric.nodes:
            if node.role == SWITCH and _has_hosts(node, fabric):
                self._add(node, rate_chunk)
            for port in node.ports:
                leaf = port.cable.node if port.role == RAIL and port.cable is not None else ""
                if leaf and leaf not in watched:
                    reason = f"{leaf} is not watched: what it sends up is not known"
                    self._leaves.setdefault(leaf, _Leaf(unseen=reason))

    def _add(self, node: Node, rate_chunk: RateChunk) -> None:
        """Add what a leaf sent and received."""
        leaf = self._leaves.setdefault(node.name, _Leaf())
        ports = rate_chunk.fabric.ports
        uplinks = [port.row for port in node.ports if port.role == UPLINK]
        ours: list[int] = []
        others: list[int] = []
        for port in node.ports:
            if port.role == DOWNLINK:
                peer = None if port.peer is None else ports[port.peer]
                is_ours = peer is not None and peer.role == RAIL and self._is_mine(peer.node)
                (ours if is_ours else others).append(port.row)
        if not uplinks:
            leaf.unseen = "it is not known which of its ports lead up"
            return
        below = [*ours, *others]
        sent, received = rate_chunk.tx_bps[:, uplinks], rate_chunk.rx_bps[:, below]
        known = np.isfinite(sent).all(axis=1) & np.isfinite(received).all(axis=1)
        if known.sum() < _MIN_KNOWN * np.isfinite(sent).any(axis=1).sum():
            counted = np.flatnonzero(np.isfinite(received).any(axis=0))
            names = [ports[row].name for n, row in enumerate(below) if n not in counted]
            which = ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
            leaf.unseen = f"its ports {which} are not counted" if names else "counters are missing"
            return
        bytes_per_bps = rate_chunk.interval_s / 8
        up = float(sent[known].sum(dtype=np.float64)) * bytes_per_bps
        from_ours, from_others = (
            float(part[known].sum(dtype=np.float64)) * bytes_per_bps
            for part in (received[:, : len(ours)], received[:, len(ours) :])
        )
        high = min(up, from_others)
        leaf.up += up
        leaf.high += high
        leaf.low += min(max(0.0, up - from_ours), high)

    def _is_mine(self, host: str) -> bool:
        return self._mine is None or host in self._mine

    def results(self) -> tuple[Foreign, ...]:
        """The share of every leaf that is watched or that a host is connected to."""
        return tuple(
            Foreign(
                switch=name,
                low=None if leaf.unseen or not leaf.up else leaf.low / leaf.up,
                high=None if leaf.unseen or not leaf.up else leaf.high / leaf.up,
                sent_bytes=leaf.up,
                unseen=leaf.unseen or ("" if leaf.up else "it sent nothing up"),
            )
            for name, leaf in sorted(self._leaves.items(), key=lambda each: natural(each[0]))
        )


def _has_hosts(node: Node, fabric: Fabric) -> bool:
    peers = [fabric.ports[port.peer] for port in node.ports if port.peer is not None]
    return any(peer.role == RAIL for peer in peers)
