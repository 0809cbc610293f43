"""A host takes its data too slowly, so that its NIC pauses the switch; at worst a pause storm."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput, has_values
from fabmon.analysis.evidence.flow_control import time_waiting, unseen_victims, uses_credits
from fabmon.analysis.evidence.pause_graph import PauseGraph, pause_graph
from fabmon.analysis.evidence.usual_level import MIN_PORTS
from fabmon.analysis.fabric_structure import NONE
from fabmon.analysis.finding import SLOW_HOST_PORT, WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.median import median
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.wording import bit_rate, rounded_percent

CAUSE = Cause(
    name="slow_receiver",
    title="Slow receiver",
    meaning=(
        "a host takes its data too slowly, so that its NIC pauses the switch (InfiniBand: gives it"
        " too few credits)"
    ),
    severity=WARNING,
    rule=(
        "A host pauses its switch for more than model.waiting of model.ticks of model.window"
        " seconds, and for model.rise times the median of the busy ports or model.half,"
        " while it receives less than model.nearly of line rate. On InfiniBand its switch also"
        " waits for credits for model.no_credits of these seconds, or for model.waiting of ten and"
        " model.scatter times the median of eight ports towards hosts that send half as much. A"
        " host PCIe limit of the same NIC explains it."
    ),
    inputs="Pause counters at either end; on InfiniBand ib_tx_wait of the switch port",
    not_observable=(
        "What waits for it, where its switch is not watched. Why it is slow: PCIe, IOMMU or memory."
        " On InfiniBand a receiver whose switch is not watched or whose ib_tx_wait is at its"
        " maximum, as after 0.7 s of waiting at 400 Gb/s"
    ),
    confidence=0.95,
    picture="pause_tree",
    advice=(
        "The network is not the cause. Look at the host: PCIe (width, speed, relaxed ordering,"
        " errors), IOMMU or address-translation misses, memory bandwidth, NUMA distance of the NIC"
        " to the memory or GPU."
    ),
    tables=("model",),
    traits=(Trait.NEEDS_TRAFFIC, *SLOW_HOST_PORT),
    family="host port",
)

_NOT_POSTED = ("rdma_out_of_buffer", "rdma_rnr_naks_sent")
"""Counters that grow when a program posts receives too late: its NIC answers with RNR NAKs, which
slow the sender without pause."""

_NO_ROOM = (*_NOT_POSTED, "phy_rx_out_of_buffer", "phy_rx_discards", "rdma_rx_drops")
"""Counters that grow when a receiver has no room for what arrives."""

_POSTS_LATE = " Besides, a program posts receives too late ({counter} grows), which makes RNR NAKs."

_NO_CREDITS = (
    "Drain the host, then reset or reload its HCA; check the HCA's firmware and PCIe errors. The"
    " switch discards what waits longer than its head-of-queue lifetime limit (HOQLife):"
    " port_xmit_discards."
)
"""Advice for a storm on InfiniBand, which has no PFC and no watchdog of it."""


def host_pauses(inputs: DetectorInput, storm: Cause, t: ModelThresholds) -> Iterator[Condition]:
    """One condition for each port of a host that pauses its switch: for as long as it takes to
    drain what has arrived, or, a `storm`, so long that the switch port all but stops."""
    graph, structure = pause_graph(inputs, t), inputs.structure
    # A port that is gone has no node. One that receives at line rate is as fast as its link.
    may_be = (structure.node != NONE) & ~structure.is_switch
    may_be &= inputs.received_filled[:, -t.ticks :].max(axis=1) < t.nearly
    for row in np.flatnonzero(graph.pauses & may_be).tolist():
        if not _is_background(inputs, graph, row, t):
            victims = graph.victims(int(structure.node[row]), but=row)
            yield _condition(inputs, row, victims, storm, t)


def _is_background(inputs: DetectorInput, graph: PauseGraph, row: int, t: ModelThresholds) -> bool:
    """Whether the switch before a port waits for credits no more than on a loaded path."""
    edge = int(inputs.structure.peer[row])
    counts = has_values(inputs.window("stall"))
    if edge == NONE or not counts[edge] or graph.share[edge] >= t.no_credits:
        return False
    waits, sent = inputs.total("stall") / np.float32(TICKS), inputs.mean_sent
    similar = counts & inputs.structure.is_edge & (sent >= t.half * sent[edge])
    similar[edge] = False
    own, others = float(waits[edge]), waits[similar]
    return own < t.waiting or len(others) < MIN_PORTS or own < t.scatter * median(others)


def _condition(
    inputs: DetectorInput, row: int, victims: list[int], storm: Cause, t: ModelThresholds
) -> Condition:
    structure, column = inputs.structure, inputs.snapshot.column
    port = structure.fabric.ports[row]
    paused = inputs.pauses_peer(row)
    worst = int(paused[-t.window :].argmax()) - t.window
    share, received = float(paused[worst]), inputs.entering(np.array([row]), TICKS)[0, worst]
    is_known = bool(np.isfinite(received))
    grows = {name: value for name in _NO_ROOM if (value := float(column(name)[row])) > 0}
    late = [name for name in _NOT_POSTED if name in grows]
    is_storm = bool((paused[-t.ticks :] > t.storm).all() or column("pause_storm_errors")[row] > 0)
    cause = storm if is_storm else CAUSE
    pauses = "gives its switch no credits" if uses_credits(port) else "pauses its switch"
    advice = cause.advice
    if is_storm:
        advice = _NO_CREDITS if uses_credits(port) else advice
    elif late:
        advice += _POSTS_LATE.format(counter=late[0])
    return cause.condition(
        subject=port.id,
        rows=(row, *victims),
        text=(
            f"{structure.label(row)} cannot keep up: it {pauses} {rounded_percent(share)} of the"
            f" time{f' while it receives at {bit_rate(received)}' if is_known else ''}"
            f"{', and all but stops the traffic to it' if is_storm else ''}"
        ),
        evidence=(
            time_waiting(port, share),
            *([Evidence("received", round(float(received)), "bps")] if is_known else []),
            *(Evidence(name, round(value), "packets/s") for name, value in grows.items()),
        ),
        advice=advice,
        lost=share,
        victims=structure.ids(victims),
        unseen=unseen_victims(structure, row),
    )
