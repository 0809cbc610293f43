"""Everybody who reads `/stream`: each has a queue of its own, and none waits for another."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from collectors import packing, wire
from fabmon.agent.latest import Line
from fabmon.fabric.messages import Frame, Hello
from fabmon.feeds.agents import SOURCE


class Full(Exception):
    """There are as many readers as there may be."""


class Stream:
    """One reader: the lines that wait for it, in the encoding it asked for.

    More than `most` lines behind, it is dropped: what waits is thrown away for a last line that
    says so. `ended` is called then, since a reader that does not read will not see it either.
    """

    def __init__(self, greeting: Sequence[Line], encoding: str, most: int) -> None:
        self.ended: Callable[[], object] = lambda: None
        self._waiting = deque(greeting)
        self._most = most + len(greeting)
        self._encoding = encoding
        self._encode = packing.encoder(encoding)
        self._news = asyncio.Event()
        self._last = b""

    @property
    def is_ended(self) -> bool:
        """Whether nothing but a last line will come."""
        return bool(self._last)

    def put(self, line: Line) -> None:
        """Queue a line; never waits."""
        if self._last:
            return
        self._waiting.append(line)
        self._news.set()
        if len(self._waiting) > self._most:
            self.end("dropped for reading too slowly; ask again", "late")

    def end(self, text: str, reason: str) -> None:
        """Say one last line instead of all that waits."""
        if not self._last:
            self._last = wire.notice("lost", SOURCE, text, reason=reason)
            self._waiting.clear()
            self._news.set()
            self.ended()

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines as they go out, until the last one."""
        while not self._last:
            while self._waiting:
                yield self._written(self._waiting.popleft())
            self._news.clear()
            if not self._last:
                await self._news.wait()
        yield self._last

    def _written(self, line: Line) -> bytes:
        if self._encoding == wire.PLAIN:
            return line.raw
        message = line.message
        if isinstance(message, Frame):
            return self._encode(message.seq, message.wall_ns, message.mono_ns, message.blocks)
        if isinstance(message, Hello):
            self._encode = packing.encoder(self._encoding)
            _, body = msgspec.json.decode(line.raw)
            return wire.dump(["hello", {**body, "encoding": self._encoding}]) + b"\n"
        return line.raw


class Streams:
    """All readers: at most `most_readers`, each at most `most_lines` behind."""

    def __init__(self, most_readers: int = 64, most_lines: int = 60) -> None:
        self._most_readers = most_readers
        self._most_lines = most_lines
        self._streams: set[Stream] = set()

    def __len__(self) -> int:
        """How many readers there are now."""
        return len(self._streams)

    @property
    def ended(self) -> int:
        """How many of them have still to be told their last line."""
        return sum(stream.is_ended for stream in self._streams)

    @contextmanager
    def reader(self, greeting: Sequence[Line], encoding: str) -> Iterator[Stream]:
        """A place for one more reader. Raises Full."""
        if len(self._streams) >= self._most_readers:
            raise Full(f"{self._most_readers} read already")
        stream = Stream(greeting, encoding, self._most_lines)
        self._streams.add(stream)
        try:
            yield stream
        finally:
            self._streams.discard(stream)

    def put(self, line: Line) -> None:
        """Queue a line for everybody."""
        for stream in list(self._streams):
            stream.put(line)

    def end(self, text: str) -> None:
        """Say goodbye to everybody."""
        for stream in list(self._streams):
            stream.end(text, "absent")
