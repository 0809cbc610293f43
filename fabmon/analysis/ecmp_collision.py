"""A link is hot while its ECMP group has room: too many elephants were hashed onto it.

A synchronous collective waits for its slowest flow, so the group is worth what its mean is to its
maximum: lost = 1 - mean/max (reference: detection.md section 2).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.condition import CRITICAL, WARNING, Condition, Evidence
from fabmon.analysis.group_load import Load, loads
from fabmon.analysis.nullmodel import peak_to_average_p95
from fabmon.analysis.polarization import is_polarized
from fabmon.analysis.sight import Sight
from fabmon.analysis.thresholds import EcmpGroups
from fabmon.analysis.words import percent

_IDLE_UTIL = 0.02
_CRITICAL_LOST = 0.5
_COLD = 0.5
"""A link below this share of its group's mean has the room that the hot one lacks."""


class EcmpCollisions:
    """Judges what every group sends; a group of fewer than two live links cannot collide."""

    def __init__(self, thresholds: EcmpGroups) -> None:
        self._t = thresholds

    def __call__(self, sight: Sight) -> Iterator[Condition]:
        """One condition for every hot link of every group that has room; the worst of each link."""
        worst: dict[str, Condition] = {}
        for load in loads(sight, self._t):
            if load.mean >= self._t.room_util or load.has_lone_sender or is_polarized(load):
                continue
            for member in np.flatnonzero(load.hot).tolist():
                lost = 1.0 - load.mean / float(load.level[member])
                cold = (load.level < _COLD * load.mean).any()
                if lost >= self._t.lost_min and cold:
                    condition = self._condition(sight, load, member, lost)
                    before = worst.get(condition.key)
                    if before is None or before.lost < lost:
                        worst[condition.key] = condition
        yield from worst.values()

    def _condition(self, sight: Sight, load: Load, member: int, lost: float) -> Condition:
        structure, level = sight.structure, load.level
        rows = load.group.rows
        row = int(rows[member])
        ports = [structure.fabric.ports[each] for each in rows]
        port = structure.fabric.ports[row]
        idle = [p.label for p, u in zip(ports, level, strict=True) if u < _IDLE_UTIL]
        others = ", ".join(idle) + " idle" if idle else "none idle"
        peer = int(structure.peer[row])
        towards = f" to {structure.fabric.ports[peer].node}" if peer >= 0 else ""
        ratio = float(np.nanmax(level)) / load.mean
        flows = round(load.effective_flows)
        usual = peak_to_average_p95(max(1, min(flows, 4096)), load.links)
        seen = [] if load.senders is None else [Evidence("senders", load.senders, "ports")]
        return Condition(
            cause="ecmp_collision",
            severity=CRITICAL if lost >= _CRITICAL_LOST else WARNING,
            subject=port.id,
            rows=(row, *(int(each) for each in rows if each != row)),
            text=(
                f"{port.node} {port.label}{towards} sends at {percent(level[member])} of line rate"
                f" while its group of {len(ports)} is at {percent(load.mean)}; the group loses"
                f" {percent(lost)} ({others})"
            ),
            evidence=(
                Evidence("link utilisation", round(float(level[member]) * 100, 1), "%"),
                Evidence("group mean", round(load.mean * 100, 1), "%"),
                Evidence("lost bandwidth", round(lost * 100, 1), "%"),
                Evidence("group links", load.links, "links"),
                Evidence("idle links", len(idle), "links"),
                Evidence("hot ticks", int(load.hot_ticks[member]), f"of {self._t.of_ticks}"),
                Evidence("max/mean", round(ratio, 2)),
                Evidence("effective flows", flows, "flows"),
                Evidence("max/mean of random hashing, p95", round(usual, 2)),
                *seen,
            ),
            advice=(
                "Give the hash more to work with: NCCL_IB_QPS_PER_CONNECTION=4, then E-ECMP on the"
                " queue pair or adaptive routing on the switch."
            ),
            confidence=self._confidence(load, member),
            lost=lost,
            unseen="" if load.senders is not None else "which ports feed the group",
        )

    def _confidence(self, load: Load, member: int) -> float:
        """More ticks say it more surely, and so does seeing who sends."""
        share = int(load.hot_ticks[member]) / self._t.of_ticks
        return round(min(0.95, 0.5 + 0.45 * share) - (0.1 if load.senders is None else 0.0), 2)
