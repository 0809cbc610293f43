"""Finds the frames of a file: by its index where it has one, else from header to header.

Whatever is no frame is passed over to the next one that is, and told as a loss.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from fabmon.recording.format import frames
from fabmon.recording.format.errors import Damaged, Moved, NotARecording
from fabmon.recording.format.frames import (
    HEADER_BYTES,
    MAGIC,
    FrameEntry,
    FrameHeader,
    FrameKind,
    decode_header,
    payload_matches,
)
from fabmon.recording.format.records import decode_sanitised
from fabmon.recording.format.sections import ZstdError, decompress

_CHUNK = 1 << 20


OnProgress = Callable[[float], None]
"""Is told how far a file has been read, in bytes."""


def ignore_progress(_: float) -> None:
    """For what need not be told."""


class Loss(NamedTuple):
    """Bytes of a file that hold no frame any more, and what is known of them."""

    offset: int
    end: int
    text: str


class RecordingFile:
    """A recording's bytes, read where they are asked for."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def size(self) -> int:
        """Bytes there are now."""
        return os.fstat(self._fd).st_size

    def read(self, at: int, length: int) -> bytes:
        """As many bytes as there are."""
        return os.pread(self._fd, length, at)

    def may_be_ours(self) -> bool:
        """Whether anything in its first MiB looks like a frame."""
        return MAGIC in self.read(0, _CHUNK)

    def header(self, at: int) -> FrameHeader | None:
        """The header at a place; None when there is no sound one."""
        return decode_header(self.read(at, HEADER_BYTES))

    def payload(self, entry: FrameEntry) -> bytes:
        """A frame's payload. Raises Damaged, with the place."""
        data = self.read(entry.offset + HEADER_BYTES, entry.header.length)
        if not payload_matches(entry.header, data):
            raise Damaged(f"byte {entry.offset}: a frame ({entry.header.kind}) that is damaged")
        return data

    def next_frame(self, at: int, stop: int, told: OnProgress) -> int:
        """Where the next sound header is, from a place on; `stop` when there is none."""
        while at < stop:
            told(at)
            data = self.read(at, _CHUNK + HEADER_BYTES)
            found = data.find(MAGIC)
            while found >= 0:
                if decode_header(data, found) is not None:
                    return min(at + found, stop)
                found = data.find(MAGIC, found + 1)
            if len(data) <= HEADER_BYTES:
                return stop
            at += len(data) - HEADER_BYTES
        return stop

    def last_frame(self, stop: int) -> int | None:
        """Where the last sound header before a place is; None when there is none."""
        end = stop
        while end > 0:
            start = max(0, end - _CHUNK)
            data = self.read(start, end - start + HEADER_BYTES)
            found = data.rfind(MAGIC, 0, end - start + len(MAGIC) - 1)
            while found >= 0:
                if decode_header(data, found) is not None:
                    return start + found
                found = data.rfind(MAGIC, 0, found + len(MAGIC) - 1)
            end = start
        return None


class FrameScan:
    """Goes from header to header; `losses` are what lay between, `offset` is where it stands."""

    def __init__(self, file: RecordingFile, offset: int, stop: int, told: OnProgress) -> None:
        self.offset = offset
        self.losses: list[Loss] = []
        self._file = file
        self._stop = stop
        self._told = told

    def __iter__(self) -> Iterator[FrameEntry]:
        while self.offset < self._stop:
            self._told(self.offset)
            found = self._file.header(self.offset)
            if found is None:
                self._pass_over("no frame begins here")
                continue
            entry = FrameEntry(self.offset, found)
            if entry.end > self._stop:
                # Cut off, or not all written yet: a frame may still follow if its length lies.
                self._pass_over(f"a frame ({found.kind}) that is not all there")
                continue
            self.offset = entry.end
            yield entry

    def _pass_over(self, text: str) -> None:
        start = self.offset
        self.offset = self._file.next_frame(start + 1, self._stop, self._told)
        self.losses.append(Loss(start, self.offset, text))


def indexed_frames(
    file: RecordingFile, size: int
) -> tuple[list[FrameEntry], list[tuple[int, int]]]:
    """Frames that the indices list, and the ranges that none covers, both in the file's order."""
    last = file.last_frame(size)
    found = file.header(last) if last is not None else None
    at = 0
    if found is not None and last is not None:
        at = last if found.kind == FrameKind.INDEX else found.index_at
    lists: list[tuple[int, int, list[FrameEntry]]] = []
    seen: set[int] = set()
    while at and at not in seen:
        seen.add(at)
        head = file.header(at)
        if head is None or head.kind != FrameKind.INDEX:
            break
        own = FrameEntry(at, head)
        try:
            start, entries = frames.decode_index(file.payload(own))
        except Damaged:
            pass
        else:
            lists.append((start, own.end, [*entries, own]))
        at = head.index_at
    gaps, entries, covered = [], [], 0
    for start, end, listed in reversed(lists):
        if start > covered:
            gaps.append((covered, start))
        entries += listed
        covered = max(covered, end)
    if covered < size:
        gaps.append((covered, size))
    return entries, gaps


# The frames of a file, as it grows: what is settled, what may change, and what is lost.


T = TypeVar("T")


class FrameReader:
    """One file's frames, in its order. Raises NotARecording or OSError.

    `size` is its bytes when it was last looked at. From `settled_to` on all may still change, since
    the writer puts there what it will write again in its final form. `told` hears how far it is
    while the file is opened; where no index lists its frames that may take a while.
    """

    def __init__(self, path: Path, told: OnProgress = ignore_progress) -> None:
        # A FIFO that nobody writes to would hold up else.
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self.file = RecordingFile(self._fd)
        self.size = self.file.size
        self.settled: list[FrameEntry] = []
        self.settled_to = 0
        self.provisional: list[FrameEntry] = []
        self._losses: list[Loss] = []
        self._open_losses: list[Loss] = []
        self._bad: set[int] = set()
        try:
            self._check(path)
            self._take(*indexed_frames(self.file, self.size), told)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let the file go."""
        os.close(self._fd)

    @property
    def entries(self) -> list[FrameEntry]:
        """Every frame there is."""
        return [*self.settled, *self.provisional]

    @property
    def losses(self) -> list[Loss]:
        """What could not be read so far; of a file that grows its end may be a frame to be."""
        return sorted([*self._losses, *self._open_losses])

    def begins_as_ours(self) -> bool:
        """Whether the file's first bytes are a recording's."""
        return self.file.read(0, len(MAGIC)) == MAGIC

    def refresh(self) -> bool:
        """Take in what was written since; whether there can be anything."""
        size = self.file.size
        if size == self.size and not self.provisional:
            return False
        self.size = size
        self._bad = {at for at in self._bad if at < self.settled_to}
        self._take([], [(self.settled_to, size)], ignore_progress)
        return True

    def is_bad(self, entry: FrameEntry) -> bool:
        """Whether a frame was found damaged before."""
        return entry.offset in self._bad

    def stay(self, entry: FrameEntry) -> None:
        """Raises Moved where the writer has put something else in the place of a frame."""
        if entry.offset >= self.settled_to and self.file.header(entry.offset) != entry.header:
            raise Moved(f"byte {entry.offset}: a frame that was written anew meanwhile")

    def lose(self, entry: FrameEntry, error: Exception) -> None:
        """A frame is damaged: it is told once, and not read again. Raises Moved where it is not."""
        if entry.offset in self._bad:
            return
        self.stay(entry)
        self._bad.add(entry.offset)
        if any(self._is_double(each, entry) for each in self.provisional):
            return
        losses = self._losses if entry.offset < self.settled_to else self._open_losses
        losses.append(Loss(entry.offset, entry.end, str(error) or "not enough memory"))

    def _is_double(self, other: FrameEntry, entry: FrameEntry) -> bool:
        """Whether a frame is the sound one of two equal ones, and another one is not."""
        if other.offset <= entry.offset or _same(other.header) != _same(entry.header):
            return False
        return payload_matches(
            other.header, self.file.read(other.offset + HEADER_BYTES, other.header.length)
        )

    def decoded(self, entry: FrameEntry, decode: Callable[[bytes], T]) -> T | None:
        """What a frame holds; None, and a loss, when it is damaged."""
        if entry.offset in self._bad:
            return None
        try:
            return decode(self.file.payload(entry))
        except (Damaged, ZstdError, msgspec.DecodeError, UnicodeDecodeError, MemoryError) as error:
            self.lose(entry, error)
            return None

    def json(self, entry: FrameEntry, kind: type[T]) -> T | None:
        """A record; None, and a loss, when it is damaged."""
        return self.decoded(entry, lambda p: decode_sanitised(decompress(p), kind))

    def _check(self, path: Path) -> None:
        """Whether it can be one, without reading all of it. Raises NotARecording."""
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise NotARecording(f"{path}: not a regular file: save the recording to one")
        if not self.file.may_be_ours():
            raise NotARecording(f"{path}: not a recording of fabmon")

    def _take(
        self, listed: list[FrameEntry], gaps: list[tuple[int, int]], told: OnProgress
    ) -> None:
        """Take in frames that the index lists, and walk where it has none."""
        found = list(listed)
        losses: list[Loss] = []
        for start, stop in gaps:
            walk = FrameScan(self.file, start, stop, told)
            found += walk
            losses += walk.losses
        found.sort(key=lambda entry: entry.offset)
        tail = gaps[-1][0] if gaps and gaps[-1][1] == self.size else self.size
        self.provisional = []
        settled_to = self.settled_to
        for place, entry in enumerate(found):
            if entry.offset >= tail and (entry.header.provisional or entry.offset != max(settled_to, tail)):
                # From the first frame on that is not settled, all may still change.
                self.provisional = found[place:]
                break
            self.settled.append(entry)
            settled_to = entry.end
        self.settled_to = settled_to
        self._losses += [loss for loss in losses if loss.end <= settled_to]
        self._open_losses = [
            loss for loss in losses if loss.end > settled_to and not self._is_left_over(loss)
        ]

    def _is_left_over(self, loss: Loss) -> bool:
        """Whether its writer was killed while it put settled frames in the place of what was not:
        the frames behind it are those that were to be there, and all that it held is in them.
        """
        behind = [e for e in self.provisional if e.offset >= loss.end and not e.header.provisional]
        known = {_same(entry.header) for entry in self.settled}
        return bool(behind) and _same(behind[0].header) in known


def _same(header: FrameHeader) -> tuple[object, ...]:
    """What equal frames have in common."""
    return header.kind, header.time_ns, header.until_ns, header.part, header.crc
