"""What the node's probe said last, as a newcomer and a scrape need it."""

from __future__ import annotations

import msgspec

from collectors import wire
from fabmon.fabric.messages import Answer, Frame, Hello, Notice, Packed, WireError, check, decode

Values = list[int | None]


class Line(msgspec.Struct, frozen=True):
    """A line of the wire, as it came and as it was understood."""

    raw: bytes
    message: Hello | Frame | Notice


class Latest:
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
        self._hello_line: Line | None = None
        self._frame: Frame | None = None
        self._notices: dict[tuple[str, str, str], Line] = {}

    def take(self, raw: bytes, now_ns: int) -> Line:
        """Take a line of the wire that came at `now_ns`. Raises WireError for anything else."""
        message = decode(raw)
        if isinstance(message, Packed | Answer):
            raise WireError("a packed frame or an answer, which nobody asked for")
        line = Line(raw, message)
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

    def greeting(self) -> list[Line]:
        """What somebody who comes now has to hear before the next frame; nothing at first.

        The frame in it holds the last block of each source, also of those read every tenth tick.
        """
        if self._hello_line is None:
            return []
        lines = [self._hello_line, *self._notices.values()]
        if self._frame is not None:
            frame = msgspec.structs.replace(self._frame, blocks=list(self.blocks))
            raw = wire.frame(frame.seq, frame.wall_ns, frame.mono_ns, frame.blocks)
            lines.append(Line(raw, frame))
        return lines

    def _take_hello(self, line: Line, hello: Hello) -> None:
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

    def _take_notice(self, line: Line, notice: Notice) -> None:
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
