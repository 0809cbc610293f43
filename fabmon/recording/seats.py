"""Where the values of a node's frames lie in a row of a recording."""

from __future__ import annotations

from array import array
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
        self._stop = start + seat.columns
        self._all_there = b"\1" * seat.blocks

    def fill(self, row: memoryview, there: bytearray, frame: Frame, absent: list[int]) -> bool:
        """Write values over what the row held, and which blocks are there; whether the frame fits.

        `row` is of words of 64 bits. `absent` gets the column of every value that is null, or no
        number of 64 bits (downstream takes them alike); the row keeps what it held there, which
        costs the least.
        """
        blocks = frame.blocks
        try:
            if tuple(map(len, blocks)) != self.seat.widths:  # type: ignore[arg-type]
                return False
            # The fastest way from lists of int to words; still the most of what a tick costs.
            words = array(WORD, (frame.seq, frame.mono_ns, frame.wall_ns))
            for block in blocks:
                words.fromlist(block)  # type: ignore[arg-type]
        except (TypeError, OverflowError):
            return self._fill_parts(row, there, frame, absent)
        row[self.start : self._stop] = words
        there[self.block : self.block + len(self._all_there)] = self._all_there
        return True

    def _fill_parts(
        self, row: memoryview, there: bytearray, frame: Frame, absent: list[int]
    ) -> bool:
        """The same of a frame that lacks blocks or values."""
        if not self._fits(frame):
            return False
        head = (frame.seq & _MASK, frame.mono_ns & _MASK, frame.wall_ns & _MASK)
        start = self.start + HEAD
        row[self.start : start] = array(WORD, head)
        there[self.block] = 1
        for number, block in enumerate(frame.blocks):
            stop = start + self.seat.widths[number]
            if block is not None:
                there[self.block + 1 + number] = 1
                for column, value in enumerate(block, start):
                    if value is not None and 0 <= value <= _MASK:
                        row[column] = value
                    else:
                        absent.append(column)
            start = stop
        return True

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
WORD = "L" if array("L").itemsize == 8 else "Q"
"""CPython turns an int into an unsigned long twice as fast as into an unsigned long long."""
