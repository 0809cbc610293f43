"""Copies a part of a timeline to a recording of its own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.model import Host
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import Tick
from fabmon.fabric.topology.plan import Topology
from fabmon.fabric.wire.messages import BlockInfo, Frame
from fabmon.private_files import unfinished
from fabmon.recording.format.columns import UInt64Array
from fabmon.recording.format.records import Note
from fabmon.recording.reading.recorded_findings import RecordedFindings, redacted_note
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.writer import Writer


def copy_range(
    timeline: Timeline,
    output: Path,
    from_ns: int,
    until_ns: int,
    snapshot_of: Callable[[Tick], Snapshot],
    redactor: Redactor | None = None,
) -> Generator[int]:
    """Copy the ticks between two times; yields the time that has been reached after each tick.

    The copy begins with what was known at `from_ns`. It has its name once it is finished, since an
    unfinished file would look like a recording of less than what was asked for; a generator that is
    closed before its end leaves no file. `snapshot_of` computes what
    is drawn of each tick. With a `redactor` the copy has no names.

    Raises FileExistsError or OSError.
    """
    session = msgspec.structs.replace(
        timeline.files[0].sessions[-1],
        started_ns=from_ns,
        run_ns=from_ns,
        interval_s=timeline.interval_s,
        hosts=tuple(redacted_hosts(timeline, redactor)),
    )
    notes = _notes(timeline, from_ns, until_ns)
    if redactor is not None:
        session = msgspec.structs.replace(session, recorder="", title="")
    redacted: Callable[[Tick], Tick] = redactor.tick if redactor is not None else lambda tick: tick
    with unfinished(output) as part:
        writer = Writer.create(part, session)
        try:
            for known in map(redacted, timeline.prime(from_ns)):
                for tick in _with_frames(known, timeline.interval_s):
                    writer.write(tick, snapshot_of(tick))
            for tick in map(redacted, timeline.ticks(from_ns, until_ns)):
                due = [note for note in notes if note.time_ns <= tick.time_ns]
                notes = notes[len(due) :]
                if redactor is not None:
                    # Here and not before: the redactor learns names from the ticks.
                    due = [redacted_note(note, redactor) for note in due]
                writer.write(tick, snapshot_of(tick), due)
                yield tick.time_ns
            writer.close()
        finally:
            writer.abandon()


def redacted_hosts(timeline: Timeline, redactor: Redactor | None) -> list[Host]:
    """The nodes of a timeline, with their own names where there is no redactor."""
    hosts = timeline.hosts
    return hosts if redactor is None else [redactor.host(host) for host in hosts]


def redacted_topology(topology: Topology | None, redactor: Redactor | None) -> Topology | None:
    """A configured topology, with its own names where there is no redactor."""
    if topology is None or redactor is None:
        return topology
    return redactor.topology(topology)


def _notes(timeline: Timeline, from_ns: int, until_ns: int) -> list[Note]:
    """The notes of the copy, which is one run.

    A finding that was open at its start opens there. A finding that a run left open closes when the
    next run begins.
    """
    notes, runs_ns = timeline.notes(until_ns=until_ns), timeline.run_starts_ns
    findings = RecordedFindings(notes)

    def left_open(at_ns: int, change: str) -> list[Note]:
        return [
            msgspec.structs.replace(note, time_ns=at_ns, change=change)
            for note in findings.open_at(runs_ns, at_ns - 1)
        ]

    copied = [] if from_ns in runs_ns else left_open(from_ns, "open")
    for run_ns in runs_ns:
        if from_ns < run_ns <= until_ns:
            copied += left_open(run_ns, "close")
    copied += [note for note in notes if note.time_ns >= from_ns]
    return sorted(copied, key=lambda note: note.time_ns)


def _with_frames(known: Tick, interval_s: float) -> tuple[Tick, Tick]:
    """Two ticks with frames, from one tick with the last two reads of all nodes."""
    before_ns = known.time_ns - round(interval_s * 1e9)
    hellos = dict(known.hellos)
    before, now = [], []
    for node, reads in known.reads:
        blocks = hellos[node].blocks
        before.append(
            (node, _frame(blocks, known.seq - 1, before_ns, reads.before, reads.known_before))
        )
        now.append((node, _frame(blocks, known.seq, known.time_ns, reads.now, reads.known)))
    first = msgspec.structs.replace(
        known, seq=known.seq - 1, time_ns=before_ns, frames=tuple(before), reads=()
    )
    return first, Tick(known.seq, known.time_ns, frames=tuple(now))


def _frame(
    infos: Sequence[BlockInfo],
    seq: int,
    time_ns: int,
    values: UInt64Array,
    known: NDArray[np.bool_],
) -> Frame:
    """A frame of the values that are known; its monotonic clock is the latest of its blocks."""
    known_values = [
        value if is_known else None
        for value, is_known in zip(values.tolist(), known.tolist(), strict=True)
    ]
    blocks: list[list[int | None] | None] = []
    start = 0
    for info in infos:
        block = known_values[start : start + info.width()]
        blocks.append(block if block[0] is not None else None)
        start += len(block)
    mono_ns = max((block[0] or 0 for block in blocks if block), default=0)
    return Frame(seq, time_ns, mono_ns, blocks)
