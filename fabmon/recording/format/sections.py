"""zstd: part of Python from 3.14 on, and the same module as a package before."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError, compress, get_frame_info
else:
    from backports.zstd import ZstdDecompressor, ZstdError, compress, get_frame_info

__all__ = ["MAX_SECTION_BYTES", "ZstdError", "compress", "decompress"]

MAX_SECTION_BYTES = 1 << 28
"""No more is made of one piece of a file that somebody sent: hellos of thousands of nodes are some
tens of MB."""


def decompress(data: bytes, most: int = MAX_SECTION_BYTES) -> bytes:
    """What was compressed, where it is no more than so many bytes. Raises ZstdError."""
    size = get_frame_info(data).decompressed_size
    if size is None or size <= most:
        stream = ZstdDecompressor()
        found = stream.decompress(data, max_length=most)
        if stream.eof:
            return found
    raise ZstdError(f"cut off, or more than {most} bytes")
