"""A whole ECMP group is full: its hosts could send more than its links together carry."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.condition import WARNING, Condition, Evidence
from fabmon.analysis.group_load import Load, loads
from fabmon.analysis.pause_graph import pauses
from fabmon.analysis.sight import Sight
from fabmon.analysis.thresholds import EcmpGroups
from fabmon.analysis.words import percent

_FULL = 0.95
"""Mean utilisation at which a group is full when more can come from below ..."""
_MORE = 1.05
_MARKED = 0.85
"""... and at which it is when senders are slowed, which only congestion does."""


class Oversubscription:
    """Judges the groups all of whose links are hot."""

    def __init__(self, thresholds: EcmpGroups) -> None:
        self._t = thresholds

    def __call__(self, sight: Sight) -> Iterator[Condition]:
        """One condition a group."""
        for load in loads(sight, self._t):
            alive = np.isfinite(load.level)
            if not load.hot[alive].all():
                continue
            slowed = _slowed(sight, load)
            more = _below_to_above(sight, load) > _MORE
            if (slowed and load.mean >= _MARKED) or (more and load.mean >= _FULL):
                yield _condition(sight, load, slowed)


def _slowed(sight: Sight, load: Load) -> bool:
    """Whether hosts below the group were told to slow down, or to hold."""
    feeders = load.group.feeders
    hosts = sight.structure.peer[feeders]
    hosts = hosts[hosts >= 0]
    cnps = sight.often("cnp", 1.0, 5, 3)[hosts].any()
    return bool(cnps or pauses(sight).held[hosts].any())


def _below_to_above(sight: Sight, load: Load) -> float:
    """The line rates that feed the group over those of the group; 0 when they are not known."""
    rates = sight.moment.line_rate_bps
    above = float(np.nansum(rates[load.group.rows]))
    return float(np.nansum(rates[load.group.feeders])) / above if above > 0 else 0.0


def _condition(sight: Sight, load: Load, slowed: bool) -> Condition:
    node = load.group.group.node
    ratio = _below_to_above(sight, load)
    return Condition(
        cause="oversubscription",
        severity=WARNING,
        subject=f"{node}/uplinks",
        rows=tuple(int(row) for row in load.group.rows),
        text=(
            f"all {load.links} uplinks of {node} are full: {percent(load.mean)} of line rate on"
            f" average, {ratio:.1f} times as much can come from below"
        ),
        evidence=(
            Evidence("group mean", round(load.mean * 100, 1), "%"),
            Evidence("group links", load.links, "links"),
            Evidence("capacity below to above", round(ratio, 2)),
            Evidence("senders slowed", "yes" if slowed else "not seen"),
        ),
        advice=(
            "No hash can help: place the job under fewer leaves, or add uplinks; check that none"
            " is down."
        ),
        confidence=0.9 if slowed else 0.8,
        lost=max(0.0, 1.0 - 1.0 / ratio) if ratio > 1 else 0.0,
    )
