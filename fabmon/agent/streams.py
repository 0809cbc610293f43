"""What the node's probe said last, as a newcomer and a scrape need it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from collectors import wire
from fabmon.fabric.wire.messages import (
    Answer,
    Frame,
    Hello,
    Notice,
    Packed,
    WireError,
    check,
    decode,
)
from fabmon.feeds.access import AGENT_SOURCE

Values = list[int | None]


class WireLine(msgspec.Struct, frozen=True):
    """A line of the wire, as it came and as it was understood."""

    raw: bytes
    message: Hello | Frame | Notice


class ProbeState:
    """The last hello, each source's last block, and what is wrong at present.

    `blocks` are in the hello's order; None for a source that was not read yet, or is lost.
    `frame_at_ns` is when the last frame came, `read_at_ns` when each source was read, both by the
    monotonic clock. `lost` has a notice for each source that cannot be read.
    """

    def __init__(self) -> None:
        self.hello: Hello | None = None
        self.blocks: list[Values | None] = []
        self.frame_at_ns: int | None = None
        self.read_at_ns: dict[str, int] = {}
        self.lost: dict[str, Notice] = {}
        self._hello_line: WireLine | None = None
        self._frame: Frame | None = None
        self._notices: dict[tuple[str, str, str], WireLine] = {}

    def take(self, raw: bytes, now_ns: int) -> WireLine:
        """Take a line of the wire that came at `now_ns`. Raises WireError for anything else."""
        message = decode(raw)
        if isinstance(message, Packed | Answer):
            raise WireError("a packed frame or an answer, which nobody asked for")
        line = WireLine(raw, message)
        if isinstance(message, Hello):
            self._take_hello(line, message)
        elif isinstance(message, Frame):
            self._take_frame(message, now_ns)
        else:
            self._take_notice(line, message)
        return line

    def forget(self) -> None:
        """The probe is gone: what it read, and what it could not read, are of the past."""
        self.blocks = [None] * len(self.blocks)
        self.lost = {}
        self._notices = {}
        self._frame = None

    def greeting(self) -> list[WireLine]:
        """What somebody who comes now has to hear before the next frame; nothing at first.

        The frame in it holds the last block of each source, also of those read every tenth tick.
        """
        if self._hello_line is None:
            return []
        lines = [self._hello_line, *self._notices.values()]
        if self._frame is not None:
            frame = msgspec.structs.replace(self._frame, blocks=list(self.blocks))
            raw = wire.frame(frame.seq, frame.wall_ns, frame.mono_ns, frame.blocks)
            lines.append(WireLine(raw, frame))
        return lines

    def _take_hello(self, line: WireLine, hello: Hello) -> None:
        before = {}
        if self.hello is not None:
            pairs = zip(self.hello.blocks, self.blocks, strict=True)
            before = {info.source: (info, block) for info, block in pairs}
        # A source that did not change keeps what it read: its next turn may be far.
        self.blocks = []
        for info in hello.blocks:
            known, block = before.get(info.source, (None, None))
            self.blocks.append(block if known == info else None)
            if known != info:
                self._forget_values(info.source)
        self.hello, self._hello_line, self._frame = hello, line, None

    def _forget_values(self, source: str) -> None:
        self._notices = {
            key: line
            for key, line in self._notices.items()
            if key[0] != source or key == (source, "", "")
        }

    def _take_frame(self, frame: Frame, now_ns: int) -> None:
        if self.hello is None:
            raise WireError("a frame before any hello")
        check(frame, self.hello)
        self._frame = frame
        self.frame_at_ns = now_ns
        for place, (info, block) in enumerate(zip(self.hello.blocks, frame.blocks, strict=True)):
            if block is not None:
                self.blocks[place] = block
                self.read_at_ns[info.source] = block[0] or now_ns

    def _take_notice(self, line: WireLine, notice: Notice) -> None:
        key = (notice.source, notice.object, notice.metric)
        if notice.event == "recovered":
            self._notices.pop(key, None)
        else:
            self._notices[key] = line
        if notice.event == "lost":
            self.lost[notice.source] = notice
            self._drop_block(notice.source)
        elif notice.event == "recovered" and not notice.object:
            self.lost.pop(notice.source, None)

    def _drop_block(self, source: str) -> None:
        """What a lost source read before must not look like counters that stand still."""
        blocks = self.hello.blocks if self.hello is not None else ()
        for place, info in enumerate(blocks):
            if info.source == source:
                self.blocks[place] = None


# Everybody who reads `/stream`: each has a queue of its own, and none waits for another.


class TooManyReaders(Exception):
    """There are as many readers as there may be."""


class Stream:
    """One reader: the lines that wait for it, in the encoding it asked for.

    More than `most` lines behind, it is dropped: what waits is thrown away for a last line that
    says so. `ended` is called then, since a reader that does not read will not see it either.
    """

    def __init__(self, greeting: Sequence[WireLine], encoding: str, most: int) -> None:
        self.ended: Callable[[], object] = lambda: None
        self._waiting = deque(greeting)
        self._most = most + len(greeting)
        self._encoding = encoding
        self._encode = wire.make_encoder(encoding)
        self._news = asyncio.Event()
        self._last = b""

    @property
    def is_ended(self) -> bool:
        """Whether nothing but a last line will come."""
        return bool(self._last)

    def put(self, line: WireLine) -> None:
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
            self._last = wire.notice("lost", AGENT_SOURCE, text, reason=reason)
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

    def _written(self, line: WireLine) -> bytes:
        if self._encoding == wire.PLAIN:
            return line.raw
        message = line.message
        if isinstance(message, Frame):
            return self._encode(message.seq, message.wall_ns, message.mono_ns, message.blocks)
        if isinstance(message, Hello):
            self._encode = wire.make_encoder(self._encoding)
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
    def reader(self, greeting: Sequence[WireLine], encoding: str) -> Iterator[Stream]:
        """A place for one more reader. Raises Full."""
        if len(self._streams) >= self._most_readers:
            raise TooManyReaders(f"{self._most_readers} read already")
        stream = Stream(greeting, encoding, self._most_lines)
        self._streams.add(stream)
        try:
            yield stream
        finally:
            self._streams.discard(stream)

    def put(self, line: WireLine) -> None:
        """Queue a line for everybody."""
        for stream in list(self._streams):
            stream.put(line)

    def end(self, text: str) -> None:
        """Say goodbye to everybody."""
        for stream in list(self._streams):
            stream.end(text, "absent")
