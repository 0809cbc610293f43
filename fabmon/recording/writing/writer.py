"""Writes a recording: every tick at once, and again in a block that is ten times smaller."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from fabmon.fabric.model import Fabric
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import Tick
from fabmon.recording.format.frames import FrameEntry, FrameKind
from fabmon.recording.format.minutes import MINUTE_NS, MinuteBuilder
from fabmon.recording.format.records import (
    EventsRecord,
    Note,
    PortRecord,
    RecordedState,
    SessionRecord,
    TopologyRecord,
)
from fabmon.recording.format.sections import compress
from fabmon.recording.reading.reader import Recording
from fabmon.recording.writing.block_builder import BlockBuilder
from fabmon.recording.writing.frame_writer import FrameWriter, PendingFrame

_STATE_EVERY_NS = 600_000_000_000


class Writer:
    """One session in one file. Nothing of it raises anything but OSError.

    After an OSError the file ends where it ended before, and the tick is kept in memory: it is
    written with the block that it belongs to, if there is room by then.
    """

    def __init__(
        self,
        store: FrameWriter,
        session: SessionRecord,
        state: RecordedState | None = None,
        rows: BlockBuilder | None = None,
    ) -> None:
        self._store = store
        self._session = session
        self._state = state or RecordedState(session)
        self._rows = rows or BlockBuilder()
        self._settled: list[PendingFrame] = []
        self._minutes = MinuteBuilder()
        self._topology = -1
        self._tick = (0, 0)
        self._state_ns = 0
        self._worst = float("nan")
        self._lost = 0

    @classmethod
    def create(
        cls, path: Path, session: SessionRecord, state: RecordedState | None = None
    ) -> Writer:
        """A new file; none after an OSError. Raises FileExistsError when there is one.

        `state` is what is known already, when this file goes on where another one ended.
        """
        store = FrameWriter(path)
        writer = cls(store, session, state)
        try:
            writer.begin(session)
        except BaseException:
            store.close()
            path.unlink(missing_ok=True)
            raise
        return writer

    def begin(self, session: SessionRecord) -> None:
        """Start a session: what comes from here on is of it."""
        now = session.started_ns
        pieces = [_json(FrameKind.SESSION, session, now)]
        self._session = self._state.session = session
        if self._state.hellos or self._state.statuses:
            pieces += self._state_pieces(now)
            self._rows.seat(self._state.hellos)
        self._store.settle(pieces)

    def take_over(self, ticks: Sequence[Tick], kept: Sequence[PendingFrame]) -> None:
        """Settle what another writer left provisional. Raises OSError."""
        self._settled += kept
        for tick in ticks:
            self._settled += self._pieces(tick, None, ())
            self._rows.add(tick, float("nan"))
            self._tick = (tick.seq, tick.time_ns)
        self.settle()
        self._store.write_index()

    @property
    def is_open(self) -> bool:
        """Whether it can still write."""
        return self._store.is_open

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._store.end

    @property
    def path(self) -> Path:
        """The file."""
        return self._store.path

    @property
    def state(self) -> RecordedState:
        """What all that was written amounts to."""
        return self._state

    def write(
        self, tick: Tick, snapshot: Snapshot | None = None, notes: Sequence[Note] = ()
    ) -> None:
        """Take a tick, what was drawn of it, and what was found in it. Raises OSError."""
        worst = float("nan") if snapshot is None else _worst(snapshot)
        pieces = self._pieces(tick, snapshot, notes)
        self._settled += pieces
        rows = self._rows.add(tick, worst)
        self._worst = float(np.fmax(self._worst, worst))
        self._tick = (tick.seq, tick.time_ns)
        if self._rows.are_full:
            self.settle()
            return
        for piece in pieces:
            self._store.append(piece)
        self._store.append_block(self._rows.last(rows), tick.time_ns)

    def take_lost(self) -> int:
        """How many ticks were given up since the last time."""
        lost, self._lost = self._lost, 0
        return lost

    def note(self, note: Note) -> None:
        """Keep a bookmark. Raises OSError."""
        piece = _json(FrameKind.NOTE, note, note.time_ns, part=len(self._settled))
        self._settled.append(piece)
        self._store.append(piece)

    def settle(self) -> None:
        """Make a block of the ticks that are not in one. Raises OSError."""
        if not len(self._rows):
            return
        first_ns, last_ns = self._rows.span
        blocks = [
            PendingFrame(FrameKind.BLOCK, payload, first_ns, last_ns, part, self._worst)
            for part, payload in enumerate(self._rows.parts(), start=1)
        ]
        state: list[PendingFrame] = []
        if last_ns - self._state_ns >= _STATE_EVERY_NS:
            state = self._state_pieces(last_ns)
        try:
            self._store.settle([*self._settled, *blocks, *state])
        except OSError:
            if not self._rows.are_too_many:
                raise
            self._lost += len(self._rows)
            self._forget(kept=[each for each in self._settled if each.kind == FrameKind.NOTE])
            raise
        self._forget()

    def close(self) -> None:
        """Make the file whole: all in blocks, and an index to its end. Raises OSError."""
        try:
            minute = self._minutes.finish()
            if minute is not None:
                self._settled.append(self._minute(*minute))
            self.settle()
            if self._settled:
                self._store.settle(self._settled)
                self._settled = []
            self._store.settle([PendingFrame(FrameKind.END, b"", self._tick[1], self._tick[1])])
            self._store.write_index()
        finally:
            self._store.close()

    def give_up(self) -> None:
        """Let the file go as it is."""
        if self._store.is_open:
            self._store.close()

    def _forget(self, kept: Sequence[PendingFrame] = ()) -> None:
        self._settled = [*kept]
        self._rows.clear()
        self._worst = float("nan")

    def _pieces(
        self, tick: Tick, snapshot: Snapshot | None, notes: Sequence[Note]
    ) -> list[PendingFrame]:
        """All that a tick adds beside its counters, in the order to be written."""
        self._state.apply(tick)
        pieces: list[PendingFrame] = []
        if tick.hosts or tick.hellos or tick.statuses or tick.notices:
            events = EventsRecord(
                seq=tick.seq,
                time_ns=tick.time_ns,
                hosts=tick.hosts,
                hellos=tick.hellos,
                statuses=tick.statuses,
                notices=tick.notices,
            )
            pieces.append(_json(FrameKind.EVENTS, events, tick.time_ns))
        if snapshot is not None:
            minute = self._minutes.add(snapshot)
            if minute is not None:
                pieces.append(self._minute(*minute))
            if snapshot.fabric.version != self._topology:
                self._topology = snapshot.fabric.version
                pieces.append(_json(FrameKind.TOPOLOGY, _topology(snapshot.fabric), tick.time_ns))
        at = len(self._settled)
        pieces += [
            _json(FrameKind.NOTE, note, note.time_ns, part=at + number)
            for number, note in enumerate(notes)
        ]
        return pieces

    def _minute(self, start_ns: int, payload: bytes) -> PendingFrame:
        return PendingFrame(FrameKind.MINUTE, payload, start_ns, start_ns + MINUTE_NS)

    def _state_pieces(self, time_ns: int) -> list[PendingFrame]:
        self._state_ns = time_ns
        record, hellos = self._state.record(*self._tick)
        return [_json(FrameKind.HELLOS, hellos, time_ns), _json(FrameKind.STATE, record, time_ns)]


def _json(kind: FrameKind, record: object, time_ns: int, part: int = 0) -> PendingFrame:
    return PendingFrame(
        kind, compress(msgspec.json.encode(record)), time_ns, time_ns, part & 0xFFFF
    )


def _worst(snapshot: Snapshot) -> float:
    """Utilisation of the busiest link, as the history worked it out."""
    return float(snapshot.past.worst(1, snapshot.seq)[0])


def _topology(fabric: Fabric) -> TopologyRecord:
    return TopologyRecord(
        version=fabric.version,
        ports=tuple(
            PortRecord(p.row, p.node, p.name, p.label, p.role, p.kind, p.peer)
            for p in fabric.ports
            if p.row >= 0
        ),
        groups=tuple((group.name, group.rows) for group in fabric.groups),
    )


# Goes on with a file that was recorded before: another session in it.


_KEPT = (FrameKind.NOTE, FrameKind.MINUTE, FrameKind.TOPOLOGY)


def resume(path: Path, session: SessionRecord) -> Writer:
    """A writer that appends a session. What a killed writer left provisional is settled first.

    A file of no bytes is as good as a new one. Raises NotARecording, TooNew, InUse or OSError; the
    file is then as it was.
    """
    store = FrameWriter(path, is_new=False)
    try:
        if path.stat().st_size:
            return _resumed(store, session)
        writer = Writer(store, session)
        writer.begin(session)
    except BaseException:
        store.close()
        raise
    return writer


def _resumed(store: FrameWriter, session: SessionRecord) -> Writer:
    path = store.path
    with Recording(path) as before:
        settled = before.settled_to
        entries = before.entries()
        index_at = max((e.offset for e in entries if e.header.kind == FrameKind.INDEX), default=0)
        # By their place in the file: the clock may have been set back since.
        state = before.settled_state()
        tail = before.unsettled()
        kept = [_again(before, entry) for entry in entries if _is_kept(entry, settled)]
        session_before = before.sessions[-1]
    rows = BlockBuilder()
    rows.seat(state.hellos)
    store.go_on(settled, index_at)
    writer = Writer(store, session_before, state, rows)
    writer.take_over(tail, kept)
    writer.begin(session)
    return writer


def _is_kept(entry: FrameEntry, settled: int) -> bool:
    return entry.offset >= settled and entry.header.kind in _KEPT


def _again(before: Recording, entry: FrameEntry) -> PendingFrame:
    head = entry.header
    return PendingFrame(
        FrameKind(head.kind), before.payload(entry), head.time_ns, head.until_ns, head.part
    )
