"""Memory during a run: Python's garbage collector must not stop the screen, freed memory goes back.

The collector visits all objects that may form cycles. Facts and ports of a thousand nodes are half
a million objects without any, and with Python's settings they are visited every few seconds, for
0.3 to 0.5 s. Here what the nodes reported at first is frozen, that is not visited any more, and
the rest is visited once a minute. Frozen objects are still freed when nothing refers to them.

The C library keeps a heap for each thread, and what is freed in it; while a thousand nodes connect
that is 100 MB. Here all threads use one heap, large arrays are returned when they are freed, and
the rest of the heap once the nodes have reported and then once a minute: what is freed between
things that stay was 100 MB after a quarter of an hour with 256 nodes. With other C libraries than
glibc nothing of this is done.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from fabmon.fabric.tick import Tick


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector inside; nothing that is made there may be part of a cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_THRESHOLDS = (10_000, 10, 50)
"""New objects until the youngest are visited, and so many visits until the older ones are."""

_EVERY_S, _PAUSE = 60.0, 2000
"""All that is not frozen is visited once a minute, and for a 2000th of the time at most. What was
freed is returned once a minute too: that takes some milliseconds."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MALLOC_OPTIONS = {_M_ARENA_MAX: 1, _M_MMAP_THRESHOLD: 1 << 19, _M_TRIM_THRESHOLD: 16 << 20}
"""For mallopt(3). A threshold that is not set grows to the largest array that was ever freed. The
arrays of a tick of 256 nodes are above that of mmap: they would leave the most holes. Half of this
threshold takes 15 MB less at 1,024 nodes, and a fifth more CPU time: new pages at every tick."""


def set_for_a_run() -> None:
    """Change the settings of the process: before the screen is imported, which creates much."""
    gc.set_threshold(*_THRESHOLDS)
    with suppress(AttributeError, OSError, TypeError):
        for option, value in _MALLOC_OPTIONS.items():
            ctypes.CDLL(None).mallopt(option, value)


def _return_freed() -> None:
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


class GarbageSchedule:
    """Freezes what has been created, once the nodes that are new have reported."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """All that was imported is frozen. `clock` returns seconds."""
        set_for_a_run()
        gc.freeze()
        self._clock = clock
        self._next_s = self._return_s = clock() + _EVERY_S
        self._nodes: set[str] = set()
        self._is_due = False

    def accept(self, tick: Tick) -> None:
        """Freeze at the first tick without a hello after those of new nodes.

        A node that restarts is not new: freezing at every restart would keep cycles for ever.
        """
        known = len(self._nodes)
        self._nodes.update(node for node, _ in tick.hellos)
        if len(self._nodes) > known:
            self._is_due = True
        elif self._is_due and not tick.hellos:
            self._is_due = False
            gc.freeze()
            _return_freed()
        if self._clock() >= self._next_s:
            self._collect()
        if self._clock() >= self._return_s:
            self._return_s = self._clock() + _EVERY_S
            _return_freed()

    def _collect(self) -> None:
        """Free the cycles of sessions that ended, which the thresholds would leave for hours."""
        start_s = self._clock()
        gc.collect()
        now_s = self._clock()
        self._next_s = now_s + max(_EVERY_S, _PAUSE * (now_s - start_s))
