"""Reads a recording, whole or still growing, sound or damaged."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from fabmon.fabric.messages import Frame, Hello
from fabmon.fabric.model import Host
from fabmon.fabric.moment import Floats
from fabmon.fabric.tick import NodeStatus, Tick
from fabmon.recording import block, minutes
from fabmon.recording.block import Block
from fabmon.recording.blocks import Blocks
from fabmon.recording.collection import without_collection
from fabmon.recording.contents import Contents
from fabmon.recording.errors import Damaged, Moved, NotARecording, TooNew
from fabmon.recording.events import Events
from fabmon.recording.frames import Kind
from fabmon.recording.index import Entry
from fabmon.recording.minutes import MINUTE_NS, Minute
from fabmon.recording.past import Reads, last_reads
from fabmon.recording.portrows import PortRows
from fabmon.recording.records import EventsRecord, Note, SessionRecord, TopologyRecord
from fabmon.recording.scan import Loss, Told, nobody
from fabmon.recording.spans import Span, arrange
from fabmon.recording.state import State, left_behind
from fabmon.recording.taken import frames_of

_LATEST = (1 << 63) - 1

T = TypeVar("T")


class Recording:
    """One file, as what came out of the feed and what was made of it at the time.

    `told` hears how far it is while the file is opened, in bytes. While it grows, what is read may
    have been written anew since it was opened: the file is then looked at again, as by `refresh`.
    Raises NotARecording, TooNew, or OSError. Times are the recorder's wall clock, in ns, UTC.
    """

    def __init__(self, path: Path, told: Told = nobody) -> None:
        self.path = path
        self._contents = Contents(path, told)
        self._blocks = Blocks(self._contents)
        self._events = Events(self._contents)
        self._widths: dict[int, tuple[Hello, tuple[int, ...]]] = {}
        self._hosts: list[Host] | None = None
        self.sessions: list[SessionRecord] = []
        try:
            self._fresh(self._arrange)
        except BaseException:
            self._contents.close()
            raise

    def close(self) -> None:
        """Let the file go."""
        self._blocks.close()
        self._contents.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size(self) -> int:
        """Bytes, when it was last looked at."""
        return self._contents.size

    @property
    def spans(self) -> list[Span]:
        """The runs of ticks there are, by session and time."""
        return self._frames.spans

    @property
    def start_ns(self) -> int:
        """Time of the first tick; 0 when there is none."""
        return self.spans[0].time_ns if self.spans else 0

    @property
    def until_ns(self) -> int:
        """Time of the last tick; 0 when there is none."""
        return max((span.until_ns for span in self.spans), default=0)

    @property
    def hosts(self) -> list[Host]:
        """Every node that any session watched, from its start or since it was found."""
        if self._hosts is None:
            found = {host.name: host for session in self.sessions for host in session.hosts}
            state = self.state(self.until_ns)
            found |= state.hosts
            for node in state.hellos:
                found.setdefault(node, Host(name=node))
            self._hosts = list(found.values())
        return self._hosts

    @property
    def interval_s(self) -> float:
        """From one tick to the next, in the last session."""
        return self.sessions[-1].interval_s

    @property
    def losses(self) -> list[Loss]:
        """What could not be read so far; while it grows, its end may be a frame to be."""
        return self._contents.losses

    def refresh(self) -> bool:
        """Take in what was written since; whether there was anything."""
        before = self.size, self.until_ns
        settled_to = self._contents.settled_to
        if not self._contents.refresh():
            return False
        self._blocks.forget(settled_to)
        self._events.forget(settled_to)
        self._arrange()
        return before != (self.size, self.until_ns)

    def ticks(self, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[Tick]:
        """Every tick from a time up to and with another, as it came out of the feed.

        A tick of which a part is lost comes with what is left of it.
        """
        for _, tick in self.numbered(from_ns, until_ns):
            yield tick

    def numbered(self, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[tuple[int, Tick]]:
        """The same, each with the number of its session."""
        return self._going_on(
            lambda since_ns: self._numbered(since_ns, until_ns), from_ns, lambda x: x[1].time_ns
        )

    def _numbered(self, from_ns: int, until_ns: int) -> Iterator[tuple[int, Tick]]:
        found = self._events.between(self._frames, from_ns, until_ns)
        events = _Peekable((session, event) for _, session, event in found)
        for span in self._spans_in(from_ns, until_ns):
            blocks = self._blocks.of(span)
            if not blocks:
                continue
            ticks = blocks[0].ticks
            rows: dict[tuple[int, int], list[int]] = {}
            for row, key in enumerate(zip(ticks.time_ns.tolist(), ticks.seq.tolist(), strict=True)):
                rows.setdefault(key, []).append(row)
            for (time_ns, seq), at in rows.items():
                if not from_ns <= time_ns <= until_ns:
                    continue
                while (event := events.peek()) and (event[1].time_ns, event[0], event[1].seq) < (
                    time_ns, span.session, seq,
                ):  # fmt: skip
                    yield event[0], _tick(next(events)[1], ())
                told = None
                if event and (event[0], event[1].seq) == (span.session, seq):
                    told = next(events)[1]
                told = told or EventsRecord(seq=seq, time_ns=time_ns)
                yield span.session, _tick(told, frames_of(blocks, at))
        for session, event_ in events:
            yield session, _tick(event_, ())

    def blocks(
        self, from_ns: int = 0, until_ns: int = _LATEST
    ) -> Iterator[tuple[int, int, list[Block]]]:
        """Runs of ticks as they are kept, the first and the last perhaps longer than asked for:
        times of the first and the last tick, and the blocks of all nodes.
        """
        first_ns = from_ns
        for start_ns, end_ns, blocks in self._going_on(
            lambda since_ns: self._runs(since_ns, until_ns), from_ns, lambda run: run[1]
        ):
            # A run that was written anew meanwhile begins with ticks that were given before.
            again = start_ns < first_ns and first_ns > from_ns
            yield start_ns, end_ns, [b.since(first_ns) for b in blocks] if again else blocks
            first_ns = end_ns + 1

    def _runs(self, from_ns: int, until_ns: int) -> Iterator[tuple[int, int, list[Block]]]:
        for span in self._spans_in(from_ns, until_ns):
            blocks = self._blocks.of(span)
            if blocks:
                yield span.time_ns, span.until_ns, blocks

    def events(self, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[EventsRecord]:
        """What happened from a time up to and with another."""
        found = self._going_on(
            lambda since_ns: self._events.between(self._frames, since_ns, until_ns),
            from_ns,
            lambda each: each[2].time_ns,
        )
        return (event for _, _, event in found)

    def prime(self, at_ns: int) -> list[Tick]:
        """What brings a history to where it was before the first tick at or after a time.

        Two ticks: all states, and of every source's part of every node the last two reads.
        """
        with without_collection():
            return self._fresh(lambda: self._prime(at_ns))

    def warm(self) -> None:
        """Read what every seek needs, so that the first one takes no longer than others."""
        self.state(self.until_ns)

    def _prime(self, at_ns: int) -> list[Tick]:
        span = self._span_before(at_ns)
        if span is None:
            return []
        state = self._state(at_ns - 1)
        state.statuses |= self._left_behind(at_ns - 1)
        at, reads = last_reads((self._blocks.of(each) for each in self._spans_back(span)), at_ns)
        if at is None:
            return []
        seq, time_ns = at
        first = state.tick(seq - 1, time_ns - round(state.session.interval_s * 1e9))
        widths = {node: self._widths_of(hello) for node, hello in state.hellos.items()}
        older, newer = (
            tuple((node, reads[node].frame(which)) for node in reads if _fits(reads[node], widths))
            for which in (0, 1)
        )
        return [msgspec.structs.replace(first, frames=older), Tick(seq, time_ns, frames=newer)]

    def state(self, at_ns: int) -> State:
        """What all events up to and with a time amount to."""
        return self._fresh(lambda: self._state(at_ns))

    def _state(self, at_ns: int) -> State:
        number = self._session_at(at_ns)
        return self._events.state(self._frames, number, self.sessions[number], at_ns)

    def _left_behind(self, at_ns: int) -> dict[str, NodeStatus]:
        """States of the nodes that only sessions before the one of a time watched."""
        sessions = self.sessions[: self._session_at(at_ns) + 1]
        watched = {host.name for host in sessions[-1].hosts}
        return {
            status.node: status
            for before, now in pairwise(sessions)
            for status in left_behind(before, now, now.started_ns)
            if status.node not in watched
        }

    def notes(self, from_ns: int = 0, until_ns: int = _LATEST) -> list[Note]:
        """Bookmarks, and what was found at the time, by time."""
        return self._fresh(lambda: self._notes(from_ns, until_ns))

    def _notes(self, from_ns: int, until_ns: int) -> list[Note]:
        found = [
            self._contents.json(entry, Note)
            for entry in self._frames.notes
            if from_ns <= entry.header.time_ns <= until_ns
        ]
        return sorted((note for note in found if note is not None), key=lambda note: note.time_ns)

    def minutes(self, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[Minute]:
        """What was drawn, minute by minute."""
        return self._going_on(
            lambda since_ns: self._minutes(since_ns, until_ns),
            from_ns,
            lambda each: each.start_ns + MINUTE_NS - 1,
        )

    def _minutes(self, from_ns: int, until_ns: int) -> Iterator[Minute]:
        ports = PortRows(self._frames, self._contents)
        for entry in self._frames.minutes:
            if entry.header.until_ns > from_ns and entry.header.time_ns <= until_ns:
                start_ns, rows = entry.header.time_ns, ports.before(entry)
                decode = partial(minutes.decode, start_ns=start_ns, rows=rows)
                minute = self._contents.decoded(entry, decode)
                if minute is not None:
                    yield minute

    def topology(self, at_ns: int = _LATEST) -> TopologyRecord | None:
        """How the fabric was cabled at a time."""
        return self._fresh(lambda: self._topology(at_ns))

    def _topology(self, at_ns: int) -> TopologyRecord | None:
        for entry in reversed(self._frames.topologies):
            if entry.header.time_ns <= at_ns:
                record = self._contents.json(entry, TopologyRecord)
                if record is not None:
                    return record
        return None

    def strip(self, from_ns: int, until_ns: int, bins: int) -> Floats:
        """[bins] utilisation of the busiest link of the fabric in each; NaN where none is known."""
        return self._fresh(lambda: self._strip(from_ns, until_ns, bins))

    def _strip(self, from_ns: int, until_ns: int, bins: int) -> Floats:
        strip = np.full(bins, np.nan, np.float32)
        width = max(1, (until_ns - from_ns) // bins)
        for span in self._spans_in(from_ns, until_ns):
            if span.until_ns - span.time_ns <= width and not np.isnan(span.worst):
                _raise(strip, [(span.time_ns + span.until_ns) // 2], [span.worst], from_ns, width)
                continue
            ticks = self._blocks.ticks_of(span)
            if ticks is not None:
                _raise(strip, ticks.time_ns, ticks.worst, from_ns, width)
        return strip

    def times(self, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[tuple[int, int]]:
        """Time and sequence number of every tick, without its counters."""
        return self._going_on(
            lambda since_ns: self._times(since_ns, until_ns), from_ns, lambda each: each[0]
        )

    def _times(self, from_ns: int, until_ns: int) -> Iterator[tuple[int, int]]:
        for span in self._spans_in(from_ns, until_ns):
            ticks = self._blocks.ticks_of(span)
            if ticks is not None:
                pairs = dict.fromkeys(zip(ticks.time_ns.tolist(), ticks.seq.tolist(), strict=True))
                yield from (pair for pair in pairs if from_ns <= pair[0] <= until_ns)

    def verify(self) -> Iterator[int]:
        """Read all of it; the bytes done so far. What is found damaged is added to `losses`."""
        at = 0
        while True:
            try:
                for entry in [each for each in self.entries() if each.at >= at]:
                    self._verify(entry)
                    yield entry.end
                return
            except Moved:
                at = self.settled_to
                self.refresh()

    def _verify(self, entry: Entry) -> None:
        try:
            payload = self.payload(entry)
            if entry.header.kind == Kind.BLOCK:
                block.decode(payload)
        except Damaged as error:
            self._contents.lose(entry, error)

    def entries(self) -> list[Entry]:
        """Every frame there is, in the file's order."""
        return self._contents.entries

    def payload(self, entry: Entry) -> bytes:
        """A frame's payload. Raises Damaged."""
        return self._contents.file.payload(entry)

    @property
    def settled_to(self) -> int:
        """Where the part ends that will not change any more."""
        return self._contents.settled_to

    @property
    def is_closed(self) -> bool:
        """Whether its writer came to its end."""
        kinds = [entry.header.kind for entry in self._contents.settled[-2:]]
        return not self._contents.provisional and Kind.END in kinds

    def _fresh(self, read: Callable[[], T]) -> T:
        """What is read of the file as it is now."""
        while True:
            try:
                return read()
            except Moved:
                self.refresh()

    def _going_on(
        self, read: Callable[[int], Iterator[T]], from_ns: int, time_of: Callable[[T], int]
    ) -> Iterator[T]:
        """What is read from a time on; where the file was looked at again meanwhile, from behind
        what came last.
        """
        while True:
            frames = self._frames
            try:
                for item in read(from_ns):
                    yield item
                    from_ns = time_of(item) + 1
                    if self._frames is not frames:
                        break
                else:
                    return
            except Moved:
                self.refresh()

    def _arrange(self) -> None:
        """Put every frame where it is looked for."""
        self._frames = arrange(self._contents.entries)
        self._hosts = None
        self._session_starts = [
            (entry.header.time_ns, number) for number, entry in enumerate(self._frames.sessions)
        ]
        try:
            self.sessions = self._events.sessions(self._frames, self._blocks)
        except (NotARecording, TooNew) as error:
            raise type(error)(f"{self.path}: {error}") from None

    def _session_at(self, at_ns: int) -> int:
        """The number of the session that began last before a time, by the clock."""
        begun = [each for each in self._session_starts if each[0] <= at_ns]
        return max(begun)[1] if begun else 0

    def _spans_in(self, from_ns: int, until_ns: int) -> Iterator[Span]:
        first = int(np.searchsorted(self._frames.span_ends, from_ns))
        for span in self.spans[first:]:
            if span.time_ns > until_ns:
                break
            if span.until_ns >= from_ns:
                yield span

    def _span_before(self, at_ns: int) -> int | None:
        """The last span that has a tick before a time."""
        starts = [span.time_ns for span in self.spans]
        place = bisect.bisect_left(starts, at_ns) - 1
        return place if place >= 0 else None

    def _spans_back(self, place: int) -> Iterator[Span]:
        """A span and those before it, as long as they are of its session."""
        session = self.spans[place].session
        while place >= 0 and self.spans[place].session == session:
            yield self.spans[place]
            place -= 1

    def _widths_of(self, hello: Hello) -> tuple[int, ...]:
        """The widths of a hello's blocks; counting them for a thousand hellos takes 20 ms."""
        known = self._widths.get(id(hello))
        if known is None or known[0] is not hello:
            known = self._widths[id(hello)] = (hello, tuple(b.width() for b in hello.blocks))
        return known[1]


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


def _fits(reads: Reads, widths: Mapping[str, tuple[int, ...]]) -> bool:
    return widths.get(reads.seat.node) == reads.seat.widths


def _raise(
    strip: Floats, times: Iterable[int], values: Iterable[float], from_ns: int, width: int
) -> None:
    at = (np.asarray(times, np.int64) - from_ns) // width
    known = (at >= 0) & (at < len(strip))
    np.fmax.at(strip, at[known], np.asarray(values, np.float32)[known])
