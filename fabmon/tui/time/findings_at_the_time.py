"""What was found at the time, as the recording keeps it, beside what is found today."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

import msgspec

from fabmon.analysis.finding import Finding
from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.snapshot import Snapshot
from fabmon.recording.format.records import Note
from fabmon.recording.reading.recorded_findings import RecordedFindings


def findings_open_at(
    told: RecordedFindings, runs_ns: Sequence[int], snapshot: Snapshot
) -> tuple[Finding, ...]:
    """The findings that were open at a moment, the costliest first; rows are those of now.

    When their conditions held last is not known: notes are seldom.
    `runs_ns` are the times at which recording began anew.
    """
    opened = told.open_at(runs_ns, snapshot.time_ns)
    if not opened:
        return ()
    found = _findings(opened, snapshot)
    return tuple(sorted(found, key=lambda each: (-each.lost, each.since_ns, each.key)))


def findings_closed_before(notes: Sequence[Note], snapshot: Snapshot, most: int) -> list[Finding]:
    """The findings that closed before a moment, the latest first, at most so many."""
    ended = (n for n in reversed(notes) if n.change == "close" and n.time_ns <= snapshot.time_ns)
    return _findings(list(islice(ended, most)), snapshot)


def _findings(notes: Sequence[Note], snapshot: Snapshot) -> list[Finding]:
    named = {port for note in notes for port in note.ports}
    nodes = {port.partition("/")[0] for port in named}
    rows = {
        port.id: port.row
        for node in snapshot.fabric.nodes
        if node.name in nodes
        for port in node.ports
        if port.id in named
    }
    found = []
    for note in notes:
        try:
            finding = msgspec.convert(note.finding, Finding)
        except msgspec.ValidationError:
            continue  # Of a fabmon that told of findings in another way.
        own = tuple(rows[port] for port in note.ports if port in rows)
        found.append(msgspec.structs.replace(finding, rows=own, seen_ns=None))
    return found


def with_recorded_starts(
    scene: Scene, then: Iterable[Finding], earlier: tuple[Event, ...]
) -> Scene:
    """A scene that knows what came before the minutes that were looked at: a finding began when it
    was first told of, and there were `earlier` events.
    """
    began = {finding.key: finding.since_ns for finding in then}
    findings = tuple(
        msgspec.structs.replace(
            finding, since_ns=min(finding.since_ns, began.get(finding.key, finding.since_ns))
        )
        for finding in scene.findings
    )
    return replace(scene, findings=findings, events=(*earlier, *scene.events))


def note_events(notes: Iterable[Note]) -> tuple[Event, ...]:
    """Notes as events of the timeline."""
    return tuple(
        Event(note.time_ns, note.seq, note.kind, _said(note))
        for note in notes
        if note.change != "update"
    )


def _said(note: Note) -> str:
    if note.kind != "finding":
        return note.text
    cause, subject = note.finding.get("cause", note.text), note.finding.get("subject", "")
    return f"{note.change} {cause} {subject}".strip()


def only_recorded(then: Iterable[Finding], now: Iterable[Finding]) -> list[Finding]:
    """The findings of one list that the other has not."""
    keys = {finding.key for finding in now}
    return [finding for finding in then if finding.key not in keys]
