"""The events of a file: hellos, statuses, notices, and the state that they amount to at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from fabmon.fabric.model import Host
from fabmon.fabric.time_wording import LATEST_NS
from fabmon.fabric.wire.messages import Hello
from fabmon.recording.format.errors import NotARecording, TooNew
from fabmon.recording.format.frames import FrameEntry, FrameKind
from fabmon.recording.format.records import (
    FORMAT,
    EventsRecord,
    Note,
    RecordedState,
    SessionRecord,
    StateRecord,
    TopologyRecord,
)
from fabmon.recording.reading.frame_reader import FrameReader
from fabmon.recording.reading.spans import BlockCache, SortedFrames

_CACHED_RECORDS = 1024
_CACHED_BYTES = 1 << 29
"""The most that cached records of events take, by their estimate."""

_MAX_UNUSED_HELLOS = 1 << 12

_RECORDS: Mapping[str, type] = {
    FrameKind.SESSION: SessionRecord,
    FrameKind.STATE: StateRecord,
    FrameKind.TOPOLOGY: TopologyRecord,
    FrameKind.NOTE: Note,
}


class EventLog:
    """The events and states of one file."""

    def __init__(self, reader: FrameReader) -> None:
        self._reader = reader
        self._records: OrderedDict[int, tuple[EventsRecord | None, int]] = OrderedDict()
        self._cached_bytes = 0
        self._hellos: dict[str, Hello] = {}
        self._found_hosts: dict[int, tuple[str, ...]] = {}

    def forget(self, start: int) -> None:
        """Drop what was read from a byte offset on: it may have changed, or is not needed now."""
        if not start:
            self._drop_hellos(frozenset(), at_most=0)
        for offset in [offset for offset in self._records if offset >= start]:
            self._drop(offset)
        self._found_hosts = {at: names for at, names in self._found_hosts.items() if at < start}

    def between(
        self, frames: SortedFrames, from_ns: int, until_ns: int
    ) -> Iterator[tuple[int, int, EventsRecord]]:
        """Events with the byte offset of their frame and the number of their session."""
        for session, entry in frames.events:
            if from_ns <= entry.header.time_ns <= until_ns:
                event = self._record(entry)
                if event is not None:
                    yield entry.offset, session, event

    def state(
        self,
        frames: SortedFrames,
        number: int,
        session: SessionRecord,
        at_ns: int = LATEST_NS,
        stop: int = LATEST_NS,
    ) -> RecordedState:
        """The state after all events of a session up to and including a time.

        Events of the sessions before it in the file count as well, whatever their time: the clock
        may have been set back between them. Frames from the byte offset `stop` on do not count.
        """

        def counts(of: int, entry: FrameEntry) -> bool:
            is_in_time = of < number or (of == number and entry.header.time_ns <= at_ns)
            return is_in_time and entry.offset < stop

        with self._reader.file.pinned():
            return self._state_of(frames, session, counts)

    def _state_of(
        self,
        frames: SortedFrames,
        session: SessionRecord,
        counts: Callable[[int, FrameEntry], bool],
    ) -> RecordedState:
        state, since = RecordedState(session), 0
        for entry in reversed(frames.of(FrameKind.STATE)):
            record = None
            if counts(frames.session_of(entry), entry):
                record = self._reader.json(entry, StateRecord)
            if record is not None:
                hellos = self._named(frames, record, entry)
                state = RecordedState.of(record, hellos)
                if all(name in hellos for _, name in record.hellos):
                    since = entry.offset
                    break
                # Some of its hellos are lost: apply earlier events, which may have them, again.
        later = [e for of, e in frames.events if e.offset > since and counts(of, e)]
        for event in map(self._record, sorted(later)):
            if event is not None:
                state.apply(event.tick())
        return state

    def found_hosts(self, frames: SortedFrames) -> dict[int, dict[str, None]]:
        """Names of the nodes that each session found by itself, in order.

        Nodes of the opening state count for the first session.
        """
        opening = self.opening(frames)
        names: dict[int, dict[str, None]] = {}
        names[0] = dict.fromkeys(opening.hosts if opening is not None else ())
        for session, entry in frames.events:
            if entry.offset not in self._found_hosts:
                event = self._record(entry)
                found = tuple(host.name for host in event.hosts) if event else ()
                self._found_hosts[entry.offset] = found
            names.setdefault(session, {}).update(dict.fromkeys(self._found_hosts[entry.offset]))
        return names

    def opening(self, frames: SortedFrames) -> RecordedState | None:
        """The state before the first tick, in a file that continues another one; else None."""
        blocks = (entry for span in frames.spans for entry in span.parts.values())
        offsets = [entry.offset for _, entry in frames.events] + [entry.offset for entry in blocks]
        for entry in frames.of(FrameKind.STATE)[:1]:
            if entry.offset < min(offsets, default=0):
                record = self._reader.json(entry, StateRecord)
                if record is not None:
                    with self._reader.file.pinned():
                        return RecordedState.of(record, self._named(frames, record, entry))
        return None

    def sessions(self, frames: SortedFrames, blocks: BlockCache) -> list[SessionRecord]:
        """The sessions of the file, at least one; one whose record is lost is reconstructed.

        Raises NotARecording or TooNew.
        """
        known = [
            self._reader.kept_json(entry, SessionRecord) for entry in frames.of(FrameKind.SESSION)
        ]
        sound = [record for record in known if record is not None]
        for record in sound:
            if record.format[0] > FORMAT[0]:
                raise TooNew(
                    f"recorded in format {record.format[0]}, this fabmon reads "
                    f"{FORMAT[0]}: read it with a newer fabmon"
                )
        if not (sound or frames.of(FrameKind.STATE) or frames.spans or frames.events):
            begins = self._reader.begins_with_frame()
            raise NotARecording(
                "damaged: no frame of it can be read" if begins else "not a fabmon recording"
            )
        numbered = enumerate(known or [None])
        return [each or self._reconstructed(frames, blocks, n, sound) for n, each in numbered]

    def _reconstructed(
        self, frames: SortedFrames, blocks: BlockCache, number: int, others: Sequence[SessionRecord]
    ) -> SessionRecord:
        """A session whose record is lost, from a state of it, else from its events and blocks."""
        for entry in frames.of(FrameKind.STATE):
            if frames.session_of(entry) == number:
                state = self._reader.json(entry, StateRecord)
                if state is not None:
                    return state.session
        names: dict[str, None] = {}
        for _, session, event in self.between(frames, 0, LATEST_NS):
            if session == number:
                names |= dict.fromkeys(status.node for status in event.statuses)
                names |= dict.fromkeys(node for node, _ in event.hellos)
        spans = [span for span in frames.spans if span.session == number]
        for span in spans[:1]:
            names |= dict.fromkeys(each.node for b in blocks.of(span) for each in b.layouts)
        return SessionRecord(
            started_ns=spans[0].time_ns if spans else 0,
            interval_s=others[0].interval_s if others else 1.0,
            hosts=tuple(Host(name=name) for name in names),
        )

    def _record(self, entry: FrameEntry) -> EventsRecord | None:
        """The events of one tick, cached: decoding a thousand hellos takes a tenth of a second."""
        if entry.offset not in self._records:
            record = self._reader.json(entry, EventsRecord, _nodes_in)
            size = self._reader.budget.expanded(entry.offset)
            self._records[entry.offset] = (record, size)
            self._cached_bytes += size
            while len(self._records) > 1 and (
                len(self._records) > _CACHED_RECORDS or self._cached_bytes > _CACHED_BYTES
            ):
                self._drop(next(iter(self._records)))
        return self._records[entry.offset][0]

    def _drop(self, offset: int) -> None:
        self._cached_bytes -= self._records.pop(offset)[1]

    def _named(
        self, frames: SortedFrames, record: StateRecord, entry: FrameEntry
    ) -> Mapping[str, Hello]:
        """Hellos by digest, including those that a state names.

        They are in the frame before the state's; where that is damaged, other frames may have them.
        """
        before = [
            each for each in reversed(frames.of(FrameKind.HELLOS)) if each.offset < entry.offset
        ]
        after = [each for each in frames.of(FrameKind.HELLOS) if each.offset > entry.offset]
        for each in (*before, *after):
            if all(name in self._hellos for _, name in record.hellos):
                break
            self._drop_hellos({name for _, name in record.hellos})
            named = self._reader.json(each, dict[str, Hello], self._new_hellos)
            if named is not None:
                self._hellos |= {name: named[name] for name in self._new_hellos(named)}
        return self._hellos

    def _new_hellos(self, named: Mapping[str, Hello]) -> AbstractSet[str]:
        return named.keys() - self._hellos.keys()

    def _drop_hellos(self, wanted: AbstractSet[str], at_most: int = _MAX_UNUSED_HELLOS) -> None:
        """Drop hellos other than those wanted, when there are more of them."""
        if len(self._hellos) > at_most + len(wanted):
            unused = self._hellos.keys() - wanted
            self._reader.budget.release(unused)
            for name in unused:
                del self._hellos[name]


def verify_record(reader: FrameReader, entry: FrameEntry) -> None:
    """Decode the record of a frame, if it has one; a damaged one is a loss."""
    kind = entry.header.kind
    if kind == FrameKind.EVENTS:
        reader.json(entry, EventsRecord)
    elif kind == FrameKind.HELLOS:
        reader.json(entry, dict[str, Hello])
    elif kind in _RECORDS:
        reader.json(entry, _RECORDS[kind])


def _nodes_in(record: EventsRecord) -> set[str]:
    """The nodes whose latest hello, status, notices or host a state may have from these events."""
    nodes = {node for node, _ in record.hellos} | {node for node, _ in record.notices}
    return nodes | {each.node for each in record.statuses} | {host.name for host in record.hosts}
