"""The last two reads of everything before a time: what rates are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fabmon.fabric.messages import Frame
from fabmon.recording.block import Block
from fabmon.recording.seats import HEAD, SEQ, Seat

_MOST_SPANS = 3
"""How far back a slow source's reads are looked for, in blocks."""


class Reads:
    """One node's last reads: of each source's part, up to two, the latest first."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.head = (0, 0, 0)
        self.found: list[list[list[int | None]]] = [[] for _ in seat.widths]

    @property
    def complete(self) -> bool:
        """Whether there are two of each."""
        return all(len(each) == 2 for each in self.found)

    def frame(self, which: int) -> Frame:
        """The last but one (0) or the last (1) read of every part."""
        blocks: list[list[int | None] | None] = []
        for each in self.found:
            newest_first = 1 - which
            blocks.append(each[newest_first] if len(each) > newest_first else None)
        seq, mono, wall = self.head
        return Frame(seq - (1 - which), wall, mono, blocks)


def last_reads(
    spans: Iterable[Sequence[Block]], before_ns: int
) -> tuple[tuple[int, int] | None, dict[str, Reads]]:
    """From the blocks of spans, the latest first: the last tick before a time (sequence number,
    time), and by node the last two reads of each of its sources before it.
    """
    at: tuple[int, int] | None = None
    reads: dict[str, Reads] = {}
    for count, blocks in enumerate(spans):
        for block in blocks:
            rows = int(np.searchsorted(block.ticks.time_ns, before_ns))
            if not rows:
                continue
            if at is None:
                at = int(block.ticks.seq[rows - 1]), int(block.ticks.time_ns[rows - 1])
            _collect(block, rows, reads)
        if count + 1 >= _MOST_SPANS or (reads and all(each.complete for each in reads.values())):
            break
    return at, reads


def _collect(block: Block, rows: int, reads: dict[str, Reads]) -> None:
    """Add what a block knows of reads before its row `rows`."""
    there = block.there[:rows]
    last = _last_true(there)
    masked = there.copy()
    known = np.flatnonzero(last >= 0)
    masked[last[known], known] = False
    latest = [_Lines(block, last.tolist()), _Lines(block, _last_true(masked).tolist())]
    column = number = 0
    for seat in block.seats:
        row = latest[0].rows[number]
        if row >= 0:
            ours = reads.get(seat.node)
            if ours is None or (ours.seat != seat and _newer(ours, block, row, column)):
                ours = reads[seat.node] = Reads(seat)
                seq, mono, wall = latest[0].values(number, column, HEAD)
                ours.head = (seq or 0, mono or 0, wall or 0)
            if ours.seat == seat:
                at = column + HEAD
                for place, width in enumerate(seat.widths):
                    for lines in latest:
                        if lines.rows[number + 1 + place] >= 0 and len(ours.found[place]) < 2:
                            ours.found[place].append(lines.values(number + 1 + place, at, width))
                    at += width
        column += seat.columns
        number += seat.blocks


class _Lines:
    """Rows of a block as lists, each made once; `rows` is the one that is wanted of every part."""

    def __init__(self, block: Block, rows: list[int]) -> None:
        self.rows = rows
        self._block = block
        self._made: dict[int, list[int | None]] = {}

    def values(self, number: int, column: int, width: int) -> list[int | None]:
        """Of part `number`, from a column on."""
        row = self.rows[number]
        if row not in self._made:
            made: list[int | None] = self._block.values.row(row).tolist()
            absent = self._block.absent
            for place in absent[absent[:, 0] == row, 1].tolist():
                made[place] = None
            self._made[row] = made
        return self._made[row][column : column + width]


def _newer(reads: Reads, block: Block, row: int, column: int) -> bool:
    """Whether a seat of the same block was used after the one that was found first."""
    return int(block.values.row(row)[column + SEQ]) > reads.head[0]


def _last_true(
    there: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """[columns] the last row that is true; -1 where none is."""
    rows = len(there)
    last = rows - 1 - there[::-1].argmax(axis=0)
    return np.where(there.any(axis=0), last, -1)
