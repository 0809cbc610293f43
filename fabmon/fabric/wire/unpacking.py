"""Decodes packed frames: deltas in a deflate stream (collectors/wire.py, docs/wire.md)."""

from __future__ import annotations

import zlib
from operator import add

import msgspec

from collectors.wire import MAX_LINE, WINDOW_BITS
from fabmon.fabric.wire.messages import Frame, Packed, WireError

ENCODINGS = ("delta-deflate",)
"""The encodings that this console accepts besides plain, the best first."""


_BYTES_A_VALUE = 64
_BYTES_BESIDE = 4096


class _Deltas(msgspec.Struct, array_like=True, gc=False):
    seq: int
    wall_ns: int
    mono_ns: int
    blocks: list[list[int | None] | None]


_DECODER = msgspec.json.Decoder(_Deltas)


class Unpacker:
    """Reads the packed frames that follow one hello.

    `width` is the number of values of a frame; it limits the size to which a frame may inflate.
    After a frame that cannot be decoded, the following ones cannot be decoded either: the node must
    send a new hello.
    """

    def __init__(self, width: int) -> None:
        self._most_bytes = min(MAX_LINE, _BYTES_A_VALUE * width + _BYTES_BESIDE)
        self._stream = zlib.decompressobj(-WINDOW_BITS)
        self._wall_ns = 0
        self._mono_ns = 0
        self._before: list[list[int]] = []

    def frame(self, packed: Packed) -> Frame:
        """The unpacked frame. Raises WireError."""
        try:
            text = self._stream.decompress(packed.data, self._most_bytes)
        except zlib.error as error:
            raise WireError(f"a packed frame cannot be inflated: {error}") from None
        if self._stream.unconsumed_tail:
            raise WireError(f"a packed frame inflates to more than {self._most_bytes} bytes")
        try:
            deltas = _DECODER.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(f"not a packed frame: {error}") from None
        if not self._before:
            self._before = [[] for _ in deltas.blocks]
        if len(deltas.blocks) != len(self._before):
            raise WireError(f"a frame of {len(deltas.blocks)} blocks after {len(self._before)}")
        blocks = [self._block(place, block) for place, block in enumerate(deltas.blocks)]
        self._wall_ns += deltas.wall_ns
        self._mono_ns += deltas.mono_ns
        return Frame(deltas.seq, self._wall_ns, self._mono_ns, blocks)

    def _block(self, place: int, deltas: list[int | None] | None) -> list[int | None] | None:
        if deltas is None:
            return None
        before = self._before[place] or [0] * len(deltas)
        if len(before) != len(deltas):
            raise WireError(f"a block of {len(deltas)} values after {len(before)}")
        values: list[int | None]
        try:
            sums = list(map(add, before, deltas))
        except TypeError:
            values = [
                None if delta is None else old + delta
                for old, delta in zip(before, deltas, strict=True)
            ]
            self._before[place] = [value or 0 for value in values]
            return values
        self._before[place] = sums
        values = [*sums]
        return values
