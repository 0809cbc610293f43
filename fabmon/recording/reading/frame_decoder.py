"""Decodes blocks: the frames of nodes, whole ticks, and the last two reads before a time."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.tick import LastReads, NodeState, NodeStatus, Tick
from fabmon.fabric.wire.messages import WORD, Frame, Hello, Values
from fabmon.recording.format.block import HEAD_COLUMNS, MONO, SEQ, WALL, Block, RowLayout
from fabmon.recording.format.records import EventsRecord
from fabmon.recording.reading.spans import BlockSpan

_SIGN_BIT = 1 << 63


def decode_frames(blocks: Sequence[Block], rows: Sequence[int]) -> tuple[tuple[str, Frame], ...]:
    """The frames of one tick with their nodes, from its rows of the blocks that hold it."""
    frames: list[tuple[str, Frame]] = []
    for block in blocks:
        if not block.layouts:
            continue
        for row in rows:
            if row >= len(block.present):
                continue
            present = block.present[row].tolist()
            values = array(WORD, block.values.row(row).tobytes())
            absent = sorted(block.absent[block.absent[:, 0] == row, 1].tolist())
            for layout, column, part in block.nodes():
                if present[part]:
                    frame = _frame(layout, values, absent, present, column, part)
                    frames.append((layout.node, frame))
    return tuple(frames)


def _frame(
    layout: RowLayout,
    values: array[int],
    absent: Sequence[int],
    present: list[bool],
    column: int,
    part: int,
) -> Frame:
    head = values[column : column + HEAD_COLUMNS]
    start = column + HEAD_COLUMNS
    blocks: list[Values | None] = []
    for width in layout.widths:
        part += 1
        stop = start + width
        block: Values = values[start:stop]
        first, last = bisect_left(absent, start), bisect_left(absent, stop)
        if first < last:
            block = list(block)
            for gap in absent[first:last]:
                block[gap - start] = None
        blocks.append(block if present[part] else None)
        start = stop
    return Frame(head[SEQ], _signed(head[WALL]), _signed(head[MONO]), blocks)


def _signed(value: int) -> int:
    return value - 2 * _SIGN_BIT if value >= _SIGN_BIT else value


def numbered_ticks(
    spans: Iterable[BlockSpan],
    blocks_of: Callable[[BlockSpan], Sequence[Block]],
    events: Iterable[tuple[int, EventsRecord]],
    from_ns: int,
    until_ns: int,
) -> Iterator[tuple[int, Tick]]:
    """Every tick between two times (inclusive), with the number of its session.

    `events` have the number of their session too. Spans and events are sorted by time and lie
    within the times.
    """
    waiting = iter(events)
    session, event = next(waiting, (0, None))
    for span in spans:
        blocks = blocks_of(span)
        if not blocks:
            continue
        for (time_ns, seq), rows in _rows_of_ticks(blocks[0]).items():
            if not from_ns <= time_ns <= until_ns:
                continue
            key = (time_ns, span.session, seq)
            while event is not None and (event.time_ns, session, event.seq) < key:
                yield session, event.tick()
                session, event = next(waiting, (0, None))
            own = EventsRecord(seq=seq, time_ns=time_ns)
            if event is not None and (session, event.seq) == (span.session, seq):
                own = event
                session, event = next(waiting, (0, None))
            yield span.session, own.tick(decode_frames(blocks, rows))
    while event is not None:
        yield session, event.tick()
        session, event = next(waiting, (0, None))


def _rows_of_ticks(block: Block) -> dict[tuple[int, int], list[int]]:
    """The rows of a block that hold each tick, by time and sequence number of the tick."""
    ticks = block.ticks
    rows: dict[tuple[int, int], list[int]] = {}
    for row, key in enumerate(zip(ticks.time_ns.tolist(), ticks.seq.tolist(), strict=True)):
        rows.setdefault(key, []).append(row)
    return rows


_MAX_SPANS, _MIN_TICKS = 3, 30
"""The search for a slow source's reads goes back so many blocks, and so many ticks at least."""

_MAX_PERIODS = 3.5
"""Nor does it go back further than so many of the source's periods: its rate would be stale."""

_SILENT = (NodeState.STALE, NodeState.LOST)
_SILENT_NS = 60 * 10**9
"""Nodes that are silent for longer are not searched for: every block costs as much again."""


class SourceLayout(NamedTuple):
    """Widths in columns, and times from read to read, of a node's blocks."""

    widths: tuple[int, ...]
    periods_ns: tuple[int, ...]

    @classmethod
    def of(cls, hello: Hello) -> SourceLayout:
        """The layout that a hello declares."""
        interval_ns = hello.interval_s * 1e9
        return cls(
            tuple(block.width() for block in hello.blocks),
            tuple(int(block.every * interval_ns) for block in hello.blocks),
        )


class SourceLayouts:
    """The layouts of hellos, cached: computing those of a thousand nodes takes 20 ms."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Hello, SourceLayout]] = {}

    def of(self, hellos: Mapping[str, Hello]) -> dict[str, SourceLayout]:
        """The layouts by node."""
        return {node: self._one(hello) for node, hello in hellos.items()}

    def _one(self, hello: Hello) -> SourceLayout:
        known = self._known.get(id(hello))
        if known is None or known[0] is not hello:
            known = self._known[id(hello)] = (hello, SourceLayout.of(hello))
        return known[1]


class _Node:
    """The reads of one node that were found so far.

    `counts` is how many of each block's two reads were found. `row` is the row of its last frame in
    the block of the recording where the first of them were found.
    """

    def __init__(self, layout: RowLayout, row: int, reads: LastReads, counts: list[int]) -> None:
        self.layout = layout
        self.row = row
        self.reads = reads
        self.counts = counts

    def lacks(self, periods_ns: Sequence[int], searched_ns: int) -> bool:
        """Whether an earlier block may hold missing reads, after a search over some time."""
        return any(
            count < 2 and searched_ns < _MAX_PERIODS * period_ns
            for count, period_ns in zip(self.counts, periods_ns, strict=True)
        )

    def add(self, earlier: _Node) -> None:
        """Fill in missing reads from an earlier block."""
        ours, theirs = self.reads, earlier.reads
        start = 0
        for number, width in enumerate(self.layout.widths):
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
    """The nodes that are up at a time or became silent shortly before, by their statuses then."""
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
    """The last tick before a time (sequence number, time; None without one), and by node the last
    two reads of each of its sources before that time.

    `spans` are the blocks of spans, the latest span first. `layouts` are those at that time; reads
    in other layouts are ignored. `heard` are the nodes to search for in earlier spans where they
    have become silent.
    """
    heard = heard & layouts.keys()
    last_tick: tuple[int, int] | None = None
    nodes: dict[str, _Node] = {}
    ticks = 0
    for count, blocks in enumerate(spans, 1):
        searched_ns = 0
        for block in blocks:
            rows = int(np.searchsorted(block.ticks.time_ns, before_ns))
            if not rows:
                continue
            if last_tick is None:
                last_tick = int(block.ticks.seq[rows - 1]), int(block.ticks.time_ns[rows - 1])
            for name, found in _reads_in_block(block, rows, layouts).items():
                if name not in nodes:
                    nodes[name] = found
                elif nodes[name].layout == found.layout:
                    nodes[name].add(found)
            searched_ns = before_ns - int(block.ticks.time_ns[0])
        ticks += max((len(block.ticks.seq) for block in blocks), default=0)
        if count >= _MAX_SPANS and ticks >= _MIN_TICKS:
            break
        if heard <= nodes.keys() and not any(
            node.lacks(layouts[name].periods_ns, searched_ns) for name, node in nodes.items()
        ):
            break
    return last_tick, {name: node.reads for name, node in nodes.items()}


def _reads_in_block(
    block: Block, rows: int, layouts: Mapping[str, SourceLayout]
) -> dict[str, _Node]:
    """The reads in a block before its row `rows`, by node."""
    present = block.present[:rows]
    last = _last_true(present)
    earlier = present.copy()
    read = np.flatnonzero(last >= 0)
    earlier[last[read], read] = False
    before = _last_true(earlier)
    widths = np.array([w for each in block.layouts for w in (HEAD_COLUMNS, *each.widths)], np.intp)
    now_values, now_known = _picked(block, np.repeat(last, widths))
    before_values, before_known = _picked(block, np.repeat(before, widths))
    arrived_ns = np.where(last >= 0, block.ticks.time_ns[last], 0)
    counts = ((last >= 0).astype(np.intp) + (before >= 0)).tolist()
    found: dict[str, _Node] = {}
    for layout, column, part in block.nodes():
        values = slice(column + HEAD_COLUMNS, column + layout.columns)
        parts = slice(part + 1, part + layout.blocks)
        row = int(last[part])
        wanted, other = layouts.get(layout.node), found.get(layout.node)
        if row < 0 or wanted is None or wanted.widths != layout.widths:
            continue
        if other is None or other.row < row:
            reads = LastReads(
                now_values[values],
                before_values[values],
                now_known[values],
                before_known[values],
                arrived_ns[parts],
            )
            found[layout.node] = _Node(layout, row, reads, counts[parts])
    return found


def _picked(block: Block, rows: NDArray[np.intp]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """The value of each column in its row of `rows`, -1 for none, and whether it is known."""
    known = rows >= 0
    row, column = block.absent.T
    known[column[rows[column] == row]] = False
    return block.values.picked(rows), known


def _last_true(present: NDArray[np.bool_]) -> NDArray[np.intp]:
    """[columns]: the last row that is true; -1 where none is."""
    rows = len(present)
    last = rows - 1 - present[::-1].argmax(axis=0)
    return np.where(present.any(axis=0), last, -1)
