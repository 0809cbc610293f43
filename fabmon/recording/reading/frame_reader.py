"""Finds the frames of a file: by its index where it has one, else from header to header.

Bytes that belong to no frame are skipped up to the next frame and reported as a loss.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Collection, Hashable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from fabmon.malformed_json import MALFORMED
from fabmon.recording.format.block import Block, decode_block
from fabmon.recording.format.errors import Damaged, FrameMoved, NotARecording
from fabmon.recording.format.frames import (
    HEADER_BYTES,
    MAGIC,
    FrameEntry,
    FrameHeader,
    FrameKind,
    decode_header,
    decode_index,
    payload_matches,
)
from fabmon.recording.format.records import decode_sanitised, memory_estimate
from fabmon.recording.format.sections import ZstdError, decompress
from fabmon.recording.reading.open_files import OpenFiles, SourceFile
from fabmon.recording.reading.record_checks import (
    ReadBudget,
    check_record,
    check_ticks,
    has_sound_times,
)

_CHUNK_BYTES = 1 << 20

_MAX_METADATA_BYTES = 1 << 30
"""The most memory of a record, by `memory_estimate`: the hellos of some thousand nodes."""

_MAX_NOTE_BYTES = 1 << 22

T = TypeVar("T")

ProgressCallback = Callable[[float], None]
"""Called with the number of bytes of a file that have been read."""


def ignore_progress(_: float) -> None:
    """A ProgressCallback that does nothing."""


class Loss(NamedTuple):
    """Bytes of a file that cannot be read, from `offset` to `end`, and why."""

    offset: int
    end: int
    text: str


class FrameReader:
    """The frames of one file, in its order. Raises NotARecording or OSError.

    `size` is the length of the file in bytes when it was last looked at. From `settled_to` on
    frames may still change: the writer puts there frames that it will write again in their final
    form. `on_progress` is called while the file is opened, which takes long where no index lists
    its frames. `files` are those of which it is one, and which are not all open at once.
    """

    def __init__(
        self,
        path: Path,
        on_progress: ProgressCallback = ignore_progress,
        files: OpenFiles | None = None,
    ) -> None:
        among = files or OpenFiles()
        self.file = SourceFile(path, among)
        self.size = self.file.status.st_size
        self.budget = ReadBudget()
        self.settled: list[FrameEntry] = []
        self.settled_to = 0
        self.provisional: list[FrameEntry] = []
        self._losses: list[Loss] = []
        self._open_losses: list[Loss] = []
        self._bad: set[int] = set()
        try:
            if not stat.S_ISREG(self.file.status.st_mode):
                raise NotARecording(f"{path}: not a regular file: save the recording to a file")
            if MAGIC not in among.read(self.file, 0, _CHUNK_BYTES):
                why = "" if self.size else ": the file is empty"
                raise NotARecording(f"{path}: not a fabmon recording{why}")
            self._take(*self._indexed_frames(), on_progress)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    @property
    def entries(self) -> list[FrameEntry]:
        """All frames."""
        return [*self.settled, *self.provisional]

    @property
    def losses(self) -> list[Loss]:
        """What could not be read so far; the end of a growing file may be a frame in progress."""
        return sorted([*self._losses, *self._open_losses])

    def begins_with_frame(self) -> bool:
        """Whether the file's first bytes are those of a recording."""
        return self._read(0, len(MAGIC)) == MAGIC

    def refresh(self) -> bool:
        """Read what was appended since; returns whether there can be anything new."""
        size = self.file.size()
        if size == self.size and not self.provisional:
            return False
        self.size = size
        self.budget.forget(self.settled_to)
        self._bad = {offset for offset in self._bad if offset < self.settled_to}
        self._take([], [(self.settled_to, size)], ignore_progress)
        return True

    def is_bad(self, entry: FrameEntry) -> bool:
        """Whether a frame was found damaged before."""
        return entry.offset in self._bad

    def check_in_place(self, entry: FrameEntry) -> None:
        """Raise Moved where the writer has put something else in the place of a frame."""
        if entry.offset >= self.settled_to and self._header(entry.offset) != entry.header:
            raise FrameMoved(f"byte {entry.offset}: the frame was replaced by the writer")

    def report_loss(self, entry: FrameEntry, error: Exception) -> None:
        """Report a damaged frame, once, and skip it later. Raises Moved where it was replaced."""
        if entry.offset in self._bad:
            return
        self.check_in_place(entry)
        self._bad.add(entry.offset)
        if any(self._is_sound_copy(each, entry) for each in self.provisional):
            return
        losses = self._losses if entry.offset < self.settled_to else self._open_losses
        losses.append(Loss(entry.offset, entry.end, str(error) or "not enough memory"))

    def _is_sound_copy(self, other: FrameEntry, entry: FrameEntry) -> bool:
        """Whether a later frame is equal to a frame, and sound."""
        if other.offset <= entry.offset or _identity(other.header) != _identity(entry.header):
            return False
        payload = self._read(other.offset + HEADER_BYTES, other.header.length)
        return payload_matches(other.header, payload)

    def payload(self, entry: FrameEntry) -> bytes:
        """The payload of a frame. Raises Damaged, with the offset."""
        data = self._read(entry.offset + HEADER_BYTES, entry.header.length)
        if not payload_matches(entry.header, data):
            raise Damaged(
                f"byte {entry.offset}: damaged frame ({FrameKind.name_of(entry.header.kind)})"
            )
        return data

    def payload_start(self, entry: FrameEntry, length: int) -> bytes:
        """The first bytes of a payload, unchecked. Raises Moved where the frame was replaced."""
        length = min(entry.header.length, length)
        start = self._read(entry.offset + HEADER_BYTES, length)
        self.check_in_place(entry)
        return start

    def decoded(self, entry: FrameEntry, decode: Callable[[bytes], T]) -> T | None:
        """The decoded payload of a frame; None, and a loss, where it is damaged."""
        if entry.offset in self._bad:
            return None
        try:
            return decode(self.payload(entry))
        except (Damaged, ZstdError, MemoryError, *MALFORMED) as error:
            self.report_loss(entry, error)
            return None

    def block(self, entry: FrameEntry) -> Block:
        """The decoded block of a frame. Raises Damaged."""
        self.budget.expand(entry)
        block = decode_block(self.payload(entry), self.budget.large)
        check_ticks(entry.header, block.ticks)
        self.budget.expand(entry, block.expanded_bytes)
        return block

    def json(
        self,
        entry: FrameEntry,
        kind: type[T],
        kept_as: Callable[[T], Collection[Hashable]] | None = None,
    ) -> T | None:
        """A JSON record; None, and a loss, where it is damaged, see check_record.

        `kept_as` returns the names under which the caller keeps its contents, see ReadBudget.keep.
        """

        def decode(payload: bytes) -> T:
            self.budget.expand(entry)
            data = decompress(payload)
            size = memory_estimate(data)
            is_note = entry.header.kind == FrameKind.NOTE
            if size > (_MAX_NOTE_BYTES if is_note else _MAX_METADATA_BYTES):
                raise Damaged(f"the record takes {size >> 10} KiB, more than any recorder writes")
            self.budget.expand(entry, size)
            record = decode_sanitised(data, kind)
            check_record(entry.header, record)
            if kept_as is not None:
                self.budget.keep(entry, kept_as(record))
            return record

        return self.decoded(entry, decode)

    def kept_json(self, entry: FrameEntry, kind: type[T]) -> T | None:
        """A JSON record that the caller keeps."""
        return self.json(entry, kind, kept_as=lambda _: [entry.offset])

    def _read(self, offset: int, length: int) -> bytes:
        """Bytes from an offset on; fewer at the end of the file."""
        return self.file.read(offset, length)

    def _header(self, offset: int) -> FrameHeader | None:
        """The header at an offset; None where there is no sound one."""
        return decode_header(self._read(offset, HEADER_BYTES))

    def _next_frame(self, offset: int, stop: int, on_progress: ProgressCallback) -> int:
        """The offset of the next sound header from an offset on; `stop` where there is none."""
        while offset < stop:
            on_progress(offset)
            data = self._read(offset, _CHUNK_BYTES + HEADER_BYTES)
            place = data.find(MAGIC)
            while place >= 0:
                if decode_header(data, place) is not None:
                    return min(offset + place, stop)
                place = data.find(MAGIC, place + 1)
            if len(data) <= HEADER_BYTES:
                return stop
            offset += len(data) - HEADER_BYTES
        return stop

    def _last_frame(self, stop: int) -> int | None:
        """The offset of the last sound header before `stop`; None where there is none."""
        end = stop
        while end > 0:
            start = max(0, end - _CHUNK_BYTES)
            data = self._read(start, end - start + HEADER_BYTES)
            place = data.rfind(MAGIC, 0, end - start + len(MAGIC) - 1)
            while place >= 0:
                if decode_header(data, place) is not None:
                    return start + place
                place = data.rfind(MAGIC, 0, place + len(MAGIC) - 1)
            end = start
        return None

    def _scan(
        self, offset: int, stop: int, losses: list[Loss], on_progress: ProgressCallback
    ) -> Iterator[FrameEntry]:
        """The frames between two offsets, from header to header. What is skipped is a loss."""
        while offset < stop:
            on_progress(offset)
            header = self._header(offset)
            entry = FrameEntry(offset, header) if header is not None else None
            if entry is not None and entry.end <= stop:
                yield entry
                offset = entry.end
                continue
            # A frame that ends after `stop` is cut off or not all written yet. Frames may still
            # follow it, where its header has a wrong length.
            text = "no frame begins here"
            if entry is not None:
                text = f"the frame ({FrameKind.name_of(entry.header.kind)}) is cut off"
            start, offset = offset, self._next_frame(offset + 1, stop, on_progress)
            losses.append(Loss(start, offset, text))

    def _indexed_frames(self) -> tuple[list[FrameEntry], list[tuple[int, int]]]:
        """The frames that the indices list, and the ranges of bytes that no index covers."""
        last = self._last_frame(self.size)
        header = self._header(last) if last is not None else None
        offset = 0
        if header is not None and last is not None:
            offset = last if header.kind == FrameKind.INDEX else header.index_at
        lists: list[tuple[int, int, list[FrameEntry]]] = []
        visited: set[int] = set()
        count = 0
        while 0 < offset < self.size and offset not in visited:
            visited.add(offset)
            header = self._header(offset)
            if header is None or header.kind != FrameKind.INDEX:
                break
            own = FrameEntry(offset, header)
            try:
                most = self.size // HEADER_BYTES - count
                start, entries = decode_index(self.payload(own), most, self.size)
            except Damaged:
                pass
            else:
                count += len(entries)
                lists.append((start, own.end, [*entries, own]))
            offset = header.index_at
        gaps, listed, covered = [], [], 0
        for start, end, entries in reversed(lists):
            if start > covered:
                gaps.append((covered, start))
            listed += entries
            covered = max(covered, end)
        if covered < self.size:
            gaps.append((covered, self.size))
        return listed, gaps

    def _take(
        self, listed: list[FrameEntry], gaps: list[tuple[int, int]], on_progress: ProgressCallback
    ) -> None:
        """Add frames that an index lists, and scan the gaps between them."""
        self.budget.resize(self.size)
        found = list(listed)
        losses: list[Loss] = []
        for start, stop in gaps:
            found += self._scan(start, stop, losses, on_progress)
        found.sort(key=lambda entry: entry.offset)
        text = "the frame ends before it begins, or at a time that no clock shows"
        losses += [Loss(e.offset, e.end, text) for e in found if not has_sound_times(e.header)]
        found = [entry for entry in found if has_sound_times(entry.header)]
        tail = gaps[-1][0] if gaps and gaps[-1][1] == self.size else self.size
        self.provisional = []
        settled_to = self.settled_to
        for place, entry in enumerate(found):
            if entry.offset >= tail and (
                entry.header.provisional or entry.offset != max(settled_to, tail)
            ):
                # From the first frame on that is not settled, everything may still change.
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
        """Whether lost bytes are left from a writer that was killed while it settled frames.

        The frames after them are copies of those that were to be there, with all their content.
        """
        after = [e for e in self.provisional if e.offset >= loss.end and not e.header.provisional]
        known = {_identity(entry.header) for entry in self.settled}
        return bool(after) and _identity(after[0].header) in known


def _identity(header: FrameHeader) -> tuple[object, ...]:
    """What equal frames have in common."""
    return header.kind, header.time_ns, header.until_ns, header.part, header.crc
