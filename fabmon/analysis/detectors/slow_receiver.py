"""Hosts that tell the network to wait: slow receivers and storms, with what waits for them.

A slow receiver holds its switch for as long as it takes to drain what has arrived; a storm all but
stops it, whatever arrives.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.pause_graph import pause_graph
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence, Trait
from fabmon.fabric.model import HOST
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import bit_rate, rounded_percent

CAUSE = Cause(
    name="slow_receiver",
    title="Slow receiver",
    severity=WARNING,
    picture="pause_tree",
    traits=(
        Trait.NEEDS_TRAFFIC,
        Trait.OF_HOST_PORT,
        Trait.LAST_HOP,
        Trait.MAKES_QUEUES,
        Trait.MAKES_PAUSE,
        Trait.HAS_SENDERS,
    ),
)


_STORM = 0.8
_STORM_TICKS = 2
_DROPS = ("rdma_out_of_buffer", "phy_rx_out_of_buffer", "phy_rx_discards", "rdma_rx_drops")

_ADVICE = {
    "slow_receiver": (
        "Look at the host: a program that posts receives too late, memory or CPU contention, its"
        " RNR and out-of-buffer counters; the network is innocent."
    ),
    "pause_storm": (
        "Take the host out (drain, then reset the NIC), and see that the PFC watchdog is on at the"
        " switch: it drops what a storm would spread."
    ),
}


def holding_hosts(inputs: DetectorInput) -> Iterator[Condition]:
    """One condition for every port of a host that holds the network."""
    graph = pause_graph(inputs)
    for node, rows in graph.roots.items():
        if inputs.structure.fabric.nodes[node].role != HOST:
            continue
        for row in rows.tolist():
            yield _condition(inputs, node, row)


def _condition(inputs: DetectorInput, node: int, row: int) -> Condition:
    graph, structure, snapshot = pause_graph(inputs), inputs.structure, inputs.snapshot
    held = inputs.held_by(row)
    port = structure.fabric.ports[row]
    storm = _is_storm(inputs, row, held)
    held_share = float(held[-3:].max())
    cause: str = "pause_storm" if storm else "slow_receiver"
    victims = [each for each in graph.victims(node) if each != row]
    received = float(snapshot.column("rx_bps")[row])
    known = np.isfinite(received)  # a host that fell silent a second ago still holds its switch
    why = {
        "pause_storm": "it all but stops the network",
        "slow_receiver": "it takes its data too slowly",
    }[cause]
    dropped = [
        Evidence(name, round(value), "packets/s")
        for name in _DROPS
        if (value := float(snapshot.column(name)[row])) > 0
    ]
    return Condition(
        cause=cause,
        severity=CRITICAL if storm else WARNING,
        subject=port.id,
        rows=(row, *(int(each) for each in victims)),
        text=(
            f"{port.node} {port.label} tells the network to wait"
            f" {rounded_percent(held_share)} of the time"
            f"{f' while it receives {bit_rate(received)}' if known else ''}: {why}"
        ),
        evidence=(
            Evidence("time held", round(held_share * 100, 1), "%"),
            *([Evidence("received", round(received), "bps")] if known else []),
            *dropped,
        ),
        advice=_ADVICE[cause],
        confidence=0.9 if dropped or storm else 0.8,
        lost=round(held_share, 3),
        victims=tuple(dict.fromkeys(structure.fabric.ports[each].id for each in victims)),
        unseen="" if structure.peer[row] >= 0 else "what waits for it: its switch is not watched",
    )


def _is_storm(inputs: DetectorInput, row: int, held: Floats) -> bool:
    """What it was called when it opened, it stays."""
    port = inputs.structure.fabric.ports[row]
    if f"slow_receiver:{port.id}" in inputs.standing:
        return False
    errors = float(inputs.snapshot.column("pause_storm_errors")[row])
    stands = f"pause_storm:{port.id}" in inputs.standing
    return stands or bool((held[-_STORM_TICKS:] > _STORM).all()) or errors > 0
