"""Reads a recording, whole or still growing, sound or damaged."""

from __future__ import annotations

import bisect
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from fabmon.fabric.messages import Frame, Hello
from fabmon.fabric.model import Host
from fabmon.fabric.moment import Floats
from fabmon.fabric.tick import Tick
from fabmon.recording import block, minutes
from fabmon.recording.block import Block, Ticks
from fabmon.recording.collection import without_collection
from fabmon.recording.errors import Damaged, NotARecording, TooNew
from fabmon.recording.frames import HEADER_BYTES, MAGIC, Kind
from fabmon.recording.index import Entry
from fabmon.recording.minutes import Minute
from fabmon.recording.past import Reads, last_reads
from fabmon.recording.records import (
    FORMAT,
    EventsRecord,
    Note,
    SessionRecord,
    StateRecord,
    TopologyRecord,
)
from fabmon.recording.scan import File, Loss, Walk, indexed
from fabmon.recording.state import State
from fabmon.recording.taken import frames_of
from fabmon.recording.zstd import ZstdError, decompress

_CACHED_SAMPLES = 8 << 20
_TICKS_BYTES = 1 << 14
_KEPT_EVENTS = 1024
_THREADS = min(4, os.cpu_count() or 1)
_LATEST = (1 << 63) - 1

T = TypeVar("T")


class Span:
    """The blocks of one run of ticks: each holds some of the nodes."""

    def __init__(self, session: int, time_ns: int, until_ns: int, provisional: bool) -> None:
        self.session = session
        self.time_ns = time_ns
        self.until_ns = until_ns
        self.provisional = provisional
        self.parts: dict[int, Entry] = {}

    @property
    def worst(self) -> float:
        """Utilisation of the busiest link in it; NaN where the index does not say."""
        return max((each.worst for each in self.parts.values()), default=float("nan"))


class Recording:
    """One file. `losses` is what could not be read of it so far.

    Raises NotARecording, TooNew, or OSError. Times are the recorder's wall clock, in ns, UTC.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._file = File(self._fd)
            self.losses: list[Loss] = []
            self._open_losses: list[Loss] = []
            self._settled: list[Entry] = []
            self._settled_to = 0
            self._hellos: dict[str, Hello] = {}
            self._blocks: OrderedDict[int, Block] = OrderedDict()
            self._ticks: dict[int, Ticks] = {}
            self._bad: set[int] = set()
            self._events_kept: OrderedDict[int, EventsRecord | None] = OrderedDict()
            self._pool: ThreadPoolExecutor | None = None
            self._widths: dict[int, tuple[Hello, tuple[int, ...]]] = {}
            self._size = self._file.size
            first, gaps = indexed(self._file, self._size)
            self._take(first, gaps)
        except BaseException:
            os.close(self._fd)
            raise

    def close(self) -> None:
        """Let the file go."""
        if self._pool is not None:
            self._pool.shutdown()
        os.close(self._fd)

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size(self) -> int:
        """Bytes, when it was last looked at."""
        return self._size

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
        """Every node that any session watched."""
        found = {host.name: host for session in self.sessions for host in session.hosts}
        return list(found.values())

    @property
    def interval_s(self) -> float:
        """From one tick to the next, in the last session."""
        return self.sessions[-1].interval_s

    def refresh(self) -> bool:
        """Take in what was written since; whether there was anything."""
        size = self._file.size
        if size == self._size and not self._provisional:
            return False
        before = self._size, self.until_ns
        self._size = size
        self._take([], [(self._settled_to, size)])
        return before != (self._size, self.until_ns)

    def ticks(self, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[Tick]:
        """Every tick from a time up to and with another, as it came out of the feed.

        A tick of which a part is lost comes with what is left of it.
        """
        for _, tick in self.numbered(from_ns, until_ns):
            yield tick

    def numbered(self, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[tuple[int, Tick]]:
        """The same, each with the number of its session."""
        events = _Peekable(self._events(from_ns, until_ns))
        for span in self._spans_in(from_ns, until_ns):
            blocks = self._blocks_of(span)
            if not blocks:
                continue
            ticks = blocks[0].ticks
            rows: dict[tuple[int, int], list[int]] = {}
            for row, key in enumerate(zip(ticks.time_ns.tolist(), ticks.seq.tolist(), strict=True)):
                rows.setdefault(key, []).append(row)
            for (time_ns, seq), at in rows.items():
                if not from_ns <= time_ns <= until_ns:
                    continue
                while (event := events.peek()) and (event[0], event[1].time_ns, event[1].seq) < (
                    span.session, time_ns, seq,
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
        for span in self._spans_in(from_ns, until_ns):
            blocks = self._blocks_of(span)
            if blocks:
                yield span.time_ns, span.until_ns, blocks

    def events(self, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[EventsRecord]:
        """What happened from a time up to and with another."""
        for _, _, event in self._events_at(from_ns, until_ns):
            yield event

    def prime(self, at_ns: int) -> list[Tick]:
        """What brings a history to where it was before the first tick at or after a time.

        Two ticks: all states, and of every source's part of every node the last two reads.
        """
        with without_collection():
            return self._prime(at_ns)

    def warm(self) -> None:
        """Read what every seek needs, so that the first one takes no longer than others."""
        self.state(self.until_ns)

    def _prime(self, at_ns: int) -> list[Tick]:
        span = self._span_before(at_ns)
        if span is None:
            return []
        state = self.state(at_ns - 1)
        at, reads = last_reads((self._blocks_of(each) for each in self._spans_back(span)), at_ns)
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
        times = [entry.header.time_ns for entry in self._states]
        place = bisect.bisect_right(times, at_ns)
        state, since = State(self._session_at(at_ns)), 0
        while place:
            place -= 1
            record = self._json(self._states[place], StateRecord)
            if record is not None:
                since = self._states[place].at
                state = State.of(record, self._hellos_of(record, self._states[place]))
                break
        for at, _, event in self._events_at(0, at_ns):
            if at > since:
                state.apply(event)
        return state

    def notes(self, from_ns: int = 0, until_ns: int = _LATEST) -> list[Note]:
        """Bookmarks, and what was found at the time, by time."""
        found = [
            self._json(entry, Note)
            for entry in self._notes
            if from_ns <= entry.header.time_ns <= until_ns
        ]
        return sorted((note for note in found if note is not None), key=lambda note: note.time_ns)

    def minutes(self, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[Minute]:
        """What was drawn, minute by minute."""
        for entry in self._minutes:
            if entry.header.until_ns > from_ns and entry.header.time_ns <= until_ns:
                start_ns = entry.header.time_ns
                minute = self._decoded(entry, partial(minutes.decode, start_ns=start_ns))
                if minute is not None:
                    yield minute

    def topology(self, at_ns: int = _LATEST) -> TopologyRecord | None:
        """How the fabric was cabled at a time."""
        for entry in reversed(self._topologies):
            if entry.header.time_ns <= at_ns:
                record = self._json(entry, TopologyRecord)
                if record is not None:
                    return record
        return None

    def strip(self, from_ns: int, until_ns: int, bins: int) -> Floats:
        """[bins] utilisation of the busiest link of the fabric in each; NaN where none is known."""
        strip = np.full(bins, np.nan, np.float32)
        width = max(1, (until_ns - from_ns) // bins)
        for span in self._spans_in(from_ns, until_ns):
            if span.until_ns - span.time_ns <= width and not np.isnan(span.worst):
                _raise(strip, [(span.time_ns + span.until_ns) // 2], [span.worst], from_ns, width)
                continue
            ticks = self._ticks_of(span)
            if ticks is not None:
                _raise(strip, ticks.time_ns, ticks.worst, from_ns, width)
        return strip

    def times(self, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[tuple[int, int]]:
        """Time and sequence number of every tick, without its counters."""
        for span in self._spans_in(from_ns, until_ns):
            ticks = self._ticks_of(span)
            if ticks is not None:
                pairs = dict.fromkeys(zip(ticks.time_ns.tolist(), ticks.seq.tolist(), strict=True))
                yield from (pair for pair in pairs if from_ns <= pair[0] <= until_ns)

    def verify(self) -> Iterator[int]:
        """Read all of it; the bytes done so far. What is found damaged is added to `losses`."""
        for entry in [*self._settled, *self._provisional]:
            try:
                payload = self._file.payload(entry)
                if entry.header.kind == Kind.BLOCK:
                    block.decode(payload)
            except Damaged as error:
                self._lose(entry, error)
            yield entry.end

    def entries(self) -> list[Entry]:
        """Every frame there is, in the file's order."""
        return [*self._settled, *self._provisional]

    def payload(self, entry: Entry) -> bytes:
        """A frame's payload. Raises Damaged."""
        return self._file.payload(entry)

    @property
    def settled_to(self) -> int:
        """Where the part ends that will not change any more."""
        return self._settled_to

    @property
    def is_closed(self) -> bool:
        """Whether its writer came to its end."""
        kinds = [entry.header.kind for entry in self._settled[-2:]]
        return not self._provisional and Kind.END in kinds

    def _take(self, listed: list[Entry], gaps: list[tuple[int, int]]) -> None:
        """Take in frames that the index lists, and walk where it has none."""
        found = list(listed)
        losses: list[Loss] = []
        last_walk: list[Entry] = []
        for start, stop in gaps:
            walk = Walk(self._file, start, stop)
            last_walk = list(walk)
            found += last_walk
            losses += walk.losses
        found.sort(key=lambda entry: entry.at)
        tail = gaps[-1][0] if gaps and gaps[-1][1] == self._size else self._size
        self._provisional = []
        settled_to = self._settled_to
        for place, entry in enumerate(found):
            if entry.at >= tail and (entry.header.provisional or entry.at != max(settled_to, tail)):
                # From the first frame on that is not settled, all may still change.
                self._provisional = found[place:]
                break
            self._settled.append(entry)
            settled_to = entry.end
        self._settled_to = settled_to
        self.losses += [loss for loss in losses if loss.end <= settled_to]
        self._open_losses = [loss for loss in losses if loss.end > settled_to]
        self._ticks = {at: t for at, t in self._ticks.items() if at < settled_to}
        for at in [at for at in self._blocks if at >= settled_to]:
            del self._blocks[at]
        self._bad = {at for at in self._bad if at < settled_to}
        for at in [at for at in self._events_kept if at >= settled_to]:
            del self._events_kept[at]
        self._sort()

    @property
    def all_losses(self) -> list[Loss]:
        """What is lost, the end included: while the file grows, that may be a frame to be."""
        return sorted([*self.losses, *self._open_losses])

    def _sort(self) -> None:
        """Put every frame where it is looked for."""
        kinds: dict[str, list[tuple[int, Entry]]] = {}
        sessions: list[Entry] = []
        for entry in [*self._settled, *self._provisional]:
            if entry.header.kind == Kind.SESSION:
                sessions.append(entry)
            kinds.setdefault(entry.header.kind, []).append((max(0, len(sessions) - 1), entry))
        self._states = [entry for _, entry in kinds.get(Kind.STATE, [])]
        self._hello_entries = [entry for _, entry in kinds.get(Kind.HELLOS, [])]
        self._topologies = [entry for _, entry in kinds.get(Kind.TOPOLOGY, [])]
        self._notes = _once(kinds.get(Kind.NOTE, []))
        self._minutes = _once(kinds.get(Kind.MINUTE, []))
        self._event_entries = _once_with(kinds.get(Kind.EVENTS, []))
        self.spans = _spans(kinds.get(Kind.BLOCK, []))
        self._span_ends = np.maximum.accumulate(
            np.array([span.until_ns for span in self.spans], np.int64)
        )
        self.sessions = self._sessions(sessions)
        self._session_starts = [entry.header.time_ns for entry in sessions] or [0]

    def _sessions(self, entries: list[Entry]) -> list[SessionRecord]:
        known = [record for record in (self._json(e, SessionRecord) for e in entries) if record]
        for record in known:
            if record.format[0] > FORMAT[0]:
                raise TooNew(
                    f"{self.path}: recorded in format {record.format[0]}, this fabmon reads "
                    f"{FORMAT[0]}: read it with a newer fabmon"
                )
        if known:
            return known
        for entry in self._states:
            state = self._json(entry, StateRecord)
            if state is not None:
                return [state.session]
        if not self.spans and not self._event_entries:
            begins = self._file.read(0, len(MAGIC)) == MAGIC
            raise NotARecording(
                f"{self.path}: nothing of it can be read"
                if begins
                else f"{self.path}: not a recording of fabmon"
            )
        return [self._guessed()]

    def _guessed(self) -> SessionRecord:
        """What can be said of a session whose own record is lost."""
        names: dict[str, None] = {}
        for _, entry in self._event_entries:
            event = self._json(entry, EventsRecord)
            if event is not None:
                names |= dict.fromkeys(status.node for status in event.statuses)
                names |= dict.fromkeys(node for node, _ in event.hellos)
        for span in self.spans[:1]:
            for part in span.parts.values():
                found = self._block(part)
                names |= dict.fromkeys(seat.node for seat in found.seats) if found else {}
        hosts = tuple(Host(name=name) for name in names)
        return SessionRecord(started_ns=self.start_ns, interval_s=1.0, hosts=hosts)

    def _session_at(self, at_ns: int) -> SessionRecord:
        place = max(0, bisect.bisect_right(self._session_starts, at_ns) - 1)
        return self.sessions[min(place, len(self.sessions) - 1)]

    def _spans_in(self, from_ns: int, until_ns: int) -> Iterator[Span]:
        first = int(np.searchsorted(self._span_ends, from_ns))
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

    def _events(self, from_ns: int, until_ns: int) -> Iterator[tuple[int, EventsRecord]]:
        for _, session, event in self._events_at(from_ns, until_ns):
            yield session, event

    def _events_at(self, from_ns: int, until_ns: int) -> Iterator[tuple[int, int, EventsRecord]]:
        """Events with the place of their frame and their session."""
        for session, entry in self._event_entries:
            if from_ns <= entry.header.time_ns <= until_ns:
                event = self._event(entry)
                if event is not None:
                    yield entry.at, session, event

    def _event(self, entry: Entry) -> EventsRecord | None:
        """One tick's events, kept for a while: a thousand hellos take a tenth of a second."""
        if entry.at not in self._events_kept:
            self._events_kept[entry.at] = self._json(entry, EventsRecord)
            if len(self._events_kept) > _KEPT_EVENTS:
                self._events_kept.popitem(last=False)
        return self._events_kept[entry.at]

    def _hellos_of(self, record: StateRecord, entry: Entry) -> dict[str, Hello]:
        """The hellos that a state names, from the frame before it unless they are known."""
        if any(name not in self._hellos for _, name in record.hellos):
            before = [e for e in self._hello_entries if e.at < entry.at]
            for each in before[-1:]:
                found = self._decoded(each, lambda p: _hellos.decode(decompress(p)))
                self._hellos |= found or {}
        return self._hellos

    def _blocks_of(self, span: Span) -> list[Block]:
        """The blocks of a span, as far as they are sound, on as many cores as there are."""
        wanted = [e for e in span.parts.values() if not (e.at in self._blocks or e.at in self._bad)]
        if len(wanted) > 1 and self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, "fabmon-decode")
        each = self._pool.map if len(wanted) > 1 and self._pool else map
        for entry, found in zip(wanted, each(self._read_block, wanted), strict=True):
            if isinstance(found, Damaged):
                self._lose(entry, found)
            else:
                self._keep(entry, found)
        blocks = [self._blocks[e.at] for e in span.parts.values() if e.at in self._blocks]
        for entry in span.parts.values():
            if entry.at in self._blocks:
                self._blocks.move_to_end(entry.at)
        return blocks

    def _widths_of(self, hello: Hello) -> tuple[int, ...]:
        """The widths of a hello's blocks; counting them for a thousand hellos takes 20 ms."""
        known = self._widths.get(id(hello))
        if known is None or known[0] is not hello:
            known = self._widths[id(hello)] = (hello, tuple(b.width() for b in hello.blocks))
        return known[1]

    def _block(self, entry: Entry) -> Block | None:
        """One block of a span."""
        if entry.at not in self._blocks:
            found = self._decoded(entry, block.decode)
            if found is None:
                return None
            self._keep(entry, found)
        return self._blocks[entry.at]

    def _read_block(self, entry: Entry) -> Block | Damaged:
        try:
            return block.decode(self._file.payload(entry))
        except Damaged as error:
            return error

    def _keep(self, entry: Entry, found: Block) -> None:
        """Keep a block for a while: seeking goes to and fro."""
        self._blocks[entry.at] = found
        held = sum(each.values.size for each in self._blocks.values())
        while held > _CACHED_SAMPLES and len(self._blocks) > 1:
            _, dropped = self._blocks.popitem(last=False)
            held -= dropped.values.size

    def _ticks_of(self, span: Span) -> Ticks | None:
        for entry in span.parts.values():
            if entry.at in self._ticks:
                return self._ticks[entry.at]
            # They lie at the beginning of a payload, and their own section has to inflate.
            data = self._file.read(entry.at + HEADER_BYTES, min(entry.header.length, _TICKS_BYTES))
            try:
                found = block.ticks_of(data)
            except Damaged:
                whole = self._block(entry)
                if whole is None:
                    continue
                found = whole.ticks
            self._ticks[entry.at] = found
            return found
        return None

    def _json(self, entry: Entry, kind: type[T]) -> T | None:
        return self._decoded(entry, lambda p: msgspec.json.decode(decompress(p), type=kind))

    def _decoded(self, entry: Entry, decode: Callable[[bytes], T]) -> T | None:
        """What a frame holds; None, and a loss, when it is damaged."""
        if entry.at in self._bad:
            return None
        try:
            return decode(self._file.payload(entry))
        except (Damaged, ZstdError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._lose(entry, error)
            return None

    def _lose(self, entry: Entry, error: Exception) -> None:
        if entry.at in self._bad:
            return
        self._bad.add(entry.at)
        if entry.at < self._settled_to:
            self.losses.append(Loss(entry.at, entry.end, str(error)))
        else:
            self._open_losses.append(Loss(entry.at, entry.end, str(error)))


_hellos = msgspec.json.Decoder(dict[str, Hello])


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


def _once(entries: list[tuple[int, Entry]]) -> list[Entry]:
    return [entry for _, entry in _once_with(entries)]


def _once_with(entries: list[tuple[int, Entry]]) -> list[tuple[int, Entry]]:
    """Each only once: a writer that was killed while it tidied up leaves some twice."""
    kept = {
        (session, e.header.time_ns, e.header.part, e.header.crc): (session, e)
        for session, e in entries
    }
    return sorted(kept.values(), key=lambda each: (each[0], each[1].header.time_ns, each[1].at))


def _spans(entries: list[tuple[int, Entry]]) -> list[Span]:
    """Blocks by the ticks that they hold; provisional ones only where no settled one is."""
    spans: dict[tuple[int, int, int, bool], Span] = {}
    for session, entry in entries:
        head = entry.header
        key = (session, head.time_ns, head.until_ns, head.provisional)
        spans.setdefault(key, Span(*key)).parts[head.part] = entry
    settled = sorted(
        (s for s in spans.values() if not s.provisional), key=lambda s: (s.session, s.time_ns)
    )
    kept = list(settled)
    starts = [(s.session, s.time_ns) for s in settled]
    for span in spans.values():
        if span.provisional:
            place = bisect.bisect_right(starts, (span.session, span.time_ns)) - 1
            inside = (
                place >= 0
                and settled[place].session == span.session
                and span.until_ns <= settled[place].until_ns
            )
            if not inside:
                kept.append(span)
    return sorted(kept, key=lambda s: (s.session, s.time_ns))


def _raise(
    strip: Floats, times: Iterable[int], values: Iterable[float], from_ns: int, width: int
) -> None:
    at = (np.asarray(times, np.int64) - from_ns) // width
    known = (at >= 0) & (at < len(strip))
    np.fmax.at(strip, at[known], np.asarray(values, np.float32)[known])
