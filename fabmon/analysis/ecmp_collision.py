"""A link is hot while its ECMP group has room: too many elephants were hashed onto it.

A synchronous collective waits for its slowest flow, so the group is worth what its mean is to its
maximum: lost = 1 - mean/max (reference: detection.md section 2).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.condition import CRITICAL, WARNING, Condition, Evidence
from fabmon.analysis.thresholds import EcmpCollision
from fabmon.fabric.model import EcmpGroup
from fabmon.fabric.moment import Floats, Moment

_IDLE_UTIL = 0.02
_CRITICAL_LOST = 0.5


class EcmpCollisions:
    """Judges what every group sends; a group of fewer than two live links cannot collide."""

    def __init__(self, thresholds: EcmpCollision) -> None:
        self._t = thresholds

    def __call__(self, moment: Moment) -> Iterator[Condition]:
        """One condition for every hot link of a group that has room; of several groups, the one
        that loses most: a link has a group for each set of destinations.
        """
        worst: dict[str, Condition] = {}
        for group in moment.fabric.groups:
            util = _utilisation(moment, group, self._t.of_ticks)
            for condition in self._judge(moment, group, util):
                other = worst.get(condition.key)
                if other is None or condition.lost > other.lost:
                    worst[condition.key] = condition
        yield from worst.values()

    def _judge(self, moment: Moment, group: EcmpGroup, util: Floats) -> Iterator[Condition]:
        """`util` is [members, ticks], NaN where a link was down or not heard of."""
        hot = (util >= self._t.hot_util).sum(axis=1) >= self._t.hot_ticks
        if not hot.any():
            return
        level = _while_hot(util, self._t.hot_util)
        if (~np.isnan(level)).sum() < 2:
            return
        mean = float(np.nanmean(level))
        median = float(np.nanmedian(level))
        if mean >= self._t.room_util:
            return
        for member in np.flatnonzero(hot):
            top = float(level[member])
            lost = 1.0 - mean / top
            if lost >= self._t.lost_min and top >= self._t.above_median * median:
                yield self._condition(moment, group, int(member), level, util[member], lost)

    def _condition(
        self,
        moment: Moment,
        group: EcmpGroup,
        member: int,
        level: Floats,
        util: Floats,
        lost: float,
    ) -> Condition:
        ports = [moment.fabric.ports[row] for row in group.rows]
        port = ports[member]
        mean = float(np.nanmean(level))
        idle = [p.label for p, u in zip(ports, level, strict=True) if u < _IDLE_UTIL]
        hot_ticks = int((util >= self._t.hot_util).sum())
        peer = None if port.peer is None else moment.fabric.ports[port.peer]
        others = ", ".join(idle) + " idle" if idle else "none idle"
        towards = f" to {peer.node}" if peer is not None else ""
        return Condition(
            cause="ecmp_collision",
            severity=CRITICAL if lost >= _CRITICAL_LOST else WARNING,
            subject=port.id,
            rows=(port.row, *(row for row in group.rows if row != port.row)),
            text=(
                f"{port.node} {port.label}{towards} sends at {_percent(level[member])} of line rate"
                f" while its group of {len(ports)} is at {_percent(mean)}; the group loses"
                f" {_percent(lost)} ({others})"
            ),
            evidence=(
                Evidence("link utilisation", round(float(level[member]) * 100, 1), "%"),
                Evidence("group mean", round(mean * 100, 1), "%"),
                Evidence("lost bandwidth", round(lost * 100, 1), "%"),
                Evidence("group links", len(ports), "links"),
                Evidence("idle links", len(idle), "links"),
                Evidence("hot ticks", hot_ticks, f"of {self._t.of_ticks}"),
            ),
            advice=(
                "Give the hash more to work with: NCCL_IB_QPS_PER_CONNECTION=4, then E-ECMP on the"
                " queue pair or adaptive routing on the switch."
            ),
            confidence=round(min(0.95, 0.5 + 0.5 * hot_ticks / self._t.of_ticks), 2),
            lost=lost,
        )


def _utilisation(moment: Moment, group: EcmpGroup, ticks: int) -> Floats:
    """What the members sent over the last ticks, as shares of their line rates."""
    rows = np.array(group.rows, np.intp)
    sent = moment.window("tx_bps", group.rows, ticks)
    with np.errstate(divide="ignore", invalid="ignore"):
        util: Floats = sent / moment.line_rate_bps[rows, None]
    util[moment.up[rows] == 0] = np.nan
    return util


def _while_hot(util: Floats, hot_util: float) -> Floats:
    """Each member's mean over the ticks in which some member was hot; NaN if it was silent then.

    Outside of them the job computes, and everything is even because everything is idle.
    """
    busy = util[:, (util >= hot_util).any(axis=0)]
    level = np.full(len(util), np.nan)
    heard = ~np.isnan(busy).all(axis=1)
    level[heard] = np.nanmean(busy[heard], axis=1)
    return level


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
