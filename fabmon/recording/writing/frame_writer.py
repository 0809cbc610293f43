"""Appends frames to the file of a recording: settled frames, then provisional frames.

Provisional frames are appended tick by tick. When they amount to a block, the block is appended
after them, copied over them, and the file is truncated after the copy. So a file whose writer is
killed at any moment holds every tick at least once.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fabmon.recording.format.errors import InUse
from fabmon.recording.format.frames import (
    Buffer,
    FrameEntry,
    FrameFlag,
    FrameKind,
    decode_header,
    encode_frame,
    encode_index,
)

_INDEX_EVERY_FRAMES = 128


class PendingFrame(NamedTuple):
    """A frame to be written; the fields are those of its header and of FrameEntry."""

    kind: FrameKind
    payload: bytes
    time_ns: int
    until_ns: int
    part: int = 0
    peak_utilisation: float = float("nan")


class FrameWriter:
    """Appends frames to a file. Raises OSError; the file then ends where it ended before the call.

    `settled` is the byte offset where the settled part ends, `end` the length of the file. The file
    is locked against other writers where the file system has locks: two would destroy each other's
    frames.
    """

    def __init__(self, path: Path, *, is_new: bool = True) -> None:
        """Raises InUse, FileExistsError where the file should be new, or OSError."""
        self.path = path
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if is_new else os.O_NOFOLLOW)
        try:
            self._fd = os.open(path, flags, 0o600)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise OSError(errno.ELOOP, "a link: name the file itself", str(path)) from None
        found = os.fstat(self._fd)
        if found.st_uid != os.geteuid() and not is_new:
            # Who put an empty file there could read what is recorded.
            os.close(self._fd)
            raise OSError(errno.EACCES, "owned by another user", str(path))
        if not stat.S_ISREG(found.st_mode):
            os.close(self._fd)
            raise OSError(
                errno.EINVAL, "not a file: a recording is also read, and extended", str(path)
            )
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise InUse(f"{path}: another fabmon is recording to it") from None
        except OSError:
            pass  # The file system has no locks.
        self.is_open = True
        self.settled = self.end = 0
        self._index_at = 0
        self._unlisted: list[FrameEntry] = []
        self._listed_to = 0

    def continue_from(self, settled: int, index_at: int) -> None:
        """Append to an existing recording, given the end of its settled part and its last index."""
        self.settled = self._listed_to = settled
        self.end = os.fstat(self._fd).st_size
        self._index_at = index_at

    def append(self, frame: PendingFrame) -> None:
        """Append a provisional frame."""
        self._write(self._encoded(frame, FrameFlag.PROVISIONAL), self.end)

    def append_block(self, payload: Sequence[Buffer], time_ns: int) -> None:
        """Append a provisional block of one tick, whose payload comes in pieces."""
        block = encode_frame(
            FrameKind.BLOCK,
            *payload,
            time_ns=time_ns,
            flags=FrameFlag.PROVISIONAL,
            index_at=self._index_at,
        )
        size = sum(map(len, block))
        if os.pwritev(self._fd, block, self.end) == size:
            self.end += size
        else:
            self._write(b"".join(block), self.end)

    def settle(self, frames: Sequence[PendingFrame]) -> None:
        """Replace all provisional frames by settled ones."""
        encoded = [self._encoded(frame) for frame in frames]
        data = b"".join(encoded)
        start = self.settled
        if self.end > start:
            self._write(data, max(self.end, start + len(data)))
            self._pwrite(data, start)
            os.ftruncate(self._fd, start + len(data))
        else:
            self._write(data, start)
        self.settled = self.end = start + len(data)
        offset = start
        for frame, each in zip(frames, encoded, strict=True):
            header = decode_header(each)
            assert header is not None
            self._unlisted.append(FrameEntry(offset, header, frame.peak_utilisation))
            offset += len(each)
        if len(self._unlisted) >= _INDEX_EVERY_FRAMES:
            self.write_index()

    def write_index(self) -> None:
        """Append an index of all frames since the last one. Only when nothing is provisional."""
        if not self._unlisted or self.end != self.settled:
            return
        first, last = self._unlisted[0].header, self._unlisted[-1].header
        payload = encode_index(self._unlisted, self._listed_to)
        offset = self.end
        frame = PendingFrame(FrameKind.INDEX, payload, first.time_ns, last.until_ns)
        self._write(self._encoded(frame), offset)
        self.settled, self._index_at = self.end, offset
        self._unlisted, self._listed_to = [], self.end

    def close(self) -> None:
        """Close the file."""
        self.is_open = False
        os.close(self._fd)

    def _encoded(self, frame: PendingFrame, flags: int = 0) -> bytes:
        return b"".join(
            encode_frame(
                frame.kind,
                frame.payload,
                time_ns=frame.time_ns,
                until_ns=frame.until_ns,
                part=frame.part,
                flags=flags,
                index_at=self._index_at,
            )
        )

    def _write(self, data: bytes, offset: int) -> None:
        """Write at the end of the file or beyond; a write that fails is taken back."""
        try:
            self._pwrite(data, offset)
        except OSError:
            os.ftruncate(self._fd, self.end)
            raise
        self.end = offset + len(data)

    def _pwrite(self, data: bytes, offset: int) -> None:
        left = memoryview(data)
        while left:
            written = os.pwrite(self._fd, left, offset)
            left = left[written:]
            offset += written


def is_in_use(path: Path) -> bool:
    """Whether a FrameWriter has a file open, where the file system has locks."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(fd)
    return False
