"""Reads one session: messages go to the inbox; invalid data and floods count against the node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from fabmon.fabric.kernel_log import is_logged
from fabmon.fabric.wire.hello_limits import HelloLimits
from fabmon.fabric.wire.messages import (
    Answer,
    Frame,
    Hello,
    Message,
    Notice,
    Packed,
    WireError,
    check,
    clean,
    decode,
)
from fabmon.fabric.wire.unpacking import Unpacker
from fabmon.feeds.errors import Misbehaved, NodeError
from fabmon.feeds.ticks import Clock, Inbox
from fabmon.feeds.token_bucket import TokenBucket, over_budget
from fabmon.feeds.transports.transport import ProbeSession

_LOG = logging.getLogger("fabmon.feeds")

_MAX_STRAY_BYTES = 64 * 1024
"""Bytes of login greetings accepted before the hello."""

_BIG_LINE_BYTES = 256 * 1024
_YIELD_EVERY = 16
_MESSAGES = "messages of the kernel"
_HELLO = b'["hello",'
_PACKED = b'["packed",'

_LIMITS: Mapping[str, tuple[float, float]] = {
    "frames": (600, 100),
    "lines": (3000, 500),
    "bytes": (32e6, 8e6),
    "hellos": (20, 0.5),
    "invalid lines": (3, 1 / 60),
    _MESSAGES: (100, 1),
}
"""What a node may send: a burst, and a rate per second. More messages of the kernel are dropped.

A console that was stopped for a while reads all that waited in the pipes at once: the bursts allow
for that. The rates are far above those of a correct probe at its shortest interval.
"""


class SessionReader:
    """Reads the lines of one session of `node`.

    `on_frame` is called after each valid frame. `last_command_ids` has the id of the last command
    sent to the node, by the type of its answers. `last_frame_s` is by the monotonic clock.
    `last_stray_line` is the last line before the hello that was not of the wire. `cpu` is what the
    console may spend on the node, in seconds of CPU time. `hello_bytes` is the size of the last
    hello.
    """

    def __init__(
        self,
        node: str,
        session: ProbeSession,
        inbox: Inbox,
        clock: Clock,
        limits: HelloLimits,
        cpu: TokenBucket,
        *,
        last_command_ids: Mapping[type[Answer], int],
        on_frame: Callable[[], None],
    ) -> None:
        now_s = clock.monotonic()
        self.last_frame_s = now_s
        self.hello: Hello | None = None
        self.last_stray_line = ""
        self.hello_bytes = 0
        self._node = node
        self._session = session
        self._inbox = inbox
        self._clock = clock
        self._limits = limits
        self._cpu = cpu
        self._last_command_ids = last_command_ids
        self._on_frame = on_frame
        self._spent_s = 0.0
        self._stray_bytes = 0
        self._drops_messages = False
        self._unpacker = Unpacker(())
        self._buckets = {what: TokenBucket(*limit, now_s) for what, limit in _LIMITS.items()}

    async def run(self, before: Hello | None) -> None:
        """Read until the session ends. Raises NodeError. `before` is the last session's hello."""
        count = 0
        while True:
            line = await self._readline()
            if self._inbox.key_priority.is_waited_for():
                await self._inbox.key_priority.wait()
            now_s = self._clock.monotonic()
            self._limit("bytes", len(line), now_s)
            if not line.startswith(_PACKED):  # Those are limited as frames.
                self._limit("lines", 1, now_s)
            try:
                message = await self._decode(line)
                if type(message) is Packed:
                    self._add_frame(self._unpacker.frame(message), now_s)
                elif type(message) is Frame:
                    if self.hello is not None:
                        check(message, self.hello)
                    self._add_frame(message, now_s)
                elif isinstance(message, Hello):
                    self.hello_bytes = len(line)
                    self._add_hello(message, self.hello or before, now_s)
                elif isinstance(message, Notice) and self.hello is not None:
                    self._add_notice(message, now_s)
                elif isinstance(message, Answer):
                    self._add_answer(message)
            except WireError as error:
                self._note_invalid(line, error, now_s)
            if not self._cpu.take(self._spent_s, now_s):
                raise over_budget(self._cpu)
            self._spent_s = 0.0
            if self._inbox.full:
                await self._inbox.room()
            count += 1
            if count % _YIELD_EVERY == 0:
                # readline() does not suspend while lines wait: let the other nodes run.
                await asyncio.sleep(0)

    async def _readline(self) -> bytes:
        try:
            return await self._session.readline()
        except NodeError as error:
            if self.hello is None and self.last_stray_line:
                text = f"{error}; its output was: {self.last_stray_line}"
                raise type(error)(text, error.cause) from None
            raise

    async def _decode(self, line: bytes) -> Message:
        if self.hello is None:
            # A login greeting without a newline precedes the hello on the same line.
            line = line[max(0, line.find(_HELLO)) :]
        if len(line) >= _BIG_LINE_BYTES:
            # Decoding a hello of megabytes would delay the screen.
            return await asyncio.to_thread(self._decode_checked, line)
        if line.startswith(_PACKED):
            # It is one text, whose cost the limit of bytes bounds: to measure it costs as much.
            return decode(line)
        return self._decode_checked(line)

    def _decode_checked(self, line: bytes) -> Message:
        began_s = self._clock.cpu_s()
        try:
            message = decode(line)
            if isinstance(message, Hello):
                self._limits.admit(message)
            return message
        finally:
            self._spent_s += self._clock.cpu_s() - began_s

    def _add_frame(self, frame: Frame, now_s: float) -> None:
        if self.hello is None:
            raise WireError("a frame before any hello")
        self._limit("frames", 1, now_s)
        self.last_frame_s = now_s
        self._inbox.add_frame(self._node, frame)
        self._on_frame()

    def _add_hello(self, hello: Hello, before: Hello | None, now_s: float) -> None:
        if not self._buckets["hellos"].take(1, now_s):
            raise Misbehaved("changes its layout again and again", "flood")
        continues = before is not None and hello.has_same_layout(before)
        self.hello = hello
        self._unpacker = Unpacker(hello.widths())
        self._inbox.add_hello(self._node, hello, continues=continues)

    def _add_notice(self, notice: Notice, now_s: float) -> None:
        """Add a notice. Of a log a node may report only so much; the rest is dropped."""
        notice = msgspec.structs.replace(notice, logged_ns=msgspec.UNSET)
        if not is_logged(notice) or self._buckets[_MESSAGES].take(1, now_s, or_none=True):
            self._inbox.notices.append((self._node, notice))
        elif not self._drops_messages:
            self._drops_messages = True
            _LOG.warning("%s: its kernel logs too much: some messages are left out", self._node)

    def _add_answer(self, part: Answer) -> None:
        last_id = self._last_command_ids.get(type(part), 0)
        if not 0 < part.id <= last_id:
            raise WireError(f"a {type(part).__name__.lower()} that was not requested")
        if part.id == last_id:
            self._inbox.answers.append((self._node, part))

    def _limit(self, what: str, amount: float, now_s: float) -> None:
        if not self._buckets[what].take(amount, now_s):
            raise Misbehaved(f"sends more than {_LIMITS[what][1]:,.0f} {what} a second", "flood")

    def _note_invalid(self, line: bytes, error: WireError, now_s: float) -> None:
        """Accept login greetings before the hello, and few invalid lines after it."""
        if self.hello is None and _HELLO not in line:
            self._stray_bytes += len(line)
            text = clean(line[:200].decode(errors="replace").strip())
            self.last_stray_line = text or self.last_stray_line
            if self._stray_bytes > _MAX_STRAY_BYTES:
                size = f"{_MAX_STRAY_BYTES // 1024} KiB"
                raise Misbehaved(
                    f"sent {size} that are not the wire, such as: {self.last_stray_line}"
                )
        elif _HELLO in line or not self._buckets["invalid lines"].take(1, now_s):
            # After a hello that was rejected, its frames cannot be decoded with any other.
            raise Misbehaved(str(error))
