"""Which port a row of a minute's arrays is."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial

import msgspec
import numpy as np

from fabmon.fabric.snapshot import Floats
from fabmon.fabric.tick import NodeStatus, Tick
from fabmon.recording.format import minutes
from fabmon.recording.format.block import Block
from fabmon.recording.format.frames import FrameEntry
from fabmon.recording.format.minutes import Minute
from fabmon.recording.format.records import (
    EventsRecord,
    Note,
    RecordedState,
    SessionRecord,
    TopologyRecord,
    lost_statuses,
)
from fabmon.recording.reading.events import EventLog
from fabmon.recording.reading.frame_decoder import (
    SourceLayouts,
    last_reads,
    numbered_ticks,
    recently_heard,
)
from fabmon.recording.reading.frame_reader import FrameReader
from fabmon.recording.reading.spans import BlockCache, BlockSpan, SortedFrames, sort_frames


class PortRows:
    """The rows of ports, by id (`node/port`), as the topology records of a file tell them."""

    def __init__(self, frames: SortedFrames, contents: FrameReader) -> None:
        self._frames = frames
        self._contents = contents
        self._ends = [entry.offset for entry in frames.topologies]
        self._last: tuple[int, Mapping[str, int]] = (-1, {})

    def before(self, entry: FrameEntry) -> Mapping[str, int]:
        """Those that a minute's frame was written with; none where their record is lost.

        It is the record before it in the file, of the same session: another one has other rows.
        """
        place = bisect.bisect_left(self._ends, entry.offset) - 1
        if place < 0:
            return {}
        found = self._frames.topologies[place]
        if self._frames.session_of(found) != self._frames.session_of(entry):
            return {}
        if self._last[0] != found.offset:
            record = self._contents.json(found, TopologyRecord)
            ports = () if record is None else record.ports
            self._last = (found.offset, {f"{p.node}/{p.name}": p.row for p in ports})
        return self._last[1]


# What a recording holds, as it was when it was last looked at.


_LATEST = (1 << 63) - 1


class FileView:
    """The frames of a file, each where it is looked for.

    Reading raises Moved where a writer has put something else in the place of a frame meanwhile:
    then another view is to be taken. Times are as in Recording.
    """

    def __init__(
        self, contents: FrameReader, blocks: BlockCache, events: EventLog, layouts: SourceLayouts
    ) -> None:
        self._contents = contents
        self._blocks = blocks
        self._events = events
        self._layouts = layouts
        self.sessions: list[SessionRecord] = []
        self._frames = sort_frames(contents.entries)
        self._session_starts = [
            (entry.header.time_ns, number) for number, entry in enumerate(self._frames.sessions)
        ]

    def know_sessions(self) -> None:
        """Learn who was watched, run by run. Raises NotARecording or TooNew."""
        self.sessions = self._events.sessions(self._frames, self._blocks)

    @property
    def spans(self) -> list[BlockSpan]:
        """The runs of ticks there are, by session and time."""
        return self._frames.spans

    def numbered(self, from_ns: int, until_ns: int) -> Iterator[tuple[int, Tick]]:
        """Ticks, each with the number of its session."""
        events, spans = self.events(from_ns, until_ns), self._spans_in(from_ns, until_ns)
        return numbered_ticks(spans, self._blocks.of, events, from_ns, until_ns)

    def events(self, from_ns: int, until_ns: int) -> Iterator[tuple[int, EventsRecord]]:
        """What happened, with the number of its session."""
        for _, session, event in self._events.between(self._frames, from_ns, until_ns):
            yield session, event

    def runs(self, from_ns: int, until_ns: int) -> Iterator[tuple[int, int, list[Block]]]:
        """Times of the first and the last tick of each run of ticks, and its blocks."""
        for span in self._spans_in(from_ns, until_ns):
            blocks = self._blocks.of(span)
            if blocks:
                yield span.time_ns, span.until_ns, blocks

    def prime(self, at_ns: int) -> Tick | None:
        """The last tick before a time, with all that was known; see Recording.prime."""
        span = self._span_before(at_ns)
        if span is None:
            return None
        state = self.state(at_ns - 1)
        state.statuses |= self._left_behind(at_ns - 1)
        layouts = self._layouts.of(state.hellos)
        spans = (self._blocks.of(each) for each in self._spans_back(span))
        at, reads = last_reads(
            spans, at_ns, layouts, recently_heard(state.statuses.values(), at_ns)
        )
        if at is None:
            return None
        return msgspec.structs.replace(state.tick(*at), reads=tuple(reads.items()))

    def state(self, at_ns: int) -> RecordedState:
        """What all events up to and with a time amount to."""
        number = self._session_at(at_ns)
        return self._events.state(self._frames, number, self.sessions[number], at_ns)

    def session_before(self, at_ns: int) -> int:
        """The number of the session of the last tick before a time."""
        place = self._span_before(at_ns)
        return 0 if place is None else self.spans[place].session

    def opening(self) -> RecordedState | None:
        """What was known before its first tick; None where it began with nothing."""
        return self._events.opening(self._frames)

    def settled_state(self, settled_to: int) -> RecordedState:
        """What all events before a place in the file amount to."""
        number = len(self.sessions) - 1
        return self._events.state(self._frames, number, self.sessions[number], stop=settled_to)

    def unsettled(self, settled_to: int) -> list[Tick]:
        """The last session's ticks that are not, or not only, before a place, by time."""
        tail = [s for s in self.spans if any(e.offset >= settled_to for e in s.parts.values())]
        ticks = [each for each in map(self._blocks.ticks_of, tail) if each is not None]
        keys = {key for t in ticks for key in zip(t.time_ns.tolist(), t.seq.tolist(), strict=True)}
        for at, _, event in self._events.between(self._frames, 0, _LATEST):
            if at >= settled_to:
                keys.add((event.time_ns, event.seq))
        first_ns, last = min(keys, default=(_LATEST, 0))[0], len(self.sessions) - 1
        ours = (tick for session, tick in self.numbered(first_ns, _LATEST) if session == last)
        return [tick for tick in ours if (tick.time_ns, tick.seq) in keys]

    def watched(self) -> list[Collection[str]]:
        """The nodes of every session: those that were given, and those that were found."""
        found = self._events.found(self._frames)
        return [
            dict.fromkeys([*(host.name for host in session.hosts), *found.get(number, ())])
            for number, session in enumerate(self.sessions)
        ]

    def _left_behind(self, at_ns: int) -> dict[str, NodeStatus]:
        """States of the nodes that only sessions before the one of a time watched."""
        number = self._session_at(at_ns)
        if not number:
            return {}
        watched = self.watched()[: number + 1]
        return {
            status.node: status
            for session, before, now in zip(self.sessions[1:], watched, watched[1:], strict=False)
            for status in lost_statuses(before, now, session.started_ns)
            if status.node not in watched[-1]
        }

    def notes(self, from_ns: int, until_ns: int) -> list[Note]:
        """Bookmarks, and what was found at the time, by time."""
        found = [
            self._contents.json(entry, Note)
            for entry in self._frames.notes
            if from_ns <= entry.header.time_ns <= until_ns
        ]
        return sorted((note for note in found if note is not None), key=lambda note: note.time_ns)

    def minutes(self, from_ns: int, until_ns: int) -> Iterator[Minute]:
        """What was drawn, minute by minute."""
        ports = PortRows(self._frames, self._contents)
        for entry in self._frames.minutes:
            if entry.header.until_ns > from_ns and entry.header.time_ns <= until_ns:
                start_ns, rows = entry.header.time_ns, ports.before(entry)
                decode = partial(minutes.decode_minute, start_ns=start_ns, rows=rows)
                minute = self._contents.decoded(entry, decode)
                if minute is not None:
                    yield minute

    def topology(self, at_ns: int) -> TopologyRecord | None:
        """How the fabric was cabled at a time."""
        for entry in reversed(self._frames.topologies):
            if entry.header.time_ns <= at_ns:
                record = self._contents.json(entry, TopologyRecord)
                if record is not None:
                    return record
        return None

    def strip(self, from_ns: int, until_ns: int, bins: int) -> Floats:
        """[bins] utilisation of the busiest link in each; NaN where none is known."""
        strip = np.full(bins, np.nan, np.float32)
        width = max(1, (until_ns - from_ns) // bins)
        for span in self._spans_in(from_ns, until_ns):
            if span.until_ns - span.time_ns <= width and not np.isnan(span.peak_utilisation):
                _raise(strip, [(span.time_ns + span.until_ns) // 2], [span.peak_utilisation], from_ns, width)
                continue
            ticks = self._blocks.ticks_of(span)
            if ticks is not None:
                _raise(strip, ticks.time_ns, ticks.peak_utilisation, from_ns, width)
        return strip

    def times(self, from_ns: int, until_ns: int) -> Iterator[tuple[int, int]]:
        """Time and sequence number of every tick, without its counters."""
        for span in self._spans_in(from_ns, until_ns):
            ticks = self._blocks.ticks_of(span)
            if ticks is not None:
                pairs = dict.fromkeys(zip(ticks.time_ns.tolist(), ticks.seq.tolist(), strict=True))
                yield from (pair for pair in pairs if from_ns <= pair[0] <= until_ns)

    def ends(self, session: int) -> list[tuple[int, int]]:
        """Time and sequence number of the first and the last tick of a session; empty without."""
        spans = [span for span in self.spans if span.session == session]
        known = [self._blocks.ticks_of(span) for span in (*spans[:1], *spans[-1:])]
        pairs = [(t.time_ns[[0, -1]].tolist(), t.seq[[0, -1]].tolist()) for t in known if t]
        return [(times[at], seqs[at]) for times, seqs in pairs for at in (0, 1)]

    def _session_at(self, at_ns: int) -> int:
        """The number of the session that began last before a time, by the clock."""
        begun = [each for each in self._session_starts if each[0] <= at_ns]
        return max(begun)[1] if begun else 0

    def _spans_in(self, from_ns: int, until_ns: int) -> Iterator[BlockSpan]:
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

    def _spans_back(self, place: int) -> Iterator[BlockSpan]:
        """A span and those before it, as long as they are of its session."""
        session = self.spans[place].session
        while place >= 0 and self.spans[place].session == session:
            yield self.spans[place]
            place -= 1


def _raise(
    strip: Floats, times: Iterable[int], values: Iterable[float], from_ns: int, width: int
) -> None:
    at = (np.asarray(times, np.int64) - from_ns) // width
    known = (at >= 0) & (at < len(strip))
    np.fmax.at(strip, at[known], np.asarray(values, np.float32)[known])
