"""The frames of a file, as it grows: what is settled, what may change, and what is lost."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from fabmon.recording.errors import Damaged, Moved, NotARecording
from fabmon.recording.frames import HEADER_BYTES, MAGIC, Header, sound
from fabmon.recording.index import Entry
from fabmon.recording.scan import File, Loss, Told, Walk, indexed, nobody
from fabmon.recording.texts import decode
from fabmon.recording.zstd import ZstdError, decompress

T = TypeVar("T")


class Contents:
    """One file's frames, in its order. Raises NotARecording or OSError.

    `size` is its bytes when it was last looked at. From `settled_to` on all may still change, since
    the writer puts there what it will write again in its final form. `told` hears how far it is
    while the file is opened; where no index lists its frames that may take a while.
    """

    def __init__(self, path: Path, told: Told = nobody) -> None:
        # A FIFO that nobody writes to would hold up else.
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self.file = File(self._fd)
        self.size = self.file.size
        self.settled: list[Entry] = []
        self.settled_to = 0
        self.provisional: list[Entry] = []
        self._losses: list[Loss] = []
        self._open_losses: list[Loss] = []
        self._bad: set[int] = set()
        try:
            self._check(path)
            self._take(*indexed(self.file, self.size), told)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let the file go."""
        os.close(self._fd)

    @property
    def entries(self) -> list[Entry]:
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
        self._take([], [(self.settled_to, size)], nobody)
        return True

    def is_bad(self, entry: Entry) -> bool:
        """Whether a frame was found damaged before."""
        return entry.at in self._bad

    def stay(self, entry: Entry) -> None:
        """Raises Moved where the writer has put something else in the place of a frame."""
        if entry.at >= self.settled_to and self.file.header(entry.at) != entry.header:
            raise Moved(f"byte {entry.at}: a frame that was written anew meanwhile")

    def lose(self, entry: Entry, error: Exception) -> None:
        """A frame is damaged: it is told once, and not read again. Raises Moved where it is not."""
        if entry.at in self._bad:
            return
        self.stay(entry)
        self._bad.add(entry.at)
        if any(self._is_double(each, entry) for each in self.provisional):
            return
        losses = self._losses if entry.at < self.settled_to else self._open_losses
        losses.append(Loss(entry.at, entry.end, str(error) or "not enough memory"))

    def _is_double(self, other: Entry, entry: Entry) -> bool:
        """Whether a frame is the sound one of two equal ones, and another one is not."""
        if other.at <= entry.at or _same(other.header) != _same(entry.header):
            return False
        return sound(other.header, self.file.read(other.at + HEADER_BYTES, other.header.length))

    def decoded(self, entry: Entry, decode: Callable[[bytes], T]) -> T | None:
        """What a frame holds; None, and a loss, when it is damaged."""
        if entry.at in self._bad:
            return None
        try:
            return decode(self.file.payload(entry))
        except (Damaged, ZstdError, msgspec.DecodeError, UnicodeDecodeError, MemoryError) as error:
            self.lose(entry, error)
            return None

    def json(self, entry: Entry, kind: type[T]) -> T | None:
        """A record; None, and a loss, when it is damaged."""
        return self.decoded(entry, lambda p: decode(decompress(p), kind))

    def _check(self, path: Path) -> None:
        """Whether it can be one, without reading all of it. Raises NotARecording."""
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise NotARecording(f"{path}: not a regular file: save the recording to one")
        if not self.file.may_be_ours():
            raise NotARecording(f"{path}: not a recording of fabmon")

    def _take(self, listed: list[Entry], gaps: list[tuple[int, int]], told: Told) -> None:
        """Take in frames that the index lists, and walk where it has none."""
        found = list(listed)
        losses: list[Loss] = []
        for start, stop in gaps:
            walk = Walk(self.file, start, stop, told)
            found += walk
            losses += walk.losses
        found.sort(key=lambda entry: entry.at)
        tail = gaps[-1][0] if gaps and gaps[-1][1] == self.size else self.size
        self.provisional = []
        settled_to = self.settled_to
        for place, entry in enumerate(found):
            if entry.at >= tail and (entry.header.provisional or entry.at != max(settled_to, tail)):
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
        behind = [e for e in self.provisional if e.at >= loss.end and not e.header.provisional]
        known = {_same(entry.header) for entry in self.settled}
        return bool(behind) and _same(behind[0].header) in known


def _same(header: Header) -> tuple[object, ...]:
    """What equal frames have in common."""
    return header.kind, header.time_ns, header.until_ns, header.part, header.crc
