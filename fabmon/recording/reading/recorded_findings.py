"""Findings as they were reported while a recording was made, from its notes."""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from fabmon.fabric.redaction import Redactor
from fabmon.fabric.time_wording import LATEST_NS
from fabmon.recording.format.records import PARTLY_ANALYSED, Note

if TYPE_CHECKING:
    from fabmon.recording.reading.timeline import Timeline

_EARLIER_NS = 10_000_000_000
"""How much earlier a condition may hold when it is computed again: with fewer minutes before it,
less speaks against it."""

_WITHOUT_NAMES = (
    "cause",
    "opened_as",
    "severity",
    "since_ns",
    "until_ns",
    "lost",
    "confidence",
    PARTLY_ANALYSED,
)
"""Keys of a finding whose values are numbers or words of fabmon."""


class RecordedFindings:
    """Notes by time. Finding what was open at a time does not go through all notes before it."""

    def __init__(self, notes: Iterable[Note] = ()) -> None:
        self.notes: list[Note] = []
        # By place of a note: the place of the next note on the same finding; LATEST_NS for none.
        self._superseded_at = array("q")
        self._last: dict[str, int] = {}
        for note in notes:
            self.add(note)

    def add(self, note: Note) -> None:
        """Add a note whose time is not before that of the last note."""
        place = len(self.notes)
        self.notes.append(note)
        self._superseded_at.append(place)
        if note.kind != "finding":
            return
        key = finding_key(note)
        before = self._last.pop(key, None)
        if before is not None:
            self._superseded_at[before] = place
        if note.change != "close":
            self._superseded_at[place] = LATEST_NS
            self._last[key] = place

    def count_until(self, at_ns: int) -> int:
        """The number of notes up to and including a time."""
        return bisect.bisect_right(self.notes, at_ns, key=lambda note: note.time_ns)

    def open_at(self, runs_ns: Sequence[int], at_ns: int) -> list[Note]:
        """The latest note of each finding that was open at a time.

        `runs_ns` are the times at which recorders were started: findings that were open when the
        next run began count as closed.
        """
        place = bisect.bisect_right(runs_ns, at_ns)
        began_ns = runs_ns[place - 1] if place else 0
        count = self.count_until(at_ns)
        is_open = np.asarray(self._superseded_at)[:count] >= count
        opened = (self.notes[row] for row in np.flatnonzero(is_open).tolist())
        return [note for note in opened if note.time_ns >= began_ns]


def recorded_begins(
    findings: RecordedFindings, runs_ns: Sequence[int]
) -> Callable[[int], Mapping[str, Mapping[str, Any]]]:
    """For a time: by key, the findings that were open then as they were last noted, and those that
    were up to 10 s later. `runs_ns` are as in RecordedFindings.open_at."""

    @lru_cache(1)
    def begins(at_ns: int) -> Mapping[str, Mapping[str, Any]]:
        times_ns = (at_ns + _EARLIER_NS, at_ns)
        notes = (each for time_ns in times_ns for each in findings.open_at(runs_ns, time_ns))
        return {
            finding_key(note): note.finding
            for note in notes
            if isinstance(note.finding.get("since_ns"), int)
        }

    return begins


def finding_key(note: Note) -> str:
    """The key of a finding: its cause may change while it is open, it stays one finding."""
    cause = note.finding.get("opened_as") or note.finding.get("cause")
    return f"{cause}:{note.finding.get('subject')}"


def redacted_notes(timeline: Timeline, notes: list[Note], redactor: Redactor | None) -> list[Note]:
    """Notes of a timeline without its names; as they are where there is no redactor."""
    if redactor is None:
        return notes
    for tick in timeline.prime(timeline.until_ns + 1):
        redactor.learn(tick)
    return [redacted_note(note, redactor) for note in notes]


def redacted_note(note: Note, redactor: Redactor) -> Note:
    """A note without names: of a finding its cause, subject and numbers, of a bookmark its time.

    Keys that a finding must have and that may hold a name are empty.
    """
    ports = tuple(redactor.port(port) for port in note.ports)
    if note.kind != "finding":
        return msgspec.structs.replace(note, text="bookmark", ports=ports, finding={})
    subject = redactor.subject(str(note.finding.get("subject", "")))
    finding = {key: note.finding[key] for key in _WITHOUT_NAMES if key in note.finding}
    finding |= {"subject": subject, "rows": [], "text": "", "evidence": [], "advice": ""}
    text = f"{finding.get('cause', '')} {subject}".strip()
    return msgspec.structs.replace(note, text=text, ports=ports, finding=finding)
