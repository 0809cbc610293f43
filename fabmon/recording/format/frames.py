"""Frames, of which a recording is a sequence (header, checksums, payload), and their index."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from enum import IntFlag, StrEnum
from typing import Any, NamedTuple

import numpy as np

from fabmon.recording.format.errors import Damaged
from fabmon.recording.format.sections import (
    byte_planes,
    from_byte_planes,
    join_sections,
    pack_section,
    split_sections,
    unpack_section,
)

Buffer = bytes | bytearray | memoryview

MAGIC = b"\xffFBR"
"""The first bytes of a frame. FF occurs in no UTF-8 text: no text of a node looks like a frame."""

_HEADER = struct.Struct("<4scBHIIqqQ")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CRC.size
MAX_PAYLOAD_BYTES = 1 << 30


class FrameKind(StrEnum):
    """What a frame holds, as the letter in its header. Readers skip unknown letters."""

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

    @classmethod
    def name_of(cls, letter: str) -> str:
        """`block` for `B`; a letter that is not known stays one."""
        return next((kind.name.lower() for kind in cls if kind == letter), letter)


class FrameFlag(IntFlag):
    """`PROVISIONAL`: at the end of the file, to be replaced by a larger block of the same ticks."""

    PROVISIONAL = 1


class FrameHeader(NamedTuple):
    """A frame's header. The payload covers `time_ns` to `until_ns`, ns since 1970, UTC.

    `part` distinguishes frames of the same kind and time. `index_at` is the byte offset of the last
    index frame before this frame, 0 for none.
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
        """Whether the writer replaces this frame later, or would have if it had not been killed."""
        return bool(self.flags & FrameFlag.PROVISIONAL)


def encode_frame(
    kind: FrameKind,
    *payload: Buffer,
    time_ns: int,
    until_ns: int | None = None,
    part: int = 0,
    flags: int = 0,
    index_at: int = 0,
) -> list[Buffer]:
    """A whole frame in pieces: the header, then the pieces of the payload."""
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


def decode_header(data: bytes | memoryview, start: int = 0) -> FrameHeader | None:
    """The header that begins at `start`; None where there is none or its checksum is wrong."""
    head = bytes(data[start : start + HEADER_BYTES])
    if len(head) < HEADER_BYTES or not head.startswith(MAGIC):
        return None
    if zlib.crc32(head[: _HEADER.size]) != _CRC.unpack_from(head, _HEADER.size)[0]:
        return None
    _, letter, *rest = _HEADER.unpack_from(head)
    header = FrameHeader(letter.decode("latin-1"), *rest)
    return header if header.length <= MAX_PAYLOAD_BYTES else None


def payload_matches(header: FrameHeader, payload: bytes) -> bool:
    """Whether a payload has the length and the checksum of the header."""
    return len(payload) == header.length and zlib.crc32(payload) == header.crc


_ENTRY = np.dtype(
    [("offset", "<u8"), ("length", "<u4"), ("crc", "<u4"), ("kind", "S1"), ("part", "<u2"),
     ("time", "<i8"), ("until", "<i8"), ("peak_utilisation", "<f4")]
)  # fmt: skip
"""A frame as listed in an index frame: opening and seeking need not read all frames."""


class FrameEntry(NamedTuple):
    """A frame and its byte offset in the file.

    `peak_utilisation` is that of the busiest link during the frame, 0 to 1; NaN where not known.
    """

    offset: int
    header: FrameHeader
    peak_utilisation: float = float("nan")

    @property
    def end(self) -> int:
        """The byte offset of the next frame."""
        return self.offset + HEADER_BYTES + self.header.length


def encode_index(entries: Iterable[FrameEntry], start: int) -> bytes:
    """An index frame's payload: all frames from the byte offset `start` on."""
    rows = [
        (e.offset, e.header.length, e.header.crc, e.header.kind.encode("latin-1"), e.header.part,
         e.header.time_ns, e.header.until_ns, e.peak_utilisation)
        for e in entries
    ]  # fmt: skip
    planes = byte_planes(np.array(rows, _ENTRY))
    return join_sections([start.to_bytes(8, "little"), pack_section(planes)])


def decode_index(payload: bytes, most: int, size: int) -> tuple[int, list[FrameEntry]]:
    """The byte offset from which on an index lists all frames, and these frames, `most` of them at
    most, in a file of `size` bytes. Raises Damaged.
    """
    sections = split_sections(payload)
    if len(sections) < 2:
        raise Damaged("an index has no entries")
    planes = unpack_section(sections[1], max_bytes=_ENTRY.itemsize * most)
    try:
        listed = from_byte_planes(planes, _ENTRY)
    except ValueError:
        raise Damaged("an index ends within an entry") from None
    if (listed["offset"] >= size).any():
        raise Damaged("an index lists what is beyond the end of the file")
    rows: list[Any] = listed.tolist()
    entries = [
        FrameEntry(
            offset, FrameHeader(kind.decode("latin-1"), 0, part, length, crc, time, until, 0), peak
        )
        for offset, length, crc, kind, part, time, until, peak in rows
    ]
    return int.from_bytes(sections[0], "little"), entries
