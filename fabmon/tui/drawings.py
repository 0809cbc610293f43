"""Ends a drawing that keeps a key waiting with which the user leaves.

Views are drawn in the event loop, which hears no key meanwhile. Most drawings take milliseconds;
one of what a hostile node reports may take longer than anybody waits.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LEAVING = frozenset(("q", "escape", "ctrl+c", "ctrl+q"))
"""Keys that end a drawing; so does Escape with another key in one packet, a key with alt."""

SIGNAL = signal.SIGUSR1
"""How the thread that reads keys interrupts the main thread; nothing else of fabmon uses it."""

_PATIENCE_S = 0.1
"""How long such a key waits for a drawing. With the time to notice that it is below 0.2 s."""

CHECK_S = 0.05
"""How often to `check` while a key waits."""


def is_leaving(key: str) -> bool:
    """Whether a key ends a drawing."""
    return key in _LEAVING or key.startswith("alt+")


class DrawingEnded(Exception):
    """A drawing was ended: a key waits."""


class Drawings:
    """Since when something is drawn, and since when a key waits.

    `pressed` and `check` are for the thread that reads keys, the others for the main thread.
    """

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._pressed_s: float | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether a key waits that ends a drawing."""
        return self._pressed_s is not None

    def pressed(self, key: str) -> None:
        """A key was pressed, which is heard later."""
        if is_leaving(key) and self._pressed_s is None:
            self._pressed_s = time.monotonic()

    def heard(self) -> None:
        """The key is handled, or left out."""
        self._pressed_s = None

    def check(self) -> None:
        """End the drawing if a key has waited for it long enough."""
        pressed_s, began_s = self._pressed_s, self._began_s
        if pressed_s is None or began_s is None:
            return
        if time.monotonic() - max(pressed_s, began_s) >= _PATIENCE_S:
            signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)

    def end(self, *_: object) -> None:
        """The handler of the signal. Raises DrawingEnded within a drawing."""
        if self._began_s is not None:
            self._began_s = None
            raise DrawingEnded

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """What is done within may be ended at any place: it computes lines, and changes nothing."""
        self._began_s = time.monotonic()
        try:
            yield
        finally:
            self._began_s = None
