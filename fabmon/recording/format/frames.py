"""Frames: what a recording is a sequence of. A header with checksums, and a payload."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from enum import IntFlag, StrEnum
from typing import Any, NamedTuple

import numpy as np

from fabmon.recording.format import columns
from fabmon.recording.format.errors import Damaged

MAGIC = b"\xffFBR"
"""Its first byte is in no UTF-8 text, so no text that a node sends looks like a frame."""

_HEADER = struct.Struct("<4scBHIIqqQ")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CRC.size
MAX_PAYLOAD_BYTES = 1 << 30


class FrameKind(StrEnum):
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


class FrameFlag(IntFlag):
    """`PROVISIONAL`: at the file's end, to be replaced by a larger block of the same ticks."""

    PROVISIONAL = 1


class FrameHeader(NamedTuple):
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
        return bool(self.flags & FrameFlag.PROVISIONAL)


def encode_frame(
    kind: FrameKind,
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


def decode_header(data: bytes | memoryview, at: int = 0) -> FrameHeader | None:
    """The header at a place of some bytes; None when there is no sound one."""
    head = bytes(data[at : at + HEADER_BYTES])
    if len(head) < HEADER_BYTES or not head.startswith(MAGIC):
        return None
    if zlib.crc32(head[: _HEADER.size]) != _CRC.unpack_from(head, _HEADER.size)[0]:
        return None
    _, letter, *rest = _HEADER.unpack_from(head)
    found = FrameHeader(letter.decode("latin-1"), *rest)
    return found if found.length <= MAX_PAYLOAD_BYTES else None


def payload_matches(found: FrameHeader, payload: bytes) -> bool:
    """Whether a payload is the one that its header was written for."""
    return len(payload) == found.length and zlib.crc32(payload) == found.crc


# Index frames: where every frame lies, so that opening and seeking never read them all.


_ENTRY = np.dtype(
    [("at", "<u8"), ("length", "<u4"), ("crc", "<u4"), ("kind", "S1"), ("part", "<u2"),
     ("time", "<i8"), ("until", "<i8"), ("worst", "<f4")]
)  # fmt: skip


class FrameEntry(NamedTuple):
    """A frame and where it is; `peak_utilisation` is the highest utilisation in it, NaN where not known."""

    offset: int
    header: FrameHeader
    peak_utilisation: float = float("nan")

    @property
    def end(self) -> int:
        """Where the next frame begins."""
        return self.offset + HEADER_BYTES + self.header.length


def encode_index(entries: Iterable[FrameEntry], start: int) -> bytes:
    """An index frame's payload: all frames from the place `start` of the file on."""
    rows = [
        (e.offset, e.header.length, e.header.crc, e.header.kind.encode("latin-1"), e.header.part,
         e.header.time_ns, e.header.until_ns, e.peak_utilisation)
        for e in entries
    ]  # fmt: skip
    table = np.array(rows, _ENTRY)
    turned = table.view(np.uint8).reshape(-1, _ENTRY.itemsize).T
    return columns.join_sections([start.to_bytes(8, "little"), columns.pack_section(turned)])


def decode_index(payload: bytes) -> tuple[int, list[FrameEntry]]:
    """Where the frames that it lists begin, and they. Raises Damaged."""
    sections = columns.split_sections(payload)
    if len(sections) < 2:
        raise Damaged("an index without entries")
    data = np.frombuffer(columns.unpack_section(sections[1]), np.uint8)
    if len(data) % _ENTRY.itemsize:
        raise Damaged("an index of half an entry")
    table = np.ascontiguousarray(data.reshape(_ENTRY.itemsize, -1).T).view(_ENTRY).ravel()
    rows: list[Any] = table.tolist()
    entries = [
        FrameEntry(
            at, FrameHeader(kind.decode("latin-1"), 0, part, length, crc, time, until, 0), worst
        )
        for at, length, crc, kind, part, time, until, worst in rows
    ]
    return int.from_bytes(sections[0], "little"), entries
