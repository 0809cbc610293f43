"""Frames out of blocks: the reverse of what rows.py does."""

from __future__ import annotations

from collections.abc import Sequence

from fabmon.fabric.messages import Frame
from fabmon.recording.block import Block
from fabmon.recording.seats import HEAD, MONO, SEQ, WALL, Seat

_SIGN = 1 << 63


def frames_of(blocks: Sequence[Block], rows: Sequence[int]) -> tuple[tuple[str, Frame], ...]:
    """The frames of one tick: its rows of the blocks that hold it."""
    frames: list[tuple[str, Frame]] = []
    for block in blocks:
        if not block.seats:
            continue
        for row in rows:
            if row >= len(block.there):
                continue
            there = block.there[row].tolist()
            values: list[int | None] = block.values.row(row).tolist()
            for column in block.absent[block.absent[:, 0] == row, 1].tolist():
                values[column] = None
            column = number = 0
            for seat in block.seats:
                if there[number]:
                    frames.append((seat.node, _frame(seat, values, there, column, number)))
                column += seat.columns
                number += seat.blocks
    return tuple(frames)


def _frame(
    seat: Seat, values: list[int | None], there: list[bool], column: int, number: int
) -> Frame:
    head = values[column : column + HEAD]
    at = column + HEAD
    blocks: list[list[int | None] | None] = []
    for width in seat.widths:
        number += 1
        blocks.append(values[at : at + width] if there[number] else None)
        at += width
    return Frame(head[SEQ] or 0, _signed(head[WALL]), _signed(head[MONO]), blocks)


def _signed(value: int | None) -> int:
    value = value or 0
    return value - 2 * _SIGN if value >= _SIGN else value
