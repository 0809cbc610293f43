"""A host that is quiet while its rail peers send: it computes longer, and they wait for it.

In a collective all members of a rail move the same bytes. A host whose rails all send far less than
those of its peers, while nothing in the network slows it, is late by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.condition import WARNING, Condition, Evidence
from fabmon.analysis.pause_graph import pauses
from fabmon.analysis.sight import Sight
from fabmon.analysis.structure import Mask, Rows
from fabmon.analysis.thresholds import Straggler as Thresholds
from fabmon.analysis.words import percent
from fabmon.fabric.moment import Floats

_LEAST_PEERS = 4
_LEAST_TICKS = 3
_MAD = 1.4826
_NOISE = 0.03
"""A rail's peers are never judged closer than this share of their median."""


class Stragglers:
    """Judges hosts against their rail peers, in communication phases."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._t = thresholds

    def __call__(self, sight: Sight) -> Iterator[Condition]:
        """One condition a host."""
        phase = sight.communicates
        if phase.sum() < _LEAST_TICKS:
            return
        structure = sight.structure
        level = np.nan_to_num(sight.util("tx")[:, phase]).mean(axis=1)
        share, quiet = self._against_peers(sight, level)
        slowed = _slowed(sight)
        for node in sorted(set(structure.node[quiet].tolist())):
            rows = np.flatnonzero(structure.is_rail & (structure.node == node))
            judged = rows[np.isfinite(share[rows])]
            if len(judged) and quiet[judged].mean() >= self._t.of_rails and not slowed[rows].any():
                yield _condition(sight, judged, float(np.mean(share[judged])))

    def _against_peers(self, sight: Sight, level: Floats) -> tuple[Floats, Mask]:
        """[ports]: what a rail sends of its peers' median, and whether that is little."""
        share = np.full(len(level), np.nan)
        quiet = np.zeros(len(level), np.bool_)
        for rows in sight.structure.rails.values():
            heard = rows[sight.moment.up[rows] != 0]
            active = heard[level[heard] > self._t.busy_util]
            if len(active) < _LEAST_PEERS:
                continue
            median = float(np.median(level[active]))
            mad = max(_MAD * float(np.median(np.abs(level[active] - median))), _NOISE * median)
            # Whoever sent nothing for a minute is of no job, or of another one.
            mine = heard[_has_sent(sight, heard, self._t.busy_util)]
            share[mine] = level[mine] / median
            quiet[mine] = (level[mine] < self._t.below * median) & (
                (level[mine] - median) / mad < -self._t.sigmas
            )
        return share, quiet


def _has_sent(sight: Sight, rows: Rows, busy_util: float) -> Mask:
    """[rows]: whether a rail sent at some time of the last minute as its peers do."""
    sent = sight.moment.window("tx_bps", rows.tolist(), 60)
    with np.errstate(invalid="ignore", divide="ignore"):
        util = np.nan_to_num(sent / sight.moment.line_rate_bps[rows, None])
    found: Mask = (util > busy_util).any(axis=1)
    return found


def _slowed(sight: Sight) -> Mask:
    """[ports]: whether the network told a port to slow down or to hold, or the link is sick."""
    told = sight.often("cnp", 1.0, 5, 2) | pauses(sight).held | pauses(sight).holds
    return told | sight.often("damage", 0.5, 10, 2)


def _condition(sight: Sight, rows: Rows, share: float) -> Condition:
    structure = sight.structure
    name = structure.fabric.ports[int(rows[0])].node
    return Condition(
        cause="straggler",
        severity=WARNING,
        subject=name,
        rows=tuple(int(row) for row in rows),
        text=(
            f"{name} sends {percent(share)} of what its rail peers send, and nothing in the network"
            " slows it: the others wait for it"
        ),
        evidence=(
            Evidence("of its peers", round(share * 100, 1), "%"),
            Evidence("rails", len(rows), "ports"),
            Evidence("CNPs, pause, errors", "none"),
        ),
        advice=(
            "Look at the host: GPU clocks and throttling, CPU contention, data loading, ECC"
            " retirements; compare its step time with its peers'."
        ),
        confidence=0.75,
        lost=round(max(0.0, 1.0 - share), 3),
    )
