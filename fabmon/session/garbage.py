"""Python's garbage collector during a run: it must not stop the screen.

The collector visits all objects that may form cycles. Facts and ports of a thousand nodes are half
a million objects without any, and with Python's settings they are visited every few seconds, for
0.3 to 0.5 s. Here what the nodes reported at first is frozen, that is not visited any more, and
the rest is visited rarely. Frozen objects are still freed when nothing refers to them.
"""

from __future__ import annotations

import gc

from fabmon.fabric.tick import Tick

_THRESHOLDS = (10_000, 10, 50)
"""New objects until the youngest are visited, and so many visits until the older ones are."""


class GarbageSchedule:
    """Freezes what has been created, once the nodes that are new have reported."""

    def __init__(self) -> None:
        """Changes the settings of the process; all that was imported is frozen."""
        gc.set_threshold(*_THRESHOLDS)
        gc.freeze()
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
