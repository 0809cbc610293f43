"""What is true of the queues of a simulated fabric: which link is too small for what it is given.

The simulator's script says what was done to the fabric. Whether that, or the hash of healthy
switches, made a link collide is read from the queues themselves, which no finding can see: a link
collides when it had more to send than it could for a good part of some seconds, while the links
beside it, together, had room.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fabmon.feeds.demo.world import StepTotals, World

WINDOW = 5
_QUEUED = 0.3
_SOME = 0.03
_LOST, _SOME_LOST = 0.3, 0.1
"""A collision must be seen above the first, may be seen above the second."""

Floats = NDArray[np.float64]


@dataclass
class Episode:
    """A link that collides: `may` and `must` are the seconds in which a finding may, must be."""

    port: int
    may: list[int] = field(default_factory=list)
    must: list[int] = field(default_factory=list)


class Queues:
    """Watches the world, second by second."""

    def __init__(self, world: World) -> None:
        self._world = world
        hardware = world.hardware
        self.groups: list[NDArray[np.intp]] = []
        for leaf in range(hardware.leaves):
            ups = hardware.uplinks(leaf)
            self.groups += [ups, hardware.cabling[ups]]
        self._sent: deque[Floats] = deque(maxlen=WINDOW)
        self._queued: deque[Floats] = deque(maxlen=WINDOW)
        self.queued_s: list[NDArray[np.bool_]] = []
        self.episodes: dict[int, Episode] = {}
        self.full_groups: dict[int, list[int]] = {}

    def see(self, second: int, moved: StepTotals) -> None:
        """One second has passed."""
        self._sent.append(moved.sent)
        self._queued.append(moved.queued_s)
        sent, queued = sum(self._sent), sum(self._queued)
        assert isinstance(sent, np.ndarray)
        assert isinstance(queued, np.ndarray)
        busy = queued / WINDOW
        self.queued_s.append(moved.queued_s > 0)
        for number, group in enumerate(self.groups):
            some = group[busy[group] > _SOME]
            if not len(some):
                continue
            peak = float(sent[group].max())
            lost = 1 - float(sent[group].mean()) / peak if peak > 0 else 0.0
            for port in some.tolist():
                if sent[port] < 0.9 * peak or lost < _SOME_LOST or not self._is_whole(port):
                    continue
                episode = self.episodes.setdefault(port, Episode(port))
                episode.may.append(second)
                if busy[port] > _QUEUED and lost > _LOST:
                    episode.must.append(second)
            if lost < 0.2 and len(some) == len(group):
                self.full_groups.setdefault(number, []).append(second)

    def _is_whole(self, port: int) -> bool:
        """Whether the link carries what it should: else it is degraded, and no hash is guilty."""
        world = self._world
        return bool(world.conditions.capacity[port] >= 0.8 * world.hardware.speed[port])

    def crossing(self, port: int) -> set[int]:
        """The NICs whose flows cross a link now."""
        ways = self._world._router.route(self._world.flows, self._world.conditions.rules)
        flows = self._world.flows
        over = (ways.links == port).any(axis=1)
        return set(flows.src[ways.flow[over]].tolist())
