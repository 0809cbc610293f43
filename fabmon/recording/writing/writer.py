"""Writes a recording: each tick at once, and later again in a block that is ten times smaller."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from fabmon.fabric.model import Fabric
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import Tick
from fabmon.recording.format.frames import FrameKind
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
from fabmon.recording.reading.view import FileView
from fabmon.recording.writing.block_builder import BlockBuilder
from fabmon.recording.writing.frame_writer import FrameWriter, PendingFrame

_STATE_EVERY_NS = 600_000_000_000
_MAX_UNWRITTEN_BLOCKS = 2
"""Ticks that could not be written are kept in memory until they fill so many blocks."""
_KEPT_BY_RESUME = (FrameKind.NOTE, FrameKind.MINUTE, FrameKind.TOPOLOGY)


class Writer:
    """Writes one session to one file. Its methods raise nothing but OSError.

    `state` is the metadata of nodes after all ticks that were written.

    After an OSError the file ends where it ended before, and the tick stays in memory: it is
    written with its block, if there is room by then.
    """

    def __init__(
        self, file: FrameWriter, session: SessionRecord, state: RecordedState | None = None
    ) -> None:
        self._file = file
        self.state = state or RecordedState(session)
        self._rows = BlockBuilder()
        self._unsettled: list[PendingFrame] = []
        self._minutes = MinuteBuilder()
        self._topology_version = -1
        self._last_tick = (0, 0)
        self._state_ns = 0
        self._peak_utilisation = float("nan")
        self._lost_ticks = 0
        # Of the ticks in memory: how many are not in the file, not even provisionally.
        self._unwritten_ticks = 0
        # Provisional ticks in the file that are not in memory: the next block replaces them.
        self._doomed_ticks = 0

    @classmethod
    def create(
        cls, path: Path, session: SessionRecord, state: RecordedState | None = None
    ) -> Writer:
        """A writer of a new file, which is removed after an OSError.

        `state` is what is known already where this file continues another one. Raises
        FileExistsError or OSError.
        """
        file = FrameWriter(path)
        writer = cls(file, session, state)
        try:
            writer.begin(session)
        except BaseException:
            file.close()
            path.unlink(missing_ok=True)
            raise
        return writer

    def begin(self, session: SessionRecord) -> None:
        """Start a session; everything written from here on belongs to it."""
        frames = [_json_frame(FrameKind.SESSION, session, session.started_ns)]
        self.state.session = session
        if self.state.hellos or self.state.statuses:
            frames += self._state_frames(session.started_ns)
            self._rows.add_nodes(self.state.hellos)
        self._file.settle(frames)

    def take_over(self, ticks: Sequence[Tick], frames: Sequence[PendingFrame]) -> None:
        """Settle what another writer left provisional: ticks and other frames. Raises OSError."""
        self._rows.add_nodes(self.state.hellos)
        self._unsettled += frames
        for tick in ticks:
            self._unsettled += self._frames(tick, None, ())
            self._rows.add(tick, float("nan"))
            self._last_tick = (tick.seq, tick.time_ns)
        self.settle()
        self._file.write_index()

    @property
    def is_open(self) -> bool:
        """Whether it can still write."""
        return self._file.is_open

    @property
    def size(self) -> int:
        """The length of the file in bytes."""
        return self._file.end

    @property
    def settled_size(self) -> int:
        """The length of what stays in the file: without the ticks that will be in a block."""
        return self._file.settled

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def write(
        self, tick: Tick, snapshot: Snapshot | None = None, notes: Sequence[Note] = ()
    ) -> None:
        """Write a tick, its snapshot and the changes of findings in it. Raises OSError."""
        peak = float("nan") if snapshot is None else _peak_utilisation(snapshot)
        frames = self._frames(tick, snapshot, notes)
        self._unsettled += frames
        rows = self._rows.add(tick, peak)
        self._peak_utilisation = float(np.fmax(self._peak_utilisation, peak))
        self._last_tick = (tick.seq, tick.time_ns)
        self._unwritten_ticks += 1
        try:
            if self._rows.is_full():
                self.settle()
                return
            for frame in frames:
                self._file.append(frame)
            self._file.append_block(self._rows.last(rows), tick.time_ns)
        except OSError:
            raise
        except Exception:
            self._unwritten_ticks -= 1  # The caller has to give up this tick.
            raise
        self._unwritten_ticks -= 1

    def take_lost_ticks(self) -> int:
        """How many ticks were given up since the last call: they are not in the file."""
        lost, self._lost_ticks = self._lost_ticks, 0
        return lost

    def note(self, note: Note) -> None:
        """Write a bookmark. Raises OSError."""
        frame = _json_frame(FrameKind.NOTE, note, note.time_ns, part=len(self._unsettled))
        self._unsettled.append(frame)
        self._file.append(frame)

    def settle(self) -> None:
        """Write the ticks that are not in a block as one. Raises OSError."""
        if not len(self._rows):
            return
        first_ns, last_ns = self._rows.span_ns
        frames = [*self._unsettled]
        frames += [
            PendingFrame(FrameKind.BLOCK, payload, first_ns, last_ns, part, self._peak_utilisation)
            for part, payload in enumerate(self._rows.block_frames(), start=1)
        ]
        if last_ns - self._state_ns >= _STATE_EVERY_NS:
            frames += self._state_frames(last_ns)
        try:
            self._file.settle(frames)
        except OSError:
            if self._rows.is_full(_MAX_UNWRITTEN_BLOCKS):
                self._doomed_ticks += len(self._rows) - self._unwritten_ticks
                self._give_up_unwritten()
                self._clear([each for each in self._unsettled if each.kind == FrameKind.NOTE])
            raise
        self._lost_ticks += self._doomed_ticks
        self._unwritten_ticks = self._doomed_ticks = 0
        self._clear([])

    def close(self) -> None:
        """Complete the file: all ticks in blocks, and an index to its end. Raises OSError."""
        try:
            minute = self._minutes.finish()
            if minute is not None:
                self._unsettled.append(_minute_frame(*minute))
            self.settle()
            if self._unsettled:
                self._file.settle(self._unsettled)
                self._unsettled = []
            last_ns = self._last_tick[1]
            self._file.settle([PendingFrame(FrameKind.END, b"", last_ns, last_ns)])
            self._file.write_index()
        finally:
            self._give_up_unwritten()
            self._file.close()

    def abandon(self) -> None:
        """Close the file as it is."""
        self._give_up_unwritten()
        if self._file.is_open:
            self._file.close()

    def _give_up_unwritten(self) -> None:
        self._lost_ticks += self._unwritten_ticks
        self._unwritten_ticks = 0

    def _clear(self, unsettled: list[PendingFrame]) -> None:
        self._unsettled = unsettled
        self._rows.clear()
        self._peak_utilisation = float("nan")

    def _frames(
        self, tick: Tick, snapshot: Snapshot | None, notes: Sequence[Note]
    ) -> list[PendingFrame]:
        """All frames that a tick adds besides its counters, in the order in which to write them."""
        self.state.apply(tick)
        frames: list[PendingFrame] = []
        events = EventsRecord.of(tick)
        if events is not None:
            frames.append(_json_frame(FrameKind.EVENTS, events, tick.time_ns))
        if snapshot is not None:
            minute = self._minutes.add(snapshot)
            if minute is not None:
                frames.append(_minute_frame(*minute))
            if snapshot.fabric.version != self._topology_version:
                self._topology_version = snapshot.fabric.version
                topology = _topology_record(snapshot.fabric)
                frames.append(_json_frame(FrameKind.TOPOLOGY, topology, tick.time_ns))
        return frames + [
            _json_frame(FrameKind.NOTE, note, note.time_ns, part)
            for part, note in enumerate(notes, start=len(self._unsettled))
        ]

    def _state_frames(self, time_ns: int) -> list[PendingFrame]:
        self._state_ns = time_ns
        record, hellos = self.state.record(*self._last_tick)
        return [
            _json_frame(FrameKind.HELLOS, hellos, time_ns),
            _json_frame(FrameKind.STATE, record, time_ns),
        ]


def _json_frame(kind: FrameKind, record: object, time_ns: int, part: int = 0) -> PendingFrame:
    payload = compress(msgspec.json.encode(record))
    return PendingFrame(kind, payload, time_ns, time_ns, part & 0xFFFF)


def _minute_frame(start_ns: int, payload: bytes) -> PendingFrame:
    return PendingFrame(FrameKind.MINUTE, payload, start_ns, start_ns + MINUTE_NS)


def _peak_utilisation(snapshot: Snapshot) -> float:
    """Utilisation of the busiest link, as computed by the history, 0 to 1."""
    return float(snapshot.past.worst(1, snapshot.seq)[0])


def _topology_record(fabric: Fabric) -> TopologyRecord:
    return TopologyRecord(
        version=fabric.version,
        ports=tuple(
            PortRecord(p.row, p.node, p.name, p.label, p.role, p.kind, p.peer)
            for p in fabric.ports
            if p.row >= 0
        ),
        groups=tuple((group.name, group.rows) for group in fabric.groups),
    )


def resume(path: Path, session: SessionRecord) -> Writer:
    """A writer that appends a session to an existing file; an empty file is treated as new.

    What a killed writer left provisional is settled first. Raises NotARecording, TooNew, InUse or
    OSError; the file is then unchanged.
    """
    file = FrameWriter(path, is_new=False)
    try:
        writer = _resumed(file) if path.stat().st_size else Writer(file, session)
        writer.begin(session)
    except BaseException:
        file.close()
        raise
    return writer


def _resumed(file: FrameWriter) -> Writer:
    with Recording(file.path) as before:
        settled_to = before.settled_to
        entries = before.entries()
        index_at = max((e.offset for e in entries if e.header.kind == FrameKind.INDEX), default=0)
        # By their place in the file: the clock may have been set back since.
        state, ticks = before.read(FileView.settled_state), before.read(FileView.unsettled)
        frames = [
            PendingFrame(
                FrameKind(e.header.kind),
                before.payload(e),
                e.header.time_ns,
                e.header.until_ns,
                e.header.part,
            )
            for e in entries
            if e.offset >= settled_to and e.header.kind in _KEPT_BY_RESUME
        ]
        writer = Writer(file, before.sessions[-1], state)
    file.continue_from(settled_to, index_at)
    writer.take_over(ticks, frames)
    return writer
