"""The file of a recording, as its writer sees it: what is settled, and behind it what is not yet.

Provisional frames are appended tick by tick. When they amount to a block, the block is appended
behind them, then copied over them, then the file is cut off behind the copy: killed at any moment,
it holds every tick at least once.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fabmon.recording.format import frames as index
from fabmon.recording.format.errors import InUse
from fabmon.recording.format.frames import (
    FrameEntry,
    FrameFlag,
    FrameKind,
    decode_header,
    encode_frame,
)

_INDEX_EVERY = 128

Buffer = bytes | bytearray | memoryview


class PendingFrame(NamedTuple):
    """A frame to be: what it holds, and what its header says of it."""

    kind: FrameKind
    payload: bytes
    time_ns: int
    until_ns: int
    part: int = 0
    peak_utilisation: float = float("nan")


class FrameWriter:
    """Appends frames to a file. Raises OSError; the file then ends as it did before the call.

    `settled` is where the settled part ends, `end` where the file does. The file is locked against
    other stores, where the file system has locks: two would destroy what the other writes.
    """

    def __init__(self, path: Path, *, is_new: bool = True) -> None:
        """Raises InUse, FileExistsError where it should be new, or OSError."""
        self.path = path
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if is_new else 0)
        self._fd = os.open(path, flags, 0o640)
        try:
            self._lock()
        except InUse:
            os.close(self._fd)
            raise
        self.is_open = True
        self.settled = self.end = 0
        self._index_at = 0
        self._unlisted: list[FrameEntry] = []
        self._listed_to = 0

    def go_on(self, settled: int, index_at: int) -> None:
        """Append to what is there already: where its settled part ends, and its last index is."""
        self.settled = self._listed_to = settled
        self.end = os.fstat(self._fd).st_size
        self._index_at = index_at

    def append(self, piece: PendingFrame) -> None:
        """Add a provisional frame."""
        self._write(self._frame(piece, FrameFlag.PROVISIONAL), self.end)

    def append_block(self, payload: Sequence[Buffer], time_ns: int) -> None:
        """Add a provisional block of one tick, whose payload comes in pieces."""
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

    def settle(self, pieces: Sequence[PendingFrame]) -> None:
        """Put settled frames in the place of all that is provisional."""
        frames = [self._frame(piece) for piece in pieces]
        data = b"".join(frames)
        start = self.settled
        if self.end > start:
            self._write(data, max(self.end, start + len(data)))
            self._pwrite(data, start)
            os.ftruncate(self._fd, start + len(data))
        else:
            self._write(data, start)
        self.settled = self.end = start + len(data)
        at = start
        for piece, each in zip(pieces, frames, strict=True):
            found = decode_header(each)
            assert found is not None
            self._unlisted.append(FrameEntry(at, found, piece.peak_utilisation))
            at += len(each)
        if len(self._unlisted) >= _INDEX_EVERY:
            self.write_index()

    def write_index(self) -> None:
        """List all frames since the last time. Only when nothing is provisional."""
        if not self._unlisted or self.end != self.settled:
            return
        first, last = self._unlisted[0].header, self._unlisted[-1].header
        payload = index.encode_index(self._unlisted, self._listed_to)
        at = self.end
        piece = PendingFrame(FrameKind.INDEX, payload, first.time_ns, last.until_ns)
        self._write(self._frame(piece), at)
        self.settled, self._index_at = self.end, at
        self._unlisted, self._listed_to = [], self.end

    def close(self) -> None:
        """Let the file go."""
        self.is_open = False
        os.close(self._fd)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(f"{self.path}: another fabmon is recording to it") from None
        except OSError:
            return  # The file system has no locks.

    def _frame(self, piece: PendingFrame, flags: int = 0) -> bytes:
        return b"".join(
            encode_frame(
                piece.kind,
                piece.payload,
                time_ns=piece.time_ns,
                until_ns=piece.until_ns,
                part=piece.part,
                flags=flags,
                index_at=self._index_at,
            )
        )

    def _write(self, data: bytes, at: int) -> None:
        """Write at the file's end or behind it; take back what did not go in whole."""
        try:
            self._pwrite(data, at)
        except OSError:
            os.ftruncate(self._fd, self.end)
            raise
        self.end = at + len(data)

    def _pwrite(self, data: bytes, at: int) -> None:
        left = memoryview(data)
        while left:
            written = os.pwrite(self._fd, left, at)
            left = left[written:]
            at += written


def is_in_use(path: Path) -> bool:
    """Whether a store has a file open, as far as the file system has locks."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False
