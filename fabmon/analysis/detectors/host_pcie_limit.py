"""A NIC is limited by its host's PCIe: the link stalls, or is slower than that of the other rails.

A PCIe link that cannot take data away makes the NIC pause the network. One that cannot feed the NIC
is visible only in its own stalls, and in every host that waits for this one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.flow_control import unseen_victims
from fabmon.analysis.evidence.pause_graph import pause_graph
from fabmon.analysis.fabric_structure import Mask
from fabmon.analysis.finding import SLOW_HOST_PORT, WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.median import median
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.wording import bit_rate, rounded_percent

CAUSE = Cause(
    name="host_pcie_limit",
    title="Host PCIe limit",
    meaning="the PCIe link of a NIC limits it: it stalls, or is slower than the other rails",
    severity=WARNING,
    rule=(
        "The PCIe of a rail stalls for model.waiting of the time in model.ticks of model.window"
        " seconds. Or it carries less than model.nearly of the NIC's line rate and of the median of"
        " all rails, of model.several or more, and the NIC is in use (model.busy)."
    ),
    inputs="PCIe counters of ethtool (mlx5), or PCIe facts of three NICs or more",
    not_observable="What waits for it, where its switch is not watched",
    confidence=0.95,
    picture="pcie_links",
    advice=(
        "Look at the NIC's PCIe: lanes and speed (lspci -vv), MaxReadReq, ATS and IOMMU, NUMA node"
        " of GPU and NIC. The network is not the cause."
    ),
    tables=("model",),
    traits=(Trait.NEEDS_TRAFFIC, *SLOW_HOST_PORT),
    family="host port",
)


def host_pcie_limits(inputs: DetectorInput, t: ModelThresholds) -> Iterator[Condition]:
    """One condition for each NIC in use."""
    structure = inputs.structure
    carries = np.where(structure.is_rail, structure.pcie_bps, np.float32(np.nan))
    known = carries[np.isfinite(carries)]
    stalled = inputs.often("bus", t.waiting, t.window, t.ticks) & structure.is_rail
    narrow: Mask = np.zeros(len(carries), np.bool_)
    if len(known) >= t.several:
        # A cluster may have NICs of two generations.
        narrow = carries < t.nearly * np.minimum(inputs.snapshot.line_rate_bps, median(known))
        narrow &= np.fmax(inputs.peak_sent, inputs.received_filled.max(axis=1)) > t.busy
    for row in np.flatnonzero(stalled | narrow).tolist():
        yield _condition(inputs, row, bool(narrow[row]), t)


def _condition(inputs: DetectorInput, row: int, narrow: bool, t: ModelThresholds) -> Condition:
    structure = inputs.structure
    port, carries = structure.fabric.ports[row], float(structure.pcie_bps[row])
    share = float(inputs.filled("bus")[row, -t.window :].max())
    both = (of(np.array([row]), 1)[0, 0] for of in (inputs.leaving, inputs.entering))
    moved = float(np.fmax(*both))
    is_known = np.isfinite(moved)
    parts = [f"stalls {rounded_percent(share)} of the time"] if share > 0 else []
    if narrow:
        lanes = f"x{port.info.get('pcie_width')} at {port.info.get('pcie_speed_gtps')} GT/s"
        parts.append(f"is {lanes} ({bit_rate(carries)}), less than on the other rails")
    graph = pause_graph(inputs, t)
    victims = graph.victims(int(structure.node[row]), but=row) if graph.pauses[row] else []
    return CAUSE.condition(
        subject=port.id,
        rows=(row, *victims),
        text=(
            f"PCIe of {structure.label(row)} {' and '.join(parts)}"
            f"{f'; the NIC moves {bit_rate(moved)}' if is_known else ''}"
        ),
        evidence=(
            Evidence.percent("time stalled", share),
            *([Evidence("moved", round(moved), "bps")] if is_known else []),
            *([Evidence("PCIe carries", round(carries), "bps")] if np.isfinite(carries) else []),
        ),
        lost=share,
        victims=structure.ids(victims),
        unseen=unseen_victims(structure, row),
    )
