"""Lines on standard output. Nothing else waits for its reader: alerts are sent meanwhile."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sys
from contextlib import suppress

from fabmon.fabric.wording import file_error

_LOG = logging.getLogger("fabmon.watch")
_MOST_WAITING_BYTES = 1 << 20
"""What waits for a reader that reads nothing, such as a terminal after ctrl+s."""
_LAST_LINES_S = 1.0


class LinePrinter:
    """Prints in a thread. What cannot be printed, or not soon enough, is left out and logged once.

    `run` returns when the reader has closed the pipe.
    """

    def __init__(self) -> None:
        """Nothing waits."""
        self._waiting = bytearray()
        self._has_more = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._is_failing = False

    def print(self, lines: bytes) -> None:
        """Print lines soon. Does not wait."""
        if not lines:
            return
        if len(self._waiting) + len(lines) > _MOST_WAITING_BYTES:
            self._fail("its reader is too slow")
            return
        self._waiting += lines
        self._is_idle.clear()
        self._has_more.set()

    async def run(self) -> None:
        """Print what waits, until cancelled."""
        while True:
            await self._has_more.wait()
            self._has_more.clear()
            lines, self._waiting = bytes(self._waiting), bytearray()
            try:
                await asyncio.to_thread(_write_through, lines)
            except BrokenPipeError:
                return
            except OSError as error:
                self._fail(file_error(error))
            else:
                if self._is_failing:
                    _LOG.warning("findings are printed again")
                self._is_failing = False
            if not self._waiting:
                self._is_idle.set()

    async def drain(self) -> None:
        """Wait a second at most for what is being printed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_LINES_S):
                await self._is_idle.wait()

    def _fail(self, why: str) -> None:
        if not self._is_failing:
            _LOG.warning("findings are not printed: standard output: %s", why)
        self._is_failing = True


def _write_through(data: bytes) -> None:
    """Write to standard output without its buffer, which would keep what a full disk refused.
    Raises OSError."""
    stream = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)
    while data:
        written = stream.write(data)
        if written is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        data = data[written:]
