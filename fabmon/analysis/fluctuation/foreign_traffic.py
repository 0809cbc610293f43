"""How much of what a leaf sends up is not from our hosts.

All that a leaf sends up comes from the ports below it. Where the leaf counts every one of them:
what our hosts sent may have stayed below the leaf, so at least `up - ours` is somebody else's, and
at most all that came in from others. Sums over five minutes: the clocks of hosts and switches need
not agree.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from fabmon.analysis.fluctuation.results import Foreign
from fabmon.fabric.model import DOWNLINK, RAIL, SWITCH, UPLINK, Fabric, Node
from fabmon.fabric.names import natural
from fabmon.fabric.snapshot import Floats

_LEAST_KNOWN = 0.9


@dataclass(slots=True)
class _Leaf:
    up: float = 0.0
    low: float = 0.0
    high: float = 0.0
    unseen: str = ""


class ForeignShares:
    """Takes passages; `mine` are our hosts, None for all that are watched."""

    def __init__(self, mine: Collection[str] | None) -> None:
        self._mine = mine
        self._leaves: dict[str, _Leaf] = {}

    def accept(self, fabric: Fabric, tx_bps: Floats, rx_bps: Floats, interval_s: float) -> None:
        """Take [ticks, ports] each way."""
        watched = {node.name for node in fabric.nodes if node.ports}
        for node in fabric.nodes:
            if node.role == SWITCH and _has_hosts(node, fabric):
                self._take(node, fabric, tx_bps, rx_bps, interval_s)
            for port in node.ports:
                far = port.cable.node if port.role == RAIL and port.cable is not None else ""
                if far and far not in watched:
                    said = f"{far} is not watched: what it sends up is not known"
                    self._leaves.setdefault(far, _Leaf(unseen=said))

    def _take(self, node: Node, fabric: Fabric, tx: Floats, rx: Floats, interval_s: float) -> None:
        leaf = self._leaves.setdefault(node.name, _Leaf())
        ups = [port.row for port in node.ports if port.role == UPLINK]
        ours: list[int] = []
        others: list[int] = []
        for port in node.ports:
            if port.role != DOWNLINK:
                continue
            peer = None if port.peer is None else fabric.ports[port.peer]
            is_ours = peer is not None and peer.role == RAIL and self._is_mine(peer.node)
            (ours if is_ours else others).append(port.row)
        if not ups:
            leaf.unseen = "it is not known which of its ports lead up"
            return
        rows = [*ours, *others]
        with np.errstate(invalid="ignore"):
            known = np.isfinite(tx[:, ups]).all(axis=1) & np.isfinite(rx[:, rows]).all(axis=1)
        heard = np.isfinite(tx[:, ups]).any(axis=1)
        if known.sum() < _LEAST_KNOWN * heard.sum():
            silent = np.isnan(np.fmax.reduce(rx[:, rows], axis=0))
            names = [
                fabric.ports[row].name
                for row, gone in zip(rows, np.atleast_1d(silent).tolist(), strict=True)
                if gone
            ]
            which = ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
            leaf.unseen = f"its ports {which} are not counted" if names else "counters are missing"
            return
        scale = interval_s / 8
        up = float(tx[known][:, ups].sum(dtype=np.float64)) * scale
        own = float(rx[known][:, ours].sum(dtype=np.float64)) * scale
        other = float(rx[known][:, others].sum(dtype=np.float64)) * scale
        high = min(up, other)
        leaf.up += up
        leaf.high += high
        leaf.low += min(max(0.0, up - own), high)

    def _is_mine(self, host: str) -> bool:
        return self._mine is None or host in self._mine

    def found(self) -> tuple[Foreign, ...]:
        """Of every leaf that there is or that is told of."""
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
