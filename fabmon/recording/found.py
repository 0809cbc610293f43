"""What was found at the time, as notes of a recording keep it."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

import msgspec

from fabmon.fabric.redaction import Redactor
from fabmon.recording.records import Note
from fabmon.recording.timeline import Timeline

_KEPT = ("cause", "severity", "since_ns", "until_ns", "lost", "confidence")
"""Of a finding without names: what is a number, or a word that fabmon chose."""


def runs_of(timeline: Timeline) -> tuple[int, ...]:
    """When the runs of its recorders began, by time, ns."""
    sessions = (session for file in timeline.files for session in file.sessions)
    return tuple(sorted({session.run_ns or session.started_ns for session in sessions}))


def still_open(notes: Iterable[Note], runs_ns: Sequence[int], at_ns: int) -> list[Note]:
    """Of notes by time those of findings that were open at a time, as they were told last.

    What was open when another run began ended unseen.
    """
    place = bisect.bisect_right(runs_ns, at_ns)
    began_ns = runs_ns[place - 1] if place else 0
    opened: dict[tuple[object, object], Note] = {}
    for note in notes:
        if note.kind != "finding" or not began_ns <= note.time_ns <= at_ns:
            continue
        key = (note.finding.get("cause"), note.finding.get("subject"))
        if note.change == "close":
            opened.pop(key, None)
        else:
            opened[key] = note
    return list(opened.values())


def redacted(note: Note, redactor: Redactor) -> Note:
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
