"""Frames: what a recording is a sequence of. A header with checksums, and a payload."""

from __future__ import annotations

import struct
import zlib
from enum import IntFlag, StrEnum
from typing import NamedTuple

MAGIC = b"\xffFBR"
"""Its first byte is in no UTF-8 text, so no text that a node sends looks like a frame."""

_HEADER = struct.Struct("<4scBHIIqqQ")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CRC.size
MOST_PAYLOAD = 1 << 30


class Kind(StrEnum):
    """What a frame holds, as the letter in its header. Unknown letters are skipped."""

    SESSION = "F"
    EVENTS = "E"
    BLOCK = "B"
    STATE = "S"
    HELLOS = "H"
    TOPOLOGY = "P"
    MINUTE = "R"
    NOTE = "N"
    INDEX = "X"
    END = "Z"


class Flag(IntFlag):
    """`PROVISIONAL`: at the file's end, to be replaced by a larger block of the same ticks."""

    PROVISIONAL = 1


class Header(NamedTuple):
    """A frame's header. `time_ns` to `until_ns` is the time that the payload is about, UTC.

    `part` tells frames of the same kind and time apart. `index_at` is where the last index frame
    before this one lies, 0 when there is none.
    """

    kind: str
    flags: int
    part: int
    length: int
    crc: int
    time_ns: int
    until_ns: int
    index_at: int

    @property
    def provisional(self) -> bool:
        """Whether a writer will replace, or would have replaced, this frame."""
        return bool(self.flags & Flag.PROVISIONAL)


def frame(
    kind: Kind,
    *payload: bytes | bytearray | memoryview,
    time_ns: int,
    until_ns: int | None = None,
    part: int = 0,
    flags: int = 0,
    index_at: int = 0,
) -> list[bytes | bytearray | memoryview]:
    """A whole frame, header and payload; the payload may come in pieces."""
    crc = 0
    for piece in payload:
        crc = zlib.crc32(piece, crc)
    head = _HEADER.pack(
        MAGIC,
        kind.encode(),
        flags,
        part,
        sum(map(len, payload)),
        crc,
        time_ns,
        time_ns if until_ns is None else until_ns,
        index_at,
    )
    return [head + _CRC.pack(zlib.crc32(head)), *payload]


def header(data: bytes | memoryview, at: int = 0) -> Header | None:
    """The header at a place of some bytes; None when there is no sound one."""
    head = bytes(data[at : at + HEADER_BYTES])
    if len(head) < HEADER_BYTES or not head.startswith(MAGIC):
        return None
    if zlib.crc32(head[: _HEADER.size]) != _CRC.unpack_from(head, _HEADER.size)[0]:
        return None
    _, letter, *rest = _HEADER.unpack_from(head)
    found = Header(letter.decode("latin-1"), *rest)
    return found if found.length <= MOST_PAYLOAD else None


def sound(found: Header, payload: bytes) -> bool:
    """Whether a payload is the one that its header was written for."""
    return len(payload) == found.length and zlib.crc32(payload) == found.crc
