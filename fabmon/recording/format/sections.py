"""Sections: the zstd-compressed parts of a frame's payload (see docs/recording.md)."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabmon.recording.format.errors import Damaged

# zstd is part of Python from 3.14 on; before, a package provides the same module.
if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError, compress, get_frame_info
else:
    from backports.zstd import ZstdDecompressor, ZstdError, compress, get_frame_info

__all__ = [
    "MAX_SECTION_BYTES",
    "ZstdError",
    "byte_planes",
    "compress",
    "decompress",
    "from_byte_planes",
    "join_sections",
    "pack_section",
    "section_table",
    "split_sections",
    "uncompressed_section",
    "unpack_section",
]

MAX_SECTION_BYTES = 1 << 28
"""The most bytes that one section of a file may inflate to; the file may come from another site.
Hellos of thousands of nodes are some tens of MB."""

_LEVEL = 1
"""zstd's compression level; higher levels take twice the time to save 2 %."""
_ZSTD_SINGLE_SEGMENT = b"\x28\xb5\x2f\xfd\xa0"
_ZSTD_BLOCK_BYTES = 1 << 17


def decompress(data: bytes, max_bytes: int = MAX_SECTION_BYTES) -> bytes:
    """The decompressed data. Raises ZstdError where it is cut off or larger than `max_bytes`."""
    size = get_frame_info(data).decompressed_size
    if size is None or size <= max_bytes:
        stream = ZstdDecompressor()
        found = stream.decompress(data, max_length=max_bytes)
        if stream.eof:
            return found
    raise ZstdError(f"cut off, or more than {max_bytes} bytes")


def pack_section(values: NDArray[np.generic] | bytes) -> bytes:
    """A section: bytes, compressed."""
    data = values if isinstance(values, bytes) else values.tobytes()
    return compress(data, _LEVEL)


def uncompressed_section(data: bytes | bytearray) -> list[bytes | bytearray | memoryview]:
    """A section in pieces that is not compressed: raw blocks in a zstd frame (RFC 8878)."""
    pieces: list[bytes | bytearray | memoryview] = [
        _ZSTD_SINGLE_SEGMENT,
        len(data).to_bytes(4, "little"),
    ]
    for start in range(0, max(len(data), 1), _ZSTD_BLOCK_BYTES):
        piece = memoryview(data)[start : start + _ZSTD_BLOCK_BYTES]
        is_last = start + _ZSTD_BLOCK_BYTES >= len(data)
        pieces += [(len(piece) << 3 | is_last).to_bytes(3, "little"), piece]
    return pieces


def unpack_section(
    section: bytes, size: int | None = None, max_bytes: int = MAX_SECTION_BYTES
) -> bytes:
    """A section's bytes: exactly `size`, or with None at most `max_bytes`. Raises Damaged."""
    try:
        data = decompress(section, max_bytes if size is None else min(size, max_bytes))
    except ZstdError as error:
        raise Damaged(f"a section does not decompress: {error}") from None
    if size is not None and len(data) != size:
        raise Damaged(f"a section has {len(data)} bytes instead of {size}")
    return data


def join_sections(sections: list[bytes]) -> bytes:
    """One payload: the number of sections, their lengths, and the sections."""
    return section_table([len(section) for section in sections]) + b"".join(sections)


def section_table(lengths: Sequence[int]) -> bytes:
    """The bytes before the sections of a payload: their number and their lengths."""
    return struct.pack(f"<{1 + len(lengths)}I", len(lengths), *lengths)


def split_sections(payload: bytes) -> list[bytes]:
    """The reverse of `join_sections`. Raises Damaged."""
    try:
        (count,) = struct.unpack_from("<I", payload)
        lengths = struct.unpack_from(f"<{count}I", payload, 4)
    except struct.error:
        raise Damaged("a payload is too short for its table of sections") from None
    start, sections = 4 + 4 * count, []
    for length in lengths:
        sections.append(payload[start : start + length])
        start += length
    if start != len(payload):
        raise Damaged("a payload's length does not match its table of sections")
    return sections


def byte_planes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """[bytes of an item, items]: all lowest bytes first, all highest last."""
    return values.view(np.uint8).reshape(-1, values.itemsize).T


def from_byte_planes(planes: bytes, kind: np.dtype[Any]) -> NDArray[Any]:
    """The reverse of `byte_planes`, items of a kind. Raises ValueError for a wrong length."""
    by_byte = np.frombuffer(planes, np.uint8).reshape(kind.itemsize, -1)
    return np.ascontiguousarray(by_byte.T).view(kind).ravel()
