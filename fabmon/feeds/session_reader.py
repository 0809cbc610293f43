"""Reads one session: lines of the wire go to the inbox, others are held against the node."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from fabmon.fabric.model import Host
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
from fabmon.feeds.transports.transport import ProbeSession

# How much of something a node may send: a burst, and a pace after it.


class TokenBucket:
    """Holds `burst` at most and regains `per_s` a second. Times are seconds of one clock."""

    def __init__(self, burst: float, per_s: float, now: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._level = burst
        self._at = now

    def take(self, amount: float, now: float) -> bool:
        """Whether `amount` was there to take."""
        self._level = min(self._burst, self._level + (now - self._at) * self._per_s)
        self._at = now
        self._level -= amount
        return self._level >= 0


_MAX_NOISE = 64 * 1024
_BIG_LINE = 256 * 1024
_YIELD_EVERY = 16
_HELLO = b'["hello",'

# A console that was stopped for a while finds all that waited in the pipes at once: the bursts are
# that generous. The paces are far above those of an honest probe at its shortest interval.
_FRAMES = (600, 100)
_LINES = (3000, 500)
_BYTES = (32e6, 8e6)
_HELLOS = (20, 0.5)
_BAD = (3, 1 / 60)


class SessionOwner(Protocol):
    """Whom the listener tells that the node is up."""

    host: Host

    @property
    def is_up(self) -> bool:
        """Whether it knows already."""

    @property
    def asked(self) -> Mapping[type[Answer], int]:
        """What the node was asked for last, by the kind of its answers."""

    def up(self) -> None:
        """A good frame came while it was not up."""


class SessionReader:
    """One session's reader.

    `last_frame_at` is by the monotonic clock; `said` is the last stray line before the hello.
    """

    def __init__(
        self,
        owner: SessionOwner,
        session: ProbeSession,
        inbox: Inbox,
        clock: Clock,
        admission: HelloLimits,
    ) -> None:
        now = clock.monotonic()
        self.last_frame_at = now
        self.hello: Hello | None = None
        self.said = ""
        self._owner = owner
        self._node = owner.host.name
        self._session = session
        self._inbox = inbox
        self._clock = clock
        self._admission = admission
        self._noise = 0
        self._unpacker = Unpacker(0)
        self._frames = TokenBucket(*_FRAMES, now)
        self._lines = TokenBucket(*_LINES, now)
        self._bytes = TokenBucket(*_BYTES, now)
        self._hellos = TokenBucket(*_HELLOS, now)
        self._bad = TokenBucket(*_BAD, now)

    async def run(self, before: Hello | None) -> None:
        """Read until the session ends. Raises NodeError; `before` is the last session's hello."""
        count = 0
        while True:
            line = await self._readline()
            now = self._clock.monotonic()
            self._meter(line, now)
            try:
                message = await self._decode(line)
                if type(message) is Packed:
                    message = self._unpacker.frame(message)
                if type(message) is Frame:
                    self._take_frame(message, now)
                elif isinstance(message, Hello):
                    self._take_hello(message, self.hello or before, now)
                elif isinstance(message, Notice) and self.hello is not None:
                    self._inbox.add_notice(self._node, message)
                elif isinstance(message, Answer):
                    self._take_answer(message)
            except WireError as error:
                self._hold_against(line, error, now)
            if self._inbox.full:
                await self._inbox.room()
            count += 1
            if count % _YIELD_EVERY == 0:
                # Lines that wait already are read without a pause: the other nodes need one.
                await asyncio.sleep(0)

    async def _readline(self) -> bytes:
        try:
            return await self._session.readline()
        except NodeError as error:
            if self.hello is None and self.said:
                raise type(error)(f"{error}; it said: {self.said}", error.cause) from None
            raise

    async def _decode(self, line: bytes) -> Message:
        if self.hello is None:
            # A greeting without a newline stands before the hello on its line.
            line = line[max(0, line.find(_HELLO)) :]
        if len(line) < _BIG_LINE:
            return self._read(line)
        # A hello of megabytes takes long enough to be felt on the screen.
        return await asyncio.to_thread(self._read, line)

    def _read(self, line: bytes) -> Message:
        message = decode(line)
        if isinstance(message, Hello):
            self._admission.admit(message)
        return message

    def _take_frame(self, frame: Frame, now: float) -> None:
        if self.hello is None:
            raise WireError("a frame before any hello")
        check(frame, self.hello)
        if not self._frames.take(1, now):
            raise Misbehaved(f"sends more than {_FRAMES[1]} frames a second", "flood")
        self.last_frame_at = now
        self._inbox.add_frame(self._node, frame)
        if not self._owner.is_up:
            self._owner.up()

    def _take_hello(self, hello: Hello, before: Hello | None, now: float) -> None:
        if not self._hellos.take(1, now):
            raise Misbehaved("changes its layout over and over", "flood")
        continues = before is not None and hello.counts_like(before)
        self.hello = hello
        self._unpacker = Unpacker(hello.width())
        self._inbox.add_hello(self._node, hello, continues=continues)

    def _take_answer(self, part: Answer) -> None:
        asked = self._owner.asked.get(type(part), 0)
        if not 0 < part.id <= asked:
            raise WireError(f"a {type(part).__name__.lower()} that nobody asked for")
        if part.id == asked:
            self._inbox.add_answer(self._node, part)

    def _meter(self, line: bytes, now: float) -> None:
        if not self._bytes.take(len(line), now):
            raise Misbehaved(f"sends more than {_BYTES[1] / 1e6:g} MB a second", "flood")
        if not self._lines.take(1, now):
            raise Misbehaved(f"sends more than {_LINES[1]} lines a second", "flood")

    def _hold_against(self, line: bytes, error: WireError, now: float) -> None:
        """Before the hello a login's greetings are tolerated; after it, hardly anything is."""
        if self.hello is None and _HELLO not in line:
            self._noise += len(line)
            self.said = clean(line[:200].decode(errors="replace").strip()) or self.said
            if self._noise > _MAX_NOISE:
                raise Misbehaved(
                    f"sent {_MAX_NOISE // 1024} KiB that are not the wire, such as: {self.said}"
                )
        elif _HELLO in line or not self._bad.take(1, now):
            # The frames behind a hello that was refused cannot be read by any other.
            raise Misbehaved(str(error))
