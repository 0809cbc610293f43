"""Where the values of a node's frames lie in a row of a recording."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec
import numpy as np

from fabmon.fabric.messages import Frame, Hello
from fabmon.recording.columns import Hints

HEAD = 3
"""Columns before a node's blocks: its frame's sequence number, monotonic and wall clock."""

SEQ, MONO, WALL = range(HEAD)


class Seat(msgspec.Struct, frozen=True):
    """A node's part of a row: HEAD, then its blocks. `widths` are those of the blocks.

    A node whose layout changes gets another seat.
    """

    node: str
    widths: tuple[int, ...]

    @property
    def columns(self) -> int:
        """How many it takes."""
        return HEAD + sum(self.widths)

    @property
    def blocks(self) -> int:
        """How many can be there or not, the head included."""
        return 1 + len(self.widths)


class Filler:
    """Writes a node's frames into rows, from column `start` and block `block` on."""

    def __init__(self, hello: Hello, seat: Seat, start: int, block: int) -> None:
        self.hello = hello
        self.seat = seat
        self.start = start
        self.block = block
        self._at = start * 8
        self._head = struct.Struct(f"{HEAD}{_U64}")
        self._places: list[tuple[int, struct.Struct]] = []
        at = (start + HEAD) * 8
        for width in seat.widths:
            self._places.append((at, struct.Struct(f"{width}{_U64}")))
            at += width * 8
        self._whole = struct.Struct(f"{seat.columns}{_U64}")
        self._all_there = b"\1" * seat.blocks

    def fill(self, row: bytearray, there: bytearray, frame: Frame, absent: list[int]) -> bool:
        """Write values over what the row held, and which blocks are there; whether the frame fits.

        `absent` gets the column of every value that is null, or no number of 64 bits (downstream
        takes them alike); the row keeps what it held there, which costs the least.
        """
        blocks = frame.blocks
        if len(blocks) == 1 and blocks[0] is not None:
            # The most of all frames, and half of what recording costs.
            try:
                self._whole.pack_into(
                    row, self._at, frame.seq, frame.mono_ns, frame.wall_ns, *blocks[0]
                )
            except struct.error:
                pass
            else:
                there[self.block : self.block + 2] = self._all_there
                return True
        if not self._fits(frame):
            return False
        self._fill_parts(row, there, frame, absent)
        return True

    def _fill_parts(
        self, row: bytearray, there: bytearray, frame: Frame, absent: list[int]
    ) -> None:
        number = self.block
        self._head.pack_into(
            row, self._at, frame.seq & _MASK, frame.mono_ns & _MASK, frame.wall_ns & _MASK
        )
        there[number] = 1
        for block, (at, packer) in zip(frame.blocks, self._places, strict=True):
            number += 1
            if block is None:
                continue
            there[number] = 1
            try:
                packer.pack_into(row, at, *block)
            except struct.error:
                held = packer.unpack_from(row, at)
                gaps = [place for place, value in enumerate(block) if not _is_u64(value)]
                whole = [h if not _is_u64(v) else v for v, h in zip(block, held, strict=True)]
                packer.pack_into(row, at, *whole)
                absent += [at // 8 + place for place in gaps]

    def _fits(self, frame: Frame) -> bool:
        """Whether the frame is one of this layout."""
        widths = self.seat.widths
        return len(frame.blocks) == len(widths) and all(
            block is None or len(block) == width
            for block, width in zip(frame.blocks, widths, strict=True)
        )


def hints(fillers: Sequence[Filler]) -> Hints:
    """What may predict what, over the columns of several seats that lie side by side.

    An object's columns are like those of the first one that has the same metrics.
    """
    units: list[int] = []
    likes: list[int] = []
    firsts: dict[tuple[str, tuple[str, ...]], int] = {}
    unit = 0
    for filler in fillers:
        mono = len(units) + MONO
        unit += 1
        units += [unit] * HEAD
        likes += [-1] * WALL + [mono]
        for block in filler.hello.blocks:
            unit += 1
            units.append(unit)
            likes.append(mono)
            for item in block.objects:
                unit += 1
                start, width = len(units), len(item.metrics)
                first = firsts.setdefault((block.source, item.metrics), start)
                units += [unit] * width
                likes += [-1] * width if first == start else range(first, first + width)
    return Hints(np.array(units, np.intp), np.array(likes, np.intp))


_MASK = (1 << 64) - 1
_U64 = "L" if struct.calcsize("L") == 8 else "Q"
"""CPython turns an int into an unsigned long twice as fast as into an unsigned long long."""


def _is_u64(value: int | None) -> bool:
    return value is not None and 0 <= value <= _MASK
