"""NICs that their host's PCIe limits: it stalls, or is narrower than that of the other rails.

A bus that cannot take data away makes the NIC hold the network; one that cannot feed it is seen by
nothing but its own stalls, and by everybody who waits for this host.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.pause_graph import pause_graph
from fabmon.analysis.fabric_structure import NONE, Mask
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.median import median
from fabmon.analysis.thresholds import Bus
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import bit_rate, rounded_percent

CAUSE = Cause(
    name="host_pcie_limit",
    title="Host PCIe limit",
    severity=WARNING,
    picture="pcie_links",
    tables=("bus",),
    traits=(
        Trait.NEEDS_TRAFFIC,
        Trait.OF_HOST_PORT,
        Trait.LAST_HOP,
        Trait.MAKES_QUEUES,
        Trait.MAKES_PAUSE,
        Trait.HAS_SENDERS,
    ),
)


ADVICE = (
    "Look at the NIC's PCIe: lanes and speed (lspci -vv), MaxReadReq, ATS and IOMMU, NUMA place of"
    " GPU and NIC; the network is innocent."
)


class NarrowBuses:
    """Judges every rail that is in use."""

    def __init__(self, thresholds: Bus) -> None:
        self._t = thresholds

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition a NIC."""
        t, rail = self._t, inputs.structure.is_rail
        stalled = inputs.often("bus", t.stalled, t.of_ticks, t.ticks)
        narrow = self._narrow(inputs)
        if not (stalled | narrow).any():
            return
        used = np.fmax(inputs.util("tx"), inputs.received)[:, -t.of_ticks :]
        with np.errstate(invalid="ignore"):
            busy = (used > t.busy_util).any(axis=1)
        for row in np.flatnonzero((stalled | (narrow & busy)) & rail).tolist():
            yield _condition(inputs, row, bool(narrow[row]))

    def _narrow(self, inputs: DetectorInput) -> Mask:
        """[ports]: whether a rail's PCIe carries far less than the others', and than its link."""
        structure = inputs.structure
        carries: Floats = structure.pcie_bps
        known = carries[structure.is_rail & np.isfinite(carries)]
        if len(known) < 3:
            return np.zeros(len(carries), np.bool_)
        with np.errstate(invalid="ignore"):
            narrow: Mask = carries < self._t.narrow * median(known)
        return narrow


def _condition(inputs: DetectorInput, row: int, narrow: bool) -> Condition:
    structure, snapshot = inputs.structure, inputs.snapshot
    port = structure.fabric.ports[row]
    share = float(inputs.filled("bus")[row, -5:].max())
    moved = float(np.fmax(snapshot.column("tx_bps")[row], snapshot.column("rx_bps")[row]))
    known = np.isfinite(moved)
    carries = float(structure.pcie_bps[row])
    info = port.info
    lanes = f"x{info.get('pcie_width')} at {info.get('pcie_speed_gtps')} GT/s"
    parts = []
    if share > 0:
        parts.append(f"stalls {rounded_percent(share)} of the time")
    if narrow:
        parts.append(f"is {lanes}, {bit_rate(carries)}, less than the other rails have")
    graph = pause_graph(inputs)
    victims = [each for each in graph.victims(int(structure.node[row])) if each != row]
    victims = victims if graph.holds[row] else []
    return Condition(
        cause="host_pcie_limit",
        severity=WARNING,
        subject=port.id,
        rows=(row, *victims),
        text=f"PCIe of {port.node} {port.label} {' and '.join(parts)}"
        f"{f': it moves {bit_rate(moved)}' if known else ''}",
        evidence=(
            Evidence("time stalled", round(share * 100, 1), "%"),
            *([Evidence("moved", round(moved), "bps")] if known else []),
            *([Evidence("PCIe carries", round(carries), "bps")] if np.isfinite(carries) else []),
            Evidence("holds the network", "yes" if graph.holds[row] else "no"),
        ),
        advice=ADVICE,
        confidence=0.95 if share > 0 and narrow else 0.85,
        lost=round(share, 3),
        victims=tuple(dict.fromkeys(structure.fabric.ports[each].id for each in victims)),
        unseen=""
        if structure.peer[row] != NONE
        else "what waits for it: its switch is not watched",
    )
