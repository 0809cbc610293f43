"""The content of a file as it was when it was last looked at."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial

import msgspec
import numpy as np

from fabmon.fabric.snapshot import Floats
from fabmon.fabric.tick import NodeStatus, Tick
from fabmon.fabric.time_wording import LATEST_NS
from fabmon.recording.format.block import Block
from fabmon.recording.format.frames import FrameEntry, FrameKind
from fabmon.recording.format.minutes import Minute, decode_minute
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
from fabmon.recording.reading.spans import BlockCache, BlockSpan, sort_frames


class FileView:
    """Reads ticks, states, notes and minutes from the frames of a file; used by Recording.

    Reading raises Moved where the writer has put something else in the place of a frame since; a
    new view is needed then. Times are as in Recording.
    """

    def __init__(
        self, reader: FrameReader, blocks: BlockCache, events: EventLog, layouts: SourceLayouts
    ) -> None:
        self._reader = reader
        self._blocks = blocks
        self._events = events
        self._layouts = layouts
        self.sessions: list[SessionRecord] = []
        self._frames = sort_frames(reader.entries)
        self._port_rows: tuple[int, Mapping[str, int]] = (-1, {})

    def read_sessions(self) -> None:
        """Fill in `sessions`. Raises NotARecording or TooNew."""
        self.sessions = self._events.sessions(self._frames, self._blocks)

    @property
    def spans(self) -> list[BlockSpan]:
        """The runs of ticks, by time and session."""
        return self._frames.spans

    @property
    def until_ns(self) -> int:
        """Time of the last tick; 0 without ticks."""
        ends = self._frames.span_ends
        return int(ends[-1]) if len(ends) else 0

    @property
    def range_ns(self) -> tuple[int, int]:
        """The first and the last time of a tick or an event; (0, 0) where there is none."""
        events = self._frames.events
        first_ns = [s.time_ns for s in self.spans[:1]] + [e.header.time_ns for _, e in events[:1]]
        last_ns = [self.until_ns] + [e.header.time_ns for _, e in events[-1:]]
        return min(first_ns, default=0), max(last_ns)

    def numbered(self, from_ns: int, until_ns: int) -> Iterator[tuple[int, Tick]]:
        """Ticks with the number of their session."""
        events, spans = self.events(from_ns, until_ns), self._spans_in(from_ns, until_ns)
        return numbered_ticks(spans, self._blocks.of, events, from_ns, until_ns)

    def events(self, from_ns: int, until_ns: int) -> Iterator[tuple[int, EventsRecord]]:
        """Events with the number of their session."""
        for _, session, event in self._events.between(self._frames, from_ns, until_ns):
            yield session, event

    def blocks(self, from_ns: int, until_ns: int) -> Iterator[tuple[int, int, list[Block]]]:
        """Times of the first and the last tick of each span, and its blocks."""
        for span in self._spans_in(from_ns, until_ns):
            blocks = self._blocks.of(span)
            if blocks:
                yield span.time_ns, span.until_ns, blocks

    def prime(self, at_ns: int) -> Tick | None:
        """The last tick before a time with all states and the last two reads."""
        place = self._span_before(at_ns)
        if place is None:
            return None
        state = self.state(at_ns - 1)
        state.statuses |= self._lost_statuses(at_ns - 1)
        layouts = self._layouts.of(state.hellos)
        spans = (self._blocks.of(each) for each in self._spans_back(place))
        heard = recently_heard(state.statuses.values(), at_ns)
        last_tick, reads = last_reads(spans, at_ns, layouts, heard)
        if last_tick is None:
            return None
        return msgspec.structs.replace(state.tick(*last_tick), reads=tuple(reads.items()))

    def state(self, at_ns: int) -> RecordedState:
        """The state after all events up to and including a time."""
        number = self._session_at(at_ns)
        return self._events.state(self._frames, number, self.sessions[number], at_ns)

    def session_before(self, at_ns: int) -> int:
        """The number of the session of the last tick before a time."""
        place = self._span_before(at_ns)
        return 0 if place is None else self.spans[place].session

    def opening(self) -> RecordedState | None:
        """The state before the first tick, in a file that continues another one; else None."""
        return self._events.opening(self._frames)

    def settled_state(self) -> RecordedState:
        """The state after all events of the settled part of the file."""
        number, stop = len(self.sessions) - 1, self._reader.settled_to
        return self._events.state(self._frames, number, self.sessions[number], stop=stop)

    def unsettled(self) -> list[Tick]:
        """The ticks of the last session that are not only in the settled part, by time."""
        settled_to = self._reader.settled_to
        tail = [s for s in self.spans if any(e.offset >= settled_to for e in s.parts.values())]
        ticks = [each for each in map(self._blocks.ticks_of, tail) if each is not None]
        keys = {key for t in ticks for key in zip(t.time_ns.tolist(), t.seq.tolist(), strict=True)}
        for offset, _, event in self._events.between(self._frames, 0, LATEST_NS):
            if offset >= settled_to:
                keys.add((event.time_ns, event.seq))
        first_ns, last = min(keys, default=(LATEST_NS, 0))[0], len(self.sessions) - 1
        ours = (tick for session, tick in self.numbered(first_ns, LATEST_NS) if session == last)
        return [tick for tick in ours if (tick.time_ns, tick.seq) in keys]

    def watched(self) -> list[Collection[str]]:
        """The nodes of every session: those that were configured and those that were found."""
        found = self._events.found_hosts(self._frames)
        return [
            dict.fromkeys([*(host.name for host in session.hosts), *found.get(number, ())])
            for number, session in enumerate(self.sessions)
        ]

    def _lost_statuses(self, at_ns: int) -> dict[str, NodeStatus]:
        """Statuses of the nodes that only sessions before the session of a time watched."""
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
        """Bookmarks and changes of findings, by time."""
        notes = [
            self._reader.kept_json(entry, Note)
            for entry in self._frames.of(FrameKind.NOTE)
            if from_ns <= entry.header.time_ns <= until_ns
        ]
        return sorted((note for note in notes if note is not None), key=lambda note: note.time_ns)

    def minutes(self, from_ns: int, until_ns: int) -> Iterator[Minute]:
        """The minutes that overlap a range of time."""
        for entry in self._frames.of(FrameKind.MINUTE):
            if entry.header.until_ns > from_ns and entry.header.time_ns <= until_ns:
                start_ns, rows = entry.header.time_ns, self._rows_by_port(entry)
                decode = partial(decode_minute, start_ns=start_ns, rows=rows)
                minute = self._reader.decoded(entry, decode)
                if minute is not None:
                    yield minute

    def _rows_by_port(self, entry: FrameEntry) -> Mapping[str, int]:
        """The ports' rows by id (`node/port`) in a minute; empty where their record is lost.

        They are in the topology record before it in the file, of the same session: ports of another
        session have other rows.
        """
        topologies = self._frames.of(FrameKind.TOPOLOGY)
        place = bisect.bisect_left(topologies, entry.offset, key=lambda each: each.offset) - 1
        if place < 0:
            return {}
        before = topologies[place]
        if self._frames.session_of(before) != self._frames.session_of(entry):
            return {}
        if self._port_rows[0] != before.offset:
            record = self._reader.json(before, TopologyRecord)
            ports = () if record is None else record.ports
            self._port_rows = (before.offset, {f"{p.node}/{p.name}": p.row for p in ports})
        return self._port_rows[1]

    def topology(self, at_ns: int) -> TopologyRecord | None:
        """The cabling of the fabric at a time."""
        for entry in reversed(self._frames.of(FrameKind.TOPOLOGY)):
            if entry.header.time_ns <= at_ns:
                record = self._reader.json(entry, TopologyRecord)
                if record is not None:
                    return record
        return None

    def strip(self, from_ns: int, until_ns: int, bins: int) -> Floats:
        """[bins]: the utilisation of the busiest link in each of equal bins of time; NaN if
        unknown."""
        strip = np.full(bins, np.nan, np.float32)
        width_ns = max(1, (until_ns - from_ns) // bins)

        def raise_to(times_ns: Iterable[int], values: Iterable[float]) -> None:
            at = (np.asarray(times_ns, np.int64) - from_ns) // width_ns
            inside = (at >= 0) & (at < bins)
            np.fmax.at(strip, at[inside], np.asarray(values, np.float32)[inside])

        for span in self._spans_in(from_ns, until_ns):
            peak = span.peak_utilisation
            if span.until_ns - span.time_ns <= width_ns and not np.isnan(peak):
                raise_to([(span.time_ns + span.until_ns) // 2], [peak])
                continue
            ticks = self._blocks.ticks_of(span)
            if ticks is not None:
                raise_to(ticks.time_ns, ticks.peak_utilisation)
        return strip

    def times(self, from_ns: int, until_ns: int) -> Iterator[tuple[int, int]]:
        """Time and sequence number of every tick."""
        for span in self._spans_in(from_ns, until_ns):
            ticks = self._blocks.ticks_of(span)
            if ticks is not None:
                pairs = dict.fromkeys(zip(ticks.time_ns.tolist(), ticks.seq.tolist(), strict=True))
                yield from (pair for pair in pairs if from_ns <= pair[0] <= until_ns)

    def ends(self, session: int) -> list[tuple[int, int]]:
        """Time and sequence number of a session's first and last ticks; empty without ticks."""
        spans = [span for span in self.spans if span.session == session]
        known = [self._blocks.ticks_of(span) for span in (*spans[:1], *spans[-1:])]
        return [
            (int(ticks.time_ns[place]), int(ticks.seq[place]))
            for ticks in known
            if ticks is not None
            for place in (0, -1)
        ]

    def _session_at(self, at_ns: int) -> int:
        """The number of the session that began last before a time, by the clock."""
        starts = (
            (each.header.time_ns, n) for n, each in enumerate(self._frames.of(FrameKind.SESSION))
        )
        return max((each for each in starts if each[0] <= at_ns), default=(0, 0))[1]

    def _spans_in(self, from_ns: int, until_ns: int) -> Iterator[BlockSpan]:
        first = int(np.searchsorted(self._frames.span_ends, from_ns))
        for span in self.spans[first:]:
            if span.time_ns > until_ns:
                break
            if span.until_ns >= from_ns:
                yield span

    def _span_before(self, at_ns: int) -> int | None:
        """The place of the last span that has a tick before a time."""
        place = bisect.bisect_left(self.spans, at_ns, key=lambda span: span.time_ns) - 1
        return place if place >= 0 else None

    def _spans_back(self, place: int) -> Iterator[BlockSpan]:
        """A span and those before it, as long as they belong to its session."""
        session = self.spans[place].session
        while place >= 0 and self.spans[place].session == session:
            yield self.spans[place]
            place -= 1
