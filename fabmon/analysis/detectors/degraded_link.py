"""Links that are sick: slower than their peers, losing much to damage, damaged, flapping.

One of them for each cable, the most telling first: a link that flaps also has errors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import NONE, FabricStructure, Mask, Rows
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.median import median
from fabmon.analysis.thresholds import LinkHealth as Thresholds
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import bit_rate
from fabmon.history.derived_metrics import DAMAGE

CAUSE = Cause(
    name="degraded_link",
    title="Degraded link",
    severity=WARNING,
    picture="link_ends",
    tables=("link_health",),
    traits=(
        Trait.OF_LINK,
        Trait.DAMAGES_PACKETS,
        Trait.MAKES_QUEUES,
        Trait.FULL_LINK,
        Trait.HAS_SENDERS,
    ),
)


_LOOK_BACK_S = 120
"""Seconds over which changes of carrier are counted."""

_PHYSICAL = (*DAMAGE, "phy_rx_pcs_symbol_errors")
"""Counters of damage on the link itself; lost packets and retransmissions are congestion's too."""

_KNOWN_TICKS = 10
_LOST_PACKETS = ("phy_rx_crc_errors", "phy_rx_errors", "ib_rx_errors", "netdev_rx_errors")
"""Counters in packets, not in symbols or blocks."""
_PACKET_BITS = 4096 * 8
"""What is lost with a damaged packet of RoCE or InfiniBand."""

_CABLE = "Clean or change the cable or the optics; look at its power levels (ethtool -m)."


class LinkHealth:
    """Judges every port, and tells a cable once."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._t = thresholds
        self._structure: FabricStructure | None = None
        self._rates: Floats = np.empty(0, np.float32)
        self._usual: Floats = np.empty(0, np.float32)
        self._up: Floats = np.empty(0, np.float32)
        self._changes: deque[tuple[int, Rows, Floats]] = deque()
        self._stuck: set[tuple[int, str]] = set()
        self._places, self._columns = np.empty(0, np.intp), dict[str, int]()
        self._filled: dict[int, int] = {}

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition a cable."""
        told: set[int] = set()
        for condition in self._all(inputs):
            row = condition.rows[0]
            if row not in told:
                told.update((row, int(inputs.structure.peer[row])))
                yield condition

    def _all(self, inputs: DetectorInput) -> Iterator[Condition]:
        yield from self._flapping(inputs)
        yield from self._slower(inputs)
        yield from self._damaged(inputs)

    def _flapping(self, inputs: DetectorInput) -> Iterator[Condition]:
        counts = self._changes_of_carrier(inputs)
        for row in np.flatnonzero(counts >= self._t.flaps).tolist():
            yield self._condition(
                inputs,
                row,
                "flapping_link",
                f"changed carrier {round(float(counts[row]))} times in the last"
                f" {_LOOK_BACK_S // 60} min",
                (Evidence("changes of carrier", round(float(counts[row])), "times"),),
                f"{_CABLE} Take the port down until it is mended: every flap costs a reroute.",
                0.95,
            )

    def _changes_of_carrier(self, inputs: DetectorInput) -> Floats:
        """[ports] how often a port went down or up, as it counts or as was seen, the larger:
        InfiniBand counts only what fell, and that rarely.
        """
        snapshot = inputs.snapshot
        before = np.full(len(snapshot.up), np.nan, np.float32)
        before[: len(self._up)] = self._up
        turned = np.isfinite(before) & np.isfinite(snapshot.up) & (before != snapshot.up)
        both = np.stack((np.nan_to_num(snapshot.column("flaps")) * snapshot.interval_s, turned))
        rows = np.flatnonzero(both.any(axis=0))
        if len(rows):
            self._changes.append((snapshot.seq, rows, both[:, rows]))
        oldest = snapshot.seq - _LOOK_BACK_S / snapshot.interval_s
        while self._changes and self._changes[0][0] <= oldest:
            self._changes.popleft()
        self._up = np.where(np.isnan(snapshot.up), before, snapshot.up)
        counts = np.zeros((2, len(snapshot.up)), np.float32)
        for _, rows, changes in self._changes:
            counts[:, rows] += changes
        larger: Floats = counts.max(axis=0)
        return larger

    def _slower(self, inputs: DetectorInput) -> Iterator[Condition]:
        snapshot = inputs.snapshot
        usual = self._usual_rates(inputs)
        with np.errstate(invalid="ignore"):
            slow = (snapshot.line_rate_bps < self._t.slower_than_peers * usual) & (snapshot.up != 0)
        for row in np.flatnonzero(slow).tolist():
            own = float(snapshot.line_rate_bps[row])
            yield self._condition(
                inputs,
                row,
                "degraded_link",
                f"runs at {bit_rate(own)} while its peers run at {bit_rate(float(usual[row]))}",
                (
                    Evidence("line rate", round(own), "bps"),
                    Evidence("peers", round(float(usual[row])), "bps"),
                ),
                f"{_CABLE} Then compare FEC and auto-negotiation of both ends.",
                0.95,
                1.0 - own / float(usual[row]),
            )

    def _usual_rates(self, inputs: DetectorInput) -> Floats:
        """[ports]: the median line rate of a port's peers; worked out anew when any moved."""
        rates, structure = inputs.snapshot.line_rate_bps, inputs.structure
        if self._structure is structure and np.array_equal(rates, self._rates, equal_nan=True):
            return self._usual
        usual = np.full(len(rates), np.nan, np.float32)
        for rows in (*structure.rails.values(), *(group.rows for group in structure.groups)):
            known = rates[rows][np.isfinite(rates[rows])]
            if len(known) >= 3:
                usual[rows] = np.fmax(usual[rows], median(known))
        self._structure, self._rates, self._usual = structure, rates, usual
        return usual

    def _damaged(self, inputs: DetectorInput) -> Iterator[Condition]:
        errors = inputs.filled("damage")
        lasting = (errors > self._t.errors_per_s).sum(axis=1) >= self._t.lasting_ticks
        burst: Mask = np.any(errors[:, -3:] >= self._t.burst_per_s, axis=1)
        burst[self._just_filled(inputs)] = True
        for row in np.flatnonzero(lasting | burst).tolist():
            worst = float(errors[row].max())
            named = self._named(inputs, row)
            lossy = self._is_lossy(inputs, row)
            cause: str = "degraded_link" if lossy else "error_burst"
            filled = not errors[row].any()
            often = "loses much of what it carries to" if lossy else "receives"
            yield self._condition(
                inputs,
                row,
                cause,
                f"{often} damaged data: an error counter ran into its maximum"
                if filled
                else f"{often} damaged data, up to {worst:,.0f} errors/s{named}",
                (
                    Evidence("errors, at most", round(worst), "/s"),
                    Evidence("ticks with errors", int((errors[row] > 0).sum()), "of 10"),
                ),
                _CABLE,
                0.9 if lasting[row] else 0.8,
            )

    def _just_filled(self, inputs: DetectorInput) -> list[int]:
        """Ports one of whose error counters ran into its maximum a moment ago: how fast, is lost.

        What stuck when the port was first heard of has done so for long.
        """
        snapshot = inputs.snapshot
        if snapshot.columns is not self._columns or not np.array_equal(
            snapshot.stuck, self._places
        ):
            # By name: the table grows wider when a node brings a metric that nobody had.
            stuck = {
                (row, name)
                for name in _PHYSICAL
                for row in np.flatnonzero(snapshot.is_stuck(name)).tolist()
            }
            for row in {row for row, _ in stuck - self._stuck}:
                if np.isfinite(inputs.window("damage", _KNOWN_TICKS)[row, 0]):
                    self._filled[row] = snapshot.seq
            self._stuck, self._columns, self._places = stuck, snapshot.columns, snapshot.stuck
        return [row for row, seq in self._filled.items() if snapshot.seq - seq < _KNOWN_TICKS]

    def _is_lossy(self, inputs: DetectorInput, row: int) -> bool:
        """Whether damage takes a good part of the line rate; it keeps the name it opened with."""
        port = inputs.structure.fabric.ports[row]
        if f"error_burst:{port.id}" in inputs.standing:
            return False
        if f"degraded_link:{port.id}" in inputs.standing:
            return True
        rate = float(inputs.snapshot.line_rate_bps[row])
        lost = [float(np.nan_to_num(inputs.snapshot.column(name)[row])) for name in _LOST_PACKETS]
        return bool(max(lost) * _PACKET_BITS >= self._t.lossy * rate)

    def _named(self, inputs: DetectorInput, row: int) -> str:
        known = {name: float(inputs.snapshot.column(name)[row]) for name in _PHYSICAL}
        worst = max(known, key=lambda name: np.nan_to_num(known[name]))
        return f" ({worst})" if known[worst] > 0 else ""

    def _condition(
        self,
        inputs: DetectorInput,
        row: int,
        cause: str,
        what: str,
        evidence: tuple[Evidence, ...],
        advice: str,
        confidence: float,
        lost: float = 0.0,
    ) -> Condition:
        structure = inputs.structure
        peer = int(structure.peer[row])
        port = structure.fabric.ports[row]
        towards = f" to {structure.fabric.ports[peer].node}" if peer != NONE else ""
        return Condition(
            cause=cause,
            severity=CRITICAL if cause == "flapping_link" else WARNING,
            subject=port.id,
            rows=(row,) if peer == NONE else (row, peer),
            text=f"{structure.label(row)}{towards} {what}",
            evidence=evidence,
            advice=advice,
            confidence=confidence,
            lost=round(lost, 3),
        )
