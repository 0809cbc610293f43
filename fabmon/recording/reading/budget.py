"""How much a file may expand to: a crafted one of some kB can claim more than any machine has."""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable, Iterable

from fabmon.recording.format.errors import Damaged
from fabmon.recording.format.frames import FrameEntry

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
