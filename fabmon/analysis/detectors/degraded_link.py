"""A link runs below the speed of its peers, or loses much of what it carries to damaged packets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.link_health import (
    CHECK_CABLE,
    LinkDamage,
    LinkHealthThresholds,
    link_condition,
    link_name,
    one_per_cable,
)
from fabmon.analysis.fabric_structure import Rows
from fabmon.analysis.finding import LOST_LINE_RATE, WARNING, Cause, Condition, Evidence, Trait
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import bit_rate

CAUSE = Cause(
    name="degraded_link",
    title="Degraded link",
    meaning="a link is slower than its peers, or loses much of its traffic to damaged packets",
    severity=WARNING,
    rule=(
        "A port that is up runs below link_health.slower_than_peers of the best line rate that it"
        " had, or of the median of its peers: of a rail those of the same rail and those of its"
        " host, both; of an uplink its group. More than 64 such ports are how the fabric was built,"
        " and none is reported. Or a port has the damage of an error burst, and its damaged packets"
        " (of 4 kB) are worth link_health.lossy of its line rate; more than 32 such ports are one"
        " finding."
    ),
    inputs=(
        "Line rates of three ports of a rail, host or group; error counters of the receiving port"
    ),
    not_observable="A slower link whose peers are all as slow, and that was never faster",
    confidence=0.95,
    picture="link_ends",
    advice=CHECK_CABLE,
    loss=LOST_LINE_RATE,
    tables=("link_health",),
    traits=(
        Trait.OF_LINK,
        Trait.MAKES_QUEUES,
        Trait.HAS_SENDERS,
    ),
    family="link",
)

_COMPARE = (
    "Then compare FEC and auto-negotiation of both ends.",
    "Then compare active speed, width and FEC of both ends (iblinkinfo, mlxlink).",
)
"""What to compare once the cable is in order: on Ethernet, on InfiniBand."""

_MIN_PEERS = 3
"""Ports of a rail, host or group with a known line rate from which on their median is usual."""

_MAX_CABLES = 32
"""Slow cables that are reported one by one; more are how the fabric was built."""


class DegradedLinks:
    """Judges every port by its line rate, and by the damage that `damage` measures.

    A rail is compared in two ways: hosts or leaves of another generation are no fault.
    """

    def __init__(self, thresholds: LinkHealthThresholds, damage: LinkDamage) -> None:
        self._t = thresholds
        self._damage = damage
        # Another array whenever the fabric has other ports, nodes or groups.
        self._peer: Rows | None = None
        self._rates: Floats = np.empty(0, np.float32)
        self._compared: Floats = np.empty(0, np.float32)

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition for each cable."""
        snapshot = inputs.snapshot
        usual = np.fmax(snapshot.best_line_rate_bps, self._rates_of_peers(inputs))
        with np.errstate(invalid="ignore"):
            slow = (snapshot.line_rate_bps < self._t.slower_than_peers * usual) & (snapshot.up != 0)
        rows, ports = np.flatnonzero(slow), inputs.structure.fabric.ports
        rows = one_per_cable(inputs, rows if len(rows) <= 2 * _MAX_CABLES else rows[:0])
        for row in rows.tolist():
            own, expected = float(snapshot.line_rate_bps[row]), float(usual[row])
            before = snapshot.best_line_rate_bps[row] >= expected
            yield link_condition(
                inputs,
                row,
                CAUSE,
                f"{link_name(inputs, row)} runs at {bit_rate(own)}"
                f" {'after' if before else 'while its peers run at'} {bit_rate(expected)}",
                (
                    Evidence("line rate", round(own), "bps"),
                    Evidence("before" if before else "peers", round(expected), "bps"),
                ),
                then=_COMPARE[ports[row].kind == "infiniband"],
                confidence=CAUSE.confidence,
                lost=1.0 - own / expected,
            )
        yield from self._damage.conditions(inputs, CAUSE)

    def _rates_of_peers(self, inputs: DetectorInput) -> Floats:
        """[ports]: the line rate that a port should have by its peers; NaN where none is known.

        Computed again only when a line rate or the fabric changes.
        """
        structure, rates = inputs.structure, inputs.snapshot.line_rate_bps
        if structure.peer is self._peer and np.array_equal(rates, self._rates, equal_nan=True):
            return self._compared
        rails = _medians(rates, (rows[None] for rows in structure.rails.values()))
        hosts = _medians(rates, (rows for _, rows in structure.rail_tables))
        groups = _medians(rates, (rows[None] for rows in structure.groups))
        # A rail must be slower than both; NaN where one of them is not known.
        self._compared = np.where(structure.is_rail, np.minimum(rails, hosts), groups)
        self._peer, self._rates = structure.peer, rates
        return self._compared


def _medians(rates: Floats, sets: Iterable[Rows]) -> Floats:
    """[ports]: the median line rate of the sets that a port is in, the largest; NaN of too few.

    Each array of `sets` is [sets, ports of each].
    """
    usual = np.full(len(rates), np.nan, np.float32)
    for rows in sets:
        if rows.shape[1] < _MIN_PEERS:
            continue
        # NaN is sorted to the end.
        ordered = np.sort(rates[rows], axis=1)
        known = np.isfinite(ordered).sum(axis=1)
        enough = known >= _MIN_PEERS
        ordered, known, rows = ordered[enough], known[enough], rows[enough]
        each = np.arange(len(rows))
        middle = (ordered[each, (known - 1) // 2] + ordered[each, known // 2]) / 2
        usual[rows] = np.fmax(usual[rows], middle[:, None])
    return usual
