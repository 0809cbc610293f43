"""The last scenes, as many as some memory holds: going back a little takes no reading."""

from __future__ import annotations

import bisect
from collections import deque

from fabmon.analysis.scene import Scene

MOST_BYTES = 64 << 20
_MOST = 900


class Kept:
    """Scenes by time, the latest `MOST_BYTES` of them, and 900 at most."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._scenes: deque[Scene] = deque(maxlen=_MOST)
        self._times: deque[int] = deque(maxlen=_MOST)

    def add(self, scene: Scene) -> None:
        """Keep the next one; what is not later than the last takes the place of what is there."""
        while self._times and self._times[-1] >= scene.snapshot.time_ns:
            self._times.pop()
            self._scenes.pop()
        self._scenes.append(scene)
        self._times.append(scene.snapshot.time_ns)
        room = max(2, self._most_bytes // _bytes(scene))
        while len(self._scenes) > room:
            self._scenes.popleft()
            self._times.popleft()

    def clear(self) -> None:
        """Keep none."""
        self._scenes.clear()
        self._times.clear()

    @property
    def from_ns(self) -> int | None:
        """Time of the first one; None without any."""
        return self._times[0] if self._times else None

    def covers(self, time_ns: int) -> bool:
        """Whether what was shown at a time is kept."""
        return bool(self._times) and self._times[0] <= time_ns

    def at(self, time_ns: int) -> Scene | None:
        """The last one up to a time."""
        place = bisect.bisect_right(self._times, time_ns) - 1
        return self._scenes[place] if place >= 0 else None

    def after(self, time_ns: int) -> int:
        """How many are kept that are later than a time."""
        return len(self._times) - bisect.bisect_right(self._times, time_ns)

    def step(self, time_ns: int, by: int) -> Scene | None:
        """The one so many after a time, or before it; None where that is not kept.

        What is later than all that is kept has unknown ticks before it.
        """
        if not self._times or time_ns > self._times[-1]:
            return None
        if by > 0:
            place = bisect.bisect_right(self._times, time_ns) + by - 1
        else:
            place = bisect.bisect_left(self._times, time_ns) + by
        return self._scenes[place] if 0 <= place < len(self._scenes) else None


def _bytes(scene: Scene) -> int:
    snapshot = scene.snapshot
    ports = snapshot.line_rate_bps.nbytes
    return snapshot.values.nbytes + 2 * snapshot.heat.nbytes + 8 * ports + 1
