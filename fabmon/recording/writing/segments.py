"""The files of a recorder: one, or one after the other, of which the oldest are removed."""

from __future__ import annotations

import datetime
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from fabmon.recording.format.errors import InUse, RecordingError
from fabmon.recording.format.records import SUFFIX
from fabmon.recording.reading.reader import Recording
from fabmon.recording.writing.frame_writer import is_in_use

_LOG = logging.getLogger("fabmon.recording")

_STAMP = "%Y%m%dT%H%M%SZ"

_ALWAYS_KEPT = 2
"""The newest finished files that `keep_s` leaves: one file with a wrong length removes no more."""


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """When to begin another file, and how much of earlier ones to keep; None: never, and all.

    `every_bytes` is of what stays in a file: its last ticks, which will be a tenth of their size,
    take at most as much again. `keep_bytes` limits all files together, including the one that is
    being written, with these ticks. `keep_s` is recorded time: time without a recorder does not
    count.
    """

    every_bytes: int | None = None
    every_s: float | None = None
    keep_bytes: int | None = None
    keep_s: float | None = None

    @property
    def rotates(self) -> bool:
        """Whether there is ever another file."""
        return self.every_bytes is not None or self.every_s is not None


class _Content(NamedTuple):
    """`last_ns` is the time of the last tick; None in a file that cannot be read, which is tried
    again where it `is_again`."""

    path: Path
    size: int
    last_ns: int | None = None
    recorded_s: float = 0.0
    is_again: bool = False


class Segments:
    """The files of a recording: `path` itself, or `STEM-20261119T021407Z.fabrec` beside it."""

    def __init__(self, path: Path, rotation: Rotation) -> None:
        self.path = path
        self.rotation = rotation
        self._contents: dict[Path, _Content] = {}

    def name(self, time_ns: int) -> Path:
        """The name of a file that begins at a time."""
        if not self.rotation.rotates:
            return self.path
        stamp = datetime.datetime.fromtimestamp(time_ns / 1e9, datetime.UTC).strftime(_STAMP)
        return self.path.with_name(f"{self.path.stem}-{stamp}{self._suffix}")

    def free_name(self, time_ns: int) -> Path:
        """The same, or that of a later second where something else than a recording has it."""
        path = self.name(time_ns)
        while self.rotation.rotates and os.path.lexists(path) and self._is_foreign(path):
            time_ns += 1_000_000_000
            path = self.name(time_ns)
        return path

    def is_unsettled_full(self, size: int) -> bool:
        """Whether the last ticks, of that many bytes, have to be made a block early."""
        every_bytes = self.rotation.every_bytes
        return every_bytes is not None and size >= every_bytes

    def is_full(self, began_ns: int, now_ns: int, size: int) -> bool:
        """Whether it is time for the next file, by the clock or by the bytes that stay in it."""
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

    def remove_expired(
        self, current: Path, finished: Sequence[Path] = (), unsettled: int = 0
    ) -> list[Path]:
        """Remove the oldest files beyond `keep_s` and `keep_bytes`; returns the removed ones.

        `unsettled` are the most bytes of ticks that wait for their block: there is room for them
        too. `current` has just been begun and stays, as do files in use, the newest `_ALWAYS_KEPT`
        whatever their age, and files that are not readable recordings. The age of a file is the
        time that was recorded after it, as no two clocks are compared. `finished` are the files of
        this run in the order of writing, newer than all others; those are ordered by their last
        tick, first those of a clock that was ahead of this one.
        """
        if not self.rotation.rotates:
            return []
        keep_s, room = self.rotation.keep_s, self.rotation.keep_bytes
        if room is not None:
            # The current file will grow until the next one begins.
            every_bytes = self.rotation.every_bytes or 0
            room -= max(size_of(current), every_bytes + min(every_bytes, unsettled))
        places = {path: place for place, path in enumerate(finished)}
        contents = [each for each in map(self._content, self.files()) if each.path != current]
        readable = [each for each in contents if each.last_ns is not None]
        began_ns = self._began_ns(current) or 0

        def order(each: _Content) -> tuple[int, bool, int, Path]:
            last_ns = each.last_ns or 0
            return places.get(each.path, -1), last_ns <= began_ns, last_ns, each.path

        readable.sort(key=order)
        later_s = 0.0
        removed: list[Path] = []
        for place, each in enumerate(reversed(readable)):
            is_expired = keep_s is not None and place >= _ALWAYS_KEPT and later_s >= keep_s
            later_s += each.recorded_s
            if room is not None:
                room -= each.size
                is_expired = is_expired or room < 0
            if is_expired and not is_in_use(each.path) and self._remove(each.path):
                removed.append(each.path)
        return removed

    def _is_foreign(self, path: Path) -> bool:
        return self._content(path).last_ns is None

    def _content(self, path: Path) -> _Content:
        """What is in a file, read again when its size changes; why it is left alone is logged."""
        size = size_of(path)
        known = self._contents.get(path)
        if known is not None and known.size == size and not known.is_again:
            return known
        try:
            with Recording(path) as recording:
                content = _Content(path, size, recording.until_ns, recording.recorded_s)
        except (OSError, RecordingError) as error:
            # What the system refuses now, such as one more open file, it may permit later.
            content = _Content(path, size, is_again=isinstance(error, OSError))
            if known is None and os.path.lexists(path):
                why = (error.strerror if isinstance(error, OSError) else None) or str(error)
                _LOG.warning("%s is left alone: %s", path, why.removeprefix(f"{path}: "))
        self._contents[path] = content
        return content

    def _remove(self, path: Path) -> bool:
        del self._contents[path]
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _LOG.warning("%s cannot be removed: %s", path, error.strerror or error)
            return False
        return True

    def files(self) -> list[Path]:
        """The existing files, the oldest first. Other files in the directory are not listed."""
        return sorted(
            each
            for each in self.path.parent.glob(f"{self.path.stem}-*{self._suffix}")
            if self._began_ns(each) is not None
        )

    def _began_ns(self, path: Path) -> int | None:
        """When a file was begun, by its name; None of a name without a time."""
        text = path.name[len(self.path.stem) + 1 : -len(self._suffix)]
        try:
            began = datetime.datetime.strptime(text, _STAMP).replace(tzinfo=datetime.UTC)
        except ValueError:
            return None
        return int(began.timestamp()) * 1_000_000_000

    @property
    def _suffix(self) -> str:
        return self.path.suffix or SUFFIX


def size_of(path: Path) -> int:
    """The size of a file in bytes; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
