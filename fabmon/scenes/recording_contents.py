"""What is asked of a recording at first: its times, its notes, how busy it was."""

from __future__ import annotations

from dataclasses import dataclass

from fabmon.fabric.snapshot import Floats
from fabmon.recording.format.records import Note


@dataclass(frozen=True, slots=True)
class RecordingContents:
    """What a recording holds: times of the first and last tick (ns), and the notes, by time.

    `runs_ns` are the times at which a recorder was started, by time. `start_ns` is 0 if there is no
    tick yet. `is_complete`: nothing is being added.
    """

    start_ns: int = 0
    until_ns: int = 0
    notes: tuple[Note, ...] = ()
    runs_ns: tuple[int, ...] = ()
    is_complete: bool = False

    def marks_ns(self) -> list[int]:
        """Times of the numbered events (`event 17`): findings that opened, and bookmarks."""
        return [note.time_ns for note in self.notes if note.change in ("", "open")]


@dataclass(frozen=True, slots=True)
class Curve:
    """Utilisation of the busiest link (0 to 1; NaN: unknown) in equal parts of a time range."""

    from_ns: int
    until_ns: int
    values: Floats


class PastError(Exception):
    """The recording cannot be read; the message says why."""
