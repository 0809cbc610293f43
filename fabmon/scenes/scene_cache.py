"""The latest scenes, kept in memory: going back a little needs no recording to be read."""

from __future__ import annotations

import bisect
from collections import deque

from fabmon.analysis.scene import Scene

MAX_BYTES = 16 << 20
"""Memory for scenes, in bytes: at 8,192 rails the last seconds, on small fabrics 15 minutes."""

_MAX_SCENES = 900
"""Scenes at most: 15 minutes at one tick a second."""


class SceneCache:
    """The latest scenes by time: `max_bytes` of them, and 900 at most."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._scenes: deque[Scene] = deque(maxlen=_MAX_SCENES)
        self._times: deque[int] = deque(maxlen=_MAX_SCENES)

    def add(self, scene: Scene) -> None:
        """Add the next scene. It replaces those that are not earlier than it."""
        while self._times and self._times[-1] >= scene.snapshot.time_ns:
            self._times.pop()
            self._scenes.pop()
        self._scenes.append(scene)
        self._times.append(scene.snapshot.time_ns)
        most = max(2, self._max_bytes // _size_bytes(scene))
        while len(self._scenes) > most:
            self._scenes.popleft()
            self._times.popleft()

    def clear(self) -> None:
        """Remove all scenes."""
        self._scenes.clear()
        self._times.clear()

    @property
    def from_ns(self) -> int | None:
        """Time of the first scene; None without any."""
        return self._times[0] if self._times else None

    def covers(self, time_ns: int) -> bool:
        """Whether the scene of a time is in the cache."""
        return bool(self._times) and self._times[0] <= time_ns

    def at(self, time_ns: int) -> Scene | None:
        """The last scene up to a time; None before the first one."""
        place = bisect.bisect_right(self._times, time_ns) - 1
        return self._scenes[place] if place >= 0 else None

    def after(self, time_ns: int) -> int:
        """The number of scenes later than a time."""
        return len(self._times) - bisect.bisect_right(self._times, time_ns)

    def step(self, time_ns: int, by: int) -> Scene | None:
        """The scene `by` steps after a time (before it, where negative); None outside the cache.

        None as well for a time later than the last scene: how many ticks are between is not known.
        """
        if not self._times or time_ns > self._times[-1]:
            return None
        if by > 0:
            place = bisect.bisect_right(self._times, time_ns) + by - 1
        else:
            place = bisect.bisect_left(self._times, time_ns) + by
        return self._scenes[place] if 0 <= place < len(self._scenes) else None


def _size_bytes(scene: Scene) -> int:
    snapshot = scene.snapshot
    ports = snapshot.line_rate_bps.nbytes
    return snapshot.values.nbytes + 2 * snapshot.heat.nbytes + 8 * ports + 1
