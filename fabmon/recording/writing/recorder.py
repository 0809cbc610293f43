"""What ticks told that were not written, until one is."""

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

from fabmon.fabric.model import Host
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeStatus, Tick
from fabmon.fabric.wire.messages import Hello, Notice
from fabmon.recording.format.errors import RecordingError
from fabmon.recording.format.records import Note, RecordedState, SessionRecord
from fabmon.recording.writing.segments import Segments
from fabmon.recording.writing.writer import Writer, resume


class PendingMetadata:
    """Hosts, hellos, statuses and notices: without them the ticks after are of no use. And what
    was found in them and noted: what ended there would be open for ever.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}
        self._hellos: dict[str, Hello] = {}
        self._statuses: dict[str, NodeStatus] = {}
        self._notices: dict[tuple[str, str, str, str], tuple[str, Notice]] = {}
        self._notes: list[Note] = []

    def add(self, tick: Tick, notes: Sequence[Note] = ()) -> None:
        """Keep what a tick tells. Of the same thing, the last counts; of notes, all."""
        self._notes += notes
        self._hosts |= {host.name: host for host in tick.hosts}
        self._hellos |= dict(tick.hellos)
        self._statuses |= {status.node: status for status in tick.statuses}
        again = {node for node, _ in tick.hellos}
        self._notices = {key: each for key, each in self._notices.items() if key[0] not in again}
        for node, notice in tick.notices:
            key = (node, notice.source, notice.object, notice.metric)
            self._notices[key] = (node, notice)

    def note(self, note: Note) -> None:
        """Keep a bookmark."""
        self._notes.append(note)

    def told_with(self, tick: Tick) -> Tick:
        """A tick that tells it as well; the same where there is nothing to tell."""
        if not (self._hosts or self._hellos or self._statuses or self._notices):
            return tick
        self.add(tick)
        return msgspec.structs.replace(
            tick,
            hosts=tuple(self._hosts.values()),
            hellos=tuple(self._hellos.items()),
            statuses=tuple(self._statuses.values()),
            notices=tuple(self._notices.values()),
        )

    def noted_with(self, notes: Sequence[Note]) -> tuple[Note, ...]:
        """Notes after those that were not written."""
        return (*self._notes, *notes)


# Records what a feed brings, in a thread of its own: a slow disk never holds up the watching.


_LOG = logging.getLogger("fabmon.recording")

_MOST_WAITING = 60
_RETRY_S = 5.0
_CLOSE_S = 10.0


@dataclass(frozen=True, slots=True)
class RecorderStatus:
    """How recording goes. `trouble` is for a person, empty when all is well.

    `path` is the file now written, `bytes` what it and those before it take: that grows, and falls
    whenever the last ticks are written again, ten times smaller. `kept_s` is how far back what was
    written goes, in files that are kept. `lost_ticks` could not be written.
    """

    path: Path
    bytes: int = 0
    kept_s: float = 0.0
    ticks: int = 0
    lost_ticks: int = 0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class _Item:
    tick: Tick
    snapshot: Snapshot | None
    notes: tuple[Note, ...]


class Recorder:
    """Takes ticks; `status` says how it goes. Nothing it does raises, once it is made.

    A trouble (disk full, read only, quota) is told once in the log and stays in the status until
    writing works again; what was written is kept, and it is tried again every `retry_s`.
    """

    def __init__(
        self, segments: Segments, session: SessionRecord, retry_s: float = _RETRY_S
    ) -> None:
        """Opens the first file at once. Raises OSError or RecordingError where that fails."""
        segments.check_unused()
        self._segments = segments
        self._session = session
        self._queue: queue.SimpleQueue[_Item | Note | None] = queue.SimpleQueue()
        self._writer: Writer | None = None
        self._state: RecordedState | None = None
        self._began_ns = session.started_ns
        self._bytes_before = 0
        self._before_ns: dict[Path, int] = {}
        self._retry_s = retry_s
        self._retry_at = 0.0
        # One of each thread: of ticks that were not taken up, and of those that were not written.
        self._untaken = PendingMetadata()
        self._unwritten = PendingMetadata()
        self._lock = threading.RLock()
        self.status = RecorderStatus(segments.name(session.started_ns))
        self._writer = self._open(session.started_ns)
        self._thread = threading.Thread(target=self._run, name="fabmon-record", daemon=True)
        self._thread.start()

    def accept(
        self, tick: Tick, snapshot: Snapshot | None = None, notes: Sequence[Note] = ()
    ) -> None:
        """Take a tick, what was drawn of it and what was found in it. Returns at once."""
        if self.waiting >= _MOST_WAITING:
            self._lose(1)
            self._tell("the disk is too slow: ticks are not recorded")
            self._untaken.add(tick, notes)
            return
        told = self._untaken.told_with(tick)
        self._queue.put(_Item(told, snapshot, self._untaken.noted_with(notes)))
        self._untaken = PendingMetadata()

    @property
    def waiting(self) -> int:
        """Ticks and notes that were accepted and are not taken up yet."""
        return self._queue.qsize()

    @property
    def rotates(self) -> bool:
        """Whether there is ever another file than the first."""
        return self._segments.rotation.rotates

    def note(self, note: Note) -> None:
        """Keep a bookmark. Returns at once."""
        self._queue.put(note)

    def close(self) -> RecorderStatus:
        """Write what waits and make the file whole, within 10 s; how it went."""
        self._queue.put(None)
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive():
            self._tell("the disk does not answer: the last ticks may be missing")
        return self.status

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                self._take(item)
            except OSError as error:
                self._failed(error)
            except RecordingError as error:
                self._drop(str(error))
            except Exception as error:
                _LOG.exception("a fault of fabmon itself, in recording")
                self._drop(f"a fault of fabmon itself: {error}")
        if self._writer is not None:
            try:
                self._writer.close()
                self._update(self._writer)
            except OSError as error:
                self._failed(error)

    def _take(self, item: _Item | Note) -> None:
        now_ns = item.time_ns if isinstance(item, Note) else item.tick.time_ns
        if self._writer is None and not self._reopened(now_ns):
            self._not_written(item)
            return
        writer = self._writer
        assert writer is not None
        if isinstance(item, Note):
            writer.note(item)
            return
        if self._segments.is_full(self._began_ns, now_ns, writer.size):
            try:
                writer = self._next(writer, now_ns)
            except (OSError, RecordingError):
                self._not_written(item)
                raise
        tick, notes = self._unwritten.told_with(item.tick), self._unwritten.noted_with(item.notes)
        self._unwritten = PendingMetadata()
        try:
            writer.write(tick, item.snapshot, notes)
        except OSError:
            # The writer has it in memory, and writes it with the block that it belongs to.
            self._update(writer, ticks=1)
            raise
        except Exception:
            self._not_written(_Item(tick, None, notes))
            raise
        self._update(writer, ticks=1)
        since_ns = min([self._began_ns, *self._before_ns.values()])
        self._set(kept_s=max(0.0, (now_ns - since_ns) / 1e9))
        if self.status.trouble:
            _LOG.warning("recording goes on: %s", writer.path)
            self._set(trouble="")

    def _not_written(self, item: _Item | Note) -> None:
        """What it tells is told with what is written next."""
        if isinstance(item, Note):
            self._unwritten.note(item)
        else:
            self._lose(1)
            self._unwritten.add(item.tick, item.notes)

    def _next(self, before: Writer, now_ns: int) -> Writer:
        """The next file of a rotation, which knows what the one before did."""
        self._state = before.state
        self._writer = None
        before.close()
        self._bytes_before += before.size
        self._before_ns[before.path] = self._began_ns
        self._writer = self._open(now_ns)
        for path in self._segments.tidy(self._writer.path, now_ns):
            _LOG.info("removed %s", path)
            self._before_ns.pop(path, None)
        return self._writer

    def _open(self, now_ns: int) -> Writer:
        path = self._segments.name(now_ns)
        session = msgspec.structs.replace(self._session, started_ns=now_ns)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            writer = Writer.create(path, session, self._state)
        except FileExistsError:
            writer = resume(path, session)
        self._began_ns = now_ns
        self._update(writer)
        return writer

    def _reopened(self, now_ns: int) -> bool:
        if time.monotonic() < self._retry_at:
            return False
        try:
            self._writer = self._open(now_ns)
        except (OSError, RecordingError) as error:
            self._drop(_said(error))
            return False
        return True

    def _failed(self, error: OSError) -> None:
        """A write did not work. The writer keeps its ticks in memory and tries with the next."""
        if self._writer is not None and self._writer.is_open:
            lost = self._writer.take_lost()
            if lost:
                self._lose(lost)
                self._unwritten.add(self._writer.state.tick(0, 0))
            self._tell(_said(error))
        else:
            self._drop(_said(error))

    def _drop(self, text: str) -> None:
        if self._writer is not None:
            self._state = self._writer.state
            self._writer.give_up()
        self._writer = None
        self._retry_at = time.monotonic() + self._retry_s
        self._tell(text)

    def _tell(self, text: str) -> None:
        if not self.status.trouble:
            _LOG.warning("not recording: %s", text)
        self._set(trouble=text)

    def _update(self, writer: Writer, ticks: int = 0) -> None:
        size = self._bytes_before + writer.size
        self._set(path=writer.path, bytes=size, ticks=self.status.ticks + ticks)

    def _lose(self, ticks: int) -> None:
        with self._lock:
            self._set(lost_ticks=self.status.lost_ticks + ticks)

    def _set(self, **changes: Any) -> None:
        """Both threads tell how it goes."""
        with self._lock:
            self.status = replace(self.status, **changes)


def _said(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'recording'}: {error.strerror or error}"
    return str(error)
