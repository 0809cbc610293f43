"""A part of a timeline as a recording of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from fabmon.fabric.moment import Moment
from fabmon.fabric.tick import Tick
from fabmon.recording.timeline import Timeline
from fabmon.recording.writer import Writer


def copy(
    timeline: Timeline,
    output: Path,
    from_ns: int,
    until_ns: int,
    moment_of: Callable[[Tick], Moment],
) -> Iterator[int]:
    """Write what lies between two times; the time that has been reached, tick by tick.

    It begins with what was known then. `moment_of` works out what is drawn of each tick. Raises
    FileExistsError, OSError.
    """
    hosts = timeline.hosts
    before = timeline.files[0].sessions[-1]
    session = msgspec.structs.replace(
        before, started_ns=from_ns, interval_s=timeline.interval_s, hosts=tuple(hosts)
    )
    notes = timeline.notes(from_ns, until_ns)
    writer = Writer.create(output, session)
    try:
        for tick in timeline.prime(from_ns):
            writer.write(tick, moment_of(tick))
        for tick in timeline.ticks(from_ns, until_ns):
            due = [note for note in notes if note.time_ns <= tick.time_ns]
            notes = notes[len(due) :]
            writer.write(tick, moment_of(tick), due)
            yield tick.time_ns
    finally:
        writer.close()
