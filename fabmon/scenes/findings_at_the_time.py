"""Findings as they were recorded, to be shown beside those that are computed now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from fabmon.analysis.finding import Finding, from_stored, list_order
from fabmon.analysis.scene import Event
from fabmon.fabric.snapshot import Snapshot
from fabmon.recording.format.records import Note
from fabmon.recording.reading.recorded_findings import RecordedFindings, finding_key

_LATEST_END_NS = 600_000_000_000
"""How much later the end of a finding is noted at most: 35 s by the thresholds of [findings], more
where the user raised them."""


def findings_open_at(
    recorded: RecordedFindings, runs_ns: Sequence[int], snapshot: Snapshot
) -> tuple[Finding, ...]:
    """The findings that were open at the time of a snapshot, most severe first.

    Their rows are those of the snapshot's fabric; `seen_ns` is None, because it is not recorded,
    but for those of which was noted later that they had ended by then. `runs_ns` are the times at
    which recording was started.
    """
    opened = recorded.open_at(runs_ns, snapshot.time_ns)
    if not opened:
        return ()
    ended = _ends_noted_later(recorded, snapshot.time_ns)
    found = [
        msgspec.structs.replace(each, seen_ns=ended.get(each.key))
        for each in _findings(opened, snapshot)
    ]
    return tuple(sorted(found, key=list_order))


def _ends_noted_later(recorded: RecordedFindings, at_ns: int) -> dict[str, int]:
    """By key, when findings ended by a time, of which the end was noted after it."""
    ends: dict[str, int] = {}
    for note in islice(recorded.notes, recorded.count_until(at_ns), None):
        if note.time_ns > at_ns + _LATEST_END_NS:
            break
        until_ns = _ended_ns(note)
        if until_ns is not None and until_ns <= at_ns:
            ends.setdefault(finding_key(note), until_ns)
    return ends


def findings_closed_before(notes: Sequence[Note], snapshot: Snapshot, most: int) -> list[Finding]:
    """The last `most` findings that closed before a snapshot, latest first."""
    ended = (n for n in reversed(notes) if n.change == "close" and n.time_ns <= snapshot.time_ns)
    return _findings(list(islice(ended, most)), snapshot)


def _findings(notes: Sequence[Note], snapshot: Snapshot) -> list[Finding]:
    rows = snapshot.fabric.rows_of({port for note in notes for port in note.ports})
    found = []
    for note in notes:
        finding = from_stored(note.finding)
        if finding is None:
            continue
        own = tuple(rows[port] for port in note.ports if port in rows)
        found.append(msgspec.structs.replace(finding, rows=own, seen_ns=None))
    return found


def note_events(notes: Iterable[Note]) -> tuple[Event, ...]:
    """Notes of a recording as events of the timeline, in their order. One that a finding closed has
    the time at which it ended, which was known some seconds later."""
    return tuple(
        Event(_ended_ns(note) or note.time_ns, note.seq, note.kind, _event_text(note))
        for note in notes
        if note.change != "update"
    )


def _ended_ns(note: Note) -> int | None:
    """The end of the finding of a note that it closed; None of others, and where it has none."""
    until_ns = note.finding.get("until_ns")
    return until_ns if note.change == "close" and isinstance(until_ns, int) else None


def _event_text(note: Note) -> str:
    if note.kind != "finding":
        return note.text
    cause, subject = note.finding.get("cause", note.text), note.finding.get("subject", "")
    return f"{note.change} {cause} {subject}".strip()


def only_recorded(recorded: Iterable[Finding], now: Iterable[Finding]) -> list[Finding]:
    """The recorded findings that are not among those computed now."""
    keys = {key for finding in now for key in _keys(finding)}
    return [finding for finding in recorded if keys.isdisjoint(_keys(finding))]


def _keys(finding: Finding) -> tuple[str, str]:
    """A finding's key, and the key that it has where it was opened with its present cause.

    The cause of a finding may have changed before the minutes that are analysed again.
    """
    return finding.key, f"{finding.cause}:{finding.subject}"
