"""Hosts of one job: the last minutes of what each host sent, and hosts whose traffic moves
together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.iteration.signal_analysis import Floats as Float64s
from fabmon.fabric.model import HOST, RAIL, Fabric, Port
from fabmon.fabric.snapshot import Floats, Snapshot

TICKS = 240
"""Ticks of traffic that are kept for hosts: four minutes at one tick a second."""

MIN_SAMPLES = 20
"""Samples from which on hosts can be grouped."""

SAME_JOB = 0.5
"""Similarity of two sets of hosts from which on they are the same job."""

_RAIL_TICKS = 60
"""Ticks of traffic that are kept for rails."""

_LIKE_LEADER = 0.7
"""Correlation with its first host from which on a host joins a group."""

_SAME_GROUP = 0.9
"""Correlation of two groups from which on they are one."""

_BELONGS = 0.5
"""Correlation with a group's mean from which on a host belongs to it."""

_APART = 0.3
"""How much less two groups must correlate than the hosts of one, for members to be certain."""

_MAX_GROUPS = 64
_MIN_VARIATION = 0.15
"""Coefficient of variation below which a host's traffic has no shape."""

_MIN_KNOWN = 0.8
"""Share of the samples of a host that must be known."""


def host_similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard's index of two sets of hosts, 0 to 1."""
    return len(one & other) / max(len(one | other), 1)


class HostTraffic:
    """Bits/s that each host sent, tick by tick, and what each rail sent in the last minute.

    `hosts` are names, `rails` the port rows of all of them, those of a host adjacent; `host_of` and
    `index_of` are the host of each rail and its index there.
    """

    def __init__(self) -> None:
        self.hosts: tuple[str, ...] = ()
        self.rails: NDArray[np.intp] = np.empty(0, np.intp)
        self.host_of: NDArray[np.intp] = np.empty(0, np.intp)
        self.index_of: NDArray[np.intp] = np.empty(0, np.intp)
        self._ports: tuple[Port, ...] | None = None
        # By host, its ports and the rows and indices of the rails among them.
        self._rails_of: dict[str, tuple[tuple[Port, ...], NDArray[np.intp], NDArray[np.intp]]] = {}
        self._seq = -1
        self.ticks = 0
        """Number of known ticks, including those that were missed."""
        self._hosts_sent: Floats = np.empty((TICKS, 0), np.float32)
        self._rails_sent: Floats = np.empty((_RAIL_TICKS, 0), np.float32)

    def accept(self, snapshot: Snapshot) -> None:
        """Take what was sent at this tick."""
        if snapshot.fabric.ports is not self._ports:
            self._lay_out(snapshot.fabric)
        passed = snapshot.seq - self._seq
        if self._seq < 0 or passed < 1 or passed >= TICKS:
            self.ticks, passed = 0, 1
        for missed in range(snapshot.seq - passed + 1, snapshot.seq):
            self._hosts_sent[missed % TICKS] = np.nan
            self._rails_sent[missed % _RAIL_TICKS] = 0.0
        self._seq = snapshot.seq
        self.ticks = min(TICKS, self.ticks + passed)
        sent = snapshot.column("tx_bps")[self.rails]
        known = np.isfinite(sent)
        sent = np.where(known, sent, np.float32(0.0))
        count = len(self.hosts)
        total = np.bincount(self.host_of, sent, count).astype(np.float32)
        total[np.bincount(self.host_of, known, count) == 0] = np.nan
        self._hosts_sent[snapshot.seq % TICKS] = total
        self._rails_sent[snapshot.seq % _RAIL_TICKS] = sent

    def of_hosts(self, ticks: int) -> Floats:
        """[ticks, hosts] bits/s, oldest first; NaN where nothing of a host is known."""
        return self._hosts_sent[self._slots(min(ticks, self.ticks), TICKS)]

    def of_rails(self) -> Floats:
        """[rails] mean bits/s over the last 60 ticks."""
        slots = self._slots(min(_RAIL_TICKS, self.ticks), _RAIL_TICKS)
        mean: Floats = self._rails_sent[slots].mean(axis=0)
        return mean

    def _slots(self, ticks: int, of: int) -> NDArray[np.intp]:
        return np.arange(self._seq - ticks + 1, self._seq + 1) % of

    def _lay_out(self, fabric: Fabric) -> None:
        """Arrange hosts and rails of a fabric that has changed; known traffic is kept."""
        self._ports = fabric.ports
        rails_of = {}
        for node in fabric.nodes:
            if node.role == HOST:
                known = self._rails_of.get(node.name)
                if known is None or known[0] is not node.ports:
                    own = [port for port in node.ports if port.role == RAIL]
                    rows = np.array([port.row for port in own], np.intp)
                    known = node.ports, rows, np.array([port.index for port in own], np.intp)
                rails_of[node.name] = known
        self._rails_of = rails_of
        with_rails = {name: known for name, known in rails_of.items() if len(known[1])}
        hosts = tuple(with_rails)
        rails = _joined_rows([rows for _, rows, _ in with_rails.values()])
        if hosts != self.hosts:
            self._hosts_sent = _rearranged(self._hosts_sent, self.hosts, hosts, np.nan)
        if not np.array_equal(rails, self.rails):
            self._rails_sent = _rearranged(
                self._rails_sent, tuple(self.rails.tolist()), tuple(rails.tolist()), 0.0
            )
        self.hosts, self.rails = hosts, rails
        counts = [len(rows) for _, rows, _ in with_rails.values()]
        self.host_of = np.repeat(np.arange(len(hosts)), counts)
        self.index_of = _joined_rows([index for _, _, index in with_rails.values()])


def _joined_rows(parts: list[NDArray[np.intp]]) -> NDArray[np.intp]:
    return np.concatenate(parts) if parts else np.empty(0, np.intp)


def _rearranged(
    values: Floats, before: tuple[object, ...], after: tuple[object, ...], empty: float
) -> Floats:
    """The columns named `before` at their positions in `after`; new ones are `empty`."""
    moved = np.full((len(values), len(after)), empty, np.float32)
    column = {name: number for number, name in enumerate(before)}
    new = [number for number, name in enumerate(after) if name in column]
    moved[:, new] = values[:, [column[after[number]] for number in new]]
    return moved


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Hosts by index. `is_sure`: no other group is so similar that they may be in the wrong one."""

    members: tuple[int, ...]
    is_sure: bool


def group_hosts(activity: NDArray[np.floating]) -> list[HostGroup]:
    """Groups among [hosts, samples], the largest first; hosts that do not vary are in none.

    Each host that is in no group yet leads one of all ungrouped hosts that correlate with it. Then
    groups that correlate are joined, and every host is put in the group that it correlates with
    most. This takes a few products of a matrix and a vector: not the million correlations of all
    pairs of a thousand hosts.
    """
    shapes, has_shape = _shapes(activity)
    centres: list[Float64s] = []
    sizes: list[int] = []
    free = has_shape.copy()
    while free.any() and len(centres) < _MAX_GROUPS:
        leader = int(np.argmax(free))
        members = free & (shapes @ shapes[leader] > _LIKE_LEADER)
        members[leader] = True
        free &= ~members
        centres.append(_unit(shapes[members].mean(axis=0)))
        sizes.append(int(members.sum()))
    if not centres:
        return []
    means = _joined(_without_strays(np.stack(centres), np.array(sizes)))
    correlation = shapes @ means.T
    best = np.argmax(correlation, axis=1)
    score = correlation[np.arange(len(shapes)), best]
    belongs = has_shape & (score > _BELONGS)
    between = means @ means.T
    np.fill_diagonal(between, -1.0)
    groups = []
    for number in range(len(means)):
        hosts = np.flatnonzero(belongs & (best == number))
        if len(hosts):
            cohesion = float(score[hosts].mean())
            is_sure = len(means) == 1 or cohesion - float(between[number].max()) > _APART
            groups.append(HostGroup(tuple(hosts.tolist()), is_sure))
    return sorted(groups, key=lambda group: (-len(group.members), group.members))


def _shapes(activity: NDArray[np.floating]) -> tuple[Float64s, NDArray[np.bool_]]:
    """Each host's curve without its mean and scale, and which hosts have one."""
    known = np.isfinite(activity)
    share = known.mean(axis=1) if activity.size else np.zeros(len(activity))
    clean = np.where(known, activity, 0.0).astype(np.float64)
    mean = clean.sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    centred = np.where(known, clean - mean[:, None], 0.0)
    length = np.sqrt((centred * centred).sum(axis=1))
    deviation = length / np.sqrt(max(activity.shape[1], 1))
    has_shape = (share >= _MIN_KNOWN) & (mean > 0) & (deviation > _MIN_VARIATION * mean)
    unit = centred / np.maximum(length, 1e-12)[:, None]
    shapes: Float64s = np.where(has_shape[:, None], unit, 0.0)
    return shapes, has_shape


def _without_strays(centres: Float64s, sizes: NDArray[np.intp]) -> Float64s:
    """The centres without those of a single noisy host that correlates with a larger group."""
    large = sizes > 1
    if large.all() or not large.any():
        return centres
    correlation = (centres @ centres[large].T).max(axis=1)
    kept: Float64s = centres[large | (correlation <= _BELONGS)]
    return kept


def _joined(centres: Float64s) -> Float64s:
    """The centres; those that correlate are replaced by their mean."""
    left = list(range(len(centres)))
    means = []
    while left:
        near = [n for n in left if float(centres[left[0]] @ centres[n]) > _SAME_GROUP] or left[:1]
        means.append(_unit(centres[near].mean(axis=0)))
        left = [n for n in left if n not in near]
    return np.stack(means)


def _unit(curve: Float64s) -> Float64s:
    return curve / max(float(np.linalg.norm(curve)), 1e-12)
