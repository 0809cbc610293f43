"""What happened, and what it amounts to at a time: a state that was kept, and what came after."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import Hello
from fabmon.recording.format.errors import NotARecording, TooNew
from fabmon.recording.format.frames import FrameEntry
from fabmon.recording.format.records import (
    FORMAT,
    EventsRecord,
    RecordedState,
    SessionRecord,
    StateRecord,
    decode_sanitised,
)
from fabmon.recording.format.sections import decompress
from fabmon.recording.reading.frame_reader import FrameReader
from fabmon.recording.reading.spans import BlockCache, SortedFrames

_KEPT = 1024
_LATEST = (1 << 63) - 1


class EventLog:
    """The events and states of one file."""

    def __init__(self, contents: FrameReader) -> None:
        self._contents = contents
        self._kept: OrderedDict[int, EventsRecord | None] = OrderedDict()
        self._hellos: dict[str, Hello] = {}
        self._found: dict[int, tuple[str, ...]] = {}

    def forget(self, from_: int) -> None:
        """Forget what was read from a place of the file on: it may have changed."""
        for at in [at for at in self._kept if at >= from_]:
            del self._kept[at]
        self._found = {at: names for at, names in self._found.items() if at < from_}

    def between(
        self, frames: SortedFrames, from_ns: int, until_ns: int
    ) -> Iterator[tuple[int, int, EventsRecord]]:
        """Events with the place of their frame and their session."""
        for session, entry in frames.events:
            if from_ns <= entry.header.time_ns <= until_ns:
                event = self._event(entry)
                if event is not None:
                    yield entry.offset, session, event

    def state(
        self,
        frames: SortedFrames,
        number: int,
        session: SessionRecord,
        at_ns: int = _LATEST,
        stop: int = _LATEST,
    ) -> RecordedState:
        """What all events of a session up to and with a time amount to, and all of those before
        it in the file: the clock may have been set back between them. Those from a place of the
        file on, `stop`, do not count.
        """

        def is_before(of: int, entry: FrameEntry) -> bool:
            is_in_time = of < number or (of == number and entry.header.time_ns <= at_ns)
            return is_in_time and entry.offset < stop

        state, since = RecordedState(session), 0
        for entry in reversed(frames.states):
            record = None
            if is_before(frames.session_of(entry), entry):
                record = self._contents.json(entry, StateRecord)
            if record is not None:
                hellos = self._named(frames, record, entry)
                state = RecordedState.of(record, hellos)
                if all(name in hellos for _, name in record.hellos):
                    since = entry.offset
                    break
                # Some of its hellos are lost: events before it tell them as well.
        told = [e for of, e in frames.events if e.offset > since and is_before(of, e)]
        for event in map(self._event, sorted(told)):
            if event is not None:
                state.apply(event)
        return state

    def found(self, frames: SortedFrames) -> dict[int, dict[str, None]]:
        """Names of the nodes that sessions found by themselves; of those that the file began with,
        as of the first.
        """
        opening = self.opening(frames)
        names: dict[int, dict[str, None]] = {}
        names[0] = dict.fromkeys(opening.hosts if opening is not None else ())
        for session, entry in frames.events:
            names.setdefault(session, {}).update(dict.fromkeys(self._found_at(entry)))
        return names

    def _found_at(self, entry: FrameEntry) -> tuple[str, ...]:
        if entry.offset not in self._found:
            event = self._event(entry)
            self._found[entry.offset] = tuple(host.name for host in event.hosts) if event else ()
        return self._found[entry.offset]

    def opening(self, frames: SortedFrames) -> RecordedState | None:
        """What was known before the first tick of a file that goes on where another one ended."""
        blocks = (entry for span in frames.spans for entry in span.parts.values())
        ticks_at = [entry.offset for _, entry in frames.events] + [entry.offset for entry in blocks]
        for entry in frames.states[:1]:
            if entry.offset < min(ticks_at, default=0):
                record = self._contents.json(entry, StateRecord)
                if record is not None:
                    return RecordedState.of(record, self._named(frames, record, entry))
        return None

    def sessions(self, frames: SortedFrames, blocks: BlockCache) -> list[SessionRecord]:
        """Who was watched, run by run; at least one. Where a record is lost, what can be said.

        Raises NotARecording or TooNew.
        """
        contents = self._contents
        known = [contents.json(entry, SessionRecord) for entry in frames.sessions]
        sound = [record for record in known if record is not None]
        for record in sound:
            if record.format[0] > FORMAT[0]:
                raise TooNew(
                    f"recorded in format {record.format[0]}, this fabmon reads "
                    f"{FORMAT[0]}: read it with a newer fabmon"
                )
        if not (sound or frames.states or frames.spans or frames.events):
            begins = contents.begins_as_ours()
            raise NotARecording(
                "nothing of it can be read" if begins else "not a recording of fabmon"
            )
        numbered = enumerate(known or [None])
        return [each or self._guessed(frames, blocks, n, sound) for n, each in numbered]

    def _guessed(
        self, frames: SortedFrames, blocks: BlockCache, number: int, others: Sequence[SessionRecord]
    ) -> SessionRecord:
        """What can be said of a session whose own record is lost: a state of it has it as well."""
        for entry in frames.states:
            state = None
            if frames.session_of(entry) == number:
                state = self._contents.json(entry, StateRecord)
            if state is not None:
                return state.session
        names: dict[str, None] = {}
        for _, session, event in self.between(frames, 0, _LATEST):
            if session == number:
                names |= dict.fromkeys(status.node for status in event.statuses)
                names |= dict.fromkeys(node for node, _ in event.hellos)
        spans = [span for span in frames.spans if span.session == number]
        for span in spans[:1]:
            names |= dict.fromkeys(seat.node for found in blocks.of(span) for seat in found.layouts)
        return SessionRecord(
            started_ns=spans[0].time_ns if spans else 0,
            interval_s=others[0].interval_s if others else 1.0,
            hosts=tuple(Host(name=name) for name in names),
        )

    def _event(self, entry: FrameEntry) -> EventsRecord | None:
        """One tick's events, kept for a while: a thousand hellos take a tenth of a second."""
        if entry.offset not in self._kept:
            self._kept[entry.offset] = self._contents.json(entry, EventsRecord)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return self._kept[entry.offset]

    def _named(
        self, frames: SortedFrames, record: StateRecord, entry: FrameEntry
    ) -> Mapping[str, Hello]:
        """The hellos that a state names, unless they are known from the frame before it; where
        that is damaged, as far as others have them.
        """
        before = [each for each in reversed(frames.hellos) if each.offset < entry.offset]
        after = [each for each in frames.hellos if each.offset > entry.offset]
        for each in (*before, *after):
            if all(name in self._hellos for _, name in record.hellos):
                break
            found = self._contents.decoded(
                each, lambda p: decode_sanitised(decompress(p), dict[str, Hello])
            )
            self._hellos |= found or {}
        return self._hellos
