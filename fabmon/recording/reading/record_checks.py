"""What is checked of a frame's content as it is read, the same for every reader and for verify."""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable, Iterable

import msgspec
import numpy as np

from fabmon.fabric.model import Host
from fabmon.fabric.time_wording import LATEST_NS
from fabmon.fabric.wire.hello_limits import HelloLimits
from fabmon.fabric.wire.messages import Hello, WireError
from fabmon.recording.format.block import RowTicks
from fabmon.recording.format.errors import Damaged
from fabmon.recording.format.frames import FrameEntry, FrameHeader, FrameKind
from fabmon.recording.format.minutes import MINUTE_NS
from fabmon.recording.format.records import (
    MOST_TICKS,
    EventsRecord,
    Note,
    NotedFinding,
    SessionRecord,
)

_FREE_BYTES = 2 << 30
_BYTES_PER_BYTE = 4096
"""What a file may expand to: 2 GiB, and so much for each of its bytes. Hellos of nodes that differ
in their names only compress to a 3000th of the memory that they take."""

_KEPT_BYTES = 3 << 29
"""What may be kept in memory of a file's records: 1.5 GiB, the hellos of some thousand nodes."""


class ReadBudget:
    """Counts what the frames of one file expand to, each frame once, from any thread.

    `large` is held while a large block is decoded, so that only one is at a time.
    """

    def __init__(self) -> None:
        self.large = threading.Lock()
        self._lock = threading.Lock()
        self._file_bytes = 0
        self._expanded: dict[int, int] = {}
        self._total = 0
        self._kept: dict[Hashable, int] = {}
        self._kept_total = 0

    def resize(self, file_bytes: int) -> None:
        """Set the length of the file, which may grow."""
        self._file_bytes = file_bytes

    def expand(self, entry: FrameEntry, size: int = 0) -> None:
        """Count the bytes that a frame takes when it is decoded. Raises Damaged.

        Before it is decoded, with 0, a frame is refused when those before it took all.
        """
        with self._lock:
            known = self._expanded.get(entry.offset, 0)
            if known >= size > 0 or (known and not size):
                return
            most = _FREE_BYTES + _BYTES_PER_BYTE * self._file_bytes
            if self._total + size - known > most:
                self._total = max(self._total, most + 1)  # No frame after it is decoded.
                raise _over(entry, f"the file expands to more than {most >> 20} MiB")
            self._total += size - known
            self._expanded[entry.offset] = size

    def expanded(self, offset: int) -> int:
        """The bytes that were counted for the frame at an offset; 0 for none."""
        return self._expanded.get(offset, 0)

    def keep(self, entry: FrameEntry, names: Collection[Hashable]) -> None:
        """Count a frame as kept in memory, in equal parts under some names, until they are kept
        again. Raises Damaged."""
        for name in names:
            self._kept_total -= self._kept.get(name, 0)
            self._kept[name] = self.expanded(entry.offset) // len(names)
            self._kept_total += self._kept[name]
        if self._kept_total > _KEPT_BYTES:
            self.release(names)
            raise _over(entry, f"the file's records take more than {_KEPT_BYTES >> 20} MiB")

    def release(self, names: Iterable[Hashable]) -> None:
        """Count what is kept under some names no longer."""
        self._kept_total -= sum(self._kept.pop(name, 0) for name in names)

    def forget(self, start: int) -> None:
        """Drop the counts of frames from a byte offset on, which may have changed."""
        with self._lock:
            self._expanded = {at: size for at, size in self._expanded.items() if at < start}
            self._total = sum(self._expanded.values())


def _over(entry: FrameEntry, what: str) -> Damaged:
    return Damaged(f"byte {entry.offset}: {what}; no recorder writes that")


_WIDEST = Host(name="", via="exporters")
"""A node that may report others: which node a recorded hello is from does not matter here."""


_LATEST_TICK_NS = LATEST_NS - MINUTE_NS
"""The minute of a tick ends within 64 bits."""


def has_sound_times(header: FrameHeader) -> bool:
    """Whether a frame ends when it begins or later, and in time. An index lists frames in another
    order."""
    if header.kind == FrameKind.MINUTE and header.until_ns - header.time_ns != MINUTE_NS:
        return False
    is_ordered = 0 <= header.time_ns <= header.until_ns <= _LATEST_TICK_NS
    return header.kind == FrameKind.INDEX or is_ordered


def check_ticks(header: FrameHeader, ticks: RowTicks) -> None:
    """Raise Damaged where the ticks of a block are not those of its header, in order."""
    times = ticks.time_ns
    if (times[0], times[-1]) != (header.time_ns, header.until_ns) or (np.diff(times) < 0).any():
        raise Damaged("the ticks of a block are not of the time in its header")
    if ticks.seq.min() < 0 or ticks.seq.max() > MOST_TICKS:
        raise Damaged("the ticks of a block have numbers that no feed counts to")


def check_record(header: FrameHeader, record: object) -> None:
    """Raise Damaged for a record that no fabmon writes, or of another time than its frame."""
    time_ns = header.time_ns
    if isinstance(record, Note):
        time_ns = record.time_ns
        try:
            msgspec.convert(record.finding, NotedFinding)
        except (msgspec.ValidationError, RecursionError) as error:
            raise Damaged(f"the finding of a note is not one: {error}") from None
    elif isinstance(record, EventsRecord):
        time_ns = record.time_ns
        _check_hellos(hello for _, hello in record.hellos)
    elif isinstance(record, SessionRecord):
        time_ns = record.started_ns
    elif isinstance(record, dict):
        _check_hellos(record.values())
    if time_ns != header.time_ns:
        raise Damaged("a record is of another time than its frame")


def _check_hellos(hellos: Iterable[Hello]) -> None:
    """Raise Damaged for a hello that no console would have accepted."""
    try:
        for hello in hellos:
            HelloLimits(_WIDEST).admit(hello)
    except WireError as error:
        raise Damaged(str(error)) from None
