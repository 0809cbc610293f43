"""The latest lines of the node's probe, for a scrape, and for the readers of `/stream`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from collectors import wire
from fabmon.fabric.kernel_log import is_logged
from fabmon.fabric.wire.messages import (
    Answer,
    Frame,
    Hello,
    Notice,
    Packed,
    Values,
    WireError,
    check,
    decode,
)
from fabmon.feeds.access import AGENT_SOURCE


class WireLine(msgspec.Struct, frozen=True):
    """A line of the wire, raw and decoded."""

    raw: bytes
    message: Hello | Frame | Notice


class ProbeState:
    """The last hello, each source's last block, and the notices that still apply.

    `blocks` are in the hello's order; None for a source that was not read yet, or is lost.
    `frame_at_ns` is when the last frame arrived, `read_at_ns` when each source was read, both by
    the monotonic clock. `lost` has a notice for each source that cannot be read.
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
        """Process a line of the wire that arrived at `now_ns`. Raises WireError."""
        message = decode(raw)
        if isinstance(message, Packed | Answer):
            raise WireError("a packed frame or an answer that was not requested")
        line = WireLine(raw, message)
        if isinstance(message, Hello):
            self._take_hello(line, message)
        elif isinstance(message, Frame):
            self._take_frame(message, now_ns)
        else:
            self._take_notice(line, message)
        return line

    def forget(self) -> None:
        """Drop all values and notices: the probe is gone."""
        self.blocks = [None] * len(self.blocks)
        self.lost = {}
        self._notices = {}
        self._frame = None

    def greeting(self) -> list[WireLine]:
        """The lines that a new reader needs before the next frame; none before the first hello.

        Their frame has the last block of each source, also of those read every tenth tick.
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
        # A source that did not change keeps its values: its next read may be far off.
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
        if is_logged(notice):
            return
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
        """Drop the values of a lost source, which would look like counters that do not change."""
        blocks = self.hello.blocks if self.hello is not None else ()
        for place, info in enumerate(blocks):
            if info.source == source:
                self.blocks[place] = None


class TooManyReaders(Exception):
    """The maximum number of readers is connected."""


class Stream:
    """One reader: the lines that wait for it, in the encoding that it requested.

    A reader that is more than `max_lines` behind is dropped: a last line with the reason replaces
    the waiting ones. `ended` is called then, since a reader that does not read will not see it.
    """

    def __init__(self, greeting: Sequence[WireLine], encoding: str, max_lines: int) -> None:
        self.ended: Callable[[], object] = lambda: None
        self._waiting = deque(greeting)
        self._max_lines = max_lines + len(greeting)
        self._encoding = encoding
        self._encode = wire.make_encoder(encoding)
        self._news = asyncio.Event()
        self._last = b""

    @property
    def is_ended(self) -> bool:
        """Whether only a last line will follow."""
        return bool(self._last)

    def put(self, line: WireLine) -> None:
        """Queue a line; never waits."""
        if self._last:
            return
        self._waiting.append(line)
        self._news.set()
        if len(self._waiting) > self._max_lines:
            self.end("dropped for reading too slowly; connect again", "late")

    def end(self, text: str, reason: str) -> None:
        """Replace all waiting lines by one last line."""
        if not self._last:
            self._last = wire.notice("lost", AGENT_SOURCE, text, reason=reason)
            self._waiting.clear()
            self._news.set()
            self.ended()

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines as they are sent, until the last one."""
        while not self._last:
            while self._waiting:
                yield self._encoded(self._waiting.popleft())
            self._news.clear()
            if not self._last:
                await self._news.wait()
        yield self._last

    def _encoded(self, line: WireLine) -> bytes:
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
    """All readers, at most `max_readers`, each at most `max_lines` behind.

    No reader waits for another.
    """

    def __init__(self, max_readers: int = 64, max_lines: int = 60) -> None:
        self._max_readers = max_readers
        self._max_lines = max_lines
        self._streams: set[Stream] = set()

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def ended(self) -> int:
        """How many of them have not yet received their last line."""
        return sum(stream.is_ended for stream in self._streams)

    @contextmanager
    def reader(self, greeting: Sequence[WireLine], encoding: str) -> Iterator[Stream]:
        """A place for one more reader. Raises Full."""
        if len(self._streams) >= self._max_readers:
            raise TooManyReaders(f"{self._max_readers} readers are connected")
        stream = Stream(greeting, encoding, self._max_lines)
        self._streams.add(stream)
        try:
            yield stream
        finally:
            self._streams.discard(stream)

    def put(self, line: WireLine) -> None:
        """Queue a line for every reader."""
        for stream in list(self._streams):
            stream.put(line)

    def end(self, text: str) -> None:
        """End every reader with one last line."""
        for stream in list(self._streams):
            stream.end(text, "absent")
