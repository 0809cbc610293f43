"""Ticks out of what a recording holds: the frames of its blocks, and what happened meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from fabmon.fabric.messages import Frame
from fabmon.fabric.tick import Tick
from fabmon.recording.block import Block
from fabmon.recording.records import EventsRecord
from fabmon.recording.spans import Span
from fabmon.recording.taken import frames_of


def numbered_ticks(
    spans: Iterable[Span],
    blocks_of: Callable[[Span], Sequence[Block]],
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
            yield span.session, _tick(told, frames_of(blocks, rows))
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
