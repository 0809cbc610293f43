"""How an ECMP group is loaded while some of its links are hot: three findings judge by it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.nullmodel import effective_flows
from fabmon.analysis.sight import Sight
from fabmon.analysis.structure import Group
from fabmon.analysis.thresholds import EcmpGroups
from fabmon.fabric.moment import Floats

_SENDS = 0.05
"""Share of line rate above which a port counts as a sender."""
_CARRIES = 0.1
"""Share of the hottest link's load above which a link counts as used."""


@dataclass(frozen=True, slots=True)
class Load:
    """One group. `level` is [members]: mean utilisation over the ticks in which a member was hot.

    NaN of members that are down. `hot` are those at `hot_util` in enough of the last ticks.
    `senders` are the ports that feed the group, None when none of them is seen to send.
    """

    group: Group
    level: Floats
    hot: NDArray[np.bool_]
    hot_ticks: NDArray[np.intp]
    senders: int | None
    biggest_sender: float

    @property
    def links(self) -> int:
        """Members that are alive."""
        return int(np.isfinite(self.level).sum())

    @property
    def mean(self) -> float:
        """Mean utilisation of the members."""
        return float(np.nanmean(self.level))

    @property
    def used(self) -> int:
        """Members that carry anything to speak of."""
        return int((self.level > _CARRIES * np.nanmax(self.level)).sum())

    @property
    def effective_flows(self) -> float:
        """How many equal flows would be as uneven as this."""
        return effective_flows(self.level[np.isfinite(self.level)])

    @property
    def has_lone_sender(self) -> bool:
        """Whether one port alone feeds the hot link: then its own line rate is what limits it."""
        return self.senders == 1 and self.biggest_sender >= 0.9 * float(np.nanmax(self.level))


def loads(sight: Sight, t: EcmpGroups) -> list[Load]:
    """The groups with a hot member, worked out once a tick."""
    if sight.group_loads is None:
        sight.group_loads = list(_loads(sight, t))
    return sight.group_loads


def _loads(sight: Sight, t: EcmpGroups) -> Iterator[Load]:
    util = sight.util("tx")[:, -t.of_ticks :]
    with np.errstate(invalid="ignore"):
        hot_ticks = (util >= t.hot_util).sum(axis=1)
    hot = hot_ticks >= t.hot_ticks
    for group in sight.structure.groups:
        rows = group.rows
        if not hot[rows].any():
            continue
        own = util[rows]
        alive = np.isfinite(own).any(axis=1)
        if alive.sum() < 2:
            continue
        with np.errstate(invalid="ignore"):
            busy = np.any(own >= t.hot_util, axis=0)
        level = np.full(len(rows), np.nan, np.float32)
        level[alive] = _mean(own[alive][:, busy])
        senders, biggest = _senders(sight, group, busy)
        yield Load(group, level, hot[rows], hot_ticks[rows], senders, biggest)


def _senders(sight: Sight, group: Group, busy: NDArray[np.bool_]) -> tuple[int | None, float]:
    """How many ports feed the group, and what the biggest of them brings (share of line rate)."""
    if not len(group.feeders):
        return None, 0.0
    received = sight.util("rx")[group.feeders][:, -len(busy) :][:, busy]
    known = np.isfinite(received).any(axis=1)
    if not known.any():
        return None, 0.0
    level = _mean(received[known])
    sending = int((level > _SENDS).sum())
    return (sending or None), float(level.max())


def _mean(values: Floats) -> Floats:
    """Means along the last axis of what is known; NaN where nothing is."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        mean: Floats = np.where(known, values, 0).sum(axis=1) / known.sum(axis=1)
    return mean
