"""Records a feed in a thread of its own, so that a slow disk never delays what is watched."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fabmon.fabric.node_metadata import NodeMetadata
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import Tick
from fabmon.fabric.time_wording import LATEST_NS
from fabmon.private_files import make_directory
from fabmon.recording.format.errors import RecordingError
from fabmon.recording.format.records import Note, RecordedState, SessionRecord
from fabmon.recording.writing.segments import Segments
from fabmon.recording.writing.writer import Writer, resume

_LOG = logging.getLogger("fabmon.recording")

_MAX_QUEUED = 60
"""Ticks that may wait for the disk; later ones are dropped."""
_MAX_QUEUED_FRAMES = 16_384
"""Frames of nodes in them, 4 kB each: of 1,024 nodes the frames of 60 ticks would take 200 MB."""
_MOST_INTERVALS = 3
"""Intervals that pass at most from tick to tick: a clock that was set adds no more."""
_RETRY_S = 5.0
_CLOSE_S = 10.0
_ANSWER_S = 5.0
"""Seconds that a write may take until it is said that the disk does not answer."""


CLOCK_TROUBLE = "the clock of this machine is not between 1970 and 2262: set it"


def can_record(time_ns: int) -> bool:
    """Whether a recording has room for a time: one from 1970 to 2262."""
    return 0 <= time_ns <= LATEST_NS


@dataclass(frozen=True, slots=True)
class RecorderStatus:
    """The state of a recording. `trouble` is a sentence for a person, empty when all is well.

    `path` is the file that is being written, the last of `files`. `bytes` is the size of it and of
    the files before it: it grows, and falls whenever the last ticks are written again as a block,
    ten times smaller.
    `kept_s` is the time from the first to the last tick in files that still exist, and `removed`
    is the number of files that the rotation removed. `ticks` were recorded, or wait in memory for
    room on the disk; `lost_ticks` could not be written. `cpu_s` is the CPU time of all this.
    """

    path: Path
    files: int = 1
    bytes: int = 0
    kept_s: float = 0.0
    ticks: int = 0
    lost_ticks: int = 0
    removed: int = 0
    cpu_s: float = 0.0
    trouble: str = ""

    @property
    def has_failed(self) -> bool:
        """Whether a recording that is closed misses its end, or all of it."""
        return bool(self.trouble) or (self.lost_ticks > 0 and not self.ticks)


class PendingMetadata(NodeMetadata):
    """Metadata pending a successful write: events and notes of ticks that were not written.

    Without the hellos later ticks could not be decoded; without the notes a finding that closed
    meanwhile would stay open.
    """

    def __init__(self) -> None:
        super().__init__(keeps_recovered=True)
        self.notes: list[Note] = []

    def add(self, tick: Tick, notes: Sequence[Note] = ()) -> None:
        """Add the events and notes of a tick. Of events of the same thing the last one is kept."""
        self.notes += notes
        self.apply(tick)

    def merged_into(self, tick: Tick) -> Tick:
        """A tick with the pending events before its own; the same tick where none is pending."""
        if not any(self.fields().values()):
            return tick
        self.apply(tick)
        return msgspec.structs.replace(tick, **self.fields())


@dataclass(frozen=True, slots=True)
class _Item:
    tick: Tick
    snapshot: Snapshot | None
    notes: tuple[Note, ...]


class Recorder:
    """Takes ticks; `status` reports how recording goes. Nothing raises after the constructor.

    A trouble (disk full, read-only file system, quota) is logged once and stays in the status until
    writing works again. What was written is kept. Opening a file is retried every `retry_s`.
    """

    def __init__(
        self, segments: Segments, session: SessionRecord, retry_s: float = _RETRY_S
    ) -> None:
        """Opens the first file at once. Raises OSError or RecordingError where that fails."""
        segments.check_unused()
        self._segments = segments
        self._session = session
        self._queue: queue.SimpleQueue[_Item | Note | None] = queue.SimpleQueue()
        # Each is counted by one thread.
        self._frames_queued = self._frames_taken = self._accepted = 0
        self._writing_since_s: float | None = None
        self._writer: Writer | None = None
        self._state: RecordedState | None = None
        self._began_ns = session.started_ns
        self._last_ns = 0
        self._bytes_before = 0
        self._most_unsettled = 0  # Bytes of ticks that were not in a block.
        # Seconds from tick to tick: in the current file, and in those before it, in their order.
        self._current_s = 0.0
        self._finished_s: dict[Path, float] = {}
        self._retry_s = retry_s
        self._retry_at_s = 0.0
        # One for each thread: of ticks that were not queued, and of ticks that were not written.
        self._unqueued = PendingMetadata()
        self._unwritten = PendingMetadata()
        self._lock = threading.RLock()
        self.status = RecorderStatus(segments.name(session.started_ns))
        self._writer = self._open(session.started_ns)
        self._thread = threading.Thread(target=self._run, name="fabmon-record", daemon=True)
        self._thread.start()

    def accept(
        self, tick: Tick, snapshot: Snapshot | None = None, notes: Sequence[Note] = ()
    ) -> None:
        """Queue a tick, its snapshot and the changes of findings in it. Returns at once."""
        self._accepted += 1
        frames = self._frames_queued - self._frames_taken + len(tick.frames)
        if self.waiting >= _MAX_QUEUED or (self.waiting and frames > _MAX_QUEUED_FRAMES):
            self._count_lost(1)
            self._set_trouble("the disk is too slow: ticks are not recorded")
            self._unqueued.add(tick, notes)
            return
        since_s = self._writing_since_s
        if since_s is not None and time.monotonic() - since_s >= _ANSWER_S:
            at_most = f"ticks wait in memory, at most {_MAX_QUEUED}"
            self._set_trouble(f"the disk does not answer: {at_most}")
        pending, self._unqueued = self._unqueued, PendingMetadata()
        self._frames_queued += len(tick.frames)
        kept = None if snapshot is None else _without_values(snapshot)
        self._queue.put(_Item(pending.merged_into(tick), kept, (*pending.notes, *notes)))

    @property
    def waiting(self) -> int:
        """Ticks and notes that are queued and not written yet."""
        return self._queue.qsize()

    @property
    def rotates(self) -> bool:
        """Whether there is ever another file than the first."""
        return self._segments.rotation.rotates

    def note(self, note: Note) -> None:
        """Queue a bookmark. Returns at once."""
        self._queue.put(note)

    def close(self) -> RecorderStatus:
        """Write what is queued and complete the file, within 10 s; returns the final status. What
        the disk has not taken by then is lost."""
        self._queue.put(None)
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive():
            with self._lock:
                self._count_lost(self._accepted - self.status.ticks - self.status.lost_ticks)
            self._set_trouble("the disk does not answer: the last ticks may be missing")
        return self.status

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, _Item):
                self._frames_taken += len(item.tick.frames)
            self._writing_since_s = time.monotonic()
            try:
                self._take(item)
            except OSError as error:
                self._write_failed(error)
            except RecordingError as error:
                self._drop_writer(str(error))
            except Exception as error:
                _LOG.exception("internal error while recording")
                self._drop_writer(f"internal error: {error}")
            self._writing_since_s = None
        if self._writer is not None:
            try:
                self._writer.close()
                self._update(self._writer)
                self._count_given_up(self._writer)
            except OSError as error:
                self._write_failed(error)

    def _take(self, item: _Item | Note) -> None:
        now_ns = item.time_ns if isinstance(item, Note) else item.tick.time_ns
        if not can_record(now_ns):
            if isinstance(item, _Item):
                self._count_lost(1)
                # Statuses and notes are of that time too.
                self._unwritten.add(msgspec.structs.replace(item.tick, statuses=()))
            self._set_trouble(CLOCK_TROUBLE)
            return
        if self._writer is None and time.monotonic() >= self._retry_at_s:
            try:
                self._writer = self._open(now_ns)
            except (OSError, RecordingError) as error:
                self._drop_writer(self._message(error))
        writer = self._writer
        if writer is None:
            self._not_written(item)
            return
        if isinstance(item, Note):
            writer.note(item)
            return
        passed_ns = now_ns - (self._last_ns or now_ns)
        most_s = _MOST_INTERVALS * self._session.interval_s
        self._current_s += min(max(0.0, passed_ns / 1e9), most_s)
        self._last_ns = now_ns
        # Within a session times only increase: where the clock was set back another one begins.
        is_set_back = passed_ns < 0
        try:
            unsettled = writer.size - writer.settled_size
            self._most_unsettled = max(self._most_unsettled, unsettled)
            if self._segments.is_unsettled_full(unsettled):
                writer.settle()
            if is_set_back or self._segments.is_full(self._began_ns, now_ns, writer.settled_size):
                writer = self._next(writer, now_ns)
        except (OSError, RecordingError):
            self._not_written(item)
            raise
        pending, self._unwritten = self._unwritten, PendingMetadata()
        tick, notes = pending.merged_into(item.tick), (*pending.notes, *item.notes)
        try:
            writer.write(tick, item.snapshot, notes)
        except OSError:
            # The writer has the tick in memory, and writes it with its block.
            self._update(writer, ticks=1)
            raise
        except Exception:
            self._not_written(_Item(tick, None, notes))
            raise
        self._set(kept_s=self._current_s + sum(self._finished_s.values()))
        # Last: who sees that a tick is recorded sees all of it.
        self._update(writer, ticks=1)
        self._count_given_up(writer)
        if self.status.trouble:
            _LOG.warning("recording continues: %s", writer.path)
            self._set(trouble="")

    def _not_written(self, item: _Item | Note) -> None:
        """Keep the events and notes of an item for the next tick that is written."""
        if isinstance(item, Note):
            self._unwritten.notes.append(item)
        else:
            self._count_lost(1)
            self._unwritten.add(item.tick, item.notes)

    def _next(self, before: Writer, now_ns: int) -> Writer:
        """Open the next file of a rotation, which begins with the state of the one before."""
        self._state = before.state
        self._writer = None
        try:
            before.close()
        finally:
            self._count_given_up(before)
        self._writer = self._open(now_ns)
        if self._writer.path == before.path:
            return self._writer
        self._bytes_before += before.size
        self._set(files=self.status.files + 1)
        self._finished_s[before.path], self._current_s = self._current_s, 0.0
        for path in self._segments.remove_expired(
            self._writer.path, [*self._finished_s], self._most_unsettled
        ):
            _LOG.info("removed %s: beyond what is kept", path)
            self._finished_s.pop(path, None)
            self._set(removed=self.status.removed + 1)
        self._update(self._writer)
        return self._writer

    def _open(self, now_ns: int) -> Writer:
        path = self._segments.free_name(now_ns)
        session = msgspec.structs.replace(self._session, started_ns=now_ns)
        make_directory(path.parent)
        try:
            writer = Writer.create(path, session, self._state)
        except FileExistsError:
            writer = resume(path, session)
        self._began_ns = now_ns
        self._update(writer)
        return writer

    def _write_failed(self, error: OSError) -> None:
        """Report a failed write; an open writer keeps its ticks and retries with the next tick."""
        if self._writer is None or not self._writer.is_open:
            self._drop_writer(self._message(error))
            return
        if self._count_given_up(self._writer):
            self._unwritten.add(self._writer.state.tick(0, 0))
        self._set_trouble(self._message(error))

    def _drop_writer(self, trouble: str) -> None:
        if self._writer is not None:
            self._state = self._writer.state
            self._writer.abandon()
            self._count_given_up(self._writer)
        self._writer = None
        self._retry_at_s = time.monotonic() + self._retry_s
        self._set_trouble(trouble)

    def _set_trouble(self, trouble: str) -> None:
        if not self.status.trouble:
            _LOG.warning("not recording: %s", trouble)
        self._set(trouble=trouble)

    def _update(self, writer: Writer, ticks: int = 0) -> None:
        size = self._bytes_before + writer.size
        taken = self.status.ticks + ticks
        self._set(path=writer.path, bytes=size, ticks=taken, cpu_s=time.thread_time())

    def _count_given_up(self, writer: Writer) -> int:
        """Count as lost what a writer took and gave up since; returns how many ticks."""
        lost = writer.take_lost_ticks()
        with self._lock:
            self._set(ticks=self.status.ticks - lost)
            self._count_lost(lost)
        return lost

    def _count_lost(self, ticks: int) -> None:
        with self._lock:
            self._set(lost_ticks=self.status.lost_ticks + ticks)

    def _set(self, **changes: Any) -> None:
        """Change the status, from either thread."""
        with self._lock:
            self.status = replace(self.status, **changes)

    def _message(self, error: Exception) -> str:
        """What happened and where, for a person; errors of writes do not name their file."""
        if isinstance(error, OSError):
            return f"{error.filename or self.status.path}: {error.strerror or error}"
        return str(error)


def _without_values(snapshot: Snapshot) -> Snapshot:
    """What a writer reads of a snapshot: a third of its memory, which may wait for the disk."""
    none = np.empty((0, 0), np.float32)
    return replace(snapshot, values=none, last_heat=none, columns={})
