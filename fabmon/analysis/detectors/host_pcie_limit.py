"""A NIC is limited by its host's PCIe: the link stalls, or is slower than that of the other rails.

A PCIe link that cannot take data away makes the NIC pause the network. One that cannot feed the NIC
is visible only in its own stalls, and in every host that waits for this one.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.flow_control import uses_credits
from fabmon.analysis.evidence.pause_graph import pause_graph
from fabmon.analysis.fabric_structure import NONE, Mask
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.median import median
from fabmon.analysis.thresholds import ModelThresholds, Share
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import bit_rate, rounded_percent

CAUSE = Cause(
    name="host_pcie_limit",
    title="Host PCIe limit",
    meaning="the PCIe link of a NIC limits it: it stalls, or is slower than the other rails",
    severity=WARNING,
    rule=(
        "The PCIe of a rail stalls for bus.stalled of the time in model.ticks of model.window"
        " seconds. Or it carries less than bus.narrow of the NIC's line rate and of the median of"
        " all rails, of three or more, and the NIC is in use (model.busy)."
    ),
    inputs="PCIe counters of ethtool (mlx5), or PCIe facts of three NICs or more",
    not_observable="What waits for it, where its switch is not watched",
    picture="pcie_links",
    advice=(
        "Look at the NIC's PCIe: lanes and speed (lspci -vv), MaxReadReq, ATS and IOMMU, NUMA node"
        " of GPU and NIC. The network is not the cause."
    ),
    tables=("bus", "model"),
    traits=(
        Trait.NEEDS_TRAFFIC,
        Trait.OF_HOST_PORT,
        Trait.LAST_HOP,
        Trait.MAKES_QUEUES,
        Trait.HAS_SENDERS,
    ),
    family="host port",
)

_MIN_RAILS = 3
"""Rails with a known PCIe link from which on their median is usual."""

_STOPS_SWITCH = ("pauses its switch", "its switch waits for credits")
"""Evidence, yes or no: on Ethernet, on InfiniBand."""


class HostPcieThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [bus]: shares of time, and of the usual PCIe link."""

    stalled: Share
    narrow: Share


def host_pcie_limits(
    inputs: DetectorInput, t: HostPcieThresholds, model: ModelThresholds
) -> Iterator[Condition]:
    """One condition for each NIC in use."""
    rail = inputs.structure.is_rail
    stalled = inputs.often("bus", t.stalled, model.window, model.ticks)
    narrow = _narrow(inputs, t)
    if not (stalled | narrow).any():
        return
    used = np.fmax(inputs.util("tx"), inputs.received)[:, -model.window :]
    with np.errstate(invalid="ignore"):
        busy = (used > model.busy).any(axis=1)
    for row in np.flatnonzero((stalled | (narrow & busy)) & rail).tolist():
        yield _condition(inputs, row, bool(narrow[row]), model)


def _narrow(inputs: DetectorInput, t: HostPcieThresholds) -> Mask:
    """[ports]: whether a rail's PCIe link carries less than its line rate, and far less than those
    of the other rails: a cluster may have NICs of two generations."""
    structure = inputs.structure
    carries: Floats = structure.pcie_bps
    with np.errstate(invalid="ignore"):
        narrow: Mask = carries < t.narrow * inputs.snapshot.line_rate_bps
        if narrow.any():
            known = carries[structure.is_rail & np.isfinite(carries)]
            narrow &= len(known) >= _MIN_RAILS and carries < t.narrow * median(known)
    return narrow


def _condition(inputs: DetectorInput, row: int, narrow: bool, t: ModelThresholds) -> Condition:
    structure, snapshot = inputs.structure, inputs.snapshot
    port = structure.fabric.ports[row]
    share = float(inputs.filled("bus")[row, -t.window :].max())
    moved = float(np.fmax(snapshot.column("tx_bps")[row], snapshot.column("rx_bps")[row]))
    carries = float(structure.pcie_bps[row])
    parts = []
    if share > 0:
        parts.append(f"stalls {rounded_percent(share)} of the time")
    if narrow:
        lanes = f"x{port.info.get('pcie_width')} at {port.info.get('pcie_speed_gtps')} GT/s"
        parts.append(f"is {lanes} ({bit_rate(carries)}), less than on the other rails")
    graph = pause_graph(inputs, t)
    pauses = bool(graph.pauses[row])
    victims = [each for each in graph.victims(int(structure.node[row])) if pauses and each != row]
    now = f"; the NIC moves {bit_rate(moved)}" if np.isfinite(moved) else ""
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=port.id,
        rows=(row, *victims),
        text=f"PCIe of {structure.label(row)} {' and '.join(parts)}{now}",
        evidence=(
            Evidence("time stalled", round(share * 100, 1), "%"),
            *([Evidence("moved", round(moved), "bps")] if np.isfinite(moved) else []),
            *([Evidence("PCIe carries", round(carries), "bps")] if np.isfinite(carries) else []),
            Evidence(_STOPS_SWITCH[uses_credits(port)], "yes" if pauses else "no"),
        ),
        advice=CAUSE.advice,
        confidence=0.95 if share > 0 and narrow else 0.85,
        lost=round(share, 3),
        victims=tuple(dict.fromkeys(structure.fabric.ports[each].id for each in victims)),
        unseen=""
        if structure.peer[row] != NONE
        else "what waits for it: its switch is not watched",
    )
