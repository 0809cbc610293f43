"""What the causes of an unhealthy link share: damage counters, and one condition for each cable.

Three causes are judged, in this order: flapping link, degraded link, error burst. The first one
that holds for either end of a cable is reported, since a link that flaps has errors too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput, without_nan
from fabmon.analysis.fabric_structure import NONE, Mask, Rows
from fabmon.analysis.finding import Cause, Condition, Evidence
from fabmon.analysis.thresholds import Share, Ticks
from fabmon.fabric.model import RAIL, Port
from fabmon.fabric.names import natural
from fabmon.fabric.port_arrays import grown
from fabmon.history.derived_metrics import DAMAGE

_CHECK_CABLE = "Clean or change the cable or the optics; look at its power levels ({command})."
CHECK_CABLE = _CHECK_CABLE.format(command="ethtool -m")
"""The usual advice; `check_cable` has that of a port."""

ERROR_RATE = "errors, at most"
"""Name of the evidence of damage: errors are counted where data arrive, so a finding with it is
about the traffic that its first port receives."""

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


def link_name(inputs: DetectorInput, row: int) -> str:
    """`leaf1 up3 to spine1`: a port, and the node at the other end of its cable, if it is known."""
    far = _far_node(inputs, row)
    return f"{inputs.structure.label(row)}{f' to {far}' if far else ''}"


def _far_node(inputs: DetectorInput, row: int) -> str:
    structure = inputs.structure
    peer = int(structure.peer[row])
    return structure.fabric.ports[peer].node if peer != NONE else ""


def link_condition(
    inputs: DetectorInput,
    row: int,
    cause: Cause,
    text: str,
    evidence: tuple[Evidence, ...],
    confidence: float,
    then: str = "",
    lost: float = 0.0,
) -> Condition:
    """A condition about a link, which is at fault at both ends of its cable.

    `then` is advice for after its cable was checked.
    """
    structure = inputs.structure
    peer = int(structure.peer[row])
    ports = structure.fabric.ports
    return Condition(
        cause=cause.name,
        severity=cause.severity,
        subject=cable_subject(inputs, row),
        rows=(row,) if peer == NONE else (row, peer),
        text=text,
        evidence=evidence,
        advice=f"{check_cable(ports[row])} {then}".rstrip(),
        confidence=confidence,
        lost=round(lost, 3),
    )


def cable_subject(inputs: DetectorInput, row: int) -> str:
    """The end that a cable is named by, whichever is at fault: the first in natural order."""
    peer = int(inputs.structure.peer[row])
    return min(inputs.structure.ids([row] if peer == NONE else [row, peer]), key=natural)


def one_per_cable(inputs: DetectorInput, rows: Rows) -> Rows:
    """Those of some rows, in order, whose cable was not reported at this tick, by whichever
    detector; of the two ends of a cable the first. They are reported from now on."""
    reported = inputs.once(_reported_ports)
    peer = inputs.structure.peer
    wanted = np.zeros(len(peer) + 1, np.bool_)
    wanted[rows] = True
    is_second = wanted[peer[rows]] & (peer[rows] < rows)
    new: Rows = rows[~is_second & ~reported[rows]]
    far = peer[new]
    reported[new] = reported[far[far != NONE]] = True
    return new


def _reported_ports(inputs: DetectorInput) -> Mask:
    return np.zeros(len(inputs.structure.peer), np.bool_)


@dataclass(frozen=True, slots=True)
class _DamagedPorts:
    """Ports that receive damaged data, one of each cable; all arrays are parallel."""

    rows: Rows
    is_lossy: Mask
    is_lasting: Mask


def check_cable(port: Port) -> str:
    """What to do about the cable of a port, with the command that reads its module.

    `ethtool -m` knows no InfiniBand port: mlxlink reads the module of an HCA, ibdiagnet those of
    the switches as well (NVIDIA, MFT and ibdiagnet user manuals).
    """
    if port.kind != "infiniband":
        return CHECK_CABLE
    if port.role == RAIL:
        return _CHECK_CABLE.format(command=f"mlxlink -d {port.name.partition('/')[0]} -m")
    return _CHECK_CABLE.format(command="ibdiagnet --get_cable_info")


class LinkDamage:
    """Finds ports that receive damaged data, for the two detectors that report them.

    A `lossy` link loses a good part of its line rate to it, all others have bursts of it. Damage at
    very many ports at once is one condition: cables do not fail together.
    """

    def __init__(self, thresholds: LinkHealthThresholds, lossy: Cause) -> None:
        self._t = thresholds
        self._lossy = lossy
        # [counters, ports]
        self._saturated = np.zeros((len(_DAMAGE_COUNTERS), 0), np.bool_)
        self._places, self._columns = np.empty(0, np.intp), dict[str, int]()
        # [ports]: the tick, by its number.
        self._saturated_at = np.empty(0, np.int64)

    def conditions(self, inputs: DetectorInput, cause: Cause) -> Iterator[Condition]:
        """One condition for each damaged port with one of the two causes."""
        damaged = inputs.once(self._damaged)
        ours = damaged.is_lossy == (cause is self._lossy)
        rows = damaged.rows[ours]
        if len(rows) > _MAX_CABLES:
            yield self._at_once(inputs, rows, cause)
            return
        for row, is_lasting in zip(rows.tolist(), damaged.is_lasting[ours].tolist(), strict=True):
            yield self._condition(inputs, row, cause, is_lasting)

    def _damaged(self, inputs: DetectorInput) -> _DamagedPorts:
        lasting = inputs.often("damage", self._t.errors_per_s, TICKS, self._t.lasting_ticks)
        recent = inputs.window("damage")[:, -_BURST_TICKS:]
        with np.errstate(invalid="ignore"):
            burst: Mask = np.fmax.reduce(recent, axis=1) >= self._t.burst_per_s
        burst |= self._just_saturated(inputs)
        rows: Rows = np.flatnonzero(lasting | burst)
        if not len(rows):
            return _DamagedPorts(rows, lasting[rows], lasting[rows])
        rows = one_per_cable(inputs, rows)
        return _DamagedPorts(rows, self._is_lossy(inputs, rows), lasting[rows])

    def _at_once(self, inputs: DetectorInput, rows: Rows, cause: Cause) -> Condition:
        structure = inputs.structure
        nodes = len(np.unique(structure.node[rows]))
        worst = float(without_nan(np.fmax.reduce(inputs.window("damage"), axis=1))[rows].max())
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
                Evidence(ERROR_RATE, round(worst), "/s"),
            ),
            advice="Look for what changed everywhere: firmware, FEC mode, line card, cooling.",
            confidence=0.8,
        )

    def _condition(
        self, inputs: DetectorInput, row: int, cause: Cause, is_lasting: bool
    ) -> Condition:
        errors = without_nan(inputs.window("damage")[row])
        worst = float(errors.max())
        rate = "an error counter reached its maximum"
        if errors.any():
            rate = f"up to {worst:,.0f} errors/s{self._worst_counter(inputs, row)}"
        far = _far_node(inputs, row)
        sender = f" from {far}" if far else ""
        receives = f"receives damaged data{sender}"
        if cause is self._lossy:
            receives = f"loses much of what it receives{sender} to damage"
        return link_condition(
            inputs,
            row,
            cause,
            f"{inputs.structure.label(row)} {receives}: {rate}",
            (
                Evidence(ERROR_RATE, round(worst), "/s"),
                Evidence("ticks with errors", int((errors > 0).sum()), f"of {TICKS}"),
            ),
            confidence=0.95 if is_lasting else 0.9,
        )

    def _just_saturated(self, inputs: DetectorInput) -> Mask:
        """[ports]: whether one of the error counters reached its maximum in the last ticks, so that
        its rate is unknown.

        A counter that was saturated when its port was first read has been so for long.
        """
        snapshot = inputs.snapshot
        if snapshot.columns is not self._columns or not np.array_equal(
            snapshot.stuck, self._places
        ):
            # By name: the table gets wider when a node brings a metric that no other node has.
            saturated = np.stack([snapshot.is_stuck(name) for name in _DAMAGE_COUNTERS])
            ports = saturated.shape[1]
            before = grown(self._saturated, ports)
            self._saturated_at = grown(self._saturated_at, ports, -TICKS)
            new = (saturated & ~before).any(axis=0)
            if new.any():
                new &= np.isfinite(inputs.window("damage")[:, 0])
                self._saturated_at[new] = snapshot.seq
            self._saturated = saturated
            self._columns, self._places = snapshot.columns, snapshot.stuck
        found: Mask = snapshot.seq - self._saturated_at < TICKS
        return found

    def _is_lossy(self, inputs: DetectorInput, rows: Rows) -> Mask:
        """[rows]: whether damage takes a good part of the line rate."""
        snapshot = inputs.snapshot
        packets = np.zeros(len(rows), np.float32)
        for name in _PACKET_COUNTERS:
            packets = np.fmax(packets, snapshot.column(name)[rows])
        with np.errstate(invalid="ignore"):
            lossy: Mask = packets * _PACKET_BITS >= self._t.lossy * snapshot.line_rate_bps[rows]
        return lossy

    def _worst_counter(self, inputs: DetectorInput, row: int) -> str:
        """` (phy_rx_crc_errors)`: the damage counter that grows fastest; empty when none does."""
        rates = {name: float(inputs.snapshot.column(name)[row]) for name in _DAMAGE_COUNTERS}
        growing = {name: rate for name, rate in rates.items() if rate > 0}
        return f" ({max(growing, key=growing.__getitem__)})" if growing else ""
