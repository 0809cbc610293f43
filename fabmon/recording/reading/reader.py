"""Making many objects at once, without the garbage collector looking at all others meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from fabmon.fabric.model import Host
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.tick import Tick
from fabmon.recording.format import block
from fabmon.recording.format.block import Block
from fabmon.recording.format.errors import Damaged, Moved, NotARecording, TooNew
from fabmon.recording.format.frames import FrameEntry, FrameKind
from fabmon.recording.format.minutes import MINUTE_NS, Minute
from fabmon.recording.format.records import (
    EventsRecord,
    Note,
    RecordedState,
    SessionRecord,
    TopologyRecord,
)
from fabmon.recording.reading.events import EventLog
from fabmon.recording.reading.frame_decoder import SourceLayouts
from fabmon.recording.reading.frame_reader import FrameReader, Loss, OnProgress, ignore_progress
from fabmon.recording.reading.spans import BlockCache, BlockSpan
from fabmon.recording.reading.view import FileView


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """No collection inside: ten thousand lists of a seek would set off several, each of which
    looks at the hellos of all nodes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# Reads a recording, whole or still growing, sound or damaged.


_LATEST = (1 << 63) - 1

T = TypeVar("T")


class Recording:
    """One file, as what came out of the feed and what was made of it at the time.

    `told` hears how far it is while the file is opened, in bytes. While it grows, what is read may
    have been written anew since it was opened: the file is then looked at again, as by `refresh`.
    Raises NotARecording, TooNew, or OSError. Times are the recorder's wall clock, in ns, UTC.
    """

    def __init__(self, path: Path, told: OnProgress = ignore_progress) -> None:
        self.path = path
        self._contents = FrameReader(path, told)
        self._blocks = BlockCache(self._contents)
        self._events = EventLog(self._contents)
        self._layouts = SourceLayouts()
        self._hosts: list[Host] | None = None
        try:
            self._fresh(self._look)
        except BaseException:
            self._contents.close()
            raise

    def close(self) -> None:
        """Let the file go."""
        self._blocks.close()
        self._contents.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size(self) -> int:
        """Bytes, when it was last looked at."""
        return self._contents.size

    @property
    def spans(self) -> list[BlockSpan]:
        """The runs of ticks there are, by session and time."""
        return self._view.spans

    @property
    def sessions(self) -> list[SessionRecord]:
        """Who was watched, run by run; at least one."""
        return self._view.sessions

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
        """Every node that any session watched, from its start or since it was found."""
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
        """From one tick to the next, in the last session."""
        return self.sessions[-1].interval_s

    @property
    def losses(self) -> list[Loss]:
        """What could not be read so far; while it grows, its end may be a frame to be."""
        return self._contents.losses

    def refresh(self) -> bool:
        """Take in what was written since; whether there was anything."""
        before = self.size, self.until_ns
        settled_to = self._contents.settled_to
        if not self._contents.refresh():
            return False
        self._blocks.forget(settled_to)
        self._events.forget(settled_to)
        self._look()
        return before != (self.size, self.until_ns)

    def ticks(self, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[Tick]:
        """Every tick from a time up to and with another, as it came out of the feed.

        A tick of which a part is lost comes with what is left of it.
        """
        for _, tick in self.numbered(from_ns, until_ns):
            yield tick

    def numbered(self, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[tuple[int, Tick]]:
        """The same, each with the number of its session."""
        return self._going_on(
            lambda since_ns: self._view.numbered(since_ns, until_ns),
            from_ns,
            lambda x: x[1].time_ns,
        )

    def blocks(
        self, from_ns: int = 0, until_ns: int = _LATEST
    ) -> Iterator[tuple[int, int, list[Block]]]:
        """Runs of ticks as they are kept, the first and the last perhaps longer than asked for:
        times of the first and the last tick, and the blocks of all nodes.
        """
        first_ns = from_ns
        for start_ns, end_ns, blocks in self._going_on(
            lambda since_ns: self._view.runs(since_ns, until_ns), from_ns, lambda run: run[1]
        ):
            # A run that was written anew meanwhile begins with ticks that were given before.
            again = start_ns < first_ns and first_ns > from_ns
            yield start_ns, end_ns, [b.since(first_ns) for b in blocks] if again else blocks
            first_ns = end_ns + 1

    def events(self, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[EventsRecord]:
        """What happened from a time up to and with another."""
        found = self._going_on(
            lambda since_ns: self._view.events(since_ns, until_ns),
            from_ns,
            lambda each: each[1].time_ns,
        )
        return (event for _, event in found)

    def prime(self, at_ns: int) -> Tick | None:
        """What brings a history to where it was before the first tick at or after a time.

        The last tick before it, with all states, and of every node the last two reads of each of
        its sources, and when they came; None where there is none.
        """
        with without_garbage_collection():
            return self._fresh(lambda: self._view.prime(at_ns))

    def session_before(self, at_ns: int) -> int:
        """The number of the session of the last tick before a time."""
        return self._view.session_before(at_ns)

    def warm(self) -> None:
        """Read what every seek needs, so that the first one takes no longer than others."""
        self.state(self.until_ns)

    def opening(self) -> RecordedState | None:
        """What was known before its first tick; None where it began with nothing."""
        return self._fresh(lambda: self._view.opening())

    def state(self, at_ns: int) -> RecordedState:
        """What all events up to and with a time amount to."""
        return self._fresh(lambda: self._view.state(at_ns))

    def settled_state(self) -> RecordedState:
        """What all events of the part that will not change any more amount to."""
        return self._fresh(lambda: self._view.settled_state(self.settled_to))

    def unsettled(self) -> list[Tick]:
        """The last session's ticks that are not, or not only, in that part, by time."""
        return self._fresh(lambda: self._view.unsettled(self.settled_to))

    def watched(self, session: int) -> Collection[str]:
        """The nodes of a session: those that were given, and those that were found."""
        return self._fresh(lambda: self._view.watched()[session])

    def notes(self, from_ns: int = 0, until_ns: int = _LATEST) -> list[Note]:
        """Bookmarks, and what was found at the time, by time."""
        return self._fresh(lambda: self._view.notes(from_ns, until_ns))

    def minutes(self, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[Minute]:
        """What was drawn, minute by minute."""
        return self._going_on(
            lambda since_ns: self._view.minutes(since_ns, until_ns),
            from_ns,
            lambda each: each.start_ns + MINUTE_NS - 1,
        )

    def topology(self, at_ns: int = _LATEST) -> TopologyRecord | None:
        """How the fabric was cabled at a time."""
        return self._fresh(lambda: self._view.topology(at_ns))

    def strip(self, from_ns: int, until_ns: int, bins: int) -> Floats:
        """[bins] utilisation of the busiest link of the fabric in each; NaN where none is known."""
        return self._fresh(lambda: self._view.strip(from_ns, until_ns, bins))

    def times(self, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[tuple[int, int]]:
        """Time and sequence number of every tick, without its counters."""
        return self._going_on(
            lambda since_ns: self._view.times(since_ns, until_ns), from_ns, lambda each: each[0]
        )

    def ends(self, session: int) -> list[tuple[int, int]]:
        """Time and sequence number of the first and the last tick of a session; empty without."""
        return self._fresh(lambda: self._view.ends(session))

    def verify(self) -> Iterator[int]:
        """Read all of it; the bytes done so far. What is found damaged is added to `losses`."""
        at = 0
        while True:
            try:
                for entry in [each for each in self.entries() if each.offset >= at]:
                    self._verify(entry)
                    yield entry.end
                return
            except Moved:
                at = self.settled_to
                self.refresh()

    def _verify(self, entry: FrameEntry) -> None:
        try:
            payload = self.payload(entry)
            if entry.header.kind == FrameKind.BLOCK:
                block.decode_block(payload)
        except Damaged as error:
            self._contents.lose(entry, error)

    def entries(self) -> list[FrameEntry]:
        """Every frame there is, in the file's order."""
        return self._contents.entries

    def payload(self, entry: FrameEntry) -> bytes:
        """A frame's payload. Raises Damaged."""
        return self._contents.file.payload(entry)

    @property
    def settled_to(self) -> int:
        """Where the part ends that will not change any more."""
        return self._contents.settled_to

    @property
    def is_closed(self) -> bool:
        """Whether its writer came to its end."""
        kinds = [entry.header.kind for entry in self._contents.settled[-2:]]
        return not self._contents.provisional and FrameKind.END in kinds

    def _fresh(self, read: Callable[[], T]) -> T:
        """What is read of the file as it is now."""
        while True:
            try:
                return read()
            except Moved:
                self.refresh()

    def _going_on(
        self, read: Callable[[int], Iterator[T]], from_ns: int, time_of: Callable[[T], int]
    ) -> Iterator[T]:
        """What is read from a time on; where the file was looked at again meanwhile, from behind
        what came last.
        """
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
            except Moved:
                self.refresh()

    def _look(self) -> None:
        """Take a view of the file as it is now."""
        self._view = FileView(self._contents, self._blocks, self._events, self._layouts)
        self._hosts = None
        try:
            self._view.know_sessions()
        except (NotARecording, TooNew) as error:
            raise type(error)(f"{self.path}: {error}") from None
