"""The last minutes of what hosts sent, as the rhythm needs them: a row a tick."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.iteration.signal_analysis import Floats as Float64s
from fabmon.fabric.model import HOST, RAIL, Fabric
from fabmon.fabric.snapshot import Floats, Snapshot

TICKS = 240
"""What is looked back at: four minutes at one tick a second."""

_RAIL_TICKS = 60


class HostTraffic:
    """Bits/s that each host sent, tick by tick, and what each rail sent lately.

    `hosts` are names, `rails` the port rows of all of them, a host's next to each other; `host_of`
    and `index_of` say which host a rail is of, and its number there.
    """

    def __init__(self) -> None:
        self.hosts: tuple[str, ...] = ()
        self.rails: NDArray[np.intp] = np.empty(0, np.intp)
        self.host_of: NDArray[np.intp] = np.empty(0, np.intp)
        self.index_of: NDArray[np.intp] = np.empty(0, np.intp)
        self._version = -1
        self._seq = -1
        self._kept = 0
        self._hosts_sent: Floats = np.empty((TICKS, 0), np.float32)
        self._rails_sent: Floats = np.empty((_RAIL_TICKS, 0), np.float32)

    @property
    def ticks(self) -> int:
        """How many ticks are known, those that were missed included."""
        return self._kept

    def accept(self, snapshot: Snapshot) -> None:
        """Take what was sent at this tick."""
        if snapshot.fabric.version != self._version:
            self._lay_out(snapshot.fabric)
        passed = snapshot.seq - self._seq
        if self._seq < 0 or passed < 1 or passed >= TICKS:
            self._kept, passed = 0, 1
        for missed in range(snapshot.seq - passed + 1, snapshot.seq):
            self._hosts_sent[missed % TICKS] = np.nan
            self._rails_sent[missed % _RAIL_TICKS] = 0.0
        self._seq = snapshot.seq
        self._kept = min(TICKS, self._kept + passed)
        sent = snapshot.column("tx_bps")[self.rails]
        known = np.isfinite(sent)
        sent = np.where(known, sent, np.float32(0.0))
        count = len(self.hosts)
        total = np.bincount(self.host_of, sent, count).astype(np.float32)
        total[np.bincount(self.host_of, known, count) == 0] = np.nan
        self._hosts_sent[snapshot.seq % TICKS] = total
        self._rails_sent[snapshot.seq % _RAIL_TICKS] = sent

    def of_hosts(self, ticks: int) -> Floats:
        """[ticks, hosts] bits/s, oldest first; NaN where a host was not heard of."""
        return self._hosts_sent[self._places(min(ticks, self._kept), TICKS)]

    def of_rails(self) -> Floats:
        """[rails] mean bits/s over the last minute of ticks."""
        places = self._places(min(_RAIL_TICKS, self._kept), _RAIL_TICKS)
        mean: Floats = self._rails_sent[places].mean(axis=0)
        return mean

    def _places(self, ticks: int, of: int) -> NDArray[np.intp]:
        return np.arange(self._seq - ticks + 1, self._seq + 1) % of

    def _lay_out(self, fabric: Fabric) -> None:
        """Where everything is in a fabric that has changed; what is known of a port stays."""
        self._version = fabric.version
        nodes = [
            (node.name, [port for port in node.ports if port.role == RAIL])
            for node in fabric.nodes
            if node.role == HOST
        ]
        nodes = [(name, rails) for name, rails in nodes if rails]
        hosts = tuple(name for name, _ in nodes)
        rails = np.array([port.row for _, ports in nodes for port in ports], np.intp)
        self._hosts_sent = _moved(self._hosts_sent, self.hosts, hosts, np.nan)
        self._rails_sent = _moved(
            self._rails_sent, tuple(self.rails.tolist()), tuple(rails.tolist()), 0.0
        )
        self.hosts, self.rails = hosts, rails
        self.host_of = np.repeat(np.arange(len(nodes)), [len(ports) for _, ports in nodes])
        self.index_of = np.array([port.index for _, ports in nodes for port in ports], np.intp)


def _moved(
    values: Floats, before: tuple[object, ...], after: tuple[object, ...], empty: float
) -> Floats:
    """The columns of `before` at their places in `after`."""
    moved = np.full((len(values), len(after)), empty, np.float32)
    place = {name: number for number, name in enumerate(before)}
    pairs = [(number, place[name]) for number, name in enumerate(after) if name in place]
    if pairs:
        new, old = (list(side) for side in zip(*pairs, strict=True))
        moved[:, new] = values[:, old]
    return moved


# Which hosts work on the same thing: those whose traffic rises and falls together.


MIN_SAMPLES = 20

_LIKE = 0.7
_SAME = 0.9
_BELONGS = 0.5
_APART = 0.3
_MOST_GROUPS = 64
_LEAST_VARIATION = 0.15
_LEAST_KNOWN = 0.8


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Hosts by index. `cohesion` is their mean correlation with what they do together, to 1.

    `is_sure` says that no other group moves so much like this one that hosts may be in the wrong
    one.
    """

    members: tuple[int, ...]
    cohesion: float
    is_sure: bool


def group_hosts(activity: NDArray[np.floating]) -> list[HostGroup]:
    """Groups among [hosts, samples], the largest first; hosts that do not vary are in none.

    Leaders first: a host that is in no group yet takes all that are like it. Then groups that move
    as one are joined, and every host goes to the group that it is most like. A few products of a
    matrix and a vector: a thousand hosts do not cost a million correlations.
    """
    forms, alive = _forms(activity)
    centres: list[Float64s] = []
    sizes: list[int] = []
    free = alive.copy()
    while free.any() and len(centres) < _MOST_GROUPS:
        leader = int(np.argmax(free))
        like = free & (forms @ forms[leader] > _LIKE)
        like[leader] = True
        free &= ~like
        centres.append(_unit(forms[like].mean(axis=0)))
        sizes.append(int(like.sum()))
    if not centres:
        return []
    middles = _joined(_without_strays(np.stack(centres), np.array(sizes)))
    closeness = forms @ middles.T
    best = np.argmax(closeness, axis=1)
    score = closeness[np.arange(len(forms)), best]
    belongs = alive & (score > _BELONGS)
    near = middles @ middles.T
    np.fill_diagonal(near, -1.0)
    groups = []
    for number in range(len(middles)):
        members = np.flatnonzero(belongs & (best == number))
        if len(members):
            cohesion = float(score[members].mean())
            apart = cohesion - float(near[number].max()) > _APART if len(middles) > 1 else True
            groups.append(HostGroup(tuple(members.tolist()), cohesion, apart))
    return sorted(groups, key=lambda group: (-len(group.members), group.members))


def _forms(activity: NDArray[np.floating]) -> tuple[Float64s, NDArray[np.bool_]]:
    """Each host's curve without its mean and scale, and which hosts have one at all."""
    known = np.isfinite(activity)
    share = known.mean(axis=1) if activity.size else np.zeros(len(activity))
    clean = np.where(known, activity, 0.0).astype(np.float64)
    mean = clean.sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    centred = np.where(known, clean - mean[:, None], 0.0)
    length = np.sqrt((centred * centred).sum(axis=1))
    deviation = length / np.sqrt(max(activity.shape[1], 1))
    alive = (share >= _LEAST_KNOWN) & (mean > 0) & (deviation > _LEAST_VARIATION * mean)
    forms: Float64s = np.where(alive[:, None], centred / np.maximum(length, 1e-12)[:, None], 0.0)
    return forms, alive


def _without_strays(centres: Float64s, sizes: NDArray[np.intp]) -> Float64s:
    """The centres but those of one noisy host that is rather like a group: it belongs there."""
    large = sizes > 1
    if large.all() or not large.any():
        return centres
    like = (centres @ centres[large].T).max(axis=1)
    kept: Float64s = centres[large | (like <= _BELONGS)]
    return kept


def _joined(centres: Float64s) -> Float64s:
    """The centres, those that move as one made into one."""
    left = list(range(len(centres)))
    middles = []
    while left:
        near = [other for other in left if float(centres[left[0]] @ centres[other]) > _SAME]
        near = near or left[:1]
        middles.append(_unit(centres[near].mean(axis=0)))
        left = [other for other in left if other not in near]
    return np.stack(middles)


def _unit(curve: Float64s) -> Float64s:
    return curve / max(float(np.linalg.norm(curve)), 1e-12)
