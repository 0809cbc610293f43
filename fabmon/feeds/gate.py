"""How many connections are opened at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """Lets `width` openings through at a time.

    Opening costs CPU in its first moments; one that takes longer than `slow_s` waits for its node,
    and a node that never answers must not keep the ones behind it in the queue. So it gives its
    place back.
    """

    def __init__(self, width: int = 64, slow_s: float = 1.5) -> None:
        self._places = asyncio.Semaphore(width)
        self._slow_s = slow_s

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it while opening."""
        await self._places.acquire()
        slow = asyncio.get_running_loop().call_later(self._slow_s, self._places.release)
        try:
            yield
        finally:
            # After its time the place has been given back already.
            if asyncio.get_running_loop().time() < slow.when():
                slow.cancel()
                self._places.release()
