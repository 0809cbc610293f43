"""A key goes before what can wait: a thousand frames that arrive together take 0.1 s."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

_MOST_S = 0.2
"""How long others wait for a key at most."""
_PAUSE_S = 0.1
"""From the end of one wait to the next: while a key is held, frames are read in between."""


class KeyPriority:
    """Lets others wait from when a key is pressed until it is on the screen, 0.2 s at most.

    `pressed` may be called in any thread, all else in the event loop. `clock` returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until_s = -math.inf
        self._free_from_s = -math.inf
        self._over = asyncio.Event()
        self._limit: asyncio.TimerHandle | None = None

    def pressed(self) -> None:
        """A key was pressed."""
        now_s = self._clock()
        if now_s >= self._free_from_s:
            self._until_s = now_s + _MOST_S
            self._free_from_s = self._until_s + _PAUSE_S

    def is_waited_for(self) -> bool:
        """Whether a key is not on the screen yet."""
        return self._clock() < self._until_s

    def shown(self) -> None:
        """The key is on the screen: the others go on."""
        if self.is_waited_for():
            self._until_s = self._clock()
            self._free_from_s = self._until_s + _PAUSE_S
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        self._over.set()

    async def wait(self) -> None:
        """Return once no key has to be waited for."""
        left_s = self._until_s - self._clock()
        if left_s <= 0:
            return
        if self._limit is None:
            self._over.clear()
            self._limit = asyncio.get_running_loop().call_later(left_s, self.shown)
        await self._over.wait()
