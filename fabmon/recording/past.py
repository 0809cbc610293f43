"""The last two reads of everything before a time: what rates are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fabmon.fabric.messages import Frame
from fabmon.recording.block import Block
from fabmon.recording.seats import HEAD, SEQ, Seat

_MOST_SPANS = 3
"""How far back a slow source's reads are looked for, in blocks."""

_Blocks = list[list[int | None] | None]


class _Reads:
    """One node's last reads: of each source's part, up to two."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.head = (0, 0, 0)
        self.found: list[list[list[int | None]]] = [[] for _ in seat.widths]

    @property
    def complete(self) -> bool:
        return all(len(each) == 2 for each in self.found)

    def frame(self, which: int) -> Frame:
        """The last but one (0) or the last (1) read of every part."""
        blocks: _Blocks = []
        for each in self.found:
            newest_first = 1 - which
            blocks.append(each[newest_first] if len(each) > newest_first else None)
        seq, mono, wall = self.head
        return Frame(seq - (1 - which), wall, mono, blocks)


def last_reads(
    spans: Iterable[Sequence[Block]], before_ns: int
) -> tuple[tuple[int, int] | None, tuple[dict[str, Frame], dict[str, Frame]]]:
    """From the blocks of spans, the latest first: the last tick before a time (sequence number,
    time), and for every node the last read but one and the last, of each of its sources.
    """
    at: tuple[int, int] | None = None
    reads: dict[str, _Reads] = {}
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
    older = {node: each.frame(0) for node, each in reads.items()}
    newer = {node: each.frame(1) for node, each in reads.items()}
    return at, (older, newer)


def _collect(block: Block, rows: int, reads: dict[str, _Reads]) -> None:
    """Add what a block knows of reads before its row `rows`."""
    there = block.there[:rows]
    absent: dict[int, set[int]] = {}
    for row, column in block.absent.tolist():
        absent.setdefault(row, set()).add(column)
    cached: dict[int, list[int | None]] = {}

    def values(row: int) -> list[int | None]:
        if row not in cached:
            cached[row] = block.values[row].tolist()
            for column in absent.get(row, ()):
                cached[row][column] = None
        return cached[row]

    # [blocks]: the last row with a read, then the last before that.
    last = _last_true(there)
    masked = there.copy()
    known = last >= 0
    masked[last[known], np.flatnonzero(known)] = False
    last_but_one = _last_true(masked)
    column = number = 0
    for seat in block.seats:
        if last[number] >= 0:
            reads_of = reads.get(seat.node)
            if reads_of is None or (
                reads_of.seat != seat
                and last[number] >= 0
                and _newer(reads_of, block, int(last[number]), column)
            ):
                reads_of = reads[seat.node] = _Reads(seat)
                head = values(int(last[number]))[column : column + HEAD]
                reads_of.head = (head[0] or 0, head[1] or 0, head[2] or 0)
            if reads_of.seat == seat:
                at = column + HEAD
                for place, width in enumerate(seat.widths):
                    for row in (
                        int(last[number + 1 + place]),
                        int(last_but_one[number + 1 + place]),
                    ):
                        if row >= 0 and len(reads_of.found[place]) < 2:
                            reads_of.found[place].append(values(row)[at : at + width])
                    at += width
        column += seat.columns
        number += seat.blocks


def _newer(reads: _Reads, block: Block, row: int, column: int) -> bool:
    """Whether a seat of the same block was used after the one that was found first."""
    return int(block.values[row, column + SEQ]) > reads.head[0]


def _last_true(
    there: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """[columns] the last row that is true; -1 where none is."""
    rows = len(there)
    last = rows - 1 - there[::-1].argmax(axis=0)
    return np.where(there.any(axis=0), last, -1)
