"""The files of a recorder: one, or one after the other, of which the oldest are removed."""

from __future__ import annotations

import datetime
from pathlib import Path

import msgspec

from fabmon.recording.format.errors import InUse
from fabmon.recording.format.records import SUFFIX
from fabmon.recording.writing.frame_writer import is_in_use

_STAMP = "%Y%m%dT%H%M%SZ"


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """When to begin another file, and how long to keep earlier ones; None: never, and for ever.

    `keep_bytes` limits all files together, including the one that is being written.
    """

    every_bytes: int | None = None
    every_s: float | None = None
    keep_bytes: int | None = None
    keep_s: float | None = None

    @property
    def rotates(self) -> bool:
        """Whether there is ever another file."""
        return self.every_bytes is not None or self.every_s is not None


class Segments:
    """The files of a recording: `path` itself, or `STEM-20261119T021407Z.fabrec` beside it."""

    def __init__(self, path: Path, rotation: Rotation) -> None:
        self.path = path
        self.rotation = rotation

    def name(self, time_ns: int) -> Path:
        """The name of a file that begins at a time."""
        if not self.rotation.rotates:
            return self.path
        stamp = datetime.datetime.fromtimestamp(time_ns / 1e9, datetime.UTC).strftime(_STAMP)
        return self.path.with_name(f"{self.path.stem}-{stamp}{self._suffix}")

    def is_full(self, began_ns: int, now_ns: int, size: int) -> bool:
        """Whether it is time for the next file, by the clock or by the size in bytes."""
        every_s, every_bytes = self.rotation.every_s, self.rotation.every_bytes
        if every_s is not None and now_ns // int(every_s * 1e9) != began_ns // int(every_s * 1e9):
            return True
        return every_bytes is not None and size >= every_bytes

    def check_unused(self) -> None:
        """Raise InUse where another recorder writes files of these names.

        Each of the two would remove files of the other.
        """
        for each in self.files() if self.rotation.rotates else []:
            if is_in_use(each):
                raise InUse(f"{each}: another fabmon is recording to files of this name")

    def remove_expired(self, current: Path, now_ns: int) -> list[Path]:
        """Remove the files beyond `keep_s` and `keep_bytes`, never one that is being written.

        Returns the removed files.
        """
        removed: list[Path] = []
        if not self.rotation.rotates:
            return removed
        files = [(each, each.stat()) for each in self.files() if each != current]
        keep_s, room = self.rotation.keep_s, self.rotation.keep_bytes
        if room is not None:
            # The current file will grow until the next one begins.
            size = current.stat().st_size if current.exists() else 0
            room -= max(size, self.rotation.every_bytes or 0)
        for each, stat in reversed(files):
            is_expired = keep_s is not None and stat.st_mtime_ns < now_ns - keep_s * 1e9
            if room is not None:
                room -= stat.st_size
                is_expired = is_expired or room < 0
            if is_expired and not is_in_use(each):
                each.unlink(missing_ok=True)
                removed.append(each)
        return removed

    def files(self) -> list[Path]:
        """The existing files, the oldest first. Other files in the directory are not listed."""
        return sorted(
            each
            for each in self.path.parent.glob(f"{self.path.stem}-*{self._suffix}")
            if _is_stamp(each.name[len(self.path.stem) + 1 : -len(self._suffix)])
        )

    @property
    def _suffix(self) -> str:
        return self.path.suffix or SUFFIX


def _is_stamp(text: str) -> bool:
    try:
        datetime.datetime.strptime(text, _STAMP).replace(tzinfo=datetime.UTC)
    except ValueError:
        return False
    return True
