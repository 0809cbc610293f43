"""What was found at the time, as notes of a recording keep it."""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from fabmon.fabric.redaction import Redactor
from fabmon.recording.format.records import Note
from fabmon.recording.reading.timeline import Timeline

_KEPT = ("cause", "severity", "since_ns", "until_ns", "lost", "confidence")
"""Of a finding without names: what is a number, or a word that fabmon chose."""

_NEVER = (1 << 63) - 1


def run_starts(timeline: Timeline) -> tuple[int, ...]:
    """When the runs of its recorders began, by time, ns."""
    sessions = (session for file in timeline.files for session in file.sessions)
    return tuple(sorted({session.run_ns or session.started_ns for session in sessions}))


class Told:
    """Notes by time. What was open at any of them is found without going through those before."""

    def __init__(self, notes: Iterable[Note] = ()) -> None:
        self.notes: list[Note] = []
        self._until = array("q")
        """By place: the place of the next note on the same finding, or none that there is."""
        self._last: dict[tuple[object, object], int] = {}
        for note in notes:
            self.add(note)

    def add(self, note: Note) -> None:
        """One that is not before the last."""
        place = len(self.notes)
        self.notes.append(note)
        self._until.append(place)
        if note.kind != "finding":
            return
        key = (note.finding.get("cause"), note.finding.get("subject"))
        before = self._last.pop(key, None)
        if before is not None:
            self._until[before] = place
        if note.change != "close":
            self._until[place] = _NEVER
            self._last[key] = place

    def up_to(self, at_ns: int) -> int:
        """How many there are up to and with a time."""
        return bisect.bisect_right(self.notes, at_ns, key=lambda note: note.time_ns)

    def open_at(self, runs_ns: Sequence[int], at_ns: int) -> list[Note]:
        """Those of findings that were open at a time, as they were told last.

        What was open when another run began ended unseen.
        """
        place = bisect.bisect_right(runs_ns, at_ns)
        began_ns = runs_ns[place - 1] if place else 0
        count = self.up_to(at_ns)
        is_open = np.asarray(self._until)[:count] >= count
        opened = (self.notes[row] for row in np.flatnonzero(is_open).tolist())
        return [note for note in opened if note.time_ns >= began_ns]


def redacted_note(note: Note, redactor: Redactor) -> Note:
    """A note without names: of a finding its cause, subject and numbers, of a bookmark its time.

    What a finding needs and may hold a name is there, and empty.
    """
    ports = tuple(redactor.port(port) for port in note.ports)
    if note.kind != "finding":
        return msgspec.structs.replace(note, text="bookmark", ports=ports, finding={})
    subject = redactor.subject(str(note.finding.get("subject", "")))
    finding = {key: note.finding[key] for key in _KEPT if key in note.finding}
    finding |= {"subject": subject, "rows": [], "text": "", "evidence": [], "advice": ""}
    text = f"{finding.get('cause', '')} {subject}".strip()
    return msgspec.structs.replace(note, text=text, ports=ports, finding=finding)
