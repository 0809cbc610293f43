"""Where a screen can go from now: back through what is recorded of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fabmon.analysis.analyst import Analyst
from fabmon.history.chunk_rates import RateChunkBuilder
from fabmon.history.history import History
from fabmon.recording.format.records import Note
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.recorder import Recorder

if TYPE_CHECKING:
    from fabmon.tui.time.time_keys import Travel


def back_through(
    recorder: Recorder | str,
    history: Callable[[Timeline], History],
    analyst: Callable[[], Analyst],
    rate_chunks: Callable[[], RateChunkBuilder] = RateChunkBuilder,
) -> Travel:
    """Back through what a recorder keeps, by histories, analysts and passages like those of now.

    A text instead of a recorder says why there is none.
    """
    from fabmon.session.recorded_past import RecordedPast
    from fabmon.tui.time.time_keys import Travel

    if isinstance(recorder, str):
        why = recorder
        return Travel(why_not=lambda: why)
    past = RecordedPast(lambda: files_of(recorder), history, analyst, rate_chunks=rate_chunks)

    def keep(note: Note) -> str:
        recorder.note(note)
        return recorder.status.trouble and f"not kept: {recorder.status.trouble}"

    return Travel(
        past=past,
        why_not=lambda: recorder.status.trouble,
        keep_note=keep,
        recording=lambda: recorder.status,
    )


def files_of(recorder: Recorder | str) -> Sequence[Path]:
    """What a recorder has written: its file, a rotation's directory, or nothing."""
    if isinstance(recorder, str):
        return []
    path = recorder.status.path
    return [path.parent] if recorder.rotates else [path]
