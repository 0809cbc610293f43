"""Frames out of blocks: the reverse of what rows.py does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.tick import LastReads, NodeState, NodeStatus, Tick
from fabmon.fabric.wire.messages import Frame, Hello
from fabmon.recording.format.block import HEAD_COLUMNS, MONO, SEQ, WALL, Block, RowLayout
from fabmon.recording.format.records import EventsRecord
from fabmon.recording.reading.spans import BlockSpan

_SIGN = 1 << 63


def decode_frames(blocks: Sequence[Block], rows: Sequence[int]) -> tuple[tuple[str, Frame], ...]:
    """The frames of one tick: its rows of the blocks that hold it."""
    frames: list[tuple[str, Frame]] = []
    for block in blocks:
        if not block.layouts:
            continue
        for row in rows:
            if row >= len(block.present):
                continue
            there = block.present[row].tolist()
            values: list[int | None] = block.values.row(row).tolist()
            for column in block.absent[block.absent[:, 0] == row, 1].tolist():
                values[column] = None
            column = number = 0
            for seat in block.layouts:
                if there[number]:
                    frames.append((seat.node, _frame(seat, values, there, column, number)))
                column += seat.columns
                number += seat.blocks
    return tuple(frames)


def _frame(
    seat: RowLayout, values: list[int | None], there: list[bool], column: int, number: int
) -> Frame:
    head = values[column : column + HEAD_COLUMNS]
    at = column + HEAD_COLUMNS
    blocks: list[list[int | None] | None] = []
    for width in seat.widths:
        number += 1
        blocks.append(values[at : at + width] if there[number] else None)
        at += width
    return Frame(head[SEQ] or 0, _signed(head[WALL]), _signed(head[MONO]), blocks)


def _signed(value: int | None) -> int:
    value = value or 0
    return value - 2 * _SIGN if value >= _SIGN else value


# Ticks out of what a recording holds: the frames of its blocks, and what happened meanwhile.


def numbered_ticks(
    spans: Iterable[BlockSpan],
    blocks_of: Callable[[BlockSpan], Sequence[Block]],
    events: Iterable[tuple[int, EventsRecord]],
    from_ns: int,
    until_ns: int,
) -> Iterator[tuple[int, Tick]]:
    """Every tick from a time up to and with another, with the number of its session.

    `events` have that number too. Spans and events are by time, and within the times.
    """
    waiting = _Peekable(events)
    for span in spans:
        blocks = blocks_of(span)
        if not blocks:
            continue
        for (time_ns, seq), rows in _rows_of_ticks(blocks[0]).items():
            if not from_ns <= time_ns <= until_ns:
                continue
            while (event := waiting.peek()) and (event[1].time_ns, event[0], event[1].seq) < (
                time_ns, span.session, seq,
            ):  # fmt: skip
                yield event[0], _tick(next(waiting)[1], ())
            told = None
            if event and (event[0], event[1].seq) == (span.session, seq):
                told = next(waiting)[1]
            told = told or EventsRecord(seq=seq, time_ns=time_ns)
            yield span.session, _tick(told, decode_frames(blocks, rows))
    for session, event_ in waiting:
        yield session, _tick(event_, ())


def _rows_of_ticks(block: Block) -> dict[tuple[int, int], list[int]]:
    """By time and sequence number the rows of a block that hold a tick."""
    ticks = block.ticks
    rows: dict[tuple[int, int], list[int]] = {}
    for row, key in enumerate(zip(ticks.time_ns.tolist(), ticks.seq.tolist(), strict=True)):
        rows.setdefault(key, []).append(row)
    return rows


class _Peekable:
    """An iterator that can be looked into one ahead."""

    def __init__(self, items: Iterable[tuple[int, EventsRecord]]) -> None:
        self._items = iter(items)
        self._next = next(self._items, None)

    def peek(self) -> tuple[int, EventsRecord] | None:
        return self._next

    def __iter__(self) -> Iterator[tuple[int, EventsRecord]]:
        return self

    def __next__(self) -> tuple[int, EventsRecord]:
        if self._next is None:
            raise StopIteration
        now, self._next = self._next, next(self._items, None)
        return now


def _tick(event: EventsRecord, frames: tuple[tuple[str, Frame], ...]) -> Tick:
    return Tick(
        event.seq,
        event.time_ns,
        hellos=event.hellos,
        frames=frames,
        statuses=event.statuses,
        notices=event.notices,
        hosts=event.hosts,
    )


# The last two reads of everything before a time: what rates and their ages are made of.


_MOST_SPANS, _LEAST_TICKS = 3, 30
"""How far back a slow source's reads are looked for: so many blocks, of so many ticks at least."""

_HOPE = 3.5
"""Nor further than so many of its periods: its rate would be stale."""

_SILENT = (NodeState.STALE, NodeState.LOST)
_SILENT_NS = 60 * 10**9
"""Who is silent for longer is not looked for: every block further back takes as long again."""

Rows = NDArray[np.intp]


class SourceLayout(NamedTuple):
    """Of a node's blocks, the widths and the times from read to read."""

    widths: tuple[int, ...]
    periods_ns: tuple[int, ...]

    @classmethod
    def of(cls, hello: Hello) -> SourceLayout:
        """What a hello says of its blocks."""
        interval_ns = hello.interval_s * 1e9
        return cls(
            tuple(block.width() for block in hello.blocks),
            tuple(int(block.every * interval_ns) for block in hello.blocks),
        )


class SourceLayouts:
    """Those of hellos, remembered: working them out for a thousand takes 20 ms."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Hello, SourceLayout]] = {}

    def of(self, hellos: Mapping[str, Hello]) -> dict[str, SourceLayout]:
        """By node."""
        return {node: self._one(hello) for node, hello in hellos.items()}

    def _one(self, hello: Hello) -> SourceLayout:
        known = self._known.get(id(hello))
        if known is None or known[0] is not hello:
            known = self._known[id(hello)] = (hello, SourceLayout.of(hello))
        return known[1]


class _Node:
    """One node's reads, as far as they are found; `counts` is how many of each block.

    `row` is that of its last frame in the block that they were found in first.
    """

    def __init__(self, seat: RowLayout, row: int, reads: LastReads, counts: list[int]) -> None:
        self.seat = seat
        self.row = row
        self.reads = reads
        self.counts = counts

    def wants(self, periods_ns: Sequence[int], since_ns: int) -> bool:
        """Whether there may be more than what was found in the time that has been looked at."""
        return any(
            count < 2 and since_ns < _HOPE * period_ns
            for count, period_ns in zip(self.counts, periods_ns, strict=True)
        )

    def add(self, earlier: _Node) -> None:
        """Fill in what is not found yet from an earlier block."""
        ours, theirs = self.reads, earlier.reads
        start = 0
        for number, width in enumerate(self.seat.widths):
            part = slice(start, start + width)
            start += width
            count = self.counts[number]
            if count < 2 and earlier.counts[number]:
                ours.before[part] = theirs.before[part] if not count else theirs.now[part]
                ours.known_before[part] = (
                    theirs.known_before[part] if not count else theirs.known[part]
                )
                self.counts[number] = 2 if count else earlier.counts[number]
            if not count:
                ours.now[part], ours.known[part] = theirs.now[part], theirs.known[part]
                ours.arrived_ns[number] = theirs.arrived_ns[number]


def recently_heard(statuses: Iterable[NodeStatus], at_ns: int) -> set[str]:
    """The nodes that sent something not long before a time, by what was said of them then."""
    return {
        status.node
        for status in statuses
        if status.state is NodeState.UP
        or (status.state in _SILENT and at_ns - status.since_ns < _SILENT_NS)
    }


def last_reads(
    spans: Iterable[Sequence[Block]],
    before_ns: int,
    layouts: Mapping[str, SourceLayout],
    heard: AbstractSet[str],
) -> tuple[tuple[int, int] | None, dict[str, LastReads]]:
    """From the blocks of spans, the latest first: the last tick before a time (sequence number,
    time), and by node the last two reads of each of its sources before it.

    `layouts` are those of then; what nodes sent in others is left out. `heard` are the nodes that
    are looked for, further back than all others where they have fallen silent.
    """
    heard = heard & layouts.keys()
    at: tuple[int, int] | None = None
    nodes: dict[str, _Node] = {}
    ticks = 0
    for count, blocks in enumerate(spans, 1):
        since_ns = 0
        for block in blocks:
            rows = int(np.searchsorted(block.ticks.time_ns, before_ns))
            if not rows:
                continue
            if at is None:
                at = int(block.ticks.seq[rows - 1]), int(block.ticks.time_ns[rows - 1])
            for name, found in _of_block(block, rows, layouts).items():
                if name not in nodes:
                    nodes[name] = found
                elif nodes[name].seat == found.seat:
                    nodes[name].add(found)
            since_ns = before_ns - int(block.ticks.time_ns[0])
        ticks += max((len(block.ticks.seq) for block in blocks), default=0)
        if count >= _MOST_SPANS and ticks >= _LEAST_TICKS:
            break
        if heard <= nodes.keys() and not any(
            node.wants(layouts[name].periods_ns, since_ns) for name, node in nodes.items()
        ):
            break
    return at, {name: node.reads for name, node in nodes.items()}


def _of_block(block: Block, rows: int, layouts: Mapping[str, SourceLayout]) -> dict[str, _Node]:
    """What a block knows of reads before its row `rows`, by node."""
    there = block.present[:rows]
    last = _last_true(there)
    earlier = there.copy()
    read = np.flatnonzero(last >= 0)
    earlier[last[read], read] = False
    before = _last_true(earlier)
    widths = np.array(
        [width for seat in block.layouts for width in (HEAD_COLUMNS, *seat.widths)], np.intp
    )
    now_values, now_known = _picked(block, np.repeat(last, widths))
    before_values, before_known = _picked(block, np.repeat(before, widths))
    arrived_ns = np.where(last >= 0, block.ticks.time_ns[last], 0)
    counts = ((last >= 0).astype(np.intp) + (before >= 0)).tolist()
    found: dict[str, _Node] = {}
    column = number = 0
    for seat in block.layouts:
        values = slice(column + HEAD_COLUMNS, column + seat.columns)
        parts = slice(number + 1, number + seat.blocks)
        row = int(last[number])
        column, number = values.stop, parts.stop
        layout, other = layouts.get(seat.node), found.get(seat.node)
        if row < 0 or layout is None or layout.widths != seat.widths:
            continue
        if other is None or other.row < row:
            reads = LastReads(
                now_values[values],
                before_values[values],
                now_known[values],
                before_known[values],
                arrived_ns[parts],
            )
            found[seat.node] = _Node(seat, row, reads, counts[parts])
    return found


def _picked(block: Block, rows: Rows) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """[columns]: of every column the value in its own row, -1 for none, and whether it is known."""
    known = rows >= 0
    row, column = block.absent.T
    known[column[rows[column] == row]] = False
    return block.values.picked(rows), known


def _last_true(there: NDArray[np.bool_]) -> Rows:
    """[columns] the last row that is true; -1 where none is."""
    rows = len(there)
    last = rows - 1 - there[::-1].argmax(axis=0)
    return np.where(there.any(axis=0), last, -1)
