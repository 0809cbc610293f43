"""What the causes of an unhealthy link share: damage counters, and one condition for each cable.

Three causes are judged, in this order: flapping link, degraded link, error burst. The first one
that holds for either end of a cable is reported, since a link that flaps has errors too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput
from fabmon.analysis.fabric_structure import NONE, Mask, Rows
from fabmon.analysis.finding import Cause, Condition, Evidence
from fabmon.analysis.thresholds import Share, Ticks
from fabmon.history.derived_metrics import DAMAGE

CHECK_CABLE = "Clean or change the cable or the optics; look at its power levels (ethtool -m)."

_DAMAGE_COUNTERS = (*DAMAGE, "phy_rx_pcs_symbol_errors")
"""Counters of damage on the link itself; lost packets and retransmissions also mean congestion."""

_PACKET_COUNTERS = ("phy_rx_crc_errors", "phy_rx_errors", "ib_rx_errors", "netdev_rx_errors")
"""Those that count packets, not symbols or blocks."""

_PACKET_BITS = 4096 * 8
"""Bits lost with a damaged packet: the MTU of RoCE and InfiniBand."""

_BURST_TICKS = 3
"""A burst is looked for in so many of the last ticks."""


_MAX_CABLES = 32
"""Damaged cables that are reported one by one."""


class LinkHealthThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [link_health]: errors per second, changes of carrier in two minutes, shares of line
    rate."""

    flaps: int
    slower_than_peers: Share
    errors_per_s: float
    lasting_ticks: Ticks
    burst_per_s: float
    lossy: Share


def link_condition(
    inputs: DetectorInput,
    row: int,
    cause: Cause,
    what: str,
    evidence: tuple[Evidence, ...],
    confidence: float,
    advice: str = "",
    lost: float = 0.0,
) -> Condition:
    """A condition about a link; `what` completes the sentence that begins with its port."""
    structure = inputs.structure
    peer = int(structure.peer[row])
    ports = structure.fabric.ports
    towards = f" to {ports[peer].node}" if peer != NONE else ""
    return Condition(
        cause=cause.name,
        severity=cause.severity,
        subject=ports[row].id,
        rows=(row,) if peer == NONE else (row, peer),
        text=f"{structure.label(row)}{towards} {what}",
        evidence=evidence,
        advice=advice or cause.advice,
        confidence=confidence,
        lost=round(lost, 3),
    )


def one_per_cable(inputs: DetectorInput, rows: Rows) -> Iterator[int]:
    """Those of some rows whose cable was not reported at this tick, by whichever detector."""
    reported = inputs.once(_reported_ports)
    for row in rows.tolist():
        if row not in reported:
            reported.update((row, int(inputs.structure.peer[row])))
            yield row


def _reported_ports(_: DetectorInput) -> set[int]:
    return set()


@dataclass(frozen=True, slots=True)
class _DamagedPort:
    row: int
    is_lossy: bool
    is_lasting: bool


class LinkDamage:
    """Finds ports that receive damaged data, for the two detectors that report them.

    A `lossy` link loses a good part of its line rate to it, all others have a `burst`. Damage at
    very many ports at once is one condition: cables do not fail together.
    """

    def __init__(self, thresholds: LinkHealthThresholds, lossy: Cause, burst: Cause) -> None:
        self._t = thresholds
        self._lossy = lossy
        self._burst = burst
        self._saturated: set[tuple[int, str]] = set()
        self._places, self._columns = np.empty(0, np.intp), dict[str, int]()
        self._saturated_at: dict[int, int] = {}

    def conditions(self, inputs: DetectorInput, cause: Cause) -> Iterator[Condition]:
        """One condition for each damaged port with one of the two causes."""
        found = [
            each for each in inputs.once(self._damaged) if each.is_lossy == (cause is self._lossy)
        ]
        if len(found) > _MAX_CABLES:
            yield self._at_once(inputs, found, cause)
            return
        for port in found:
            yield self._condition(inputs, port, cause)

    def _damaged(self, inputs: DetectorInput) -> tuple[_DamagedPort, ...]:
        errors = inputs.filled("damage")
        lasting = (errors > self._t.errors_per_s).sum(axis=1) >= self._t.lasting_ticks
        burst: Mask = np.any(errors[:, -_BURST_TICKS:] >= self._t.burst_per_s, axis=1)
        burst[self._just_saturated(inputs)] = True
        damaged = lasting | burst
        if not damaged.any():
            return ()
        lossy = self._lossy_ports(inputs)
        return tuple(
            _DamagedPort(row, bool(lossy[row]), bool(lasting[row]))
            for row in one_per_cable(inputs, np.flatnonzero(damaged))
        )

    def _at_once(
        self, inputs: DetectorInput, found: Sequence[_DamagedPort], cause: Cause
    ) -> Condition:
        structure = inputs.structure
        rows = np.array([each.row for each in found], np.intp)
        nodes = len(np.unique(structure.node[rows]))
        worst = float(inputs.filled("damage")[rows].max())
        return Condition(
            cause=cause.name,
            severity=cause.severity,
            subject="many links",
            rows=tuple(rows.tolist()),
            text=(
                f"{len(rows)} ports of {nodes} nodes receive damaged data at the same time, up to"
                f" {worst:,.0f} errors/s: not single cables but what they share"
            ),
            evidence=(
                Evidence("ports", len(rows), "ports"),
                Evidence("nodes", nodes, "nodes"),
                Evidence("errors, at most", round(worst), "/s"),
            ),
            advice="Look for what changed everywhere: firmware, FEC mode, line card, cooling.",
            confidence=0.8,
        )

    def _condition(self, inputs: DetectorInput, port: _DamagedPort, cause: Cause) -> Condition:
        row = port.row
        errors = inputs.filled("damage")[row]
        worst = float(errors.max())
        rate = "an error counter reached its maximum"
        if errors.any():
            rate = f"up to {worst:,.0f} errors/s{self._worst_counter(inputs, row)}"
        loses = "loses much of its traffic to" if port.is_lossy else "receives"
        return link_condition(
            inputs,
            row,
            cause,
            f"{loses} damaged data: {rate}",
            (
                Evidence("errors, at most", round(worst), "/s"),
                Evidence("ticks with errors", int((errors > 0).sum()), f"of {TICKS}"),
            ),
            confidence=0.95 if port.is_lasting else 0.9,
        )

    def _just_saturated(self, inputs: DetectorInput) -> list[int]:
        """Ports one of whose error counters reached its maximum in the last ticks, so that its rate
        is unknown.

        A counter that was saturated when its port was first read has been so for long.
        """
        snapshot = inputs.snapshot
        if snapshot.columns is not self._columns or not np.array_equal(
            snapshot.stuck, self._places
        ):
            # By name: the table gets wider when a node brings a metric that no other node has.
            saturated = {
                (row, name)
                for name in _DAMAGE_COUNTERS
                for row in np.flatnonzero(snapshot.is_stuck(name)).tolist()
            }
            for row in {row for row, _ in saturated - self._saturated}:
                if np.isfinite(inputs.window("damage")[row, 0]):
                    self._saturated_at[row] = snapshot.seq
            self._saturated = saturated
            self._columns, self._places = snapshot.columns, snapshot.stuck
        return [row for row, seq in self._saturated_at.items() if snapshot.seq - seq < TICKS]

    def _lossy_ports(self, inputs: DetectorInput) -> Mask:
        """[ports]: whether damage takes a good part of the line rate."""
        snapshot = inputs.snapshot
        packets = np.max(
            [np.nan_to_num(snapshot.column(name)) for name in _PACKET_COUNTERS], axis=0
        )
        with np.errstate(invalid="ignore"):
            lossy: Mask = packets * _PACKET_BITS >= self._t.lossy * snapshot.line_rate_bps
        return lossy

    def _worst_counter(self, inputs: DetectorInput, row: int) -> str:
        """` (phy_rx_crc_errors)`: the damage counter that grows fastest; empty when none does."""
        known = {name: float(inputs.snapshot.column(name)[row]) for name in _DAMAGE_COUNTERS}
        worst = max(known, key=lambda name: np.nan_to_num(known[name]))
        return f" ({worst})" if known[worst] > 0 else ""
