"""A part of a timeline as a recording of its own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
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
from fabmon.recording.format.columns import UInt64Array
from fabmon.recording.format.records import Note
from fabmon.recording.reading.recorded_findings import Told, redacted_note, run_starts
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.writer import Writer


def copy_range(
    timeline: Timeline,
    output: Path,
    from_ns: int,
    until_ns: int,
    moment_of: Callable[[Tick], Snapshot],
    redactor: Redactor | None = None,
) -> Generator[int]:
    """Write what lies between two times; the time that has been reached, tick by tick.

    It begins with what was known then; closed before its end it leaves no file. `moment_of` works
    out what is drawn of each tick. With a `redactor` no name is in it.

    Raises FileExistsError, OSError.
    """
    before = timeline.files[0].sessions[-1]
    session = msgspec.structs.replace(
        before,
        started_ns=from_ns,
        run_ns=from_ns,
        interval_s=timeline.interval_s,
        hosts=tuple(redacted_hosts(timeline, redactor)),
    )
    notes = _notes(timeline, from_ns, until_ns)
    if redactor is not None:
        session = msgspec.structs.replace(session, recorder="", title="")
    change: Callable[[Tick], Tick] = redactor.tick if redactor is not None else _same
    writer = Writer.create(output, session)
    try:
        for known in map(change, timeline.prime(from_ns)):
            for tick in _by_frames(known, timeline.interval_s):
                writer.write(tick, moment_of(tick))
        for tick in map(change, timeline.ticks(from_ns, until_ns)):
            due = [note for note in notes if note.time_ns <= tick.time_ns]
            notes = notes[len(due) :]
            if redactor is not None:
                due = [redacted_note(note, redactor) for note in due]
            writer.write(tick, moment_of(tick), due)
            yield tick.time_ns
        writer.close()
    except BaseException:
        # What was not finished would look like a recording of less than what was asked for.
        with suppress(OSError):
            writer.close()
        output.unlink(missing_ok=True)
        raise


def redacted_hosts(timeline: Timeline, redactor: Redactor | None) -> list[Host]:
    """The nodes that were watched, by the names that are to be told."""
    hosts = timeline.hosts
    return hosts if redactor is None else [redactor.host(host) for host in hosts]


def redacted_topology(topology: Topology | None, redactor: Redactor | None) -> Topology | None:
    """What was given of the cabling, by the names that are to be told."""
    if topology is None or redactor is None:
        return topology
    return redactor.topology(topology)


def _notes(timeline: Timeline, from_ns: int, until_ns: int) -> list[Note]:
    """Notes of one run: what was open at its start opens then, and what another run left open
    closes when that one begins.
    """
    every, runs_ns = timeline.notes(until_ns=until_ns), run_starts(timeline)
    told = Told(every)

    def left_open(at_ns: int, change: str) -> list[Note]:
        return [
            msgspec.structs.replace(note, time_ns=at_ns, change=change)
            for note in told.open_at(runs_ns, at_ns - 1)
        ]

    ends = [run_ns for run_ns in runs_ns if from_ns < run_ns <= until_ns]
    notes = [] if from_ns in runs_ns else left_open(from_ns, "open")
    notes += [note for run_ns in ends for note in left_open(run_ns, "close")]
    notes += [note for note in every if note.time_ns >= from_ns]
    return sorted(notes, key=lambda note: note.time_ns)


def _by_frames(known: Tick, interval_s: float) -> tuple[Tick, Tick]:
    """What a tick tells by the last two reads of all nodes, told by the frames of two ticks."""
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
    """A frame of values, of which some are known; its monotonic clock is its blocks' latest."""
    told = [
        value if is_known else None
        for value, is_known in zip(values.tolist(), known.tolist(), strict=True)
    ]
    blocks: list[list[int | None] | None] = []
    start = 0
    for info in infos:
        block = told[start : start + info.width()]
        blocks.append(block if block[0] is not None else None)
        start += len(block)
    return Frame(seq, time_ns, max((block[0] or 0 for block in blocks if block), default=0), blocks)


def _same(tick: Tick) -> Tick:
    return tick
