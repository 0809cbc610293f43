"""Lines out of a byte stream that may be hostile: bounded, with flow control, without copies."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from collectors.wire import MAX_LINE
from fabmon.feeds.errors import Misbehaved, NodeError

_HIGH_WATER = 512 * 1024
_LOW_WATER = 64 * 1024
_MAX_NOISE_LINE = 64 * 1024
_TAIL = 2048


class Lines:
    """Collects bytes and hands out lines.

    `pause` and `resume` stop and start the stream: when more than half a MiB of whole lines waits
    to be read, the node has to wait. A line over wire.MAX_LINE, or over 64 KiB and not of the wire,
    ends the stream with Misbehaved.
    """

    def __init__(self, pause: Callable[[], object], resume: Callable[[], object]) -> None:
        self._pause = pause
        self._resume = resume
        self._partial = bytearray()
        self._ready: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._paused = False
        self._end: NodeError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def ended(self) -> bool:
        """Whether the stream has an end; lines before it may still wait to be read."""
        return self._end is not None

    def feed(self, data: bytes) -> None:
        """Take what the node sent."""
        if self._end is not None:
            return
        if b"\n" not in data:
            self._partial += data
            self._check_partial()
            return
        # Only the first piece continues an earlier line, only the last waits for its newline.
        pieces = data.split(b"\n")
        self._partial += pieces[0]
        self._add(bytes(self._partial))
        for piece in pieces[1:-1]:
            self._add(piece)
        self._partial = bytearray(pieces[-1])
        self._check_partial()
        if self._waiting_bytes > _HIGH_WATER and not self._paused:
            self._paused = True
            self._pause()
        self._wake()

    def end(self, reason: NodeError) -> None:
        """No more will come, for this reason. The first reason given is the one told."""
        if self._end is None:
            self._end = reason
            self._partial.clear()
            self._wake()

    async def readline(self) -> bytes:
        """The next line with its newline; the NodeError given to `end` when there is none."""
        while not self._ready:
            if self._end is not None:
                raise self._end
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        line = self._ready.popleft()
        self._waiting_bytes -= len(line)
        if self._paused and self._waiting_bytes < _LOW_WATER:
            self._paused = False
            self._resume()
        return line

    def _add(self, line: bytes) -> None:
        if len(line) > MAX_LINE:
            self._too_long(len(line))
            return
        self._ready.append(line + b"\n")
        self._waiting_bytes += len(line) + 1

    def _check_partial(self) -> None:
        size = len(self._partial)
        if size > MAX_LINE or (size > _MAX_NOISE_LINE and not self._partial.startswith(b"[")):
            self._too_long(size)

    def _too_long(self, size: int) -> None:
        self.end(Misbehaved(f"sent a line of more than {size // 1024} KiB, which is not the wire"))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Tail:
    """The last 2 KiB of what a probe wrote on standard error."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> None:
        """Take what came; only the end of it is kept."""
        self._data = (self._data + data)[-_TAIL:]

    @property
    def text(self) -> str:
        """All that is kept, decoded; not yet safe to show."""
        return self._data.decode(errors="replace")

    @property
    def last_line(self) -> str:
        """The last line that says something, or nothing."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return lines[-1] if lines else ""
