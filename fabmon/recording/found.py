"""What was found at the time, as notes of a recording keep it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fabmon.fabric.redaction import Redactor
from fabmon.recording.records import Note

_KEPT = ("cause", "severity", "since_ns", "until_ns", "lost", "confidence")
"""Of a finding without names: what is a number, or a word that fabmon chose."""


def still_open(notes: Iterable[Note]) -> list[Note]:
    """Of notes by time those of findings that were not closed, as they were told last."""
    opened: dict[tuple[object, object], Note] = {}
    last_seq = 0
    for note in notes:
        if note.kind != "finding":
            continue
        if note.seq < last_seq:
            # Ticks are counted anew: another run began, and what was open then ended unseen.
            opened.clear()
        last_seq = note.seq
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
