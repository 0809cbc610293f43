"""Decodes packed frames: deltas in a deflate stream (collectors/wire.py, docs/wire.md)."""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from operator import add
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from collectors.wire import MAX_LINE, WINDOW_BITS
from fabmon.fabric.wire.messages import WORD, Frame, Packed, Values, WireError
from fabmon.malformed_json import MALFORMED

ENCODINGS = ("delta-deflate",)
"""The encodings that this console accepts besides plain, the best first."""


_BYTES_A_VALUE = 64
_BYTES_BESIDE = 4096

_HEAD = 3
"""Numbers of a frame before its blocks: seq, wall_ns, mono_ns."""

_DIGITS, _BRACKETS = b"0123456789", b"[]"
_ENDS = np.iinfo(np.int64)
"""A number that does not fit is read as the least or the largest that does."""


class _Deltas(msgspec.Struct, array_like=True, gc=False):
    seq: int
    wall_ns: int
    mono_ns: int
    blocks: list[list[int | None] | None]


_DECODER = msgspec.json.Decoder(_Deltas)


class _OfWidths(NamedTuple):
    """The positions of blocks in a frame, the steps of blocks that were not read, the function that
    packs the steps of a frame, and the text of a frame without gaps and without its digits."""

    spans: tuple[tuple[int, int], ...]
    unread: tuple[list[int | None], ...]
    pack: Callable[..., bytes]
    punctuation: bytes


@lru_cache(16)
def _of_widths(widths: tuple[int, ...]) -> _OfWidths:
    """What the unpackers of nodes of a kind have in common: 11 kB for each of a thousand nodes.

    Few kinds are kept: of the largest frames it is a megabyte.
    """
    spans = tuple(pairwise(accumulate(widths, initial=0)))
    pack = struct.Struct(f"{sum(widths)}q").pack
    blocks = b",".join(b"[%b]" % (b"," * (width - 1)) for width in widths)
    return _OfWidths(spans, tuple([0] * each for each in widths), pack, b"[,,,[%b]]" % blocks)


class Unpacker:
    """Reads the packed frames that follow one hello.

    `widths` are the numbers of values of its blocks; they limit the size to which a frame may
    inflate. After a frame that cannot be decoded, the following ones cannot be decoded either: the
    node must send a new hello.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        self._widths = tuple(widths)
        self._spans, self._unread, self._pack, self._punctuation = _of_widths(self._widths)
        width = sum(self._widths)
        self._most_bytes = min(MAX_LINE, _BYTES_A_VALUE * width + _BYTES_BESIDE)
        self._stream = zlib.decompressobj(-WINDOW_BITS)
        self._wall_ns = 0
        self._mono_ns = 0
        self._sums: NDArray[np.int64] = np.zeros(width, np.int64)
        # In place of `_sums` once a value does not fit 63 bits.
        self._large_sums: list[int] | None = None

    def frame(self, packed: Packed) -> Frame:
        """The unpacked frame. Raises WireError."""
        try:
            text = self._stream.decompress(packed.data, self._most_bytes)
        except zlib.error as error:
            raise WireError(f"a packed frame cannot be inflated: {error}") from None
        if self._stream.unconsumed_tail:
            raise WireError(f"a packed frame inflates to more than {self._most_bytes} bytes")
        return self._frame_without_gaps(text) or self._any_frame(text)

    def _frame_without_gaps(self, text: bytes) -> Frame | None:
        """The frame of a text in which every block and value is there, as in almost all; None for
        any other. It is read as one row of numbers, in half of the time that JSON takes."""
        punctuation = text.translate(None, _DIGITS)
        if punctuation != self._punctuation and (
            punctuation.translate(None, b"-") != self._punctuation
            or b"-," in text
            or b"-]" in text
            # A sign within the last number: numpy 2.2 only warns that it read a part of it.
            or punctuation.count(b"-") != text.count(b",-") + text.count(b"[-")
        ):
            return None
        try:
            numbers = np.fromstring(text.translate(None, _BRACKETS), np.int64, sep=",")
        except (ValueError, DeprecationWarning):
            return None
        steps = numbers[_HEAD:]
        if len(steps) != len(self._sums):
            return None
        if np.maximum.reduce(numbers) == _ENDS.max or np.minimum.reduce(numbers) == _ENDS.min:
            return None
        words = self._words(steps)
        if words is None:
            return None
        seq, wall_ns, mono_ns = numbers[:_HEAD].tolist()
        self._wall_ns += wall_ns
        self._mono_ns += mono_ns
        blocks: list[Values | None] = [words[start:stop] for start, stop in self._spans]
        return Frame(seq, self._wall_ns, self._mono_ns, blocks)

    def _any_frame(self, text: bytes) -> Frame:
        """The frame of a text. Raises WireError."""
        try:
            deltas = _DECODER.decode(text)
        except MALFORMED as error:
            raise WireError(f"not a packed frame: {error}") from None
        if len(deltas.blocks) != len(self._widths):
            raise WireError(
                f"a frame of {len(deltas.blocks)} blocks, announced {len(self._widths)}"
            )
        blocks = self._blocks(deltas.blocks)
        self._wall_ns += deltas.wall_ns
        self._mono_ns += deltas.mono_ns
        return Frame(deltas.seq, self._wall_ns, self._mono_ns, blocks)

    def _blocks(self, deltas: list[list[int | None] | None]) -> list[Values | None]:
        """The values: blocks without gaps as arrays, which need no further conversion."""
        parts = [
            unread if block is None else block
            for block, unread in zip(deltas, self._unread, strict=True)
        ]
        if tuple(map(len, parts)) != self._widths:
            wrong = next(
                (len(part), width)
                for part, width in zip(parts, self._widths, strict=True)
                if len(part) != width
            )
            raise WireError(f"a block of {wrong[0]} values, announced {wrong[1]}")
        steps = list(chain.from_iterable(parts))
        words: Values | None = None
        gaps: list[int] = []
        try:
            words = self._words(np.frombuffer(self._pack(*steps), np.int64))
        except struct.error:
            gaps = [place for place, step in enumerate(steps) if step is None]
        if words is None:
            words = self._large_words([step or 0 for step in steps], gaps)
        blocks = [
            None if block is None else words[start:stop]
            for block, (start, stop) in zip(deltas, self._spans, strict=True)
        ]
        return self._with_gaps(blocks, gaps) if gaps else blocks

    def _words(self, steps: NDArray[np.int64]) -> array[int] | None:
        """The values after these steps, 64-bit words; None if any does not fit 63 bits."""
        sums = self._sums + steps
        if self._large_sums is not None or np.minimum.reduce(sums, initial=0) < 0:
            return None
        self._sums = sums
        return array(WORD, sums.tobytes())

    def _large_words(self, steps: list[int], gaps: list[int]) -> Values:
        """The values after steps of any size. Those at the gaps begin again at 0.

        Negative values may be sent; whoever reads them takes them for absent.
        """
        before = self._sums.tolist() if self._large_sums is None else self._large_sums
        sums = list(map(add, before, steps))
        for place in gaps:
            sums[place] = 0
        if all(0 <= value < 1 << 63 for value in sums):
            self._sums, self._large_sums = np.array(sums, np.int64), None
        else:
            self._large_sums = sums
        return sums

    def _with_gaps(self, blocks: list[Values | None], gaps: list[int]) -> list[Values | None]:
        """The blocks with None in place of the values at some positions of the frame."""
        absent = set(gaps)
        return [
            block
            if block is None or absent.isdisjoint(range(start, stop))
            else [None if place in absent else value for place, value in enumerate(block, start)]
            for block, (start, stop) in zip(blocks, self._spans, strict=True)
        ]
