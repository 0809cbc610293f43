"""Where a recorder writes: one file, or one after the other, of which the oldest go."""

from __future__ import annotations

import datetime
from pathlib import Path

import msgspec

from fabmon.recording.format.errors import InUse
from fabmon.recording.reading.timeline import SUFFIX
from fabmon.recording.writing.frame_writer import is_in_use

_STAMP = "%Y%m%dT%H%M%SZ"


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """When to begin another file, and how long to keep those before; None for never, for ever.

    `keep_bytes` is for all files together, the one that is written included.
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
    """Names of a recording's files: `path` itself, or `STEM-20261119T021407Z.fabrec` beside it."""

    def __init__(self, path: Path, rotation: Rotation) -> None:
        self.path = path
        self.rotation = rotation

    def name(self, time_ns: int) -> Path:
        """Where a file that begins now is written."""
        if not self.rotation.rotates:
            return self.path
        stamp = datetime.datetime.fromtimestamp(time_ns / 1e9, datetime.UTC).strftime(_STAMP)
        return self.path.with_name(f"{self.path.stem}-{stamp}{self._suffix}")

    def is_full(self, began_ns: int, now_ns: int, size: int) -> bool:
        """Whether it is time for the next file."""
        every_s, every_bytes = self.rotation.every_s, self.rotation.every_bytes
        late = every_s is not None and now_ns // int(every_s * 1e9) != began_ns // int(
            every_s * 1e9
        )
        return late or (every_bytes is not None and size >= every_bytes)

    def check_unused(self) -> None:
        """Raises InUse where another recorder writes files of these names: each would remove
        those of the other.
        """
        for each in self.files() if self.rotation.rotates else []:
            if is_in_use(each):
                raise InUse(f"{each}: another fabmon is recording to files of this name")

    def tidy(self, current: Path, now_ns: int) -> list[Path]:
        """Remove what is not to be kept; what was removed. Never a file that is written."""
        removed: list[Path] = []
        if not self.rotation.rotates:
            return removed
        files = [(each, each.stat()) for each in self.files() if each != current]
        room = self.rotation.keep_bytes
        if room is not None:
            # The current file will grow until the next one begins.
            size = current.stat().st_size if current.exists() else 0
            room -= max(size, self.rotation.every_bytes or 0)
        for each, stat in reversed(files):
            too_old = (
                self.rotation.keep_s is not None
                and stat.st_mtime_ns < now_ns - self.rotation.keep_s * 1e9
            )
            if room is not None:
                room -= stat.st_size
            if (too_old or (room is not None and room < 0)) and not is_in_use(each):
                each.unlink(missing_ok=True)
                removed.append(each)
        return removed

    def files(self) -> list[Path]:
        """The files that there are, the oldest first. Others in the directory are not ours."""
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
