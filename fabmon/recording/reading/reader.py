"""Reads one recording: whole or growing, sound or damaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from fabmon.fabric.garbage_collection import without_garbage_collection
from fabmon.fabric.model import Host
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.tick import Tick
from fabmon.fabric.time_wording import LATEST_NS
from fabmon.recording.format.block import Block
from fabmon.recording.format.errors import FrameMoved, NotARecording, TooNew
from fabmon.recording.format.frames import FrameEntry, FrameKind
from fabmon.recording.format.minutes import MINUTE_NS, Minute
from fabmon.recording.format.records import (
    EventsRecord,
    Note,
    RecordedState,
    SessionRecord,
    TopologyRecord,
)
from fabmon.recording.reading.events import EventLog, verify_record
from fabmon.recording.reading.frame_decoder import SourceLayouts
from fabmon.recording.reading.frame_reader import (
    FrameReader,
    Loss,
    ProgressCallback,
    ignore_progress,
)
from fabmon.recording.reading.open_files import OpenFiles
from fabmon.recording.reading.spans import BlockCache, BlockSpan
from fabmon.recording.reading.view import FileView

T = TypeVar("T")


class Recording:
    """One file: what came out of the feed, and what was computed from it at the time.

    Times are the recorder's wall clock, ns since 1970, UTC; ranges of time include both ends. While
    the file grows, frames that are to be read may have been replaced since it was opened: the file
    is then looked at again, as by `refresh`. `on_progress` is called with the bytes read so far
    while the file is opened. Raises NotARecording, TooNew or OSError. Of `files` only some are open
    at a time; what is gone by then is lost.
    """

    def __init__(
        self,
        path: Path,
        on_progress: ProgressCallback = ignore_progress,
        files: OpenFiles | None = None,
    ) -> None:
        self.path = path
        self.is_checked = False
        """Whether all checksums were compared."""
        self._reader = FrameReader(path, on_progress, files)
        self._blocks = BlockCache(self._reader)
        self._events = EventLog(self._reader)
        self._reader.file.on_idle = self._rest
        self._layouts = SourceLayouts()
        self._hosts: list[Host] | None = None
        try:
            self._look()
        except BaseException:
            self._reader.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def _rest(self) -> None:
        """Drop what can be read again."""
        self._blocks.close()
        self._events.forget(0)

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size(self) -> int:
        """The length of the file in bytes when it was last looked at."""
        return self._reader.size

    @property
    def spans(self) -> list[BlockSpan]:
        """The runs of ticks, by time and session."""
        return self._view.spans

    @property
    def sessions(self) -> list[SessionRecord]:
        """The sessions in the order of the file; at least one."""
        return self._view.sessions

    @property
    def start_ns(self) -> int:
        """Time of the first tick; 0 without ticks."""
        return self.spans[0].time_ns if self.spans else 0

    @property
    def until_ns(self) -> int:
        """Time of the last tick; 0 without ticks."""
        return self._view.until_ns

    @property
    def range_ns(self) -> tuple[int, int]:
        """The first and the last time of a tick or an event; (0, 0) where there is none."""
        return self._view.range_ns

    @property
    def hosts(self) -> list[Host]:
        """All nodes that any session watched, from its start or after it found them."""
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
        """The time from one tick to the next in the last session."""
        return self.sessions[-1].interval_s

    @property
    def recorded_s(self) -> float:
        """How much time was recorded: of each session by its ticks' times or numbers, whichever is
        less. A clock that was set meanwhile adds nothing."""
        total_s = 0.0
        for number, session in enumerate(self.sessions):
            ends = self.read(partial(FileView.ends, session=number))
            if ends:
                (first_ns, first), (last_ns, last) = min(ends), max(ends)
                numbered_s = (last + 1 - first) * session.interval_s
                total_s += max(
                    0.0, min(numbered_s, (last_ns - first_ns) / 1e9 + session.interval_s)
                )
        return total_s

    @property
    def losses(self) -> list[Loss]:
        """What could not be read so far; the end of a growing file may be a frame in progress."""
        return self._reader.losses

    def refresh(self) -> bool:
        """Read what was written since; returns whether there was anything."""
        before = self.size, self.until_ns
        if not self._reread():
            return False
        self._look()
        return before != (self.size, self.until_ns)

    def ticks(self, from_ns: int = 0, until_ns: int = LATEST_NS) -> Iterator[Tick]:
        """All ticks of a range of time, as they came out of the feed.

        Of a damaged tick the sound parts are returned.
        """
        for _, tick in self.numbered(from_ns, until_ns):
            yield tick

    def numbered(self, from_ns: int = 0, until_ns: int = LATEST_NS) -> Iterator[tuple[int, Tick]]:
        """The same, each with the number of its session."""
        return self._continued(
            lambda since_ns: self._view.numbered(since_ns, until_ns),
            from_ns,
            lambda each: each[1].time_ns,
        )

    def blocks(
        self, from_ns: int = 0, until_ns: int = LATEST_NS
    ) -> Iterator[tuple[int, int, list[Block]]]:
        """Decoded blocks: times of the first and the last tick of a span, and the blocks in it.

        The first and the last span may extend beyond the range.
        """
        first_ns = from_ns
        for start_ns, end_ns, blocks in self._continued(
            lambda since_ns: self._view.blocks(since_ns, until_ns), from_ns, lambda span: span[1]
        ):
            # A span that was replaced meanwhile begins with ticks that were returned before.
            again = start_ns < first_ns and first_ns > from_ns
            yield start_ns, end_ns, [b.since(first_ns) for b in blocks] if again else blocks
            first_ns = end_ns + 1

    def events(self, from_ns: int = 0, until_ns: int = LATEST_NS) -> Iterator[EventsRecord]:
        """The events of a range of time."""
        found = self._continued(
            lambda since_ns: self._view.events(since_ns, until_ns),
            from_ns,
            lambda each: each[1].time_ns,
        )
        return (event for _, event in found)

    def prime(self, at_ns: int) -> Tick | None:
        """The tick that brings a history to its state before the first tick at or after a time.

        It is the last tick before the time, with all states, and with the last two reads of each
        source of every node and their times. None where there is no tick before the time.
        """
        # The ten thousand lists of a seek would set off several collections, each of which goes
        # through the hellos of all nodes.
        with without_garbage_collection():
            return self.read(lambda view: view.prime(at_ns))

    def warm(self) -> None:
        """Read what every seek needs, so that the first seek takes no longer than others."""
        self.state(self.until_ns)

    def state(self, at_ns: int) -> RecordedState:
        """The state after all events up to and including a time."""
        return self.read(lambda view: view.state(at_ns))

    def notes(self, from_ns: int = 0, until_ns: int = LATEST_NS) -> list[Note]:
        """Bookmarks and changes of findings as they were reported at the time, by time."""
        return self.read(lambda view: view.notes(from_ns, until_ns))

    def minutes(self, from_ns: int = 0, until_ns: int = LATEST_NS) -> Iterator[Minute]:
        """The recorded highest and mean values of each minute."""
        return self._continued(
            lambda since_ns: self._view.minutes(since_ns, until_ns),
            from_ns,
            lambda each: each.start_ns + MINUTE_NS - 1,
        )

    def topology(self, at_ns: int = LATEST_NS) -> TopologyRecord | None:
        """The cabling of the fabric at a time; None where it was not recorded."""
        return self.read(lambda view: view.topology(at_ns))

    def strip(self, from_ns: int, until_ns: int, bins: int) -> Floats:
        """[bins] utilisation of the busiest link of the fabric in each; NaN where none is known."""
        return self.read(lambda view: view.strip(from_ns, until_ns, bins))

    def times(self, from_ns: int = 0, until_ns: int = LATEST_NS) -> Iterator[tuple[int, int]]:
        """Time and sequence number of every tick, without reading its counters."""
        return self._continued(
            lambda since_ns: self._view.times(since_ns, until_ns), from_ns, lambda each: each[0]
        )

    def compare_checksums(self) -> Iterator[int]:
        """Compare the checksum of every frame, and decode none; yields the bytes done so far.
        Damage is added to `losses`."""
        yield from self._over_frames(lambda entry: self._reader.decoded(entry, bytes))
        self.is_checked = True

    def verify(self) -> Iterator[int]:
        """Read the whole file; yields the bytes done so far. Damage is added to `losses`."""
        sizes: Counter[tuple[int, int, bool]] = Counter()
        yield from self._over_frames(lambda entry: self._verify(entry, sizes))
        for _ in self.minutes():
            pass
        self.notes()
        self.warm()

    def _over_frames(self, check: Callable[[FrameEntry], object]) -> Iterator[int]:
        """Check each frame once; yields the bytes done so far."""
        offset = 0
        while True:
            try:
                for entry in [each for each in self.entries() if each.offset >= offset]:
                    check(entry)
                    yield entry.end
                return
            except FrameMoved:
                offset = self.settled_to
                self.refresh()

    def _verify(self, entry: FrameEntry, sizes: Counter[tuple[int, int, bool]]) -> None:
        if entry.header.kind == FrameKind.BLOCK:
            self._blocks.check(entry, sizes)
        else:
            self._reader.decoded(entry, bytes)
            verify_record(self._reader, entry)

    def entries(self) -> list[FrameEntry]:
        """All frames, in the file's order."""
        return self._reader.entries

    def payload(self, entry: FrameEntry) -> bytes:
        """A frame's payload. Raises Damaged."""
        return self._reader.payload(entry)

    @property
    def settled_to(self) -> int:
        """The byte offset up to which the file will not change any more."""
        return self._reader.settled_to

    @property
    def is_closed(self) -> bool:
        """Whether its writer completed it."""
        kinds = [entry.header.kind for entry in self._reader.settled[-2:]]
        return not self._reader.provisional and FrameKind.END in kinds

    def read(self, of: Callable[[FileView], T]) -> T:
        """The result of reading the current view, again where the writer replaced frames since."""
        while True:
            try:
                return of(self._view)
            except FrameMoved:
                self.refresh()

    def _continued(
        self, read: Callable[[int], Iterator[T]], from_ns: int, time_of: Callable[[T], int]
    ) -> Iterator[T]:
        """The items from a time on. After a refresh it continues after the last item."""
        while True:
            view = self._view
            try:
                for item in read(from_ns):
                    yield item
                    from_ns = time_of(item) + 1
                    if self._view is not view:
                        break
                else:
                    return
            except FrameMoved:
                self.refresh()

    def _reread(self) -> bool:
        """Find the frames that were written since; returns whether there can be any."""
        settled_to = self.settled_to
        if not self._reader.refresh():
            return False
        self._blocks.forget(settled_to)
        self._events.forget(settled_to)
        return True

    def _look(self) -> None:
        """Take a view of the file as it is now."""
        while True:
            self._view = FileView(self._reader, self._blocks, self._events, self._layouts)
            self._hosts = None
            try:
                self._view.read_sessions()
                return
            except FrameMoved:
                self._reread()
            except (NotARecording, TooNew) as error:
                raise type(error)(f"{self.path}: {error}") from None
